"""The lines of a log, read from its end, block by block; and what they say, read when it is asked for.

The rule it keeps: what was not asked for is not read, and what was read is not kept. Whoever asks holds the lines.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from session_store.codec import decode_entry, parse_line
from session_store.entries import CURRENT_VERSION, Entry
from session_store.gc_pause import paused_collector
from session_store.lines import DamagedLineError, Line, Scan, scan
from session_store.loading import settle_lines
from session_store.log import DamageRecord, DamageReport, EntryLog
from session_store.migrations import upcast

FIRST_BLOCK_BYTES = 64 * 1024
LARGEST_BLOCK_BYTES = 256 * 1024

# Lines that are further apart are read one by one.
_GAP_BYTES = 16 * 1024


class LogLines:
    """A `LineSource` over a log of the tree's versions. `damage` is what was met so far."""

    def __init__(self, log: EntryLog, *, first_block_bytes: int | None = None) -> None:
        self.damage = DamageReport(complete=False)
        self._log = log
        self._version = log.version
        self._end = log.size  # the lines from here on were given
        self._block_bytes = first_block_bytes or FIRST_BLOCK_BYTES
        self._unknown_types: set[str] = set()

    @property
    def body_start(self) -> int:
        return self._log.body_start

    @property
    def is_short(self) -> bool:
        """Whether the first block would be all of it."""
        return self._log.size <= self._block_bytes

    def earlier(self) -> Scan | None:
        if self._end == 0:
            return None
        size = self._block_bytes
        self._block_bytes = min(2 * size, max(size, LARGEST_BLOCK_BYTES))
        while True:
            start = max(0, self._end - size)
            block = self._log.read(start, self._end - start)
            # The first line of the block belongs to the one before it, unless the log begins here.
            cut = block.find(b"\n") + 1 if start else 0
            if start == 0 or 0 < cut < len(block):
                break
            size *= 4  # one line fills the block
        self._end = start + cut
        found = scan(block, start, skip=cut)
        self._report(found)
        return found

    def go_on_from(self, start: int) -> None:
        self._end = start

    def entries(self, lines: Sequence[Line], *, is_settled: bool) -> list[Entry]:
        with paused_collector():
            return [self._entry(raw, line, is_settled=is_settled) for raw, line in self._raw(lines)]

    def entry_at(self, start: int) -> Entry | None:
        block, size = b"", FIRST_BLOCK_BYTES
        while b"\n" not in block and start + len(block) < self._log.size:
            block += self._log.read(start + len(block), size)
            size = LARGEST_BLOCK_BYTES
        raw = block[: block.find(b"\n") + 1]
        (line,) = scan(raw, start).lines or (None,)
        try:
            return self._entry(raw, line, is_settled=False) if line is not None else None
        except DamagedLineError:
            return None

    def read_all(self) -> tuple[Sequence[Line], bool]:
        lines, self.damage = settle_lines(self._all_raw(), version=self._version)
        self._end = 0
        return lines, all(record.kind == "unknown_type" for record in self.damage.records)

    def _entry(self, raw: bytes, line: Line, *, is_settled: bool) -> Entry:
        data = parse_line(raw)
        if data is None or data.get("id") != line.id or data.get("type") != line.type:
            raise DamagedLineError
        if self._version < CURRENT_VERSION:
            data = upcast(data, version=self._version, number=0, parent_id=None)
        entry = decode_entry(data)
        if entry.parent_id == line.parent_id:
            return entry
        if not is_settled:
            raise DamagedLineError
        return replace(entry, parent_id=line.parent_id)

    def _raw(self, lines: Sequence[Line]) -> Iterator[tuple[bytes, Line]]:
        """The bytes of the lines; those that stand close together in one read."""
        first = 0
        while first < len(lines):
            start = end = lines[first].start
            behind = first
            while behind < len(lines) and 0 <= lines[behind].start - end <= _GAP_BYTES:
                end = lines[behind].start + lines[behind].length
                behind += 1
                if end - start > LARGEST_BLOCK_BYTES:
                    break
            block = self._log.read(start, end - start)
            for line in lines[first:behind]:
                yield block[line.start - start : line.start - start + line.length], line
            first = behind

    def _all_raw(self) -> Iterator[bytes]:
        start, size, rest = 0, self._log.size, b""
        while start < size:
            block = self._log.read(start, min(LARGEST_BLOCK_BYTES, size - start))
            start += len(block)
            *whole, rest = (rest + block).split(b"\n")
            for line in whole:
                yield line + b"\n"
        if rest:
            yield rest

    def _report(self, found: Scan) -> None:
        records = [
            DamageRecord(
                kind="torn_tail" if why == "torn" else "bad_line",
                line_number=None,
                detail=f"{why}, at byte {start:,}; skipped",
                raw=raw,
            )
            for start, why, raw in found.damaged
        ]
        for kind, start in found.unknown:
            if kind not in self._unknown_types:
                self._unknown_types.add(kind)
                detail = f"type {kind!r} (at byte {start:,}) is not known to this version; kept, in no context"
                records.append(DamageRecord(kind="unknown_type", line_number=None, detail=detail))
        records += [
            DamageRecord(kind="second_header", line_number=None, detail=f"a second header, at byte {start:,}; skipped")
            for start in found.headers
            if start >= self.body_start
        ]
        if records:
            # What is read later stands earlier in the file.
            self.damage = DamageReport(records=(*records, *self.damage.records), complete=False)
