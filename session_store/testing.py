"""The suite that every log must pass, for logs of other people too. Needs pytest.

    class TestMyLog(LogContract):
        @pytest.fixture
        def make_log(self, tmp_path):
            return lambda header: MyLog(tmp_path / header.id, header)

Only what an `EntryLog` promises is tested here, through its methods and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import pytest

from session_store.codec import encode_entry, encode_header
from session_store.entries import (
    CompactionEntry,
    ContextEditEntry,
    CustomEntry,
    Entry,
    MessageEntry,
    SessionHeader,
    UnknownEntry,
)
from session_store.errors import SessionReadOnlyError
from session_store.ids import new_id, now_iso
from session_store.log import EntryLog
from session_store.messages import TextContent, UserMessage

__all__ = ["LogContract", "LogFactory", "new_header", "user_entry"]

LogFactory: TypeAlias = Callable[[SessionHeader], EntryLog]


def new_header(*, cwd: str = "/project") -> SessionHeader:
    """A header with an id of its own."""
    return SessionHeader(id=new_id(), timestamp=now_iso(), cwd=cwd)


def user_entry(text: str, parent_id: str | None = None, *, entry_id: str | None = None) -> MessageEntry:
    """An entry with a user's message."""
    message = UserMessage(content=(TextContent(text),))
    return MessageEntry(id=entry_id or new_id(), parent_id=parent_id, timestamp=now_iso(), message=message)


