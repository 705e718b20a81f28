"""Killing a process in the middle of a compaction, for real, at a moment that is known.

The provider holds the summary back, so the process cannot be further than its request; SIGKILL leaves it no last word.
The child is `doomed`; whatever happens here, it does not outlive the call.
"""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
import orjson
from anyio.abc import Process
from anyio.streams.text import TextReceiveStream

from agent_session.events import CompactionStart
from agent_session.testing import Held

CHILD_SECONDS = 12.0
"""Until the child waits for its summary. Starting Python takes most of it."""


class DemonstrationError(Exception):
    """Something did not come to the point where it could be shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """A process that was killed, and what it left. Sizes are bytes.

    `start` is the compaction's own event, as the process told it. `signal` is what it died of, None where it ended by
    itself. `is_same_file`: the session's file has the bytes of before, no more and no fewer.
    """

    pid: int
    signal: int | None
    start: CompactionStart
    size_before: int
    size_after: int
    is_same_file: bool


async def kill_while_compacting(path: Path, project: Path, base_url: str, instructions: str, held: Held) -> Kill:
    """Let another process compact the session in `path`, and kill it when the provider holds its summary.

    Raises:
        DemonstrationError: it did not come so far.
    """
    size_before, digest_before = _size_and_digest(path)
    async with _child(str(path), str(project), base_url, instructions) as child:
        try:
            with anyio.fail_after(CHILD_SECONDS):
                start = await _compaction_start(child)
                await held.started.wait()
        except TimeoutError:
            raise DemonstrationError(f"no compaction in another process within {CHILD_SECONDS:g} seconds") from None
        os.kill(child.pid, signal.SIGKILL)
        status = await child.wait()
    size_after, digest_after = _size_and_digest(path)
    return Kill(
        pid=child.pid,
        signal=-status if status < 0 else None,
        start=start,
        size_before=size_before,
        size_after=size_after,
        is_same_file=digest_before == digest_after,
    )


@asynccontextmanager
async def _child(*arguments: str) -> AsyncIterator[Process]:
    command = [sys.executable, "-m", "agent_session.demo.doomed", *arguments]
    # In a session of its own: Ctrl-C is for the parent, which then ends the child.
    child = await anyio.open_process(command, stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        yield child
    finally:
        if child.returncode is None:
            child.kill()
        with anyio.CancelScope(shield=True):
            await child.aclose()


async def _compaction_start(child: Process) -> CompactionStart:
    """The event that the child prints as its first line."""
    assert child.stdout is not None
    assert child.stderr is not None
    printed = ""
    async for text in TextReceiveStream(child.stdout):
        printed += text
        if "\n" in printed:
            return CompactionStart(**orjson.loads(printed.partition("\n")[0]))
    complaint = "".join([text async for text in TextReceiveStream(child.stderr)]).strip()
    raise DemonstrationError(f"the process that was to be killed ended by itself: {complaint or 'it said nothing'}")


def _size_and_digest(path: Path) -> tuple[int, str]:
    data = path.read_bytes()
    return len(data), hashlib.sha256(data).hexdigest()
