"""The process's own streams: text that is piped in, and standard output kept clean for a program that reads it."""

from __future__ import annotations

import os
import queue
import stat
import sys
import threading
from types import TracebackType
from typing import Self

import anyio

_STDIN, _STDOUT, _STDERR = 0, 1, 2


def piped_text() -> str:
    """What a pipe or a file on standard input holds, read to its end; "" for a terminal, a device, or nothing."""
    try:
        mode = os.fstat(_STDIN).st_mode
    except OSError:  # closed
        return ""
    if not (stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)):
        return ""
    with os.fdopen(os.dup(_STDIN), "rb") as file:
        return file.read().decode("utf-8", "replace").strip()


class ReservedOutput:
    """Standard output for one writer alone, in a block: whatever else is printed, by a library or by a child process,
    goes to standard error.

    A thread of its own writes, so that a reader who takes nothing holds up neither the session nor Ctrl-C.
    """

    def __init__(self) -> None:
        self.is_broken = False
        self._lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()

    def __enter__(self) -> Self:
        sys.stdout.flush()
        self._output = os.dup(_STDOUT)
        os.dup2(_STDERR, _STDOUT)
        self._ended, self._says_ended = os.pipe()
        threading.Thread(target=self._write_all, name="standard output", daemon=True).start()
        return self

    def write(self, line: bytes) -> None:
        """Soon, in order."""
        self._lines.put(line)

    async def drain(self) -> None:
        """Return when all is written, or when nobody reads any more; nothing may be written afterwards."""
        self._lines.put(None)
        await self.ended()

    async def ended(self) -> None:
        """Return after `drain`, or when nobody reads any more: `is_broken` then."""
        await anyio.wait_readable(self._ended)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # The copies stay open: the thread may still hang on them, and the process ends soon.
        sys.stdout.flush()
        os.dup2(self._output, _STDOUT)

    def _write_all(self) -> None:
        try:
            while (line := self._lines.get()) is not None:
                view = memoryview(line)
                while view:
                    view = view[os.write(self._output, view) :]
        except OSError:
            self.is_broken = True
        finally:
            os.close(self._says_ended)
