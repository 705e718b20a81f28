from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from typing_extensions import override

from session_store.codec import encode_entry, encode_header
from session_store.entries import Entry, MessageEntry
from session_store.errors import (
    SessionLockedError,
    SessionNotFoundError,
    SessionReadOnlyError,
    SessionWriteError,
    StaleLeafError,
)
from session_store.jsonl_log import JsonlLog
from session_store.log import DamageReport
from session_store.messages import UserMessage
from session_store.testing import LogContract, LogFactory, new_header, user_entry


class TestJsonlLog(LogContract):
    @override
    @pytest.fixture
    def make_log(self, tmp_path: Path) -> LogFactory:
        return lambda header: JsonlLog.create(tmp_path / f"{header.id}.jsonl", header)


def create(path: Path, *entries: Entry) -> JsonlLog:
    log = JsonlLog.create(path, new_header())
    if entries:
        log.append([encode_entry(entry) for entry in entries])
    return log


def session(path: Path, *entries: Entry) -> bytes:
    """A closed session's file, and its bytes."""
    create(path, *entries).close()
    return path.read_bytes()


def entries_in(path: Path) -> list[Entry]:
    log = JsonlLog.open(path, read_only=True)
    entries = list(log.load().entries)
    log.close()
    return entries


def texts_in(path: Path) -> list[str]:
    messages = [entry.message for entry in entries_in(path) if isinstance(entry, MessageEntry)]
    return [message.text for message in messages if isinstance(message, UserMessage)]


def kinds(damage: DamageReport) -> list[str]:
    return [record.kind for record in damage.records]


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def run_child(program: str, *arguments: str) -> str:
    """What a Python process of its own printed."""
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


# Opening --------------------------------------------------------------------------------------------------------------


def test_the_header_is_in_the_file_before_anything_is_appended(tmp_path: Path):
    header = new_header()
    log = JsonlLog.create(tmp_path / "s.jsonl", header)
    # Mutation: write the header with the first append.
    assert (tmp_path / "s.jsonl").read_bytes() == encode_header(header)
    log.close()


def test_files_are_private_and_so_are_the_folders_that_were_made_for_them(tmp_path: Path):
    path = tmp_path / "a" / "b" / "s.jsonl"
    previous = os.umask(0)
    try:
        log = create(path, user_entry("x"))
        # Mutation: `mkdir(parents=True)`, which makes the folders in between with the default mode.
        assert (mode(path), mode(tmp_path / "a"), mode(tmp_path / "a" / "b")) == (0o600, 0o700, 0o700)
        assert mode(tmp_path / "a" / "b" / "s.jsonl.lock") == 0o600
        log.close()
        path.write_bytes(path.read_bytes() + b"{torn")
        JsonlLog.open(path).close()
        assert mode(tmp_path / "a" / "b" / "s.jsonl.damaged") == 0o600
    finally:
        os.umask(previous)


def test_a_file_that_is_there_is_never_created_again(tmp_path: Path):
    before = session(tmp_path / "s.jsonl", user_entry("x"))
    with pytest.raises(FileExistsError):
        JsonlLog.create(tmp_path / "s.jsonl", new_header())
    assert (tmp_path / "s.jsonl").read_bytes() == before
    JsonlLog.open(tmp_path / "s.jsonl").close()


@pytest.mark.parametrize("content", [b"", b"\n\n", b"not a session\n", b"[1]\n", b"{}\n", b'{"type":"sess'])
def test_what_is_no_session_is_not_found_and_not_touched(tmp_path: Path, content: bytes):
    path = tmp_path / "s.jsonl"
    path.write_bytes(content)
    # Mutation: settle the tail before looking for a header; the last case would lose its bytes.
    for read_only in (True, False):
        with pytest.raises(SessionNotFoundError):
            JsonlLog.open(path, read_only=read_only)
    assert path.read_bytes() == content
    assert names(tmp_path) == ["s.jsonl"]


def test_a_missing_file_a_folder_and_a_pipe_are_no_sessions(tmp_path: Path):
    (tmp_path / "folder.jsonl").mkdir()
    os.mkfifo(tmp_path / "pipe.jsonl")
    for name in ("missing.jsonl", "folder.jsonl", "pipe.jsonl"):
        with pytest.raises(SessionNotFoundError):
            JsonlLog.open(tmp_path / name)


