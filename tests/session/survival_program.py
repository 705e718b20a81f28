"""The process that the tests kill: `python -m tests.session.survival_program`.

Each line of its input is a JSON task. For each a child is forked from this process, which has imported everything
once and has no thread, and the child works on the session file until it has done what the task says, or is dead. All
of them write to one pipe, a line each, in the order in which it happened:

    started <pid>                          the child is there
    created <path>                         it made the session's file
    resumed <digest of the context>        the session is open, nothing was asked yet
    entry <id>, compaction <status>        told by the session
    tool <name>                            a tool has begun
    context <digest>, file <path>          after a verb
    raised <class>: <text>                 what a verb raised that it may raise
    ended <status>                         the child is gone; the status is `waitpid`'s
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import signal
import socket
import stat
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import anyio
import httpx
import orjson
from pydantic import TypeAdapter

from agent_session import (
    AgentSession,
    AgentSessionError,
    CompactionEnd,
    EntryAppended,
    Event,
    Model,
    OpenAICompatibleClient,
    Settings,
    tool,
)
from session_store import Message, SessionManager
from session_store.errors import SessionStoreError
from session_store.message_codec import encode_message

Moment: TypeAlias = Literal["before", "within", "after"]

RAISED = 3
"""The exit status of a child that ended with an error it may end with."""

WINDOW = 1_200
COMPACTION = {"reserve_tokens": 100, "keep_recent_tokens": 200}


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What a child does: open `path`, or make a session in it where it is a folder, then the verbs in order.

    `verbs`: "prompt", "compact"; "wait" does nothing, "forever" prompts and compacts, until somebody kills it.
    `dies_told`: it kills itself while it is told of the entry with this number, counted from 1; 0: it does not.
    `dies_writing`: the same in the moment of the write with this number.
    `shortens`: the write with this number takes half of what it was given; `refuses_rest`: and then no more, once.
    `is_held`: it stops itself before it does anything, so that somebody can attach to it and let it go on.
    """

    path: str
    url: str
    verbs: Sequence[str] = ("forever",)
    dies_told: int = 0
    dies_writing: int = 0
    moment: Moment = "within"
    shortens: int = 0
    refuses_rest: bool = False
    is_held: bool = False
    window: int = WINDOW

    def line(self) -> bytes:
        return orjson.dumps(asdict(self)) + b"\n"


def digest(messages: Sequence[Message]) -> str:
    """Of all that a context says: equal for equal contexts only."""
    return hashlib.sha256(orjson.dumps([encode_message(message) for message in messages])).hexdigest()


_write = os.write


def say(*words: object) -> None:
    """Over a socket where there is one, so that no `write` of the process is about anything but its work."""
    line = " ".join(map(str, words)).encode() + b"\n"
    if stat.S_ISSOCK(os.fstat(1).st_mode):
        with socket.socket(fileno=os.dup(1)) as output:
            output.sendall(line)
    else:
        _write(1, line)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die_at_write(number: int, moment: str) -> None:
    """From now on the `number`-th write of a line of a session is the last thing this process does."""
    count = 0

    def deadly_write(fd: int, data: Any) -> int:
        nonlocal count
        if bytes(data[:9]) != b'{"type":"':
            return _write(fd, data)
        count += 1
        if count == number:
            if moment == "within":
                _write(fd, data[: len(data) // 2])
            elif moment == "after":
                _write(fd, data)
            die()
        return _write(fd, data)

    os.write = deadly_write


def shorten_write(number: int, *, refuses_rest: bool) -> None:
    """The `number`-th write of a line of a session takes half of it, as a disk may that is almost full."""
    count = 0
    is_rest_refused = False

    def short_write(fd: int, data: Any) -> int:
        nonlocal count, is_rest_refused
        is_line = bytes(data[:9]) == b'{"type":"'
        count += is_line
        if is_line and count == number:
            is_rest_refused = refuses_rest
            return _write(fd, data[: len(data) // 2])
        if is_rest_refused:
            is_rest_refused = False
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return _write(fd, data)

    os.write = short_write


@tool
async def look(at: str) -> str:
    """Look at something."""
    say("tool", "look")
    return f"seen {at} " + "word " * 30


@tool
async def flood(at: str) -> str:
    """Say more than fits a line of the log."""
    say("tool", "flood")
    return f"{at} " + "word " * 70_000


@tool
async def linger(at: str) -> str:
    """Look at something for a very long time."""
    say("tool", "linger")
    await anyio.sleep_forever()
    return at


def listener(last: int) -> Callable[[Event], None]:
    """Says what it is told, and dies while it is told of entry number `last`."""
    told = 0

    def tell(event: Event) -> None:
        nonlocal told
        if isinstance(event, EntryAppended):
            told += 1
            say("entry", event.entry.id)
            if told == last:
                die()
        elif isinstance(event, CompactionEnd):
            say("compaction", event.outcome.status)

    return tell


def log_of(path: Path) -> SessionManager:
    if not path.is_dir():
        return SessionManager.open(path)
    manager = SessionManager.create(path, session_dir=path)
    say("created", manager.path)
    return manager


async def work(task: Task, http_client: httpx.AsyncClient) -> None:
    session = AgentSession(
        Model("openai/scripted", context_window=task.window),
        session_manager=log_of(Path(task.path)),
        client=OpenAICompatibleClient(task.url, "key", http_client=http_client),
        tools=[look, flood, linger],
        system_prompt="Answer.",
        settings=Settings().merged({"compaction": COMPACTION, "retry": {"base_delay_seconds": 0.0}}),
    )
    session.subscribe(listener(task.dies_told))
    async with session:
        say("resumed", digest(session.messages))
        if task.dies_writing:
            die_at_write(task.dies_writing, task.moment)
        if task.shortens:
            shorten_write(task.shortens, refuses_rest=task.refuses_rest)
        for verb in task.verbs:
            await do(session, verb)
            say("context", digest(session.messages))
            say("file", session.path)
    await http_client.aclose()


async def do(session: AgentSession, verb: str) -> None:
    match verb:
        case "prompt":
            await session.prompt("question " + "word " * 30)
        case "compact":
            await session.compact()
        case "wait":
            await anyio.sleep_forever()
        case "forever":
            while True:
                for _ in range(3):
                    await do(session, "prompt")
                await do(session, "compact")
        case _:
            raise ValueError(verb)


def main() -> None:
    # Most of a child's time would go into this: reading certificates that nobody here asks for.
    http_client = httpx.AsyncClient(trust_env=False)
    # Modules that are imported in the middle of a session would be among the files that it opens.
    anyio.run(anyio.sleep, 0)
    TypeAdapter(str)
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            status = 1
            try:
                say("started", os.getpid())
                task = Task(**orjson.loads(line))
                if task.is_held:
                    os.kill(os.getpid(), signal.SIGSTOP)
                asyncio.run(work(task, http_client))
                status = 0
            except (AgentSessionError, SessionStoreError) as error:
                say("raised", f"{type(error).__name__}:", error)
                status = RAISED
            except Exception:  # noqa: BLE001 - whatever it is, the test sees it in the output and in the status
                traceback.print_exc()
            finally:
                # Never back into the loop, which is the parent's.
                os._exit(status)
        _, status = os.waitpid(child, 0)
        say("ended", status)


if __name__ == "__main__":
    main()
