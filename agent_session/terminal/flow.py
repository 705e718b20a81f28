"""Text as it streams, broken between words at the console's width, indented under its label."""

from __future__ import annotations

import re

from rich.cells import cell_len
from rich.console import Console

from agent_session.terminal.console import printable

_BETWEEN_WORDS = re.compile(r"(?<=\s)(?=\S)|(?<=\S)(?=\s)")


class Flow:
    """`begin` names what comes, `feed` takes pieces of any size, `pause` makes room for other lines, `end` ends it."""

    def __init__(self, console: Console, *, indent: int) -> None:
        self._console = console
        self._indent = indent
        self._label = ""
        self._style = ""
        self._column = 0
        self._gap = ""
        self._word = ""

    @property
    def label(self) -> str:
        """What is streaming, "" for nothing."""
        return self._label

    def begin(self, label: str, *, style: str = "") -> None:
        """Nothing is shown before there is text: an answer may be tool calls alone."""
        self.end()
        self._label = label
        self._style = style

    def feed(self, text: str) -> None:
        """A piece is shown as far as its words are whole."""
        *whole, self._word = _BETWEEN_WORDS.split(self._word + printable(text))
        for piece in whole:
            self._put(piece)

    def pause(self) -> None:
        """Room for another line: what streams goes on below it, its unfinished word whole."""
        if self._column:
            self._console.out()
        self._gap = ""
        self._column = 0

    def end(self) -> None:
        """Show what waits, and end the line if there is one."""
        if self._word:
            self._put(self._word)
        self.pause()
        self._label = self._style = self._word = ""

    def _put(self, piece: str) -> None:
        if piece.isspace():
            self._gap += piece
            return
        gap, self._gap = self._gap, ""
        width = cell_len(piece)
        if not self._column:
            self._console.out(f"{self._label:<{self._indent}}", end="", style="dim", highlight=False)
            self._column = self._indent
        elif "\n" in gap:
            # A paragraph stays one, and code keeps its indentation.
            margin = gap.rpartition("\n")[2]
            self._break("\n" * min(gap.count("\n"), 2), margin)
        elif self._column + len(gap) + width > self._console.width:
            self._break("\n", "")
        elif gap:
            self._console.out(gap, end="", highlight=False)
            self._column += len(gap)
        self._console.out(piece, end="", style=self._style or None, highlight=False)
        self._column += width

    def _break(self, newlines: str, margin: str) -> None:
        self._console.out(f"{newlines}{' ' * self._indent}{margin}", end="", highlight=False)
        self._column = self._indent + len(margin)
