"""Running a shell command, whoever asks: a tool, or the user.

The rule: when `run_command` is left early, by its time limit or by cancellation, nothing that the command
started is left running, not a grandchild that ignores SIGTERM, holds the pipe or moved to a session of its
own. When the command ends by itself, what it put into the background is left alone and said to be there.
"""

from __future__ import annotations

import codecs
import os
import secrets
import signal
import subprocess
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import monotonic

import anyio
import anyio.lowlevel
import anyio.to_thread
from anyio.abc import Process

READ_BYTES = 64 * 1024
"""What a pipe holds at most."""

DRAIN_SECONDS = 0.25
"""How long a command that ended is still listened to through a pipe that its background processes hold."""

TERMINATE_SECONDS = 0.5
"""From SIGTERM to SIGKILL."""

KILL_SECONDS = 2.0
"""How long processes that were sent SIGKILL are waited for; one in an uninterruptible system call stays longer."""

POLL_SECONDS = 0.02

KEPT_HEAD_BYTES = 32 * 1024 * 1024
KEPT_TAIL_BYTES = 1024 * 1024
"""Of more output than both together the middle is not kept: a command may print without end."""

_PROCESSES = Path("/proc")

_MARK = "AGENT_SESSION_COMMAND"
"""In the environment of all that a command starts; a command inside a command adds its mark to the outer one's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandOutcome:
    """How a command ended. `exit_code` is negative for a signal, None when it was killed for its time limit.

    `output` is stdout and stderr in the order they were written. `is_in_background`: processes of it live on
    and hold its output. `duration` is seconds.
    """

    output: str
    exit_code: int | None
    is_timed_out: bool = False
    is_in_background: bool = False
    duration: float = 0.0


async def run_command(
    command: str,
    *,
    cwd: Path,
    timeout_seconds: float | None = None,
    on_output: Callable[[str], None] | None = None,
) -> CommandOutcome:
    """Run it in bash (or sh, where there is no bash) with an empty stdin, in a process group of its own.

    `on_output` is called in the event loop with each piece of output as it comes.

    Raises:
        OSError: it could not be started: the folder is not there, or the command is too long.
        ValueError: the command holds a null byte.
    """
    began = monotonic()
    mark = secrets.token_hex(16)
    output = _Output(on_output)
    read_end, write_end = os.pipe()
    try:
        os.set_blocking(read_end, False)
        try:
            # Shielded: a start that is cancelled half way could leave a process that nobody knows.
            with anyio.CancelScope(shield=True):
                process = await _start(command, cwd, write_end, mark)
        finally:
            os.close(write_end)
        has_ended = False
        is_held = False
        try:
            with anyio.move_on_after(timeout_seconds):
                is_held = await _until_exit(process, read_end, output)
                has_ended = True
        finally:
            if not has_ended:
                with anyio.CancelScope(shield=True):
                    await _kill_all(process, mark)
        if not has_ended:
            output.add(_read(read_end) or b"")  # one read takes all that a pipe holds
        return CommandOutcome(
            output=await anyio.to_thread.run_sync(output.text),
            exit_code=process.returncode if has_ended else None,
            is_timed_out=not has_ended,
            is_in_background=is_held,
            duration=monotonic() - began,
        )
    finally:
        os.close(read_end)


async def _start(command: str, cwd: Path, write_end: int, mark: str) -> Process:
    start = partial(
        anyio.open_process,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=write_end,
        stderr=write_end,
        start_new_session=True,
        env={**os.environ, _MARK: os.environ.get(_MARK, "") + ":" + mark},
    )
    try:
        return await start(["bash", "-c", command])
    except FileNotFoundError as error:
        if error.filename != "bash":
            raise
    return await start(["sh", "-c", command])


async def _until_exit(process: Process, read_end: int, output: _Output) -> bool:
    """Wait for the command itself; whether others still hold its output then."""
    async with anyio.create_task_group() as group:
        group.start_soon(_read_until_end, read_end, output)
        await process.wait()
        group.cancel_scope.cancel()
    with anyio.move_on_after(DRAIN_SECONDS):
        await _read_until_end(read_end, output)
        return False
    return True


async def _read_until_end(read_end: int, output: _Output) -> None:
    while (data := _read(read_end)) != b"":
        if data is None:
            await anyio.wait_readable(read_end)
        else:
            output.add(data)
            await anyio.lowlevel.checkpoint()  # a command that prints without end must not hold the loop


def _read(read_end: int) -> bytes | None:
    """What is there, None when there is nothing yet, empty at the end."""
    try:
        return os.read(read_end, READ_BYTES)
    except BlockingIOError:
        return None


class _Output:
    """The beginning and the end of what was printed, and a decoder for what is told as it comes."""

    def __init__(self, on_output: Callable[[str], None] | None) -> None:
        self._on_output = on_output
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._tail_bytes = 0
        self._dropped_bytes = 0

    def add(self, data: bytes) -> None:
        room = KEPT_HEAD_BYTES - len(self._head)
        self._head += data[:room]
        if rest := data[room:]:
            self._tail.append(rest)
            self._tail_bytes += len(rest)
            while self._tail_bytes - len(self._tail[0]) >= KEPT_TAIL_BYTES:
                dropped = len(self._tail.popleft())
                self._tail_bytes -= dropped
                self._dropped_bytes += dropped
        if self._on_output is not None and (text := self._decoder.decode(data)):
            self._on_output(_printable(text))

    def text(self) -> str:
        gap = f"\n[{self._dropped_bytes:,} bytes of output were not kept]\n".encode() if self._dropped_bytes else b""
        return _printable(b"".join((self._head, gap, *self._tail)).decode("utf-8", "replace"))


def _printable(text: str) -> str:
    """Without null characters, which some providers and `read` refuse."""
    return text.replace("\0", "\ufffd")


async def _kill_all(process: Process, mark: str) -> None:
    """End the group and whoever left it; return when they are gone, or cannot be got rid of."""
    group = process.pid
    await anyio.to_thread.run_sync(_signal_all, group, mark, signal.SIGTERM)
    with anyio.move_on_after(TERMINATE_SECONDS):
        await _until_gone(group, mark, 0)
    with anyio.move_on_after(KILL_SECONDS):
        await _until_gone(group, mark, signal.SIGKILL)
        await process.wait()


async def _until_gone(group: int, mark: str, number: int) -> None:
    # Polled: the grandchildren are not our children, so nobody tells us of their end.
    while await anyio.to_thread.run_sync(_signal_all, group, mark, number):  # noqa: ASYNC110
        await anyio.sleep(POLL_SECONDS)


def _signal_all(group: int, mark: str, number: int) -> bool:
    """Send the signal (0: none) to all that a command started; whether there was any."""
    if not _PROCESSES.is_dir():  # only the group can be found there
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(group, number)
            return True
        return False
    found = False
    for pid in _alive(group, mark.encode()):
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
            found = True
    return found


def _alive(group: int, mark: bytes) -> Iterator[int]:
    """Members of the group, and processes that left it but still have the mark in their environment."""
    for folder in _PROCESSES.iterdir():
        if not folder.name.isdecimal():
            continue
        with suppress(OSError):  # it ended meanwhile, or is another user's
            # pid (name) state parent group …, and the name may hold anything, parentheses too.
            state, _, own_group = folder.joinpath("stat").read_bytes().rpartition(b")")[2].split()[:3]
            if state not in b"ZX" and (int(own_group) == group or mark in folder.joinpath("environ").read_bytes()):
                yield int(folder.name)