def test_a_session_whose_header_is_damaged_is_read_and_says_so(tmp_path: Path):
    first, second = user_entry("first"), user_entry("second")
    content = session(tmp_path / "x.jsonl", first)
    path = tmp_path / "2025-01-01T00-00-00-000Z_my_id.jsonl"
    path.write_bytes(b"\x00" * 40 + b"\n" + content.split(b"\n", 1)[1])
    log = JsonlLog.open(path)
    loaded = log.load()
    assert (loaded.header.id, loaded.entries) == ("my_id", (first,))
    assert [(record.kind, record.line_number) for record in loaded.damage.records] == [("bad_line", 1)]
    log.append([encode_entry(second)])
    log.close()
    assert entries_in(path) == [first, second]


# The end of the file --------------------------------------------------------------------------------------------------


def test_a_file_cut_at_any_byte_of_its_last_entry_loses_that_entry_at_most(tmp_path: Path):
    first, last, after = user_entry("first"), user_entry("läst \U0001f600 'quoted' {}"), user_entry("after")
    whole = session(tmp_path / "whole.jsonl", first, last)
    start = whole.rindex(b"\n", 0, -1) + 1
    path, aside = tmp_path / "cut.jsonl", tmp_path / "cut.jsonl.damaged"
    for end in range(start, len(whole) + 1):
        path.write_bytes(whole[:end])
        aside.unlink(missing_ok=True)
        is_there = end >= len(whole) - 1  # only the newline is missing
        assert entries_in(path) == ([first, last] if is_there else [first])
        assert path.read_bytes() == whole[:end]  # Mutation: settle the tail in a read-only log.
        log = JsonlLog.open(path)
        log.append([encode_entry(after)])
        log.close()
        # Mutation: append without settling the tail; the new entry is glued to the torn one.
        assert entries_in(path) == ([first, last, after] if is_there else [first, after])
        assert path.read_bytes().startswith(whole if is_there else whole[:start])
        torn = b"" if is_there or end == start else whole[start:end]
        assert (aside.read_bytes() if aside.exists() else b"") == torn


def test_torn_tails_are_collected_one_below_the_other(tmp_path: Path):
    path = tmp_path / "s.jsonl"
    session(path, user_entry("x"))
    for tail in (b'{"type":"one', b"\x00\x00", b'{"type":"three'):
        with path.open("ab") as file:
            file.write(tail)
        JsonlLog.open(path).close()
    assert (tmp_path / "s.jsonl.damaged").read_bytes() == b'{"type":"one\n\x00\x00\n{"type":"three'
    assert len(entries_in(path)) == 1


def test_a_torn_tail_longer_than_any_block_is_moved_whole(tmp_path: Path):
    path = tmp_path / "s.jsonl"
    before = session(path, user_entry("x"))
    tail = b'{"type":"message","text":"' + b"y" * 1_000_000
    path.write_bytes(before + tail)
    log = JsonlLog.open(path, read_only=True)
    assert kinds(log.load().damage) == ["torn_tail"]
    log.close()
    JsonlLog.open(path).close()
    assert path.read_bytes() == before
    assert (tmp_path / "s.jsonl.damaged").read_bytes() == tail


# Damage in the middle -------------------------------------------------------------------------------------------------


def line(entry_id: str, parent_id: str | None) -> bytes:
    return encode_entry(user_entry(entry_id, parent_id, entry_id=entry_id))


def open_lines(path: Path, *lines: bytes) -> tuple[dict[str, str | None], list[tuple[str, int | None]]]:
    """Parents by id as loaded from these lines under a header, and the damage as (kind, line number)."""
    path.write_bytes(encode_header(new_header()) + b"".join(lines))
    before = path.read_bytes()
    log = JsonlLog.open(path)
    loaded = log.load()
    log.close()
    assert path.read_bytes() == before
    return (
        {entry.id: entry.parent_id for entry in loaded.entries},
        [(record.kind, record.line_number) for record in loaded.damage.records],
    )


