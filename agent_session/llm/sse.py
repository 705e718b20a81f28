"""Server-sent events from bytes that may be split anywhere.

Lines end in LF, CR LF or CR; only bytes are compared, so a split inside a UTF-8 character does not matter. An event is
whole at its blank line, or at the end of the stream, since some servers leave the last blank line out.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_LINE_END = re.compile(rb"\r\n|\n|\r")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """One event. `data` is its data lines joined by line feeds; `name` is empty for a plain message."""

    data: bytes
    name: str = ""


@dataclass(slots=True)
class EventDecoder:
    """Takes chunks, gives events. One for each stream."""

    _partial: list[bytes] = field(default_factory=list)
    _data: list[bytes] = field(default_factory=list)
    _name: str = ""
    _is_at_start: bool = True
    _is_after_cr: bool = False

    def feed(self, chunk: bytes) -> list[ServerEvent]:
        """The events that this chunk completed, in order."""
        if self._is_after_cr and chunk:
            # The CR at the end of the last chunk already ended its line; its LF belongs to it.
            chunk = chunk.removeprefix(b"\n")
            self._is_after_cr = False
        if b"\n" not in chunk and b"\r" not in chunk:
            self._partial.append(chunk)  # a long line in many chunks is joined once, at its end
            return []
        self._is_after_cr = chunk.endswith(b"\r")
        *lines, rest = _LINE_END.split(b"".join((*self._partial, chunk)))
        self._partial = [rest] if rest else []
        return [event for line in lines if (event := self._take(line)) is not None]

    def close(self) -> list[ServerEvent]:
        """The event that the end of the stream completed, if any."""
        rest = b"".join(self._partial)
        self._partial = []
        if rest:
            self._take(rest)
        event = self._take(b"")
        return [] if event is None else [event]

    def _take(self, line: bytes) -> ServerEvent | None:
        if self._is_at_start:
            self._is_at_start = False
            line = line.removeprefix(_BYTE_ORDER_MARK)
        if not line:
            return self._dispatch()
        field_name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field_name == b"data":
            self._data.append(value)
        elif field_name == b"event":
            self._name = value.decode("utf-8", "replace")
        return None  # comments, `id`, `retry` and unknown fields

    def _dispatch(self) -> ServerEvent | None:
        data, name = self._data, self._name
        self._data, self._name = [], ""
        return ServerEvent(b"\n".join(data), name) if data else None
