from __future__ import annotations

import os
import tracemalloc
from pathlib import Path

import orjson
import pytest

from session_store import catalog
from session_store.codec import encode_entry, encode_header
from session_store.entries import (
    CompactionEntry,
    CustomEntry,
    Entry,
    MessageEntry,
    SessionHeader,
    SessionInfoEntry,
)
from session_store.errors import SessionNotFoundError, UnsupportedVersionError
from session_store.jsonl_log import JsonlLog
from session_store.list_index import INDEX_NAME, LEAST_SESSIONS
from session_store.messages import AssistantMessage, CustomMessage, ImageContent, TextContent, UserMessage
from session_store.session_info import describe
from session_store.testing import new_header, user_entry


def header(session_id: str, *, timestamp: str = "2025-01-02T03:04:05.678Z", cwd: str = "/w") -> SessionHeader:
    return SessionHeader(id=session_id, timestamp=timestamp, cwd=cwd)


def write(folder: Path, head: SessionHeader, *entries: Entry | bytes, modified: int | None = None) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / catalog.file_name(head)
    lines = [entry if isinstance(entry, bytes) else encode_entry(entry) for entry in entries]
    path.write_bytes(encode_header(head) + b"".join(lines))
    if modified is not None:
        os.utime(path, (modified, modified))
    return path


def name(text: str) -> SessionInfoEntry:
    return SessionInfoEntry(id="n", parent_id=None, timestamp="t", name=text)


def padding(size: int) -> CustomEntry:
    return CustomEntry(id="p", parent_id=None, timestamp="t", custom_type="padding", data="x" * size)


def only(folder: Path) -> catalog.SessionInfo:
    (info,) = catalog.list_sessions(folder)
    return info


# Names ----------------------------------------------------------------------------------------------------------------


def test_the_default_folder_is_in_the_home_folder_unless_the_environment_says_else(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("AGENT_SESSION_DIR", raising=False)
    assert catalog.default_session_dir() == tmp_path / ".agent-session" / "sessions"
    monkeypatch.setenv("AGENT_SESSION_DIR", "~/elsewhere")
    assert catalog.default_session_dir() == tmp_path / "elsewhere"


@pytest.mark.parametrize(
    ("cwd", "folder"),
    [
        ("/home/me/a project", "--home-me-a project--"),
        ("/", "----"),
        ("C:\\work\\x", "--C--work-x--"),
        ("/a//b", "--a--b--"),
    ],
)
def test_a_folder_is_named_after_its_working_directory(cwd: str, folder: str):
    assert catalog.folder_for(cwd, Path("/root")) == Path("/root") / folder


def test_a_file_is_named_by_time_and_id():
    assert catalog.file_name(header("abc")) == "2025-01-02T03-04-05-678Z_abc.jsonl"


# Rows -----------------------------------------------------------------------------------------------------------------


def test_a_row_says_what_is_in_the_file(tmp_path: Path):
    assistant = AssistantMessage(content=(TextContent("answer"),))
    answer = MessageEntry(id="a", parent_id=None, timestamp="t", message=assistant)
    path = write(
        tmp_path,
        header("abc"),
        name("old"),
        user_entry("first\nline"),
        answer,
        name("new"),
        user_entry("2"),
        modified=1_700_000_000,
    )
    assert only(tmp_path) == catalog.SessionInfo(
        path=path,
        id="abc",
        cwd="/w",
        name="new",
        created="2025-01-02T03:04:05.678Z",
        modified=1_700_000_000.0,
        first_message="first\nline",
        message_count=3,
        size=path.stat().st_size,
        damaged=None,
    )


def test_sessions_are_listed_the_last_modified_first(tmp_path: Path):
    for number in (2, 3, 1):
        write(tmp_path, header(f"s{number}"), modified=1_700_000_000 + number)
    assert [info.id for info in catalog.list_sessions(tmp_path)] == ["s3", "s2", "s1"]
    assert catalog.list_sessions(tmp_path / "missing") == []


def test_other_files_are_no_sessions(tmp_path: Path):
    write(tmp_path, header("abc"))
    (tmp_path / "x.jsonl.lock").write_text("{}")
    (tmp_path / "x.jsonl.damaged").write_text("{}")
    (tmp_path / "folder.jsonl").mkdir()
    os.mkfifo(tmp_path / "pipe.jsonl")
    (tmp_path / "broken.jsonl").symlink_to(tmp_path / "nowhere")
    assert [info.id for info in catalog.list_sessions(tmp_path)] == ["abc"]


def test_all_sessions_are_those_of_every_working_directory_and_of_the_root(tmp_path: Path):
    write(tmp_path / "--a--", header("a"))
    write(tmp_path / "--b--", header("b"))
    write(tmp_path, header("c"))
    assert {info.id for info in catalog.list_all(tmp_path)} == {"a", "b", "c"}
    assert catalog.list_all(tmp_path / "missing") == []


# Mutation: read the whole file.
def many(root: Path) -> list[Path]:
    """Enough sessions for an index, in some folders and in the root."""
    paths = []
    for number in range(LEAST_SESSIONS):
        folder = root / f"--{number % 3}--" if number % 4 else root
        paths.append(write(folder, header(f"s{number}"), user_entry(f"asked {number}"), modified=1_000 + number))
    return paths


def test_a_list_is_the_same_with_and_without_its_index(tmp_path: Path):
    # Mutation: in `ListIndex.row` compare no time; or know rows by the names of files without their folders.
    paths = many(tmp_path)
    plain = [describe(path) for path in reversed(paths)]
    assert catalog.list_all(tmp_path) == plain
    assert (tmp_path / INDEX_NAME).stat().st_mode & 0o777 == 0o600
    assert catalog.list_all(tmp_path) == plain

    grown, touched, replaced, gone = paths[3], paths[5], paths[8], paths[13]
    with grown.open("ab") as file:
        file.write(encode_entry(name("grown")))
    os.utime(touched, (5_000, 5_000))
    write(replaced.parent, header("s8", cwd="/x"), user_entry("asked 8"), modified=1_008)
    gone.unlink()
    paths.append(write(tmp_path / "--new--", header("new"), modified=9_000))
    rows = catalog.list_all(tmp_path)
    assert sorted(rows, key=lambda row: row.path) == sorted(
        (describe(path) for path in paths if path != gone), key=lambda row: row.path
    )
    assert rows == sorted(rows, key=lambda row: row.modified, reverse=True)
    assert catalog.list_all(tmp_path) == rows


def test_a_second_list_opens_no_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    # Mutation: in `ListIndex.save` save nothing, or in `row` know nothing.
    many(tmp_path)
    first = catalog.list_all(tmp_path)
    monkeypatch.setattr("session_store.list_index.describe", None)
    assert catalog.list_all(tmp_path) == first


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no JSON",
        b"[]",
        b'{"format":2,"sessions":{}}',
        b'{"format":1,"sessions":null}',
    ],
)
def test_an_index_that_is_damaged_is_none(tmp_path: Path, content: bytes):
    # Mutation: in `_read` believe what the file says.
    paths = many(tmp_path)
    (tmp_path / INDEX_NAME).write_bytes(content)
    assert catalog.list_all(tmp_path) == [describe(path) for path in reversed(paths)]
    assert (tmp_path / INDEX_NAME).stat().st_size > len(content)