@pytest.mark.parametrize(
    "bad",
    [b"\x00" * 300 + b"\n", b"garbage\n", b'"a string"\n', b"{}\n", b'{"type":7,"id":"b"}\n', b'{"type":"message"}\n'],
)
def test_children_of_a_line_without_an_id_hang_on_the_line_before_it(tmp_path: Path, bad: bytes):
    parents, damage = open_lines(tmp_path / "s.jsonl", line("a", None), bad, line("c", "b"), line("d", "c"))
    assert parents == {"a": None, "c": "a", "d": "c"}
    assert damage == [("bad_line", 3), ("missing_parent", 4)]


# Mutation: hang the children of every damaged line on the line before it.
def test_children_of_a_damaged_line_hang_on_its_parent_where_its_head_can_be_read(tmp_path: Path):
    lines = [line("a", None), line("b", "a"), line("lost", "a")[:90] + b"\n", line("c", "lost")]
    parents, damage = open_lines(tmp_path / "s.jsonl", *lines)
    assert parents == {"a": None, "b": "a", "c": "a"}
    assert damage == [("bad_line", 4), ("missing_parent", 5)]


def test_a_row_of_damaged_lines_leads_to_the_last_one_that_is_whole(tmp_path: Path):
    lines = [line("a", None), line("x", "a")[:90], line("y", "x")[:90], line("z", "y")[:90], line("c", "z")]
    parents, _ = open_lines(tmp_path / "s.jsonl", *(raw.rstrip(b"\n") + b"\n" for raw in lines))
    assert parents == {"a": None, "c": "a"}


def test_a_line_glued_to_a_torn_one_leaves_no_hole_either(tmp_path: Path):
    glued = line("x", "a")[:90] + line("y", "x")
    parents, _ = open_lines(tmp_path / "s.jsonl", line("a", None), line("b", "a"), glued, line("c", "y"))
    assert parents == {"a": None, "b": "a", "c": "a"}


def test_a_damaged_root_makes_roots_of_its_children(tmp_path: Path):
    parents, _ = open_lines(tmp_path / "s.jsonl", line("r", None)[:90] + b"\n", line("c", "r"))
    assert parents == {"c": None}


def test_a_parent_of_which_there_is_no_trace_ends_the_path(tmp_path: Path):
    parents, damage = open_lines(tmp_path / "s.jsonl", line("a", None), line("b", "elsewhere"), line("c", "b"))
    assert parents == {"a": None, "b": None, "c": "b"}
    assert damage == [("missing_parent", 3)]


def test_holes_that_lead_to_each_other_end(tmp_path: Path):
    lines = [line("a", None), line("x", "y")[:90] + b"\n", line("y", "x")[:90] + b"\n", line("c", "x")]
    parents, _ = open_lines(tmp_path / "s.jsonl", *lines)
    assert parents == {"a": None, "c": None}


def test_a_head_inside_of_a_message_is_no_hole(tmp_path: Path):
    quoting = encode_entry(user_entry('{"type":"message","id":"lost","parentId":"a"', "a", entry_id="q"))
    lines = [line("a", None), quoting[:-3] + b"\n", line("c", "lost"), line("d", "q")]
    parents, _ = open_lines(tmp_path / "s.jsonl", *lines)
    assert parents == {"a": None, "c": None, "d": "a"}


def test_a_report_shows_the_beginning_of_a_damaged_line_only(tmp_path: Path):
    path = tmp_path / "s.jsonl"
    path.write_bytes(encode_header(new_header()) + b"x" * 5000 + b"\n")
    log = JsonlLog.open(path)
    (record,) = log.load().damage.records
    log.close()
    assert (record.raw, record.line_number) == (b"x" * 200, 2)


# Mutation: forget in `_cut_cycles` which entries are known to end; every walk is as long as the ring then.
def test_a_hundred_duplicates_and_a_long_ring_load_in_linear_time(tmp_path: Path):
    path = tmp_path / "s.jsonl"
    size = 20_000
    ring = [line(f"e{number}", f"e{(number + 1) % size}") for number in range(size)]
    path.write_bytes(encode_header(new_header()) + b"".join([*ring, *ring[:100]]))
    log = JsonlLog.open(path)
    started = time.process_time()
    loaded = log.load()
    assert time.process_time() - started < 10  # about half a second; the mutation takes minutes
    log.close()
    assert len(loaded.entries) == size
    assert kinds(loaded.damage).count("duplicate_id") == 100
    assert kinds(loaded.damage).count("missing_parent") == 1


