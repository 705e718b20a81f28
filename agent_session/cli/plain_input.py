"""Plain lines: from a pipe, a file, or a terminal that can do no more.

A line that ends with a backslash goes on in the next one.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress

import anyio

from agent_session.terminal.screen import Screen

_STDIN = 0
_PIECE_BYTES = 65_536


class PlainInput:
    """Reads without a thread, so that nothing waits for a line when the program wants to leave.

    On a terminal a prompt stands where a line is due: not while there is more to come (`is_busy`), which would stand
    behind it. Lines are taken all the same.
    """

    def __init__(self, screen: Screen, *, is_busy: Callable[[], bool] = lambda: False) -> None:
        self._screen = screen
        self._is_busy = is_busy
        self._prompt: str | None = None
        self._is_terminal = os.isatty(_STDIN)
        self._bytes = b""
        self._is_at_end = False
        self._leaving = anyio.Event()

    @property
    def is_live(self) -> bool:
        return self._is_terminal

    async def read(self) -> str | None:
        """The next line, those that it goes on in included."""
        lines: list[str] = []
        while True:
            self._prompt = "... " if lines else "> "
            self.redraw()
            line = await self._line()
            self._prompt = None
            if line is None:
                return "\n".join(lines) if lines else None
            lines.append(line.removesuffix("\\"))
            if not line.endswith("\\"):
                return "\n".join(lines)

    def prefill(self, text: str) -> None:
        """Plain lines cannot be filled in: the text is shown, to be typed again."""
        self._screen.line("not sent", text, style="cyan")

    def clear(self) -> bool:
        return False

    def redraw(self) -> None:
        """Show the prompt of a line that is due, once."""
        if self._is_terminal and self._prompt is not None and not self._is_busy():
            sys.stdout.write(self._prompt)
            sys.stdout.flush()
            self._prompt = None

    def leave(self) -> None:
        self._leaving.set()

    async def serve(self) -> None:
        pass

    async def flush(self) -> None:
        sys.stdout.flush()

    async def _line(self) -> str | None:
        while b"\n" not in self._bytes and not self._is_at_end:
            piece = await self._piece()
            if piece is None:
                return None
            self._is_at_end = not piece
            self._bytes += piece
        line, newline, self._bytes = self._bytes.partition(b"\n")
        # A terminal goes on after Ctrl-D.
        self._is_at_end = self._is_at_end and not self._is_terminal
        return line.decode("utf-8", "replace").removesuffix("\r") if line or newline else None

    async def _piece(self) -> bytes | None:
        """What can be read now, b"" at the end; None when the program leaves."""
        async with anyio.create_task_group() as waiting:

            async def watch() -> None:
                await self._leaving.wait()
                waiting.cancel_scope.cancel()

            waiting.start_soon(watch)
            with suppress(PermissionError, ValueError):  # a regular file, which is always ready
                await anyio.wait_readable(_STDIN)
            waiting.cancel_scope.cancel()
        return None if self._leaving.is_set() else os.read(_STDIN, _PIECE_BYTES)
