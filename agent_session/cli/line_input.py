"""Where lines come from: an editor at the bottom of a terminal, or plain lines."""

from __future__ import annotations

from typing import Protocol


class LineInput(Protocol):
    """`is_live`: somebody types, and may do so while the session works. Lines of a pipe are taken one at a time."""

    @property
    def is_live(self) -> bool: ...

    async def read(self) -> str | None:
        """The next text, of one or more lines; None at the end of the input."""
        ...

    def prefill(self, text: str) -> None:
        """Offer a text to go on with, as if it had been typed."""
        ...

    def clear(self) -> bool:
        """Take away what is typed; False when there was nothing."""
        ...

    def redraw(self) -> None:
        """What stands around the input has changed."""
        ...

    def leave(self) -> None:
        """End the input: `read` returns None from now on."""
        ...

    async def serve(self) -> None:
        """Draw, until cancelled; returns at once where there is nothing to draw."""
        ...

    async def flush(self) -> None:
        """Show what was printed and is not to be seen yet."""
        ...
