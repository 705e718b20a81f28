"""A log in memory: the same lines, the same parse path, no file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from typing_extensions import override

from session_store.codec import encode_header
from session_store.entries import SessionHeader
from session_store.errors import SessionReadOnlyError
from session_store.loading import load_lines
from session_store.log import LoadedLog


class MemoryLog:
    """Keeps the lines themselves, so that what is loaded from it went through the codec both ways."""

    def __init__(self, header: SessionHeader, lines: Iterable[bytes] = ()) -> None:
        """`lines` are entries that are there from the start, each with its newline."""
        self.on_warning: Callable[[str], None] | None = None  # memory gives no reason for one
        self._header = header
        self._lines: list[bytes] = [encode_header(header), *lines]
        self._size = sum(map(len, self._lines))
        self._is_closed = False

    @override
    def __repr__(self) -> str:
        return f"<MemoryLog, {len(self._lines) - 1:,} entries, {self._size:,} bytes>"

    @property
    def header(self) -> SessionHeader:
        return self._header

    @property
    def path(self) -> Path | None:
        return None

    @property
    def is_read_only(self) -> bool:
        return False

    @property
    def pending(self) -> int:
        return 0

    @property
    def size(self) -> int:
        return self._size

    def load(self) -> LoadedLog:
        return load_lines(self._lines, self._header)

    def append(self, lines: Sequence[bytes]) -> None:
        if self._is_closed:
            raise SessionReadOnlyError(None, "closed")
        self._lines.extend(lines)
        self._size += sum(map(len, lines))

    def sync(self) -> None:
        """Memory is as durable as it will ever be."""

    def close(self) -> None:
        self._is_closed = True
