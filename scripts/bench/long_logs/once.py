"""One measurement of one log, in a process of its own, so that nothing measured before is in its memory.

    python -m scripts.bench.long_logs.once NAME PATH

Prints one JSON object: `ms`, `cpu_ms` (the processor's part of that), `mb` (megabytes that were added at the worst
moment) and what else the measurement says. What writes works on a copy beside the file.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any, Final

from agent_session.compaction.tokens import TokenLedger
from agent_session.compaction.trigger import budget_for, is_over, measure
from agent_session.models import Model
from agent_session.settings import CompactionSettings
from session_store import ProjectedMessage, SessionManager
from session_store.jsonl_log import JsonlLog
from session_store.messages import (
    AssistantMessage,
    Message,
    TextContent,
    ToolCall,
    ToolResultMessage,
    Usage,
    UserMessage,
)
from session_store.reading import SessionReader
from session_store.tree import EntryTree

Said = dict[str, Any]

_TURNS: Final = 40
_APPENDS: Final = 1_000
_SYNCS: Final = 60
_TEXT: Final = "the caller keeps reading until nothing is left of it, and then some more of the same again " * 36
_MODEL: Final = Model("acme/large-1", context_window=400_000)
_MEGABYTE: Final = 1 << 20


def raw_read(path: Path) -> Said:
    with path.open("rb", buffering=0) as file:
        clock = _Clock()
        while file.read(_MEGABYTE):
            pass
        return clock.read()


def resume(path: Path) -> Said:
    """To the first context; what that says is part of the answer."""
    clock, before = _Clock(), _resident()
    with SessionManager.open(path) as manager:
        context = manager.build_context()
        found = {**clock.read(), "mb": _peak() - before, "messages": len(context)}
        return {**found, "said": _said([item.message for item in context])}


def whole(path: Path) -> Said:
    """The context of the same log with every line of it parsed."""
    clock, before = _Clock(), _resident()
    log = JsonlLog.open(path, read_only=True)
    loaded = log.load()
    log.close()
    context = SessionReader(EntryTree(loaded.entries)).build_messages()
    return {**clock.read(), "mb": _peak() - before, "said": _said(context)}


def index(path: Path) -> Said:
    """Where every entry is and what it hangs on."""
    with SessionManager.open(path, read_only=True) as manager:
        clock, before = _Clock(), _resident()
        is_there = "an id that is nowhere" in manager
        return {**clock.read(), "mb": _peak() - before, "is_there": is_there}


def totals(path: Path) -> Said:
    with SessionManager.open(path, read_only=True) as manager:
        clock, before = _Clock(), _resident()
        requests = manager.totals.all.requests
        return {**clock.read(), "mb": _peak() - before, "requests": requests, "entries": len(manager)}


def turn(path: Path) -> Said:
    """Three entries, the next context, the check of the threshold; then a compaction, prepared and written."""
    with _copy_of(path) as copy, SessionManager.open(copy) as manager:
        manager.build_context()
        budget = budget_for(_MODEL, CompactionSettings(), "off", overhead=2_000)
        ledger = TokenLedger()
        measure(manager.build_context(), manager.projection, _MODEL, overhead=2_000, ledger=ledger)
        spent: list[Said] = []
        context: list[ProjectedMessage] = []
        for number in range(_TURNS):
            messages = _turn(number)
            clock = _Clock()
            for message in messages:
                manager.append_message(message)
            context = manager.build_context()
            measurement = measure(context, manager.projection, _MODEL, overhead=2_000, ledger=ledger)
            is_full = is_over(measurement, budget)
            spent.append(clock.read())
            if is_full:
                raise RuntimeError("the window of the measurement is too small for its turns")
        asked = [item.entry.id for item in context if isinstance(item.message, UserMessage)]
        clock = _Clock()
        manager.append_compaction("summary " * 500, asked[-2], 100_000)
        return {**_middle(spent), "compaction": clock.read(), "messages": len(context)}


def append(path: Path) -> Said:
    """One entry of 3.4 KB, written and not synced; and as many bytes alone, written to another file."""
    ours: list[Said] = []
    bare: list[Said] = []
    beside = path.with_name("bare.bin")
    data = b"x" * (len(_TEXT) + 250)
    with _copy_of(path) as copy, SessionManager.open(copy) as manager, beside.open("wb", buffering=0) as file:
        manager.build_context()
        for _ in range(_APPENDS):
            message = UserMessage(content=(TextContent(_TEXT),), timestamp=1)
            clock = _Clock()
            manager.append_message(message)
            ours.append(clock.read())
            clock = _Clock()
            file.write(data)
            bare.append(clock.read())
    beside.unlink()
    return {**_middle(ours), "bare": _middle(bare)}


def durable_turn(path: Path) -> Said:
    """Three entries and a sync; and the same bytes with one `write` and one `fdatasync`, in turns."""
    ours: list[Said] = []
    bare: list[Said] = []
    beside = path.with_name("bare.bin")
    with _copy_of(path) as copy, SessionManager.open(copy) as manager, beside.open("wb", buffering=0) as file:
        for number in range(_SYNCS):
            messages = _turn(number)
            size = copy.stat().st_size
            clock = _Clock()
            for message in messages:
                manager.append_message(message)
            manager.sync()
            ours.append(clock.read())
            data = b"x" * (copy.stat().st_size - size)
            clock = _Clock()
            file.write(data)
            os.fdatasync(file.fileno())
            bare.append(clock.read())
    beside.unlink()
    return {**_middle(ours), "bare": _middle(bare)}


def fork(path: Path) -> Said:
    clock, before = _Clock(), _resident()
    with SessionManager.fork_from(path, session_dir=path.parent / "forks") as forked:
        forked.build_context()
        found = {**clock.read(), "mb": _peak() - before}
    shutil.rmtree(path.parent / "forks")
    return found


def listing(path: Path) -> Said:
    """All sessions under a folder; then once more."""
    clock = _Clock()
    rows = len(SessionManager.list_all(session_dir=path))
    first = clock.read()
    clock = _Clock()
    SessionManager.list_all(session_dir=path)
    return {**first, "again": clock.read(), "rows": rows}


MEASUREMENTS: Final[dict[str, Callable[[Path], Said]]] = {
    measurement.__name__: measurement
    for measurement in (raw_read, resume, whole, index, totals, turn, append, durable_turn, fork, listing)
}


def _turn(number: int) -> list[Message]:
    call = ToolCall(f"call_{number}", "read", {"path": "src/store/index.py"})
    usage = Usage(input=900, output=80, cache_read=40_000)
    return [
        UserMessage(content=(TextContent(f"{number}: {_TEXT[:300]}"),), timestamp=1),
        AssistantMessage(
            content=(TextContent(_TEXT[:900]), call),
            provider="acme",
            model="large-1",
            usage=usage,
            stop_reason="toolUse",
        ),
        ToolResultMessage(tool_call_id=call.id, tool_name="read", content=(TextContent(_TEXT),), timestamp=1),
    ]


def _said(messages: list[Message]) -> list[tuple[str, str, list[str]]]:
    """Role, text and call ids of each message."""
    return [
        (
            type(message).__name__,
            str(getattr(message, "text", getattr(message, "summary", ""))),
            [call.id for call in getattr(message, "tool_calls", ())] + [str(getattr(message, "tool_call_id", ""))],
        )
        for message in messages
    ]


@contextmanager
def _copy_of(path: Path) -> Iterator[Path]:
    copy = path.with_name(f"copy-of-{path.name}")
    shutil.copyfile(path, copy)
    try:
        yield copy
    finally:
        copy.unlink()


class _Clock:
    """Runs from when it was made."""

    def __init__(self) -> None:
        self._wall = time.perf_counter()
        self._cpu = time.process_time()

    def read(self) -> Said:
        return {"ms": (time.perf_counter() - self._wall) * 1_000, "cpu_ms": (time.process_time() - self._cpu) * 1_000}


def _middle(readings: list[Said]) -> Said:
    return {name: median(reading[name] for reading in readings) for name in ("ms", "cpu_ms")}


def _resident() -> float:
    return _status("VmRSS")


def _peak() -> float:
    return _status("VmHWM")


def _status(name: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) / 1024


if __name__ == "__main__":
    json.dump(MEASUREMENTS[sys.argv[1]](Path(sys.argv[2])), sys.stdout)