class LogContract:
    """Subclass it in a test module, with a fixture `make_log` that opens a new log for a header."""

    @pytest.fixture
    def make_log(self) -> LogFactory:
        """The log under test."""
        raise NotImplementedError("a subclass of LogContract gives its own `make_log` fixture")

    def test_a_new_log_has_its_header_and_nothing_else(self, make_log: LogFactory) -> None:
        header = new_header()
        log = make_log(header)
        loaded = log.load()
        assert (log.header, loaded.header, loaded.entries) == (header, header, ())
        assert not loaded.damage
        assert not log.is_read_only
        log.close()

    def test_entries_are_loaded_as_they_were_appended_in_their_order(self, make_log: LogFactory) -> None:
        log = make_log(new_header())
        first = user_entry("first")
        second = user_entry("line\u2028separators\u2029and\x85and\rand \U0001f600 and \x00", first.id)
        third = CustomEntry(
            id=new_id(), parent_id=second.id, timestamp=now_iso(), custom_type="state", data={"deep": [1, None, "x"]}
        )
        log.append([encode_entry(first)])
        log.append([encode_entry(second), encode_entry(third)])
        assert log.load().entries == (first, second, third)
        assert log.pending == 0
        log.close()

    def test_appending_nothing_changes_nothing(self, make_log: LogFactory) -> None:
        log = make_log(new_header())
        log.append([])
        assert log.load().entries == ()
        log.close()

    def test_offsets_and_size_say_where_lines_begin_and_where_the_next_one_will(self, make_log: LogFactory) -> None:
        header = new_header()
        log = make_log(header)
        start = len(encode_header(header))
        assert log.size == start
        lines = [encode_entry(user_entry("first")), b"damaged\n", encode_entry(user_entry("second \u2028"))]
        log.append(lines)
        loaded = log.load()
        assert [line.start for line in loaded.lines] == [start, start + len(lines[0]) + len(lines[1])]
        assert [log.read(line.start, line.length) for line in loaded.lines] == [lines[0], lines[2]]
        assert log.size == start + sum(map(len, lines))
        log.close()

    def test_an_entry_of_an_unknown_type_is_kept_whole(self, make_log: LogFactory) -> None:
        log = make_log(new_header())
        entry = UnknownEntry(
            id=new_id(), parent_id=None, timestamp=now_iso(), type="from_the_future", raw={"payload": {"n": [1.5, "s"]}}
        )
        log.append([encode_entry(entry)])
        loaded = log.load()
        assert loaded.entries == (entry,)
        assert [record.kind for record in loaded.damage.records] == ["unknown_type"]
        log.close()

    def test_a_line_of_many_megabytes_comes_back(self, make_log: LogFactory) -> None:
        log = make_log(new_header())
        entry = user_entry("x" * 12_000_000)
        log.append([encode_entry(entry)])
        assert log.load().entries == (entry,)
        log.close()

    def test_a_damaged_line_is_skipped_and_its_children_hang_on_the_line_before(self, make_log: LogFactory) -> None:
        log = make_log(new_header())
        first, child = user_entry("first"), user_entry("child", "lost")
        log.append([encode_entry(first), b'{"type":"message","i\n', encode_entry(child)])
        loaded = log.load()
        assert [(entry.id, entry.parent_id) for entry in loaded.entries] == [(first.id, None), (child.id, first.id)]
        assert [(record.kind, record.line_number) for record in loaded.damage.records] == [
            ("bad_line", 3),
            ("missing_parent", 4),
        ]
        log.close()

    def test_of_two_lines_with_one_id_the_last_counts(self, make_log: LogFactory) -> None:
        log = make_log(new_header())
        first, again = user_entry("first", entry_id="same"), user_entry("again", entry_id="same")
        between = user_entry("between", "same")
        log.append([encode_entry(first), encode_entry(between), encode_entry(again)])
        loaded = log.load()
        assert loaded.entries == (between, again)
        assert [record.kind for record in loaded.damage.records] == ["duplicate_id"]
        log.close()

    def test_edits_of_a_compaction_that_was_never_written_are_ignored(self, make_log: LogFactory) -> None:
        log = make_log(new_header())
        root = user_entry("root")
        kept = _edit(root, parent_id=root.id, batch="written")
        compaction = CompactionEntry(
            id="written", parent_id=kept.id, timestamp=now_iso(), summary="s", first_kept_entry_id=root.id
        )
        orphan = _edit(root, parent_id="written", batch="never written")
        child = user_entry("child", orphan.id)
        entries: list[Entry] = [root, kept, compaction, orphan, child]
        log.append([encode_entry(entry) for entry in entries])
        loaded = log.load()
        assert [(entry.id, entry.parent_id) for entry in loaded.entries] == [
            (root.id, None),
            (kept.id, root.id),
            ("written", kept.id),
            (child.id, "written"),
        ]
        assert "orphan_edit" in [record.kind for record in loaded.damage.records]
        log.close()

    def test_every_path_of_parents_ends(self, make_log: LogFactory) -> None:
        log = make_log(new_header())
        lines = [
            encode_entry(user_entry("its own parent", "a", entry_id="a")),
            encode_entry(user_entry("parent comes later", "c", entry_id="b")),
            encode_entry(user_entry("and closes the ring", "b", entry_id="c")),
            encode_entry(user_entry("outside of it", "b", entry_id="d")),
        ]
        log.append(lines)
        parents = {entry.id: entry.parent_id for entry in log.load().entries}
        assert set(parents) == {"a", "b", "c", "d"}
        for entry_id in parents:
            steps = 0
            at: str | None = entry_id
            while at is not None:
                at = parents[at]
                steps += 1
                assert steps <= len(parents)
        log.close()

    def test_a_second_header_is_skipped(self, make_log: LogFactory) -> None:
        log = make_log(new_header())
        entry = user_entry("after it")
        log.append([b'{"type":"session","version":3,"id":"other","timestamp":"","cwd":"/"}\n', encode_entry(entry)])
        loaded = log.load()
        assert loaded.header == log.header
        assert loaded.entries == (entry,)
        assert [record.kind for record in loaded.damage.records] == ["second_header"]
        log.close()

    def test_sync_returns_when_nothing_is_pending(self, make_log: LogFactory) -> None:
        log = make_log(new_header())
        log.sync()
        log.append([encode_entry(user_entry("text"))])
        log.sync()
        assert log.pending == 0
        log.close()

    def test_a_closed_log_refuses_appends_and_may_be_closed_again(self, make_log: LogFactory) -> None:
        log = make_log(new_header())
        log.close()
        with pytest.raises(SessionReadOnlyError):
            log.append([encode_entry(user_entry("too late"))])
        log.close()


def _edit(target: Entry, *, parent_id: str, batch: str) -> ContextEditEntry:
    return ContextEditEntry(
        id=new_id(), parent_id=parent_id, timestamp=now_iso(), target_id=target.id, replacement=None, batch=batch
    )
