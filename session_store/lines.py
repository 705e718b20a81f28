"""Lines of a log as an index holds them: id, parent, type and place, without what is in them.

Pure. The rule it keeps: a head that stands exactly as this library and Pi write it is read by a pattern, and its line
is not parsed; every other line is parsed whole. What a head says of a line is therefore a claim about the rest of it,
and whoever decodes the line finds out whether it holds.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from session_store.entries import (
    BranchSummaryEntry,
    CompactionEntry,
    ContextEditEntry,
    CustomEntry,
    CustomMessageEntry,
    Entry,
    LabelEntry,
    MessageEntry,
    ModelChangeEntry,
    SessionInfoEntry,
    ThinkingLevelChangeEntry,
    UsageEntry,
)
from session_store.json_lines import is_json_value, parse_line

HEADER_TYPE = "session"
RAW_LIMIT_BYTES = 200
"""How much of a damaged line a report has."""

# Types whose lines need no parsing to be indexed. An edit has the name of its batch behind its head, and what is not
# known is parsed to see what it is.
_INDEXED_TYPES = {
    cls.type.encode(): cls.type
    for cls in (
        MessageEntry,
        CompactionEntry,
        BranchSummaryEntry,
        CustomMessageEntry,
        CustomEntry,
        ModelChangeEntry,
        ThinkingLevelChangeEntry,
        LabelEntry,
        SessionInfoEntry,
        UsageEntry,
    )
}

# Quotes inside of JSON text are escaped, and ids with escapes or beyond ASCII are left to the parser.
_HEAD = re.compile(
    rb'\{"type":"([a-z_]+)","id":"([ !#-\[\]-~]*)","parentId":(?:null|"([ !#-\[\]-~]*)"),"timestamp":"',
)
_CLOSING_BRACE = ord("}")


@dataclass(slots=True)
class Line:
    """Where an entry is. `start` and `length` (its newline included) are bytes of the log.

    `parent_id` is what the entry hangs on, which in a damaged file may be something else than the line says.
    """

    id: str
    parent_id: str | None
    type: str
    start: int
    length: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """The lines with entries in one part of a log, in file order, and what else is in that part.

    `damaged`: what is no entry and no header, as (offset, what is wrong, its first bytes). `headers`: their offsets.
    `unknown`: type and offset of lines of types this version does not know. `batches`: the compactions that edits name.
    """

    lines: Sequence[Line]
    damaged: Sequence[tuple[int, str, bytes]]
    headers: Sequence[int]
    unknown: Sequence[tuple[str, int]]
    batches: Sequence[str]


class LineSource(Protocol):
    """A log, read from its end."""

    @property
    def body_start(self) -> int:
        """Where the lines below the header begin."""
        ...

    @property
    def is_short(self) -> bool:
        """Whether reading all of it costs no more than reading its end."""
        ...

    def earlier(self) -> Scan | None:
        """The lines in front of those that were given so far; None where there are none."""
        ...

    def go_on_from(self, start: int) -> None:
        """Begin the next `earlier` in front of the line that begins there."""
        ...

    def entries(self, lines: Sequence[Line], *, is_settled: bool) -> list[Entry]:
        """What the lines say. With `is_settled` the parents of the lines count where an entry names another one.

        Raises:
            DamagedLineError: one of them is not what its head says.
        """
        ...

    def entry_at(self, start: int) -> Entry | None:
        """The entry whose line begins at that offset; None where none does."""
        ...

    def read_all(self) -> tuple[Sequence[Line], bool]:
        """Parse every line of the log, and settle what is damaged: the lines of entries, in file order.

        And whether each of them stands as it says, so that it could be read from the log's end as well.
        """
        ...


class DamagedLineError(Exception):
    """A line is not what its head says. Never leaves this package: the log is read again, whole."""


def scan(block: bytes, start: int, *, skip: int = 0) -> Scan:
    """The lines of a block that begins at the offset `start`, without the first `skip` bytes, where a line begins."""
    lines: list[Line] = []
    odd = _Odd(lines)
    match, find, types = _HEAD.match, block.find, _INDEXED_TYPES
    has_nul = b"\0" in block  # never in JSON, and what a power cut leaves
    position, size = skip, len(block)
    while position < size:
        end = find(b"\n", position) + 1
        if end == 0:  # the end of the log, which may be torn
            odd.take(block[position:], start + position)
            break
        head = match(block, position, end)
        kind = types.get(head[1]) if head is not None and block[end - 2] == _CLOSING_BRACE else None
        if head is None or kind is None or (has_nul and find(b"\0", position, end) >= 0):
            odd.take(block[position:end], start + position)
        else:
            parent = head[3]
            lines.append(
                Line(
                    head[2].decode("ascii"),
                    None if parent is None else parent.decode("ascii"),
                    kind,
                    start + position,
                    end - position,
                )
            )
        position = end
    return Scan(lines=lines, damaged=odd.damaged, headers=odd.headers, unknown=odd.unknown, batches=odd.batches)


class _Odd:
    """What the heads of lines do not tell."""

    def __init__(self, lines: list[Line]) -> None:
        self.damaged: list[tuple[int, str, bytes]] = []
        self.headers: list[int] = []
        self.unknown: list[tuple[str, int]] = []
        self.batches: list[str] = []
        self._lines = lines

    def take(self, raw: bytes, start: int) -> None:
        data = parse_line(raw)
        if data is None:
            if not raw.strip():
                return
            self._refuse(raw, start, "not a JSON object")
            return
        kind, entry_id = data.get("type"), data.get("id")
        if not isinstance(kind, str):
            self._refuse(raw, start, "no type")
        elif kind == HEADER_TYPE:
            self.headers.append(start)
        elif not isinstance(entry_id, str):
            self._refuse(raw, start, "no id")
        else:
            self._lines.append(Line(entry_id, _text(data.get("parentId")), kind, start, len(raw)))
            if kind == ContextEditEntry.type:
                batch = data.get("batch")
                if isinstance(batch, str):
                    self.batches.append(batch)
            elif kind.encode() not in _INDEXED_TYPES:
                self.unknown.append((kind, start))

    def _refuse(self, raw: bytes, start: int, why: str) -> None:
        if not raw.endswith(b"\n") and not is_json_value(raw):
            why = "torn"
        self.damaged.append((start, why, raw[:RAW_LIMIT_BYTES]))


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
