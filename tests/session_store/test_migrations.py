from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import orjson
import pytest

from session_store.entries import CompactionEntry, MessageEntry, ThinkingLevelChangeEntry
from session_store.errors import UnsupportedVersionError
from session_store.jsonl_log import JsonlLog
from session_store.messages import AssistantMessage, CustomMessage, UserMessage
from session_store.migrations import upcast, version_of


def write(path: Path, *lines: dict[str, Any] | bytes) -> Path:
    path.write_bytes(b"".join(line if isinstance(line, bytes) else orjson.dumps(line) + b"\n" for line in lines))
    return path


HEADER: dict[str, Any] = {
    "type": "session",
    "id": "old",
    "timestamp": "t",
    "cwd": "/w",
    "provider": "p",
    "modelId": "m",
}


def user(text: str) -> dict[str, Any]:
    return {"type": "message", "timestamp": "t", "message": {"role": "user", "content": text, "timestamp": 1}}


# Mutation: count the entries instead of the parsable lines, or the damaged lines too.
def test_ids_of_version_one_are_the_numbers_of_the_parsable_lines(tmp_path: Path):
    path = write(tmp_path / "s.jsonl", HEADER, user("a"), b"{half\n", {"no": "type"}, b"\n", user("b"), user("c"))
    for _ in range(2):
        entries = JsonlLog.open(path, read_only=True).load().entries
        assert [(entry.id, entry.parent_id) for entry in entries] == [
            ("00000001", None),
            ("00000003", "00000001"),
            ("00000004", "00000003"),
        ]


@pytest.mark.parametrize(
    ("index", "kept"),
    [
        (1, "00000001"),
        (2, "00000002"),
        (0, None),
        (3, None),
        (99, None),
        (-1, None),
        ("1", None),
        (True, None),
        (None, None),
    ],
)
def test_the_kept_index_of_version_one_becomes_the_id_of_that_line(tmp_path: Path, index: Any, kept: str | None):
    compaction = {"type": "compaction", "summary": "s", "firstKeptEntryIndex": index, "tokensBefore": 9}
    path = write(tmp_path / "s.jsonl", HEADER, user("a"), user("b"), compaction)
    *_, entry = JsonlLog.open(path, read_only=True).load().entries
    assert isinstance(entry, CompactionEntry)
    # Mutation: leave `firstKeptEntryIndex` in the line; it would be an unknown field of version 3.
    assert (entry.first_kept_entry_id, entry.extra) == (kept, None)


@pytest.mark.parametrize("version", [1, 2])
def test_the_role_that_version_three_renamed_is_read_under_its_new_name(tmp_path: Path, version: int):
    hook = {"role": "hookMessage", "customType": "c", "content": "x", "display": True}
    line = {"type": "message", "id": "1", "parentId": None, "message": hook}
    path = write(tmp_path / "s.jsonl", {**HEADER, "version": version}, line)
    (entry,) = JsonlLog.open(path, read_only=True).load().entries
    assert isinstance(entry, MessageEntry)
    assert isinstance(entry.message, CustomMessage)


def test_version_three_keeps_a_role_it_does_not_know():
    line = {"type": "message", "id": "1", "message": {"role": "hookMessage"}}
    assert upcast(line, version=3, number=1, parent_id=None) is line


def test_an_upcaster_leaves_its_line_alone():
    line = {"type": "compaction", "firstKeptEntryIndex": 1}
    upcast(line, version=1, number=2, parent_id="00000001")
    assert line == {"type": "compaction", "firstKeptEntryIndex": 1}


@pytest.mark.parametrize("version", [4, 99, "3", 2.5, True, [3], float("inf")])
def test_a_version_this_library_does_not_know_is_refused(tmp_path: Path, version: Any):
    with pytest.raises(UnsupportedVersionError):
        version_of({"version": version})


# Mutation: settle the tail, or write anything, before the version is known.
def test_a_file_of_a_newer_version_is_refused_by_name_and_left_untouched(tmp_path: Path):
    path = write(tmp_path / "s.jsonl", {**HEADER, "version": 4}, b'{"type":"torn')
    before = path.read_bytes()
    with pytest.raises(UnsupportedVersionError, match=r"s\.jsonl.*version 4 is newer than 3"):
        JsonlLog.open(path)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["s.jsonl"]


@pytest.mark.parametrize(("version", "read_as"), [(None, 1), (1, 1), (0, 1), (-3, 1), (2, 2), (2.0, 2), (3, 3)])
def test_versions_that_are_known(version: Any, read_as: int):
    assert version_of({"version": version}) == read_as


def test_a_real_session_of_version_one_is_read_whole():
    folder = os.environ.get("AGENT_SESSION_TEST_DATA")
    if folder is None:
        pytest.skip("AGENT_SESSION_TEST_DATA does not name the folder with real-session-v1-a.jsonl")
    log = JsonlLog.open(Path(folder) / "real-session-v1-a.jsonl", read_only=True)
    loaded = log.load()
    assert not loaded.damage
    kinds = Counter(type(entry) for entry in loaded.entries)
    assert kinds[MessageEntry] == 914
    assert kinds[ThinkingLevelChangeEntry] == 103
    messages = [entry.message for entry in loaded.entries if isinstance(entry, MessageEntry)]
    assert sum(isinstance(message, AssistantMessage) and not message.content for message in messages) == 14
    assert any(isinstance(message, UserMessage) for message in messages)
    assert [entry.parent_id for entry in loaded.entries] == [None, *(entry.id for entry in loaded.entries[:-1])]
    assert loaded.entries[-1].id == f"{len(loaded.entries):08x}"