def test_a_row_of_the_index_that_is_damaged_is_none(tmp_path: Path):
    # Mutation: in `_read` believe what the rows say.
    paths = many(tmp_path)
    plain = catalog.list_all(tmp_path)
    index = orjson.loads((tmp_path / INDEX_NAME).read_bytes())
    rows = list(index["sessions"].values())
    rows[0][1]["id"] = 5
    del rows[1][1]["name"]
    rows[2][1]["more"] = ""
    rows[3][1]["message_count"] = "7"
    rows[4][1] = None
    index["sessions"][next(reversed(index["sessions"]))] = 7
    (tmp_path / INDEX_NAME).write_bytes(orjson.dumps(index))
    assert catalog.list_all(tmp_path) == plain == [describe(path) for path in reversed(paths)]


def test_a_folder_that_takes_no_index_is_listed_all_the_same(tmp_path: Path):
    # Mutation: in `ListIndex.save` let the error through.
    paths = many(tmp_path)
    (tmp_path / INDEX_NAME).mkdir()
    assert len(catalog.list_all(tmp_path)) == len(paths)


def test_a_few_sessions_need_no_index(tmp_path: Path):
    # Mutation: in `ListIndex.save` save any number.
    write(tmp_path, header("only"))
    catalog.list_all(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [catalog.file_name(header("only"))]


def test_of_a_large_file_only_head_and_tail_are_read(tmp_path: Path):
    path = write(tmp_path, header("abc"), user_entry("question"), padding(30_000_000), name("at the end"))
    tracemalloc.start()
    info = only(tmp_path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1_000_000
    assert (info.first_message, info.name, info.message_count) == ("question", "at the end", None)
    assert (info.size, info.damaged) == (path.stat().st_size, None)


def test_the_name_in_a_checkpoint_counts_where_the_entry_is_out_of_sight(tmp_path: Path):
    compaction = CompactionEntry(
        id="c", parent_id=None, timestamp="t", summary="s", first_kept_entry_id=None, checkpoint={"name": "from before"}
    )
    write(tmp_path, header("abc"), name("first"), padding(100_000), name("from before"), padding(100_000), compaction)
    assert only(tmp_path).name == "from before"


def test_a_name_in_the_head_is_better_than_none(tmp_path: Path):
    write(tmp_path, header("abc"), name("first"), padding(200_000))
    assert only(tmp_path).name == "first"


@pytest.mark.parametrize("text", ["long \U0001f600 text ", 'quote " and \\ and \n', "\\"])
@pytest.mark.parametrize("offset", range(12))
def test_a_first_message_longer_than_the_head_shows_its_beginning(tmp_path: Path, text: str, offset: int):
    whole = "." * offset + text * 40_000
    write(tmp_path, header("abc"), user_entry(whole))
    info = only(tmp_path)
    assert info.first_message == whole[:200]


def test_an_image_in_front_of_a_first_message_is_no_text(tmp_path: Path):
    message = UserMessage(content=(ImageContent("A" * 100_000, "image/png"), TextContent("what is this?")))
    write(tmp_path, header("abc"), MessageEntry(id="1", parent_id=None, timestamp="t", message=message))
    assert only(tmp_path).first_message == ""


def test_messages_of_extensions_are_no_first_message(tmp_path: Path):
    custom = CustomMessage(custom_type="c", content=(TextContent('"role":"user"'),))
    write(
        tmp_path, header("abc"), MessageEntry(id="1", parent_id=None, timestamp="t", message=custom), user_entry("hi")
    )
    assert only(tmp_path).first_message == "hi"


@pytest.mark.parametrize(
    ("content", "damaged"),
    [
        (b"", "no header"),
        (b"\x00" * 100, "no header"),
        (b"\x00" * 100_000, "no header"),
        (b"garbage\n", "no header"),
        (b'{"type":"message","id":"1"}\n', "no header"),
        (encode_header(header("x"))[:-9], "no header"),
        (encode_header(header("x")).replace(b":3,", b":9,"), "version 9"),
        (encode_header(header("x")) + b'{"type":"mess', "torn"),
        (encode_header(header("x")) + b"\x00\x00\n" + encode_entry(user_entry("q")), "some lines"),
        (
            encode_header(header("x")) + encode_entry(padding(100_000)) + b"half}\n" + encode_entry(name("n")),
            "some lines",
        ),
        (encode_header(header("x")) + encode_entry(padding(100_000)) + encode_entry(name("n")) + b'{"ty', "torn"),
    ],
)
def test_a_damaged_file_is_a_row_that_says_so(tmp_path: Path, content: bytes, damaged: str):
    path = tmp_path / "2025-01-01T00-00-00-000Z_in_the_name.jsonl"
    path.write_bytes(content)
    write(tmp_path, header("good"))
    rows = {info.path: info for info in catalog.list_sessions(tmp_path)}
    assert len(rows) == 2
    assert damaged in str(rows[path].damaged)
    assert rows[path].id == ("in_the_name" if damaged == "no header" else "x")
    assert rows[path].size == len(content)


def test_a_last_line_that_only_lacks_its_newline_is_no_damage(tmp_path: Path):
    path = write(tmp_path, header("abc"), user_entry("q"))
    path.write_bytes(path.read_bytes()[:-1])
    assert (only(tmp_path).damaged, only(tmp_path).message_count) == (None, 1)
    write(tmp_path, header("abc"), padding(100_000), name("n"))
    path.write_bytes(path.read_bytes()[:-1])
    assert only(tmp_path).damaged is None


def test_a_file_that_cannot_be_read_is_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    write(tmp_path, header("abc"))

    def refuse(fd: int, length: int, offset: int) -> bytes:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as fault:
        fault.setattr(os, "pread", refuse)
        info = only(tmp_path)
    assert (info.id, info.damaged) == ("abc", "cannot be read: Input/output error")


# Finding --------------------------------------------------------------------------------------------------------------


def test_the_most_recent_session_is_the_newest_that_can_be_opened(tmp_path: Path):
    assert catalog.most_recent(tmp_path / "missing") is None
    write(tmp_path, header("old"), modified=1_700_000_000)
    newer = write(tmp_path, header("newer"), b'{"torn', modified=1_700_000_001)
    future = write(tmp_path, header("future"), modified=1_700_000_002)
    future.write_bytes(future.read_bytes().replace(b'"version":3', b'"version":4'))
    (tmp_path / "garbage.jsonl").write_bytes(b"garbage\n")
    # Mutation: take the newest file, whatever it is.
    assert catalog.most_recent(tmp_path) == newer


def test_a_session_is_found_by_path_by_id_and_by_the_beginning_of_its_id(tmp_path: Path):
    first = write(tmp_path / "--a--", header("abc-1"))
    second = write(tmp_path / "--b--", header("abc-12"))
    third = write(tmp_path, header("with_underscore"))
    renamed = write(tmp_path / "--a--", header("renamed")).rename(tmp_path / "--a--" / "mine.jsonl")
    assert catalog.find(str(first), tmp_path) == first
    assert catalog.find("abc-1", tmp_path) == first
    assert catalog.find("abc-12", tmp_path) == second
    assert catalog.find("with_underscore", tmp_path) == third
    assert catalog.find("with_", tmp_path) == third
    assert catalog.find("renamed", tmp_path) == renamed
    for what in ("abc", "unknown", "", str(tmp_path / "missing.jsonl"), "missing.jsonl"):
        with pytest.raises(SessionNotFoundError):
            catalog.find(what, tmp_path)


# Forking --------------------------------------------------------------------------------------------------------------


def loaded(path: Path) -> tuple[Entry, ...]:
    log = JsonlLog.open(path, read_only=True)
    entries = log.load().entries
    log.close()
    return entries


# Mutation: write the entries anew; spaces, key order and damaged lines are lost.
def test_a_fork_has_every_line_byte_for_byte_under_a_new_header(tmp_path: Path):
    body = (
        b'{ "type" : "custom", "data" : 1.50, "id" : "1", "parentId" : null }\n'
        b"garbage that stays\n"
        + encode_entry(user_entry("x" * 3_000_000, "1"))
        + b'{"type":"custom","data":"last","id":"3","parentId":"1"}'
    )
    source = tmp_path / "source.jsonl"
    source.write_bytes(encode_header(header("source")) + body)
    fork = header("fork")
    catalog.fork_file(source, tmp_path / "new" / "fork.jsonl", fork)
    assert (tmp_path / "new" / "fork.jsonl").read_bytes() == encode_header(fork) + body + b"\n"
    assert loaded(tmp_path / "new" / "fork.jsonl") == loaded(source)
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "new" / "fork.jsonl").stat().st_mode & 0o777 == 0o600


def test_a_torn_line_stays_behind_and_the_source_is_only_read(tmp_path: Path):
    source = write(tmp_path, header("source"), user_entry("q"))
    whole = source.read_bytes()
    source.write_bytes(whole + b'{"torn')
    catalog.fork_file(source, tmp_path / "fork.jsonl", header("fork"))
    assert (tmp_path / "fork.jsonl").read_bytes().splitlines()[1:] == whole.splitlines()[1:]
    assert source.read_bytes() == whole + b'{"torn'


def test_a_session_that_is_being_written_can_be_forked(tmp_path: Path):
    log = JsonlLog.create(tmp_path / "source.jsonl", new_header())
    log.append([encode_entry(user_entry("q"))])
    catalog.fork_file(tmp_path / "source.jsonl", tmp_path / "fork.jsonl", header("fork"))
    log.append([encode_entry(user_entry("later"))])
    log.close()
    assert len(loaded(tmp_path / "fork.jsonl")) == 1


def test_a_fork_of_given_lines_has_just_these(tmp_path: Path):
    source = write(tmp_path, header("source"), user_entry("a"), user_entry("b"))
    lines = source.read_bytes().splitlines(keepends=True)[2:]
    catalog.fork_file(source, tmp_path / "fork.jsonl", header("fork"), lines)
    assert (tmp_path / "fork.jsonl").read_bytes() == encode_header(header("fork")) + lines[0]


@pytest.mark.parametrize("version", [1, 2])
def test_a_fork_of_an_older_version_says_the_same(tmp_path: Path, version: int):
    head = encode_header(header("source")).replace(b'"version":3', f'"version":{version}'.encode())
    hook = b'{"type":"message","id":"00000001","parentId":null,"message":{"role":"hookMessage","content":"x"}}\n'
    source = tmp_path / "source.jsonl"
    source.write_bytes(head + hook)
    # Mutation: put the header of version 3 over lines of version 2; the renamed role is unknown then.
    catalog.fork_file(source, tmp_path / "fork.jsonl", header("fork"))
    assert loaded(tmp_path / "fork.jsonl") == loaded(source)
    (entry,) = loaded(source)
    assert isinstance(entry, MessageEntry)
    assert isinstance(entry.message, CustomMessage)


def test_a_fork_replaces_nothing_and_leaves_nothing_when_it_fails(tmp_path: Path):
    source = write(tmp_path, header("source"), user_entry("q"))
    before = source.read_bytes()
    with pytest.raises(FileExistsError):
        catalog.fork_file(source, source, header("fork"))
    assert source.read_bytes() == before
    with pytest.raises(SessionNotFoundError):
        catalog.fork_file(tmp_path / "missing.jsonl", tmp_path / "fork.jsonl", header("fork"))
    source.write_bytes(before.replace(b'"version":3', b'"version":8'))
    with pytest.raises(UnsupportedVersionError):
        catalog.fork_file(source, tmp_path / "fork.jsonl", header("fork"))
    assert list(tmp_path.iterdir()) == [source]
