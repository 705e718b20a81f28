"""Every line of a log, parsed and settled, whatever is in them.

The rule it keeps: nothing in a file can stop the entries around it from being read. What cannot be used is
skipped and reported; entries that hung on it are hung on what came before it; every path of parents ends.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from session_store.codec import decode_entry, decode_header, parse_line
from session_store.entries import CURRENT_VERSION, ContextEditEntry, Entry, SessionHeader, UnknownEntry
from session_store.errors import SessionNotFoundError
from session_store.gc_pause import paused_collector
from session_store.lines import HEADER_TYPE, RAW_LIMIT_BYTES, Line
from session_store.locations import id_in_name
from session_store.log import DamageRecord, DamageReport, LoadedLog
from session_store.messages import Json
from session_store.migrations import FIRST_TREE_VERSION, upcast, version_of

# The head of an entry. Quotes inside of JSON text are escaped, so that this never matches what a message says.
_HEAD = re.compile(
    rb'\{"type":"[^"\\]*","id":"(?P<id>[^"\\]*)"(?:,"parentId":(?:(?P<root>null)|"(?P<parent>[^"\\]*)"))?'
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundHeader:
    """The header of a file, and where the lines after it begin.

    `end` is the offset behind the header's line, 0 where the header was lost and had to be made up.
    `version` is the file's own.
    """

    header: SessionHeader
    version: int
    end: int


def find_header(lines: Iterable[bytes], path: Path) -> FoundHeader:
    """The first header among the lines; one made up from the file's name where there are only entries.

    Raises:
        SessionNotFoundError: there is neither a header nor an entry: this is no session.
        UnsupportedVersionError: the header names a newer version.
    """
    offset = 0
    first_entry: Json | None = None
    for raw in lines:
        offset += len(raw)
        data = parse_line(raw)
        if data is None or not isinstance(data.get("type"), str):
            continue
        if data["type"] == "session":
            version = version_of(data, path)
            header = decode_header(data)
            return FoundHeader(
                header=header if header.id else replace(header, id=id_in_name(path)), version=version, end=offset
            )
        first_entry = first_entry or data
    if first_entry is None:
        raise SessionNotFoundError(str(path), why="the file holds neither a session's header nor an entry")
    version = CURRENT_VERSION if isinstance(first_entry.get("id"), str) else 1
    return FoundHeader(header=SessionHeader(id=id_in_name(path), timestamp="", cwd=""), version=version, end=0)


def load_lines(lines: Iterable[bytes], header: SessionHeader, *, version: int = CURRENT_VERSION) -> LoadedLog:
    """All entries of the lines (the header's own among them), upcast from `version`."""
    entries: list[Entry] = []
    with paused_collector():
        reader = _read(lines, version, entries)
        settled = tuple(
            [
                entry if entry.parent_id == line.parent_id else replace(entry, parent_id=line.parent_id)
                for entry, line in zip(entries, reader.lines, strict=True)
                if line is not None
            ]
        )
    damage = DamageReport(records=tuple(reader.damage))
    # A version-1 file is not appended to: where its lines are is of no use to anybody.
    places = reader.found() if version >= FIRST_TREE_VERSION else ()
    return LoadedLog(header=header, entries=settled, damage=damage, lines=places)


def settle_lines(lines: Iterable[bytes], *, version: int) -> tuple[tuple[Line, ...], DamageReport]:
    """The same without the entries: where they are, what they hang on, and what is wrong. Not for version 1."""
    with paused_collector():
        reader = _read(lines, version, None)
        return reader.found(), DamageReport(records=tuple(reader.damage))


def _read(lines: Iterable[bytes], version: int, entries: list[Entry] | None) -> _Reader:
    reader = _Reader(version, entries)
    for raw in lines:
        reader.feed(raw)
    if version >= FIRST_TREE_VERSION:
        reader.settle()
    return reader


@dataclass(frozen=True, slots=True, kw_only=True)
class _Hole:
    """An id whose line is of no use, and what its children hang on instead.

    `position` is how many lines with entries came before it.
    """

    position: int
    parent_id: str | None


class _Reader:
    """Takes the lines in order, then settles what only the whole file can tell."""

    def __init__(self, version: int, entries: list[Entry] | None) -> None:
        """`entries` is filled with the entry of each of `lines`, for whoever wants them."""
        self.damage: list[DamageRecord] = []
        self.lines: list[Line | None] = []  # None: an entry that does not count
        self._entries = entries
        self._version = version
        self._line_numbers: list[int] = []
        self._batches: dict[int, str] = {}  # place in lines -> the compaction that an edit belongs to
        self._offset = 0  # of the line behind the one that is read
        self._places: dict[str, int] = {}  # id -> place in lines; the last line with an id wins
        self._holes: dict[str, _Hole] = {}
        self._nameless: list[_Hole] = []  # damaged lines whose ids could not be read, in file order
        self._last_good: str | None = None
        self._line_number = 0
        self._parsable = 0
        self._has_header = False
        self._unknown_types: set[str] = set()

    def feed(self, raw: bytes) -> None:
        self._line_number += 1
        self._offset += len(raw)
        data = parse_line(raw)
        if data is None:
            if raw.strip():
                self._skip_damaged(raw, "not a JSON object")
            return
        number = self._parsable
        self._parsable += 1
        kind = data.get("type")
        if not isinstance(kind, str):
            self._skip_damaged(raw, "no type")
        elif kind == HEADER_TYPE:
            if self._has_header:
                self._report("second_header", "a second header; skipped", raw)
            self._has_header = True
        else:
            if self._version < CURRENT_VERSION:
                data = upcast(data, version=self._version, number=number, parent_id=self._last_good)
            if isinstance(data.get("id"), str):
                self._add(decode_entry(data), kind, raw)
            else:
                self._skip_damaged(raw, "no id")

    def settle(self) -> None:
        """What the whole file tells: edits without their compaction, parents that are missing, cycles."""
        self._drop_orphan_edits()
        self._hang_children_of_holes()

    def found(self) -> tuple[Line, ...]:
        """The lines of the entries that count, in file order."""
        return tuple([line for line in self.lines if line is not None])

    def _add(self, entry: Entry, kind: str, raw: bytes) -> None:
        earlier = self._places.get(entry.id)
        if earlier is not None:
            self.lines[earlier] = None
            detail = f"id {entry.id!r} again, first in line {self._line_numbers[earlier]}; the last one counts"
            self._report("duplicate_id", detail, raw)
        if isinstance(entry, UnknownEntry) and entry.type not in self._unknown_types:
            self._unknown_types.add(entry.type)
            self._report("unknown_type", f"type {entry.type!r} is not known to this version; kept, in no context", raw)
        place = len(self.lines)
        if isinstance(entry, ContextEditEntry) and entry.batch is not None:
            self._batches[place] = entry.batch
        self._places[entry.id] = place
        self.lines.append(Line(entry.id, entry.parent_id, kind, self._offset - len(raw), len(raw)))
        self._line_numbers.append(self._line_number)
        self._last_good = entry.id
        if self._entries is not None:
            self._entries.append(entry)

    def _skip_damaged(self, raw: bytes, why: str) -> None:
        if raw.endswith(b"\n"):
            self._report("bad_line", f"{why}; skipped", raw)
        else:
            self._report("torn_tail", f"{len(raw)} bytes without an end; skipped", raw)
        position = len(self.lines)
        heads = list(_HEAD.finditer(raw))  # two where a line was glued to a torn one
        for head in heads:
            parent_id = self._last_good
            if head["root"] or head["parent"] is not None:
                parent_id = None if head["root"] else head["parent"].decode("utf-8", "replace")
            self._holes[head["id"].decode("utf-8", "replace")] = _Hole(position=position, parent_id=parent_id)
        if not heads:
            self._nameless.append(_Hole(position=position, parent_id=self._last_good))

    def _drop_orphan_edits(self) -> None:
        """A kill between the edits of a compaction and the compaction leaves edits that mean nothing."""
        for place, batch in self._batches.items():
            edit = self.lines[place]
            if edit is not None and batch not in self._places:
                self.lines[place] = None
                self._holes[edit.id] = _Hole(position=place, parent_id=edit.parent_id)
                detail = f"edit {edit.id!r} belongs to compaction {batch!r}, which was never written; ignored"
                self._report("orphan_edit", detail, b"", line_number=self._line_numbers[place])
        for entry_id in self._holes:
            place = self._places.get(entry_id, -1)
            if place >= 0 and self.lines[place] is None:
                del self._places[entry_id]

    def _hang_children_of_holes(self) -> None:
        places = self._places
        forward: list[int] = []  # a cycle needs a parent that comes later
        for place, line in enumerate(self.lines):
            if line is None or line.parent_id is None:
                continue
            parent_place = places.get(line.parent_id)
            if parent_place is None:
                parent_id = self._resolve(line.parent_id, place)
                self._hang(place, parent_id, f"parent {line.parent_id!r} is missing")
                parent_place = -1 if parent_id is None else places[parent_id]
            if parent_place >= place:
                forward.append(place)
        self._cut_cycles(forward)

    def _resolve(self, parent_id: str | None, position: int) -> str | None:
        """The nearest ancestor that is there. Null where the file has no trace of one: the path ends, as in Pi."""
        seen: set[str] = set()
        while parent_id is not None and parent_id not in self._places:
            hole = self._holes.get(parent_id)
            if hole is None or parent_id in seen:
                number = bisect_right(self._nameless, position, key=lambda hole: hole.position)
                if number == 0:
                    return None
                hole = self._nameless[number - 1]
            seen.add(parent_id)
            parent_id, position = hole.parent_id, hole.position
        return parent_id

    def _cut_cycles(self, forward: list[int]) -> None:
        ended: set[int] = set()
        for start in forward:
            path: set[int] = set()
            place = start
            while place not in ended:
                if place in path:
                    self._hang(place, None, "its parents form a cycle")
                    break
                path.add(place)
                line = self.lines[place]
                if line is None or line.parent_id is None:
                    break
                place = self._places[line.parent_id]
            ended |= path

    def _hang(self, place: int, parent_id: str | None, why: str) -> None:
        line = self.lines[place]
        if line is None:
            return
        line.parent_id = parent_id
        where = "is a root" if parent_id is None else f"hangs on {parent_id!r}"
        detail = f"entry {line.id!r} {where}: {why}"
        self._report("missing_parent", detail, b"", line_number=self._line_numbers[place])

    def _report(self, kind: str, detail: str, raw: bytes, *, line_number: int | None = None) -> None:
        number = self._line_number if line_number is None else line_number
        record = DamageRecord(kind=kind, line_number=number, detail=detail, raw=raw[:RAW_LIMIT_BYTES])
        self.damage.append(record)
