"""A person at a terminal: the command line in a pseudo-terminal, what it shows on a screen, what is typed into it."""

from __future__ import annotations

import fcntl
import os
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pyte

from agent_session.testing import FakeProvider

ROOT = Path(__file__).parent.parent.parent
COMMAND = [sys.executable, "-m", "agent_session.cli"]
INTERRUPTIBLE = [
    sys.executable,
    "-S",
    "-c",
    "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); os.execv(sys.argv[1], sys.argv[1:])",
]
"""Before a command: Ctrl-C ends it, as it does what a person starts. A signal that is ignored stays so in every child,
and what starts the tests may ignore this one (`nohup`, a job in the background).
"""
WAIT_SECONDS = 15.0
"""For something that a process shows: two cores may be busy with other tests."""

CTRL_C, CTRL_D, CTRL_J, CTRL_Z, ENTER, ALT_ENTER, UP = "\x03", "\x04", "\n", "\x1a", "\r", "\x1b\r", "\x1b[A"


def environment(provider: FakeProvider | None = None, **more: str) -> dict[str, str]:
    """What a shell without any configuration has, and where the provider is."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "AGENT_SESSION_DIR")}
    variables = {
        **kept,
        "PYTHONPATH": str(ROOT),
        "TERM": "xterm-256color",
        "LANG": "C.UTF-8",
        "PYTHONWARNINGS": "error",
    }
    if provider is not None:
        variables |= {
            "OPENAI_BASE_URL": provider.base_url,
            "OPENAI_API_KEY": "a-key",
            "AGENT_SESSION_MODEL": "openai/scripted",
        }
    return variables | more


class Terminal:
    """`screen` has what is to be seen; `bytes` is everything that was written."""

    def __init__(self, process: subprocess.Popen[bytes], master: int, *, columns: int, rows: int) -> None:
        self.process = process
        self.bytes = b""
        self._master = master
        self._screen = pyte.Screen(columns, rows)
        self._stream = pyte.ByteStream(self._screen)
        # A real terminal answers when it is asked where its cursor is.
        self._screen.write_process_input = self.type  # type: ignore[method-assign,assignment]

    @property
    def text(self) -> str:
        """The screen's lines, blank ones and the blanks at their ends left out."""
        return "\n".join(line.rstrip() for line in self._screen.display if line.strip())

    @property
    def before_cursor(self) -> str:
        """What the cursor's line shows before it."""
        return self._screen.display[self._screen.cursor.y][: self._screen.cursor.x]

    @property
    def row(self) -> int:
        """The cursor's line, counted from the top."""
        return self._screen.cursor.y

    @property
    def reads_keys(self) -> bool:
        """Whether a program takes the keys as they are: as long as none does, the terminal edits lines by itself."""
        return not termios.tcgetattr(self._master)[3] & termios.ICANON

    def type(self, text: str) -> None:
        """Press keys, whoever reads them."""
        os.write(self._master, text.encode())

    async def press(self, keys: str) -> None:
        """Press keys once somebody reads them: an editor takes the keys before it draws what it has to show."""
        await self.until(lambda: self.reads_keys, "an editor")
        self.type(keys)

    async def say(self, text: str) -> None:
        """Type a line into the editor, and send it."""
        await self.press(text + ENTER)

    async def shows(self, text: str) -> None:
        """Wait until it can be read on the screen."""
        await self.until(lambda: text in self.text, text)

    async def until(self, is_so: Callable[[], bool], what: str = "") -> None:
        """Wait until it is so, looking again after everything that is written."""
        try:
            with anyio.fail_after(WAIT_SECONDS):
                while not is_so():
                    if not await self._read():
                        raise AssertionError(f"it ended without {what!r}:\n{self.text}")
        except TimeoutError:
            raise AssertionError(f"no {what!r} on the screen:\n{self.text}") from None

    async def rests(self) -> None:
        """Wait until nothing has been written for a second."""
        with anyio.fail_after(WAIT_SECONDS):
            is_at_rest = False
            while not is_at_rest:
                with anyio.move_on_after(1.0) as second:
                    await self._read()
                is_at_rest = second.cancelled_caught

    async def waits(self) -> None:
        """Wait until the program does nothing. Python may lose a KeyboardInterrupt that it raises in the middle of
        something: in the callback of a weak reference it is ignored.
        """
        stat = anyio.Path(f"/proc/{self.process.pid}/stat")
        with anyio.fail_after(WAIT_SECONDS):
            while (await stat.read_text()).rpartition(")")[2].split()[0] != "S":
                pass

    async def ends(self) -> int:
        """Wait for the end of the process; its exit status."""
        with anyio.fail_after(WAIT_SECONDS):
            while await self._read():
                pass
            return await anyio.to_thread.run_sync(self.process.wait)

    async def _read(self) -> bool:
        await anyio.wait_readable(self._master)
        try:
            piece = os.read(self._master, 65_536)
        except OSError:  # Linux says so when the other end is closed
            return False
        self.bytes += piece
        self._stream.feed(piece)
        return bool(piece)


@asynccontextmanager
async def terminal(
    *arguments: str,
    env: Mapping[str, str],
    cwd: Path,
    columns: int = 100,
    rows: int = 50,
    command: Sequence[str] = COMMAND,
) -> AsyncIterator[Terminal]:
    """The command line, or another command, with these arguments in a terminal of its own; killed if it still runs at
    the end.
    """
    master, slave = os.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    # The process makes the terminal its own, as a shell would, so that Ctrl-C reaches it as a signal too.
    starter = (
        "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
    )
    process = subprocess.Popen(  # noqa: ASYNC220 - it returns at once
        [*INTERRUPTIBLE, sys.executable, "-S", "-c", starter, *command, *arguments],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        cwd=cwd,
        env=env,
        start_new_session=True,
    )
    os.close(slave)
    try:
        yield Terminal(process, master, columns=columns, rows=rows)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        process.wait()
        os.close(master)


async def run(
    *arguments: str, env: Mapping[str, str], cwd: Path, stdin: bytes | None = None
) -> subprocess.CompletedProcess[bytes]:
    """The command line with these arguments, its streams piped."""
    with anyio.fail_after(4 * WAIT_SECONDS):
        return await anyio.run_process(
            [*COMMAND, *arguments],
            input=b"" if stdin is None else stdin,
            cwd=cwd,
            env=dict(env),
            check=False,
        )
