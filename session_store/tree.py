"""The tree that the entries of a log form: parents, children, leaf, paths.

Owns the index of one session in memory. Two rules: the leaf is the last entry that was added, and every walk ends. A
parent that is null, unknown or already visited ends a path, so that a damaged file can shorten a branch but never hang
a reader.

Over a log the tree grows from the log's end towards its beginning, as far as was asked for: it knows where lines are
and what they hang on, and reads an entry when somebody wants it. Only the entries of the context are held. Once the
beginning is reached, the lines are checked as a whole; where anything in them is not as it should be, all of the log is
parsed and settled instead (`loading`), and the answer is that of the settled log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import TypeVar

from typing_extensions import override

from session_store.entries import CompactionEntry, Entry
from session_store.errors import EntryNotFoundError
from session_store.gc_pause import paused_collector
from session_store.lines import DamagedLineError, Line, LineSource

_T = TypeVar("_T")
_START = attrgetter("start")
_NOWHERE = -1
_AT_ONCE = 256  # entries, when all of them are gone through


class EntryTree:
    """Entries by id, in file order. An id that comes again replaces the earlier line and moves to the end.

    Made of entries, which are held for good, or of a source of lines.
    """

    __slots__ = (
        "_children",
        "_has_flaws",
        "_held",
        "_is_settled",
        "_is_whole",
        "_leaf_id",
        "_lines",
        "_settlings",
        "_source",
        "_unread",
    )

    def __init__(self, entries: Iterable[Entry] = (), *, source: LineSource | None = None) -> None:
        self._lines: dict[str, Line] = {}
        self._held: dict[str, Entry] = {}
        # Ordered sets of ids: taking out a replaced line must not cost the number of its siblings.
        self._children: dict[str | None, dict[str, None]] | None = None
        self._leaf_id: str | None = None
        self._source = source
        self._is_whole = source is None  # all lines are known, and `_lines` is in file order
        self._is_settled = False  # some lines hang on something else than they say
        self._settlings = 0  # how often all of the log was parsed: lines known before are no longer true
        self._has_flaws = False  # something was met that only the whole log can settle
        self._unread: int | None = None  # how many entries stand before the known lines, where that is known
        for entry in entries:
            self.add(entry)
        if source is not None:
            self._begin(source)

    @override
    def __repr__(self) -> str:
        # How many there are would be read from the whole log.
        return f"<EntryTree, leaf {self._leaf_id}>"

    def add(self, entry: Entry, *, start: int = _NOWHERE, length: int = 0) -> None:
        """Put an entry behind all others, and hold it; it becomes the leaf. Constant time.

        `start` and `length` are where its line is in the log, in bytes.
        """
        replaced = self._lines.pop(entry.id, None)
        if replaced is not None and self._children is not None:
            del self._children[replaced.parent_id][replaced.id]
        self._lines[entry.id] = Line(entry.id, entry.parent_id, entry.type, start, length)
        self._held[entry.id] = entry
        if self._children is not None:
            self._children.setdefault(entry.parent_id, {})[entry.id] = None
        self._leaf_id = entry.id

    @property
    def leaf_id(self) -> str | None:
        """The last entry of the file; None while there is none."""
        return self._leaf_id

    def __len__(self) -> int:
        if self._unread is None:
            self._grow_whole()
        return (self._unread or 0) + len(self._lines)

    def __contains__(self, entry_id: object) -> bool:
        return isinstance(entry_id, str) and self.line(entry_id) is not None

    def __iter__(self) -> Iterator[Entry]:
        """All entries in file order, read as they are reached."""
        return self.all_of()

    def knows(self, entry_id: str) -> bool:
        """Whether the part that was read so far has it."""
        return entry_id in self._lines

    def line(self, entry_id: str) -> Line | None:
        """Where an entry is; None where the log has none with that id. Reads on until it is found."""
        found = self._lines.get(entry_id)
        if found is None and not self._is_whole:
            with paused_collector():
                while found is None and not self._is_whole:
                    self._grow()
                    found = self._lines.get(entry_id)
        return found

    def entry(self, entry_id: str) -> Entry:
        """The entry with that id.

        Raises:
            EntryNotFoundError: there is none.
        """
        return self._sound(lambda: self._entries_of([self._line(entry_id)])[0])

    def entry_near(self, entry_id: str, start: int | None) -> Entry | None:
        """The entry with that id, whose line may begin at the offset `start`; None where the log has none."""
        if entry_id not in self._lines and start is not None and self._source is not None:
            found = self._source.entry_at(start)
            if found is not None and found.id == entry_id:
                return found
        return self.entry(entry_id) if entry_id in self else None

    def ancestors(self, entry_id: str | None) -> Iterator[Line]:
        """The line of the entry itself, of its parent, and so on up to the root.

        Raises:
            EntryNotFoundError: `entry_id` is given and unknown. An unknown parent further up ends the walk.
        """
        if entry_id is None:
            return
        line: Line | None = self._line(entry_id)
        visited: set[str] = set()
        while line is not None and line.id not in visited:
            visited.add(line.id)
            yield line
            line = self._parent_of(line)

    def path(self, leaf_id: str | None) -> list[Entry]:
        """The branch from the root down to `leaf_id`, both included; empty for None.

        Raises:
            EntryNotFoundError: `leaf_id` is given and unknown.
        """
        return self._sound(lambda: self._entries_of([*self.ancestors(leaf_id)][::-1]))

    def walk(self, leaf_id: str | None) -> Iterator[Entry]:
        """The same path as it is now, its entries read as they are reached.

        Raises:
            EntryNotFoundError: `leaf_id` is given and unknown.
        """
        ids = [line.id for line in self.ancestors(leaf_id)][::-1]
        return (
            entry
            for first in range(0, len(ids), _AT_ONCE)
            for entry in self._sound(partial(self._entries_with, ids[first : first + _AT_ONCE]))
        )

    def window(self, leaf_id: str | None) -> tuple[list[Entry], str | None]:
        """The end of that branch which a projection is made of, and the id that the first of it hangs on.

        That is all from the boundary of the newest compaction on, or from the compaction itself where that keeps
        nothing; the whole branch, and None, where nothing is compacted or the boundary is not on it.

        Raises:
            EntryNotFoundError: `leaf_id` is given and unknown.
        """
        return self._sound(lambda: self._window(leaf_id))

    def nearest(self, entry_id: str | None, kinds: frozenset[str], *, after: str | None = None) -> Iterator[Entry]:
        """The entries of those types on the path to an entry, the nearest first, down to the entry `after` at most."""
        for line in self.ancestors(entry_id):
            if line.id == after:
                return
            if line.type in kinds:
                yield self.entry(line.id)

    def all_of(self, kinds: frozenset[str] | None = None, *, since: int | None = None) -> Iterator[Entry]:
        """All entries in file order, or those of some types, read as they are reached.

        With the offset `since` only what begins there or behind it, of what was read so far.
        """
        if since is None:
            self._grow_whole()
        lines, at = self._chosen(kinds, since), 0
        while at < len(lines):
            settlings = self._settlings
            some = lines[at : at + _AT_ONCE]
            entries = self._sound(partial(self._entries_with, [line.id for line in some]))
            if self._settlings == settlings:
                yield from entries
                at += _AT_ONCE
            else:  # what turned out to be damaged is not there any more, and something else may be
                lines, at = self._chosen(kinds, some[0].start), 0

    def bytes_before(self, entry_id: str) -> int | None:
        """How many bytes of lines stand before an entry, the header's not counted; None where it has no place."""
        line = self.line(entry_id)
        return line.start - self._source.body_start if line is not None and self._source is not None else None

    # What is held -------------------------------------------------------------------------------

    def count_before(self, entry_id: str, entries: int) -> None:
        """Take it as known that so many entries stand before that one, which was read."""
        if not self._is_whole and self._unread is None:
            start = self._lines[entry_id].start
            self._unread = entries - sum(line.start < start for line in self._lines.values())

    def hold_only(self, entries: Iterable[Entry]) -> None:
        """Hold these and no other; all of them where there is nothing to read an entry from."""
        if self._source is not None:
            self._held = {entry.id: entry for entry in entries if entry.id in self._lines}

    def forget_before(self, entries: Iterable[Entry]) -> None:
        """Forget the lines before the first of these entries: they are read again where somebody asks for them.

        Costs what is forgotten and what is not, and nothing where the log had to be settled.
        """
        if self._source is None or self._is_settled or self._has_flaws:
            return
        start = min((self._lines[entry.id].start for entry in entries if entry.id in self._lines), default=_NOWHERE)
        if start == _NOWHERE:
            return
        if self._is_whole and self._unread is None:
            self._unread = 0
        kept = {line.id: line for line in self._lines.values() if line.start >= start}
        if self._unread is not None:
            self._unread += len(self._lines) - len(kept)
        self._lines, self._children = kept, None
        self._is_whole = False
        self._source.go_on_from(start)

    def children(self, entry_id: str | None) -> list[Entry]:
        """What was appended directly under an entry, in file order; for None the entries without a parent.

        Raises:
            EntryNotFoundError: `entry_id` is given and unknown.
        """
        self._grow_whole()

        def found() -> list[Entry]:
            if entry_id is not None:
                self._line(entry_id)
            return self._entries_of(self._lines[child] for child in self._by_parent().get(entry_id, ()))

        return self._sound(found)

    # Reading ------------------------------------------------------------------------------------

    def _begin(self, source: LineSource) -> None:
        if source.is_short:
            self._settle(source)
        while not self._lines and not self._is_whole:
            self._grow()
        if self._lines:
            # Everything hangs on the leaf: it is read at once.
            self._sound(lambda: self._entries_of(self._last_lines()))
        self._leaf_id = next((line.id for line in self._last_lines()), None)

    def _last_lines(self) -> list[Line]:
        return [max(self._lines.values(), key=_START)] if self._lines else []

    def _grow(self) -> None:
        """Read one block more, or find that there is none."""
        assert self._source is not None
        found = self._source.earlier()
        if found is None:
            self._check_whole(self._source)
            return
        known = self._lines
        before = len(known)
        for line in reversed(found.lines):
            known.setdefault(line.id, line)
        if self._unread is not None:
            self._unread -= len(known) - before
        if found.damaged or len(known) - before < len(found.lines):
            self._has_flaws = True
        if any(batch not in known for batch in found.batches):
            self._settle(self._source)  # edits whose compaction does not follow them

    def _grow_whole(self) -> None:
        if not self._is_whole:
            with paused_collector():
                while not self._is_whole:
                    self._grow()

    def _check_whole(self, source: LineSource) -> None:
        """The beginning was reached: take the lines as they are, if nothing is wrong with them."""
        lines = {line.id: line for line in self._in_file_order()}
        is_sound = not self._has_flaws
        if is_sound:
            for line in lines.values():
                parent = lines.get(line.parent_id) if line.parent_id is not None else None
                if (parent is None) != (line.parent_id is None) or (parent is not None and parent.start >= line.start):
                    is_sound = False
                    break
        if not is_sound:
            self._settle(source)
            return
        self._lines, self._is_whole, self._unread, self._children = lines, True, None, None

    def _settle(self, source: LineSource) -> None:
        """Parse all of the log, and take what comes of it."""
        lines, is_sound = source.read_all()
        self._lines = {line.id: line for line in lines}
        self._held = {
            entry_id: entry if entry.parent_id == line.parent_id else replace(entry, parent_id=line.parent_id)
            for entry_id, entry in self._held.items()
            if (line := self._lines.get(entry_id)) is not None
        }
        self._is_whole, self._is_settled = True, not is_sound
        self._settlings += 1
        self._unread = self._children = None
        self._leaf_id = lines[-1].id if lines else None

    def _sound(self, read: Callable[[], _T]) -> _T:
        """What `read` gives; where a line is not what its head says, the same from the settled log."""
        settlings = self._settlings
        try:
            found = read()
        except DamagedLineError:
            assert self._source is not None
            self._settle(self._source)
        else:
            if self._settlings == settlings:
                return found
        return read()

    def _parent_of(self, line: Line) -> Line | None:
        settlings = self._settlings
        parent = self.line(line.parent_id) if line.parent_id is not None else None
        if parent is not None and self._source is not None and parent.start >= line.start and not self._is_settled:
            self._settle(self._source)  # an ancestor that comes later may be a descendant, too
        if self._settlings != settlings:  # on the way to the parent, so that it may be another one
            settled = self._lines.get(line.id)
            parent_id = settled.parent_id if settled is not None else None
            parent = self._lines.get(parent_id) if parent_id is not None else None
        return parent

    def _line(self, entry_id: str) -> Line:
        line = self.line(entry_id)
        if line is None:
            raise EntryNotFoundError(entry_id)
        return line

    def _chosen(self, kinds: frozenset[str] | None, since: int | None) -> list[Line]:
        return [
            line
            for line in self._in_file_order()
            if (kinds is None or line.type in kinds) and (since is None or line.start >= since)
        ]

    def _entries_with(self, ids: Iterable[str]) -> list[Entry]:
        return self._entries_of(self._lines[entry_id] for entry_id in ids if entry_id in self._lines)

    def _entries_of(self, lines: Iterable[Line]) -> list[Entry]:
        wanted = list(lines)
        missing = [line for line in wanted if line.id not in self._held]
        if not missing or self._source is None:
            return [self._held[line.id] for line in wanted]
        read = iter(self._source.entries(missing, is_settled=self._is_settled))
        held = self._held
        return [held[line.id] if line.id in held else next(read) for line in wanted]

    def _window(self, leaf_id: str | None) -> tuple[list[Entry], str | None]:
        lines: list[Line] = []
        boundary: str | None = None  # where the window begins, once that is known
        for line in self.ancestors(leaf_id):
            lines.append(line)
            if boundary is None and line.type == CompactionEntry.type:
                (compaction,) = self._entries_of([line])
                assert isinstance(compaction, CompactionEntry)
                boundary = compaction.first_kept_entry_id or compaction.id
            if line.id == boundary:
                return self._entries_of(reversed(lines)), line.parent_id
        return self._entries_of(reversed(lines)), None

    def _in_file_order(self) -> Iterable[Line]:
        return self._lines.values() if self._is_whole else sorted(self._lines.values(), key=_START)

    def _by_parent(self) -> dict[str | None, dict[str, None]]:
        if self._children is None:
            self._children = {}
            for line in self._lines.values():
                self._children.setdefault(line.parent_id, {})[line.id] = None
        return self._children
