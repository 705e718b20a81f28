"""A log in memory: the same lines, the same parse path, no file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from io import BytesIO
from pathlib import Path

from typing_extensions import override

from session_store.codec import encode_header
from session_store.entries import CURRENT_VERSION, SessionHeader
from session_store.errors import SessionReadOnlyError
from session_store.loading import load_lines
from session_store.log import LoadedLog


class MemoryLog:
    """Keeps the lines themselves, so that what is loaded from it went through the codec both ways."""

    def __init__(self, header: SessionHeader, lines: Iterable[bytes] = ()) -> None:
        """`lines` are entries that are there from the start, each with its newline."""
        self.on_warning: Callable[[str], None] | None = None  # memory gives no reason for one
        self._header = header
        self._data = bytearray(encode_header(header))
        self._body_start = len(self._data)
        self._data += b"".join(lines)
        self._is_closed = False

    @override
    def __repr__(self) -> str:
        return f"<MemoryLog, {len(self._data):,} bytes>"

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
        return len(self._data)

    @property
    def version(self) -> int:
        return CURRENT_VERSION

    @property
    def body_start(self) -> int:
        return self._body_start

    def read(self, start: int, length: int) -> bytes:
        return bytes(memoryview(self._data)[start : start + length])

    def load(self) -> LoadedLog:
        return load_lines(BytesIO(self._data), self._header)

    def append(self, lines: Sequence[bytes]) -> None:
        if self._is_closed:
            raise SessionReadOnlyError(None, "closed")
        self._data += b"".join(lines)

    def sync(self) -> None:
        """Memory is as durable as it will ever be."""

    def close(self) -> None:
        self._is_closed = True