# Mutation: count an offset from the line behind, or leave pending lines out of `size`.
def test_an_offset_is_where_the_line_of_its_entry_stands_in_the_file(tmp_path: Path):
    path = tmp_path / "s.jsonl"
    log = create(path, user_entry("first"), user_entry("ä second"))
    loaded = log.load()
    log.close()
    content = path.read_bytes()
    for entry, line in zip(loaded.entries, loaded.lines, strict=True):
        assert content[line.start : line.start + line.length] == encode_entry(entry)
    assert log.size == len(content)


# Writing --------------------------------------------------------------------------------------------------------------


def test_bytes_once_written_never_change(tmp_path: Path):
    path = tmp_path / "s.jsonl"
    before = session(path, user_entry("x"))
    for number in range(3):
        log = JsonlLog.open(path)
        log.load()
        log.append([encode_entry(user_entry(str(number))), encode_entry(user_entry("more"))])
        log.close()
        assert path.read_bytes().startswith(before)
        before = path.read_bytes()
    assert before.count(b"\n") == 8


def test_entries_are_in_the_file_when_append_returns_even_if_the_process_is_killed(tmp_path: Path):
    program = """
import os, signal, sys
from pathlib import Path
from session_store.codec import encode_entry
from session_store.jsonl_log import JsonlLog
from session_store.messages import UserMessage
from session_store.testing import new_header, user_entry
log = JsonlLog.create(Path(sys.argv[1]), new_header())
log.append([encode_entry(user_entry("kept"))])
os.kill(os.getpid(), signal.SIGKILL)
"""
    path = tmp_path / "s.jsonl"
    killed = subprocess.run([sys.executable, "-c", program, str(path)], timeout=60, check=False)
    assert killed.returncode == -9
    # Mutation: buffer the lines until `sync`.
    (entry,) = entries_in(path)
    assert isinstance(entry, MessageEntry)
    log = JsonlLog.open(path)
    log.close()


def test_a_line_without_its_newline_is_refused(tmp_path: Path):
    log = create(tmp_path / "s.jsonl")
    with pytest.raises(ValueError, match="newline"):
        log.append([b'{"type":"custom"}'])
    log.close()
    assert entries_in(tmp_path / "s.jsonl") == []


def test_a_read_only_log_refuses_appends_and_keeps_nobody_out(tmp_path: Path):
    path = tmp_path / "s.jsonl"
    writer = create(path, user_entry("x"))
    reader = JsonlLog.open(path, read_only=True)  # Mutation: take the lock here too.
    assert reader.is_read_only
    with pytest.raises(SessionReadOnlyError):
        reader.append([encode_entry(user_entry("y"))])
    reader.sync()
    reader.close()
    writer.append([encode_entry(user_entry("z"))])
    writer.close()
    assert len(entries_in(path)) == 2


@pytest.mark.parametrize(
    "meddle",
    [
        lambda path: path.write_bytes(path.read_bytes() + b'{"type":"custom","id":"1","parentId":null}\n'),
        lambda path: path.write_bytes(path.read_bytes()[:-1]),
        lambda path: path.unlink(),
        lambda path: path.rename(path.with_suffix(".old")) and path.write_bytes(path.with_suffix(".old").read_bytes()),
    ],
    ids=["appended", "cut", "removed", "replaced"],
)
def test_a_file_that_is_not_as_it_was_left_takes_no_append(tmp_path: Path, meddle: Callable[[Path], Any]):
    path = tmp_path / "s.jsonl"
    log = create(path, user_entry("x"))
    expected = path.stat().st_size
    meddle(path)
    after = path.read_bytes() if path.exists() else None
    with pytest.raises(StaleLeafError):
        log.append([encode_entry(user_entry("y"))])
    with pytest.raises(StaleLeafError) as caught:  # Mutation: take the size that was found as the new one.
        log.append([encode_entry(user_entry("y"))])
    assert caught.value.expected_bytes == expected
    assert caught.value.found_bytes == len(after or b"")
    assert (path.read_bytes() if path.exists() else None) == after
    assert log.pending == 0
    log.close()


