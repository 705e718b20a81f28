"""A session on a disk that is full for a while, or for ever: `python -m tests.session.full_disk_program <file> <way>`.

The limit is the system's own for the size of a file, so that a real `write` takes a part of a line and refuses the
rest. Prints what happened as one JSON object.
"""

from __future__ import annotations

import asyncio
import resource
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import orjson

from agent_session import AgentSession, EntryAppended, Event, Model, SessionWriteError, Warning, tool
from agent_session.testing import ScriptedModel, call, pairs_ok, reply
from session_store import SessionManager

TAKES_BYTES = 40
"""What the disk still takes when it is called full: the beginning of a line."""


@tool
async def look(at: str) -> str:
    """Look at something."""
    return f"seen {at}"


def limit(size: int | None) -> None:
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard if size is None else size, hard))


def size_of(path: Path) -> int:
    return path.stat().st_size


async def main(path: Path, way: str) -> dict[str, Any]:
    events: list[Event] = []
    model = ScriptedModel([reply("one"), call("look", at="a"), reply("two"), reply("three")])
    manager = SessionManager.open(path)
    session = AgentSession(
        Model("scripted/model", context_window=100_000), session_manager=manager, client=model, tools=[look]
    )
    session.subscribe(events.append)
    report: dict[str, Any] = {}
    await session.start()
    await session.prompt("first")

    def told() -> list[str]:
        return [event.entry.id for event in events if isinstance(event, EntryAppended)]

    def warnings() -> list[str]:
        return [event.text for event in events if isinstance(event, Warning)]

    size = size_of(path)
    limit(size + TAKES_BYTES)
    before = told()
    report["answer"] = str(await session.prompt("second"))
    report["told while full"] = len(told()) - len(before)
    report["grew while full"] = size_of(path) - size
    report["warnings"] = warnings()
    report["pending"] = manager.pending
    report["messages"] = len(session.messages)
    report["is valid"] = pairs_ok(session.messages)
    if way == "for a while":
        limit(None)
        report["answer after"] = str(await session.prompt("third"))
        report["pending after"] = manager.pending
        report["told"] = told()
        report["events"] = dict(Counter(event.name for event in events))
    try:
        await session.close()
        report["close"] = "ok"
    except SessionWriteError as error:
        report["close"] = error.pending
    limit(None)
    report["all warnings"] = warnings()
    return report


if __name__ == "__main__":
    print(orjson.dumps(asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))).decode())  # noqa: T201 - its only output
