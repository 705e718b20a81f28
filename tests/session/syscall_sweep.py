"""Every system call by which a session touches the disk fails once, or is the last one: `scripts/syscall_sweep`.

Two sessions run in a process of their own under `strace`: a new one of three turns with one compaction and a text too
long for the log, and one that goes on where a kill had left a part of a line. First each is only watched, so that its
calls are known; then it runs again for each call of each kind and each fault: killed when it enters the call, or the
call refused for want of space or with an input/output error. A write that takes half of what it was given is no fault
that `strace` has, so the program does that itself, with the real call; the rest is taken, or refused.

What must hold after each: everything that was announced, or was there before, is in the file, no line of it is torn but
by a kill, it opens for reading and writing, its context is a valid request, and a process that was not killed ended
well or with an error that a caller may expect.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Final, Literal, TypeAlias

import anyio
import anyio.lowlevel
from rich.console import Console
from rich.table import Table

from agent_session.testing import RecordedRequest, Step, always, calls, reply
from session_store import SessionManager, UserMessage
from session_store.messages import as_content
from tests.session.children import (
    KILLED,
    Child,
    Launcher,
    check_survived,
    context_of,
    in_time,
    launcher,
    provider,
)
from tests.session.survival_program import RAISED, Task

Fault: TypeAlias = Literal["kill", "ENOSPC", "EIO", "half", "half, ENOSPC"]

FAULTS: Final[tuple[Fault, ...]] = ("kill", "ENOSPC", "EIO", "half", "half, ENOSPC")

_INJECTED: Final[dict[Fault, str]] = {"kill": "signal=KILL", "ENOSPC": "error=ENOSPC", "EIO": "error=EIO"}
_CALLS: Final = "p?writev?(64)?|f(data)?sync|openat|rename(at2?)?|link(at)?|unlink(at)?|f?truncate|flock|mkdir(at)?"
_CALLED: Final = re.compile(r"^(\d+) +(\w+)\(", re.MULTILINE)
_WINDOW: Final = 100_000


@dataclass(kw_only=True)
class Row:
    """What became of the session for one kind of call and one fault, over all its calls.

    `lost` and `torn` name the runs that broke a promise; `unexpected` those that ended in a way nobody may expect.
    """

    session: str
    call: str
    fault: Fault
    runs: int = 0
    announced: int = 0
    ended: Counter[str] = field(default_factory=Counter)
    lost: list[str] = field(default_factory=list)
    torn: list[str] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)

    @property
    def failures(self) -> list[str]:
        kinds = {"lost": self.lost, "torn": self.torn, "unexpected": self.unexpected}
        return [
            f"{self.session} {self.call} {self.fault} {kind}: {text}" for kind, texts in kinds.items() for text in texts
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """What is run: `prepare` makes what it finds, and gives the path it opens."""

    name: str
    verbs: tuple[str, ...]
    prepare: Callable[[Path], Path]
    calls: frozenset[str]
    """It makes these at least, or it is not what it is meant to be."""


def _torn(folder: Path) -> Path:
    """A session whose writer was killed in the middle of a line."""
    with SessionManager.create(folder, session_dir=folder) as manager:
        manager.append_message(UserMessage(content=as_content("question")))
        path = manager.path
    assert path is not None
    with path.open("ab") as file:
        file.write(b'{"type":"message","id":"0123')
    return path


SESSIONS: Final = (
    Session(
        name="new",
        verbs=("prompt", "prompt", "compact", "prompt"),
        prepare=lambda folder: folder,
        calls=frozenset({"write", "fdatasync", "openat", "rename", "flock", "mkdir"}),
    ),
    Session(
        name="torn",
        verbs=("prompt",),
        prepare=_torn,
        calls=frozenset({"write", "fdatasync", "fsync", "openat", "ftruncate"}),
    ),
)


async def sweep(folder: Path, *, sessions: Iterable[Session] = SESSIONS, faults: Iterable[Fault] = FAULTS) -> list[Row]:
    """All rows; `folder` is where the sessions are made."""
    rows = []
    async with provider([always(_answer)]) as serving, launcher() as start:
        for session in sessions:
            task = Task(path="", url=serving.base_url, verbs=session.verbs, window=_WINDOW, is_held=True)
            runner = _Runner(start, session, task, folder / session.name)
            known = await runner.watch()
            for fault, (call, count) in product(faults, sorted(known.items())):
                if fault in _INJECTED or call == "write":
                    rows.append(row := Row(session=session.name, call=call, fault=fault))
                    for number in range(1, count + 1):
                        await runner.run(row, number)
    return rows


def _answer(request: RecordedRequest) -> Step:
    if request.messages[-1]["role"] == "tool":
        return reply("answer " + "word " * 40, chunks=4)
    return calls([("look", {"at": "a"}), ("flood", {"at": "b"})])


class _Runner:
    def __init__(self, start: Launcher, session: Session, task: Task, folder: Path) -> None:
        self._start = start
        self._session = session
        self._task = task
        self._folder = folder
        self._count = 0
        self._before = b""  # what the file has when the session begins

    async def watch(self) -> dict[str, int]:
        """How often each call is made by one thread while nothing fails; `strace` counts for each of them."""
        log = self._folder / "calls.txt"
        child, _ = await self._traced(log, f"trace=/^({_CALLS})$")
        assert child.status == 0, child.said[-5:]
        known: dict[str, int] = {}
        for (_, call), count in Counter(_CALLED.findall(log.read_text())).items():
            known[call] = max(count, known.get(call, 0))
        assert self._session.calls <= set(known), known
        return known

    async def run(self, row: Row, number: int) -> None:
        """The session with the fault at the call with this number, and what is true of its file afterwards."""
        if row.fault in _INJECTED:
            injected = f"inject={row.call}:{_INJECTED[row.fault]}:when={number}"
            child, path = await self._traced(Path(os.devnull), f"trace={row.call}", injected)
        else:
            child, path = await self._alone(number, refuses_rest=row.fault != "half")
        row.runs += 1
        row.announced += len(child.announced)
        ended = "killed" if child.status == KILLED else "raised" if child.all("raised") else "well"
        row.ended[ended] += 1
        where = f"number {number}"
        if child.status not in ({KILLED} if row.fault == "kill" else {0, RAISED << 8}):
            row.unexpected.append(f"{where} ended with {child.status}: {child.said[-3:]}")
        created = child.all("created")
        if path.is_file() or created:
            self._judge(row, where, child, path if path.is_file() else Path(created[0]))
        elif child.announced:
            row.lost.append(f"{where}: there is no file")

    def _judge(self, row: Row, where: str, child: Child, path: Path) -> None:
        found = path.read_bytes()
        if row.fault != "kill" and not found.endswith(b"\n") and found != self._before:
            row.torn.append(where)
        try:
            whole, newline, part = self._before.rpartition(b"\n")
            assert found.startswith(whole + newline), "what was there before is gone"
            aside = path.with_name(path.name + ".damaged")
            assert found.endswith(part) or aside.read_bytes().endswith(part), "the part of a line is gone"
            check_survived(path, child.announced)
            if child.status == 0:
                assert child.all("context")[-1] == context_of(path), "the file does not say what the session said"
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the finding
            row.lost.append(f"{where}: {type(error).__name__} {str(error)[:300]}")

    async def _alone(self, number: int, *, refuses_rest: bool) -> tuple[Child, Path]:
        path = self._prepared()
        task = replace(self._task, path=str(path), is_held=False, shortens=number, refuses_rest=refuses_rest)
        async with self._start.child(task) as child:
            with in_time():
                await child.ended()
        return child, path

    async def _traced(self, log: Path, *expressions: str) -> tuple[Child, Path]:
        path = self._prepared()
        options = [option for expression in expressions for option in ("-e", expression)]
        async with self._start.child(replace(self._task, path=str(path))) as child:
            with in_time():
                await _until(child.pid, lambda status: "\nState:\tT" in status)
                command = ["strace", "-f", "-qq", "-p", str(child.pid), "-o", str(log), *options]
                async with await anyio.open_process(command, stdin=None, stdout=None, stderr=None) as tracer:
                    await _until(child.pid, lambda status: "\nTracerPid:\t0" not in status)
                    os.kill(child.pid, signal.SIGCONT)
                    await child.ended()
                    await tracer.wait()
        return child, path

    def _prepared(self) -> Path:
        self._count += 1
        folder = self._folder / str(self._count)
        folder.mkdir(parents=True)
        path = self._session.prepare(folder)
        self._before = path.read_bytes() if path.is_file() else b""
        return path


async def _until(pid: int, condition: Callable[[str], bool]) -> None:
    status = anyio.Path(f"/proc/{pid}/status")
    while not condition(await status.read_text()):  # nobody tells of it: that is all there is to wait for
        await anyio.lowlevel.checkpoint()


def shown(rows: Sequence[Row]) -> Table:
    """A line for each kind of call and each fault."""
    table = Table(title="every call once", header_style="bold")
    for heading in ("session", "call", "fault"):
        table.add_column(heading)
    for heading in ("runs", "entries announced", "lost", "torn", "unexpected"):
        table.add_column(heading, justify="right")
    table.add_column("ended")
    for row in rows:
        counts = (row.runs, row.announced, len(row.lost), len(row.torn), len(row.unexpected))
        ended = ", ".join(f"{how} {count}" for how, count in sorted(row.ended.items()))
        table.add_row(row.session, row.call, row.fault, *map(str, counts), ended)
    return table


def main() -> int:
    if shutil.which("strace") is None:
        sys.stderr.write("no strace: `apt-get install strace`, or what your system has instead\n")
        return 2
    with tempfile.TemporaryDirectory(prefix="syscall-sweep-") as folder:
        rows = anyio.run(sweep, Path(folder))
    console = Console()
    console.print(shown(rows))
    failures = [failure for row in rows for failure in row.failures]
    console.print("\n".join(failures) or "0 announced entries lost, 0 torn files", highlight=False, markup=False)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