def test_a_writer_whose_lock_was_taken_away_writes_nothing(tmp_path: Path):
    path = tmp_path / "s.jsonl"
    log = create(path, user_entry("x"))
    before = path.read_bytes()
    (tmp_path / "s.jsonl.lock").unlink()
    second = JsonlLog.open(path)
    with pytest.raises(SessionLockedError) as caught:
        log.append([encode_entry(user_entry("y"))])
    assert caught.value.pid == os.getpid()
    assert path.read_bytes() == before
    log.close()
    second.append([encode_entry(user_entry("z"))])  # closing the first one must not take the second's lock
    second.close()


# Failing --------------------------------------------------------------------------------------------------------------

LIMITED = """
import os, resource, sys
from pathlib import Path
from session_store.codec import encode_entry
from session_store.jsonl_log import JsonlLog
from session_store.messages import UserMessage
from session_store.testing import new_header, user_entry

path = Path(sys.argv[1])
log = JsonlLog.create(path, new_header())
warnings = []
log.on_warning = warnings.append
log.append([encode_entry(user_entry("written"))])
size = path.stat().st_size
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
resource.setrlimit(resource.RLIMIT_FSIZE, (size + 40, hard))
"""


# Mutation: leave the fragment (no `ftruncate`), or drop `_pending` on an error.
def test_a_disk_that_fills_in_the_middle_of_a_line_leaves_no_fragment_and_loses_no_entry(tmp_path: Path):
    path = tmp_path / "s.jsonl"
    out = run_child(
        LIMITED
        + """
for text in ("first waiting", "second waiting"):
    log.append([encode_entry(user_entry(text))])
    assert path.stat().st_size == size, "a fragment"
print(log.pending, len(warnings), warnings[0].startswith(str(path)))
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
log.append([encode_entry(user_entry("third")), encode_entry(user_entry("fourth"))])
print(log.pending, len(warnings))
log.close()
""",
        str(path),
    )
    assert out == "2 1 True\n0 1\n"
    assert texts_in(path) == ["written", "first waiting", "second waiting", "third", "fourth"]


# Mutation: in `JsonlLog.read` read the file only; or let the waiting lines begin where they do not.
def test_lines_that_wait_for_a_disk_are_read_like_those_in_the_file(tmp_path: Path):
    out = run_child(
        LIMITED
        + """
waiting = [encode_entry(user_entry(text)) for text in ("first waiting", "second waiting")]
for line in waiting:
    log.append([line])
every = path.read_bytes() + b"".join(waiting)
assert log.size == len(every)
for start in range(0, len(every), 7):
    for length in (1, 50, len(every)):
        assert log.read(start, length) == every[start : start + length], (start, length)
print("read")
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
log.close()
assert log.read(0, log.size) == every
print("read after it was closed")
""",
        str(tmp_path / "s.jsonl"),
    )
    assert out == "read\nread after it was closed\n"


def test_a_disk_that_stays_full_is_told_by_sync_and_by_close(tmp_path: Path):
    path = tmp_path / "s.jsonl"
    out = run_child(
        LIMITED
        + """
from session_store.errors import SessionReadOnlyError, SessionWriteError
log.append([encode_entry(user_entry("waiting"))])
for verb in (log.sync, log.close):
    try:
        verb()
    except SessionWriteError as error:
        print(verb.__name__, error.pending, "File too large" in str(error))
log.close()
try:
    log.append([encode_entry(user_entry("late"))])
except SessionReadOnlyError:
    print("closed", len(warnings))
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
JsonlLog.open(path).close()
""",
        str(path),
    )
    assert out == "sync 1 True\nclose 1 True\nclosed 1\n"
    assert len(entries_in(path)) == 1


def test_what_was_pending_is_written_by_sync_and_by_close(tmp_path: Path):
    for verb in ("sync", "close"):
        path = tmp_path / f"{verb}.jsonl"
        program = f"""
log.append([encode_entry(user_entry("waiting"))])
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
log.{verb}()
print(log.pending)
log.close()
"""
        assert run_child(LIMITED + program, str(path)) == "0\n"
        assert len(entries_in(path)) == 2


