"""The keyboard of a terminal whose keys an editor reads.

The rule it keeps: what is typed too early counts as typed. As long as nobody reads its keys, a terminal edits lines by
itself, and gives Enter as a line feed and Ctrl-D as a NUL.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from prompt_toolkit.input.vt100 import Vt100Input
from typing_extensions import override

_AS_A_KEY = str.maketrans("\n\0", "\r\x04")


class Keyboard(Vt100Input):
    """Standard input, which must be a terminal."""

    def __init__(self) -> None:
        super().__init__(sys.stdin)

    @override
    @contextmanager
    def raw_mode(self) -> Iterator[None]:
        with super().raw_mode():
            while early := self.stdin_reader.read():
                self.vt100_parser.feed(early.translate(_AS_A_KEY))
            yield

    @override
    @contextmanager
    def attach(self, input_ready_callback: Callable[[], None]) -> Iterator[None]:
        with super().attach(input_ready_callback):
            input_ready_callback()  # for what came early: no other key need follow
            yield

    def released(self) -> AbstractContextManager[None]:
        """The terminal as it was found, for a block in which this program does not read."""
        return super().cooked_mode()

    @override
    def cooked_mode(self) -> AbstractContextManager[None]:
        """While output goes above the editor the terminal stays as it is: that takes no keys, and ends soon."""
        return nullcontext()
