"""Sessions in other processes, to be killed, and what must be true of a file after its writer was."""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AbstractContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import orjson
from anyio.abc import UNIXSocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

from agent_session.testing import FakeProvider, RecordedRequest, Step, always, calls, reply
from session_store import CompactionEntry, SessionManager, pairs_ok
from session_store.message_codec import encode_message
from tests.session.scene import SUMMARY
from tests.session.survival_program import Task, digest

ROOT = Path(__file__).parent.parent.parent
KILLED = signal.SIGKILL.value
PATIENCE_SECONDS = 20
"""For what another process does: it has to be started first, on a machine that may be busy."""


def in_time() -> AbstractContextManager[anyio.CancelScope]:
    return anyio.fail_after(PATIENCE_SECONDS)


class Launcher:
    """Starts children, one at a time, from one process that has imported everything."""

    def __init__(self, process: Any, output: UNIXSocketStream) -> None:
        self._process = process
        self._lines = BufferedByteReceiveStream(output)

    @asynccontextmanager
    async def child(self, task: Task) -> AsyncIterator[Child]:
        """The child with this task; killed at the end of the block, if it is still there."""
        await self._process.stdin.send(task.line())
        child = Child(self._lines)
        with in_time():
            child.pid = int(await child.heard("started"))
        try:
            yield child
        finally:
            child.kill()
            with anyio.CancelScope(shield=True), in_time():
                await child.ended()


@dataclass
class Child:
    """What one child said so far; `heard` and `ended` read on."""

    _lines: BufferedByteReceiveStream
    pid: int = 0
    status: int | None = None
    said: list[tuple[str, str]] = field(default_factory=list)

    @property
    def announced(self) -> list[str]:
        """Ids of the entries it was told of."""
        return self.all("entry")

    def all(self, word: str) -> list[str]:
        return [rest for first, rest in self.said if first == word]

    async def heard(self, word: str) -> str:
        """Read on until a line that begins with this word: the rest of it.

        Raises:
            AssertionError: the child ended before it said so.
        """
        while self.status is None:
            first, rest = await self._next()
            if first == word:
                return rest
        raise AssertionError(f"the child ended with {self.status} and never said {word!r}: {self.said[-5:]}")

    async def until(self, condition: Callable[[], bool]) -> None:
        """Read on until the condition holds."""
        while not condition():
            assert self.status is None, f"the child ended with {self.status}: {self.said[-5:]}"
            await self._next()

    async def ended(self) -> int:
        """Read on until the child is gone; its status, as `waitpid` gives it."""
        while self.status is None:
            await self._next()
        return self.status

    def kill(self) -> None:
        if self.status is None:
            # It may be gone, and that line not read yet.
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    async def _next(self) -> tuple[str, str]:
        line = await self._lines.receive_until(b"\n", 65_536)
        first, _, rest = line.decode().partition(" ")
        self.said.append((first, rest))
        if first == "ended":
            self.status = int(rest)
        return first, rest


@asynccontextmanager
async def launcher() -> AsyncIterator[Launcher]:
    command = [sys.executable, "-m", "tests.session.survival_program"]
    ours, theirs = socket.socketpair()
    async with (
        await UNIXSocketStream.from_socket(ours) as output,
        await anyio.open_process(command, cwd=ROOT, stdout=theirs.fileno(), stderr=None) as process,
    ):
        theirs.close()
        try:
            yield Launcher(process, output)
        finally:
            with anyio.CancelScope(shield=True):
                assert process.stdin is not None
                await process.stdin.aclose()
                with in_time():
                    await process.wait()


def provider(steps: Iterable[Step] | None = None, *, summaries: Iterable[Step] | None = None) -> FakeProvider:
    """By default one that answers whatever comes: a question with two calls, their results with text."""
    return FakeProvider(
        [always(answer_or_call)] if steps is None else steps,
        summaries=[always(reply(SUMMARY))] if summaries is None else summaries,
    )


def answer_or_call(request: RecordedRequest) -> Step:
    if request.messages[-1]["role"] == "tool":
        return reply("answer " + "word " * 40, chunks=4)
    return calls([("look", {"at": "a"}), ("look", {"at": "b"})])


def new_session(folder: Path) -> Path:
    """A session file with nothing but its header."""
    with SessionManager.create(folder, session_dir=folder / "sessions") as manager:
        assert manager.path is not None
        return manager.path


def whole_lines(path: Path) -> bytes:
    """The file without what stands behind its last newline."""
    data = path.read_bytes()
    return data[: data.rfind(b"\n") + 1]


def entries_of(path: Path) -> list[dict[str, Any]]:
    """The whole lines of the file but its header, each of them parsed: a line that is none is an error."""
    return [orjson.loads(line) for line in whole_lines(path).splitlines()[1:]]


def context_of(path: Path) -> str:
    """The digest of the context, as somebody who only reads the file sees it; nothing is changed by looking."""
    before = path.read_bytes()
    with SessionManager.open(path, read_only=True) as manager:
        context = digest(manager.build_messages())
    assert path.read_bytes() == before
    return context


def said_in(path: Path) -> list[Any]:
    """The context without its times: what two sessions say alike."""
    with SessionManager.open(path, read_only=True) as manager:
        messages = [encode_message(message) for message in manager.build_messages()]
    return [{key: value for key, value in message.items() if key != "timestamp"} for message in messages]


def check_survived(path: Path, announced: Iterable[str]) -> None:
    """What holds after any kill: announced is stored, compactions are whole, the file opens for a writer, the context
    is a valid request, and it is the same for readers and writers."""
    entries = entries_of(path)
    assert set(announced) <= {entry["id"] for entry in entries}
    present = context_of(path)
    before = whole_lines(path)
    torn = path.read_bytes()[len(before) :]
    with SessionManager.open(path) as manager:
        assert {record.kind for record in manager.damage.records} <= {"orphan_edit"}
        assert digest(manager.build_messages()) == present
        assert pairs_ok(manager.build_messages())
        ids = [entry.id for entry in manager]
        assert len(set(ids)) == len(ids)
        for number, entry in enumerate(manager):
            if isinstance(entry, CompactionEntry):
                assert entry.summary.startswith("## Goal")
                assert entry.checkpoint is not None
                assert entry.first_kept_entry_id in ids[:number]
    assert path.read_bytes() == before
    if torn:
        assert path.with_name(path.name + ".damaged").read_bytes().endswith(torn)