def test_a_second_series_of_failures_is_told_again(tmp_path: Path):
    program = """
for _ in range(2):
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 40, hard))
    log.append([encode_entry(user_entry("waiting"))])
    log.append([encode_entry(user_entry("waiting"))])
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    log.append([encode_entry(user_entry("written"))])
print(len(warnings))
log.close()
"""
    assert run_child(LIMITED + program, str(tmp_path / "s.jsonl")) == "2\n"
    assert len(entries_in(tmp_path / "s.jsonl")) == 7


def test_a_fragment_that_cannot_be_cut_off_is_cut_off_before_the_next_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = tmp_path / "s.jsonl"
    log = create(path, user_entry("x"))
    write = os.write

    def half(fd: int, data: bytes) -> int:
        if len(data) < 40:
            raise OSError(28, "No space left on device")
        return write(fd, data[:30])

    def refuse(fd: int, length: int) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as fault:
        fault.setattr(os, "write", half)
        fault.setattr(os, "ftruncate", refuse)
        size = path.stat().st_size
        log.append([encode_entry(user_entry("waiting"))])
        assert path.stat().st_size > size
    log.append([encode_entry(user_entry("after"))])
    log.close()
    # Mutation: forget `_has_fragment`; the append is refused as stale for ever.
    assert texts_in(path) == ["x", "waiting", "after"]


def test_a_write_that_takes_less_than_all_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "s.jsonl"
    log = create(path)
    write = os.write
    with monkeypatch.context() as fault:
        fault.setattr(os, "write", lambda fd, data: write(fd, data[:7]))
        log.append([encode_entry(user_entry("in small pieces"))])
    log.close()
    assert len(entries_in(path)) == 1


def test_a_header_that_cannot_be_written_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def refuse(fd: int, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as fault:
        fault.setattr(os, "write", refuse)
        with pytest.raises(SessionWriteError, match="No space left"):
            JsonlLog.create(tmp_path / "s.jsonl", new_header())
    assert names(tmp_path) == []


def test_a_disk_that_refuses_to_sync_is_told_and_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    log = create(tmp_path / "s.jsonl", user_entry("x"))
    asked: list[int] = []

    def refuse(fd: int) -> None:
        asked.append(fd)
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as fault:
        fault.setattr("session_store.jsonl_log._sync_data", refuse)
        for _ in range(2):
            with pytest.raises(SessionWriteError, match="Input/output error"):
                log.sync()
    assert len(asked) == 2
    log.close()


def test_sync_asks_the_disk_only_for_what_was_written_since(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    log = create(tmp_path / "s.jsonl")
    asked: list[int] = []
    with monkeypatch.context() as fault:
        fault.setattr("session_store.jsonl_log._sync_data", asked.append)
        log.sync()
        log.sync()
        log.append([encode_entry(user_entry("x"))])
        log.sync()
        log.close()
    assert len(asked) == 2


def test_a_log_may_be_closed_while_another_thread_syncs_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    log = create(tmp_path / "s.jsonl", user_entry("x"))
    is_inside, may_go_on = threading.Event(), threading.Event()
    failures: list[Exception] = []
    sync_data = getattr(os, "fdatasync", os.fsync)

    def slow(fd: int) -> None:
        is_inside.set()
        assert may_go_on.wait(5)
        sync_data(fd)

    def sync() -> None:
        try:
            log.sync()
        except Exception as error:  # noqa: BLE001 - whatever it is, the test's own thread shows it
            failures.append(error)

    with monkeypatch.context() as fault:
        fault.setattr("session_store.jsonl_log._sync_data", slow)
        thread = threading.Thread(target=sync)
        thread.start()
        assert is_inside.wait(5)
        log.append([encode_entry(user_entry("meanwhile"))])  # Mutation: hold the guard while the disk works.
        fault.setattr("session_store.jsonl_log._sync_data", sync_data)
        log.close()
        may_go_on.set()
        thread.join(5)
    assert failures == []
    assert len(entries_in(tmp_path / "s.jsonl")) == 2


# Version 1 ------------------------------------------------------------------------------------------------------------

OLD_HEADER = b'{"type":"session","id":"old","timestamp":"t","cwd":"/w","provider":"p","own":{"kept":1}}\n'


def old_message(text: str) -> bytes:
    message = {"role": "user", "content": text, "timestamp": 1}
    return orjson.dumps({"type": "message", "timestamp": "t", "message": message}) + b"\n"


def test_a_version_one_file_keeps_every_byte_when_it_is_opened_for_writing(tmp_path: Path):
    path = tmp_path / "old.jsonl"
    content = OLD_HEADER + old_message("a") + b'{"type":"torn'
    path.write_bytes(content)
    log = JsonlLog.open(path)
    loaded = log.load()
    log.append([])  # Mutation: move before looking whether there is something to write.
    log.sync()
    log.close()
    assert len(loaded.entries) == 1
    # Mutation: settle the tail of every version.
    assert path.read_bytes() == content
    assert names(tmp_path) == ["old.jsonl"]


def test_the_first_append_to_a_version_one_session_goes_to_a_new_file_beside_it(tmp_path: Path):
    path = tmp_path / "old.jsonl"
    content = OLD_HEADER + old_message("a") + b"garbage\n" + old_message("b") + b'{"type":"torn'
    path.write_bytes(content)
    log = JsonlLog.open(path)
    warnings: list[str] = []
    log.on_warning = warnings.append
    loaded = log.load()
    added = [user_entry(text, loaded.entries[-1].id) for text in ("c", "d", "e")]
    log.append([encode_entry(added[0]), encode_entry(added[1])])
    log.append([encode_entry(added[2])])

    assert path.read_bytes() == content
    new_path = log.path
    assert new_path is not None
    assert new_path != path
    header = log.header
    assert (header.version, header.cwd, header.parent_session) == (3, "/w", str(path))
    assert header.id != "old"
    assert header.extra == {"own": {"kept": 1}}
    stamp = header.timestamp.replace(":", "-").replace(".", "-")
    assert new_path == tmp_path / f"{stamp}_{header.id}.jsonl"
    assert mode(new_path) == 0o600
    assert len(warnings) == 1
    assert str(new_path) in warnings[0]

    # The new file is this writer's, the old one is free again.
    with pytest.raises(SessionLockedError):
        JsonlLog.open(new_path)
    JsonlLog.open(path).close()
    log.sync()
    log.close()
    assert entries_in(new_path) == [*loaded.entries, *added]
    assert orjson.loads(new_path.read_bytes().splitlines()[0])["parentSession"] == str(path)
    assert names(tmp_path) == sorted(["old.jsonl", new_path.name])


def test_a_version_one_session_that_cannot_move_yet_keeps_its_entries_waiting(tmp_path: Path):
    path = tmp_path / "old.jsonl"
    path.write_bytes(OLD_HEADER + old_message("a" * 5000))
    program = """
import os, resource, sys
from pathlib import Path
from session_store.codec import encode_entry
from session_store.jsonl_log import JsonlLog
from session_store.messages import UserMessage
from session_store.testing import user_entry
path = Path(sys.argv[1])
log = JsonlLog.open(path)
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, hard))
log.append([encode_entry(user_entry("first"))])
print(log.pending, log.path == path, sorted(os.listdir(path.parent)))
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
log.append([encode_entry(user_entry("second"))])
print(log.pending, log.path == path)
log.close()
print(log.path)
"""
    first, second, new_path = run_child(program, str(path)).splitlines()
    assert first == "1 True ['old.jsonl', 'old.jsonl.lock']"
    assert second == "0 False"
    assert len(entries_in(Path(new_path))) == 3


def test_a_version_two_file_is_appended_to_in_place(tmp_path: Path):
    path = tmp_path / "s.jsonl"
    hook = b'{"type":"message","id":"1","parentId":null,"message":{"role":"hookMessage","content":"x"}}\n'
    content = b'{"type":"session","version":2,"id":"two","timestamp":"t","cwd":"/"}\n' + hook
    path.write_bytes(content)
    log = JsonlLog.open(path)
    log.append([line("2", "1")])
    log.close()
    assert path.read_bytes().startswith(content)
    assert [entry.id for entry in entries_in(path)] == ["1", "2"]
