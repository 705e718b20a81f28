"""The session manager: appends, what follows from them, opening, forking, and what it refuses."""

from __future__ import annotations

import hashlib
import os
import resource
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from session_store import LEAF_CUSTOM_TYPE, SessionManager
from session_store.codec import decode_entry, parse_line
from session_store.context import build_context, pairs_ok
from session_store.entries import (
    CompactionEntry,
    ContextEditEntry,
    CustomEntry,
    Entry,
    LabelEntry,
    MessageEntry,
    SessionHeader,
)
from session_store.errors import (
    DuplicateEntryError,
    EntryNotFoundError,
    InvalidBoundaryError,
    SessionLockedError,
    SessionNotFoundError,
    SessionReadOnlyError,
    SessionWriteError,
)
from session_store.messages import (
    AssistantMessage,
    BashExecutionMessage,
    Content,
    Cost,
    SystemMessage,
    TextContent,
    ToolCall,
    ToolResultMessage,
    UnknownMessage,
    Usage,
    UserMessage,
    as_content,
)
from tests.session_store.branch_building import shown_ids


@pytest.fixture(params=["memory", "file"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SessionManager]:
    opened = (
        SessionManager.in_memory(tmp_path)
        if request.param == "memory"
        else SessionManager.create(tmp_path, session_dir=tmp_path / "sessions")
    )
    with opened:
        yield opened


@pytest.fixture
def on_disk(tmp_path: Path) -> Iterator[SessionManager]:
    with SessionManager.create(tmp_path, session_dir=tmp_path / "sessions") as opened:
        yield opened


def said(text: str) -> UserMessage:
    return UserMessage(content=as_content(text), timestamp=1)


def answered(text: str, *calls: str, **fields: Any) -> AssistantMessage:
    blocks: list[Content] = [TextContent(text), *(ToolCall(call, "read", {}) for call in calls)]
    return AssistantMessage(content=tuple(blocks), provider="acme", model="large", **fields)


def prefix_hash(path: Path, size: int) -> str:
    return hashlib.sha256(path.read_bytes()[:size]).hexdigest()


def path_of(manager: SessionManager) -> Path:
    assert manager.path is not None
    return manager.path


def reopened(manager: SessionManager) -> SessionManager:
    manager.close()
    return SessionManager.open(path_of(manager))


# Appending --------------------------------------------------------------------------------------

APPENDS: dict[str, Callable[[SessionManager, str], Entry]] = {
    "message": lambda m, last: m.append_message(said("hello \ud83d there")),
    "answer": lambda m, last: m.append_message(answered("yes", "c1", usage=Usage(input=3, cost=Cost(total=0.5)))),
    "result": lambda m, last: m.append_message(
        ToolResultMessage(tool_call_id="c1", tool_name="read", content=as_content("x"), details={"n": float("nan")})
    ),
    "unknown message": lambda m, last: m.append_message(UnknownMessage(role="oracle", raw={"role": "oracle", "x": 1})),
    "compaction": lambda m, last: m.append_compaction("summary", last, 100, details={"readFiles": ["a"]}),
    "context edit": lambda m, last: m.append_context_edit(last, "shorter"),
    "branch summary": lambda m, last: m.append_branch_summary(last, "left", parent_id=last),
    "custom": lambda m, last: m.append_custom("state", {"n": 1}),
    "custom message": lambda m, last: m.append_custom_message("note", "look", display=False, details=[1]),
    "model change": lambda m, last: m.append_model_change("acme", "small"),
    "level change": lambda m, last: m.append_thinking_level_change("high"),
    "label": lambda m, last: m.append_label(last, "here"),
    "name": lambda m, last: m.set_name("mine"),
    "usage": lambda m, last: m.append_usage("compaction", "acme", "small", Usage(output=5)),
}


@pytest.mark.parametrize("append", APPENDS.values(), ids=APPENDS)
def test_an_appended_entry_is_the_leaf_and_what_a_reader_of_the_file_finds(
    append: Callable[[SessionManager, str], Entry], on_disk: SessionManager
):
    # Mutation: returning the entry that was built instead of the one that was decoded.
    last = on_disk.append_message(said("first"))
    entry = append(on_disk, last.id)
    assert on_disk.leaf_id == entry.id
    assert entry.parent_id == last.id
    assert on_disk.get_entry(entry.id) is entry
    line = path_of(on_disk).read_bytes().splitlines()[-1]
    assert decode_entry(parse_line(line) or {}) == entry
    assert line.startswith(f'{{"type":"{parse_line(line)["type"]}","id":"{entry.id}","parentId":'.encode())  # type: ignore[index]
    with reopened(on_disk) as again:
        assert list(again) == list(on_disk)
        assert again.build_messages() == on_disk.build_messages()
        assert not again.damage


def test_an_entry_is_in_the_file_when_its_append_returns(on_disk: SessionManager):
    on_disk.append_message(said("now"))
    with SessionManager.open(path_of(on_disk), read_only=True) as reader:
        assert reader.build_messages() == [said("now")]


def test_a_caller_given_id_is_taken_and_a_taken_one_refused(manager: SessionManager):
    # Mutation: not looking the id up.
    entry = manager.append_message(said("a"), entry_id="mine")
    assert entry.id == "mine"
    with pytest.raises(DuplicateEntryError):
        manager.append_message(said("b"), entry_id="mine")
    assert len(manager) == 1


def test_an_unknown_parent_or_target_is_refused_and_nothing_changes(manager: SessionManager):
    # Mutation: leaving out any of the `_require` calls.
    last = manager.append_message(said("a"))
    for refused in (
        lambda: manager.append_message(said("b"), parent_id="nowhere"),
        lambda: manager.append_context_edit("nowhere", None),
        lambda: manager.append_label("nowhere", "x"),
        lambda: manager.branch("nowhere"),
        lambda: manager.append_branch_summary("nowhere", "x", parent_id=last.id),
        lambda: manager.append_branch_summary(last.id, "x", parent_id="nowhere"),
        lambda: manager.get_entry("nowhere"),
        lambda: manager.get_branch("nowhere"),
        lambda: manager.get_children("nowhere"),
        lambda: manager.build_messages("nowhere"),
    ):
        with pytest.raises(EntryNotFoundError):
            refused()
    assert list(manager) == [last]


def test_a_value_that_is_no_json_is_refused_and_nothing_changes(manager: SessionManager):
    with pytest.raises(TypeError, match="data"):
        manager.append_custom("state", {"when": object()})
    assert len(manager) == 0
    assert manager.leaf_id is None


def test_a_message_may_be_appended_under_another_entry(manager: SessionManager):
    first = manager.append_message(said("first"))
    manager.append_message(said("second"))
    third = manager.append_message(said("third"), parent_id=first.id)
    assert manager.get_branch() == [first, third]
    assert manager.build_messages() == [said("first"), said("third")]


# Large texts ------------------------------------------------------------------------------------


def test_large_text_is_recorded_as_head_tail_and_pointer_and_its_whole_is_kept(manager: SessionManager):
    # Mutation: recording the message as given.
    text = "start " + "x" * (12 << 20) + " end"
    entry = manager.append_message(ToolResultMessage(tool_call_id="c", tool_name="bash", content=as_content(text)))
    assert isinstance(entry.message, ToolResultMessage)
    recorded = entry.message.text
    assert len(recorded) < 40 * 1024
    assert recorded.startswith("start ")
    assert recorded.endswith(" end")
    digest = hashlib.sha256(text.encode()).hexdigest()
    assert digest in recorded
    assert manager.blobs.get(digest) == text.encode()
    assert manager.projection.messages[0].message is entry.message


def test_shell_output_custom_messages_and_edits_are_bounded_too(manager: SessionManager):
    # Mutation: bounding the messages of message entries only.
    text = "y" * (300 * 1024)
    ran = manager.append_message(BashExecutionMessage(command="cat", output=text))
    assert isinstance(ran.message, BashExecutionMessage)
    assert len(ran.message.output) < 40 * 1024
    noted = manager.append_custom_message("note", text)
    assert len(noted.content[0].text) < 40 * 1024  # type: ignore[union-attr]
    edited = manager.append_context_edit(noted.id, text)
    assert edited.replacement is not None
    assert len(edited.replacement[0].text) < 40 * 1024  # type: ignore[union-attr]


def test_signed_text_and_text_at_the_limit_are_recorded_as_they_are(manager: SessionManager):
    # Mutation: bounding signed text.
    at_limit = "z" * (256 * 1024)
    message = AssistantMessage(content=(TextContent(at_limit), TextContent(at_limit * 2, text_signature="sig")))
    assert manager.append_message(message).message == message


def test_the_folder_of_a_session_in_memory_is_private_and_ends_with_it(tmp_path: Path):
    # Mutation: not removing the folder.
    with SessionManager.in_memory(tmp_path) as manager:
        manager.append_message(said("x" * (300 * 1024)))
        (folder,) = [part for part in manager.build_messages()[0].text.split() if "/blobs/" in part]  # type: ignore[union-attr]
        blobs = Path(folder).parent
        assert blobs.is_dir()
        assert blobs.stat().st_mode & 0o077 == 0
    assert not blobs.parent.exists()


# Compaction -------------------------------------------------------------------------------------


def test_a_compaction_never_changes_earlier_bytes(on_disk: SessionManager):
    # Mutation: rewriting the file at a compaction.
    on_disk.append_message(said("a"))
    kept = on_disk.append_message(said("b"))
    path = path_of(on_disk)
    size = path.stat().st_size
    before = prefix_hash(path, size)
    on_disk.append_compaction("summary", kept.id, 10)
    assert prefix_hash(path, size) == before
    assert path.stat().st_size > size


def test_a_refused_boundary_changes_nothing(manager: SessionManager):
    # Mutation: checking after the append.
    manager.append_message(said("a"))
    manager.append_message(answered("b", "c1"))
    result = manager.append_message(ToolResultMessage(tool_call_id="c1", tool_name="read", content=()))
    for boundary in ("nowhere", result.id):
        with pytest.raises(InvalidBoundaryError):
            manager.append_compaction("summary", boundary, 10)
    assert len(manager) == 3
    assert manager.leaf_id == result.id


def test_a_boundary_on_another_branch_is_refused(manager: SessionManager):
    first = manager.append_message(said("a"))
    other = manager.append_message(said("b"))
    manager.branch(first.id)
    with pytest.raises(InvalidBoundaryError):
        manager.append_compaction("summary", other.id, 10)


def test_an_undo_needs_an_ancestor_only(manager: SessionManager):
    # Mutation: checking an undo like any compaction, or not at all.
    first = manager.append_message(said("a"))
    second = manager.append_message(said("b"))
    compaction = manager.append_compaction("summary", second.id, 10)
    with pytest.raises(InvalidBoundaryError):
        manager.append_compaction("", "nowhere", 10, details={"undoes": compaction.id})
    manager.append_compaction("", first.id, 10, details={"undoes": compaction.id})
    manager.append_context_edit(manager.leaf_id or "", None)
    assert manager.build_messages() == [said("a"), said("b")]


def prepared(manager: SessionManager, first_kept: str | None, **fields: Any) -> CompactionEntry:
    return CompactionEntry(
        id="prepared", parent_id="elsewhere", timestamp="", summary="s", first_kept_entry_id=first_kept, **fields
    )


def test_a_prepared_compaction_is_hung_on_the_leaf_of_now_with_its_edits_before_it_in_one_write(
    on_disk: SessionManager,
):
    # Mutation: one append for each, or keeping the prepared parent.
    writes: list[int] = []
    log = on_disk._log
    append = log.append

    def counted(lines: Sequence[bytes]) -> None:
        writes.append(len(lines))
        append(lines)

    log.append = counted  # type: ignore[method-assign]
    first = on_disk.append_message(said("a"))
    big = on_disk.append_message(said("b"))
    meanwhile = on_disk.append_message(said("meanwhile"))
    compaction, edits = on_disk.append_compaction_entry(
        prepared(on_disk, big.id), [(big.id, as_content("smaller")), (first.id, None)]
    )
    assert writes == [1, 1, 1, 3]
    assert [edit.batch for edit in edits] == ["prepared", "prepared"]
    assert [edits[0].parent_id, edits[1].parent_id, compaction.parent_id] == [meanwhile.id, edits[0].id, edits[1].id]
    assert shown_ids(on_disk.projection) == ["prepared", big.id, meanwhile.id]
    assert on_disk.build_messages()[1] == said("smaller")


def test_edits_whose_compaction_was_never_written_are_ignored_on_load(on_disk: SessionManager):
    first = on_disk.append_message(said("a"))
    second = on_disk.append_message(said("b"))
    on_disk.append_compaction_entry(prepared(on_disk, second.id), [(second.id, None)])
    path = path_of(on_disk)
    on_disk.close()
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-1]))
    with SessionManager.open(path) as again:
        assert again.build_messages() == [said("a"), said("b")]
        assert [record.kind for record in again.damage.records] == ["orphan_edit"]
        assert shown_ids(again.projection) == [first.id, second.id]


def test_an_edit_of_a_batch_may_omit_the_compaction_itself(manager: SessionManager):
    first = manager.append_message(said("a"))
    manager.append_compaction_entry(prepared(manager, first.id, details={"undoes": "x"}), [("prepared", None)])
    assert manager.build_messages() == [said("a")]


def test_a_batch_with_a_taken_id_or_an_unknown_target_is_refused(manager: SessionManager):
    first = manager.append_message(said("a"), entry_id="prepared")
    with pytest.raises(DuplicateEntryError):
        manager.append_compaction_entry(prepared(manager, None))
    with pytest.raises(EntryNotFoundError):
        manager.append_compaction_entry(replace(prepared(manager, None), id="new"), [("nowhere", None)])
    assert list(manager) == [first]


def test_a_compaction_carries_a_checkpoint_of_its_branch(manager: SessionManager):
    # Mutation: leaving any of its parts out.
    manager.append_model_change("acme", "small")
    manager.append_thinking_level_change("high")
    manager.set_name("mine")
    manager.append_custom("state", {"n": 1})
    manager.append_custom("state", {"n": 2})
    large = manager.append_custom("large", "x" * 5000)
    usage = Usage(input=10, output=2, cost=Cost(total=0.25))
    kept = manager.append_message(answered("yes", usage=usage))
    manager.append_usage("compaction", "acme", "tiny", Usage(input=1))
    compaction = manager.append_compaction("summary", kept.id, 100, active_tools=["read", "bash"])
    assert compaction.checkpoint == {
        "provider": "acme",
        "modelId": "large",
        "thinkingLevel": "high",
        "name": "mine",
        "activeTools": ["read", "bash"],
        "totals": {
            "acme/large": {"input": 10, "output": 2, "cacheRead": 0, "cacheWrite": 0, "cost": 0.25, "requests": 1},
            "acme/tiny": {
                "input": 1,
                "output": 0,
                "cacheRead": 0,
                "cacheWrite": 0,
                "cost": 0.0,
                "requests": 1,
                "unknownCost": True,
            },
        },
        "totalsByKind": {
            "answer": {"input": 10, "output": 2, "cacheRead": 0, "cacheWrite": 0, "cost": 0.25, "requests": 1},
            "compaction": {
                "input": 1,
                "output": 0,
                "cacheRead": 0,
                "cacheWrite": 0,
                "cost": 0.0,
                "requests": 1,
                "unknownCost": True,
            },
        },
        "entries": 8,
        "bytes": manager._tree.bytes_before(compaction.id),
        "custom": {"state": {"n": 2}},
        "customOffsets": {"large": {"entryId": large.id, "offset": manager.offset_of(large.id)}},
    }


def test_offsets_name_where_lines_begin_in_the_file(on_disk: SessionManager):
    # Mutation: counting offsets without the header.
    entries = [on_disk.append_message(said("é" * number)) for number in range(3)]
    entries += on_disk.append_compaction_entry(prepared(on_disk, entries[1].id), [(entries[2].id, None)])[1]  # type: ignore[arg-type]
    raw = path_of(on_disk).read_bytes()
    for opened in (on_disk, reopened(on_disk)):
        with opened:
            for entry in entries:
                offset = opened.offset_of(entry.id)
                assert offset is not None
                assert f'"id":"{entry.id}"'.encode() in raw[offset : raw.index(b"\n", offset)]


def test_a_compaction_on_a_branch_with_system_messages_carries_their_replay(manager: SessionManager):
    # Mutation: replaying only what stands before the boundary.
    tool = {"name": "read", "v": 1}
    manager.append_message(SystemMessage(content=as_content("one"), sections={"a": "A", "b": "B"}, tools_added=(tool,)))
    manager.append_message(said("u"))
    manager.append_message(
        SystemMessage(
            content=as_content("two"),
            sections={"b": "B2", "a": None},
            tools_removed=("read",),
            tools_added=({"name": "bash"}, {"name": "read", "v": 2}),
        )
    )
    kept = manager.append_message(said("v"))
    first = manager.append_compaction("summary", kept.id, 10)
    assert first.system_message is not None
    assert first.system_message.content == as_content("one\n\ntwo")
    assert first.system_message.sections == {"b": "B2"}
    assert first.system_message.tools_added == ({"name": "bash"}, {"name": "read", "v": 2})
    manager.append_message(SystemMessage(content=as_content("three")))
    last = manager.append_message(said("w"))
    second = manager.append_compaction("summary", last.id, 10)
    assert second.system_message is not None
    assert second.system_message.content == as_content("one\n\ntwo\n\nthree")
    assert all(not isinstance(message, SystemMessage) for message in manager.build_messages())


def test_a_compaction_without_system_messages_carries_none(manager: SessionManager):
    kept = manager.append_message(said("u"))
    assert manager.append_compaction("summary", kept.id, 10).system_message is None


# Branches ---------------------------------------------------------------------------------------


def test_moving_the_leaf_is_recorded_so_that_whoever_reopens_is_there(on_disk: SessionManager):
    # Mutation: moving the leaf in memory only.
    first = on_disk.append_message(said("a"))
    on_disk.append_message(said("b"))
    moved = on_disk.branch(first.id)
    assert isinstance(moved, CustomEntry)
    assert moved.custom_type == LEAF_CUSTOM_TYPE
    assert moved.parent_id == first.id
    assert moved.data == {"targetId": first.id, "offset": on_disk.offset_of(first.id)}
    assert on_disk.build_messages() == [said("a")]
    with reopened(on_disk) as again:
        assert again.leaf_id == moved.id
        assert again.build_messages() == [said("a")]


def test_moving_to_the_leaf_appends_nothing(manager: SessionManager):
    first = manager.append_message(said("a"))
    assert manager.branch(first.id) is None
    assert len(manager) == 1


def test_the_leaf_can_be_moved_before_the_first_entry(manager: SessionManager):
    manager.append_message(said("a"))
    moved = manager.branch(None)
    assert moved is not None
    assert moved.parent_id is None
    manager.append_message(said("b"))
    assert manager.build_messages() == [said("b")]
    assert len(manager.get_tree()) == 2


def test_a_branch_summary_moves_the_leaf_and_names_the_branch_it_left(manager: SessionManager):
    first = manager.append_message(said("a"))
    left = manager.append_message(said("b"))
    summary = manager.append_branch_summary(left.id, "we tried b", parent_id=first.id)
    assert (summary.from_id, summary.parent_id) == (left.id, first.id)
    assert shown_ids(manager.projection) == [first.id, summary.id]


def test_other_leaves_can_be_asked_for_without_moving(manager: SessionManager):
    first = manager.append_message(said("a"))
    second = manager.append_message(said("b"))
    assert manager.build_messages(first.id) == [said("a")]
    assert shown_ids(manager.build_projection(first.id)) == [first.id]
    assert manager.leaf_id == second.id


def test_the_newest_state_of_an_extension_is_that_of_the_branch(manager: SessionManager):
    # Mutation: keeping the newest of the file.
    assert manager.get_custom("state") is None
    first = manager.append_custom("state", 1)
    manager.append_custom("state", 2)
    assert manager.get_custom("state") == 2
    manager.branch(first.id)
    assert manager.get_custom("state") == 1
    manager.append_custom("state", 3)
    assert manager.get_custom("state") == 3


def test_name_and_labels_are_those_of_the_whole_file(manager: SessionManager):
    first = manager.append_message(said("a"))
    manager.append_label(first.id, " here ")
    manager.set_name(" mine ")
    manager.branch(first.id)
    assert (manager.name, dict(manager.labels)) == ("mine", {first.id: "here"})
    assert manager.get_tree()[0].label == "here"
    manager.append_label(first.id, None)
    manager.set_name("")
    assert (manager.name, dict(manager.labels)) == (None, {})


# Totals -----------------------------------------------------------------------------------------


def test_totals_count_every_usage_once_compacted_history_and_other_branches_included(manager: SessionManager):
    # Mutation: summing the branch only; counting compactions as answers.
    first = manager.append_message(answered("a", usage=Usage(input=10, cost=Cost(total=0.1))))
    assert manager.totals.all.total_tokens == 10
    manager.append_message(answered("b", usage=Usage(output=5, cost=Cost(total=0.2))))
    manager.branch(first.id)
    result = ToolResultMessage(tool_call_id="c", tool_name="t", content=(), usage=Usage(input=1, cost=Cost(total=0.3)))
    manager.append_message(result)
    manager.append_branch_summary(first.id, "s", parent_id=first.id, usage=Usage(input=2, cost=Cost(total=0.4)))
    manager.append_usage("compaction", "acme", "tiny", Usage(input=100, cost=Cost(total=1.0)))
    manager.append_compaction("s", None, 1, usage=Usage(input=200, cost=Cost(total=2.0)), model="acme/tiny")
    manager.append_message(answered("", stop_reason="error"))
    for totals in (manager.totals, SessionManager.fork_from(manager).totals):
        assert {kind: spent.total_tokens for kind, spent in totals.by_kind.items()} == {
            "answer": 15,
            "tool": 1,
            "branch_summary": 2,
            "compaction": 300,
        }
        assert totals.compaction.cost == pytest.approx(3.0)
        assert totals.by_model["acme/tiny"].total_tokens == 300
        assert totals.by_model["acme/large"].total_tokens == 15
        assert str(totals.all) == "318 tokens, $4.00"


def test_a_price_nobody_knows_makes_a_sum_a_lower_bound(manager: SessionManager):
    # Mutation: taking an unknown price for zero.
    manager.append_message(answered("unpriced", usage=Usage(input=1)))
    assert str(manager.totals.all) == "1 tokens, cost unknown"
    manager.append_message(answered("a", usage=Usage(input=1, cost=Cost(total=0.03))))
    manager.append_message(answered("b", usage=Usage(input=1)))
    assert str(manager.totals.all) == "3 tokens, $0.03+"


# Warnings ---------------------------------------------------------------------------------------


def test_a_result_that_is_not_sent_is_warned_about_once(manager: SessionManager):
    # Mutation: warning at every request.
    warnings: list[str] = []
    manager.on_warning = warnings.append
    orphan = manager.append_message(ToolResultMessage(tool_call_id="gone", tool_name="t", content=()))
    manager.build_messages()
    manager.build_messages()
    assert len(warnings) == 1
    assert orphan.id in warnings[0]


def test_a_boundary_that_is_nowhere_is_warned_about_and_never_brings_everything_back(on_disk: SessionManager):
    # Mutation: resending the whole history.
    for number in range(3):
        on_disk.append_message(said(str(number)))
    line = (
        f'{{"type":"compaction","id":"c","parentId":"{on_disk.leaf_id}","timestamp":"",'
        '"summary":"s","firstKeptEntryId":"foreign","tokensBefore":1}\n'
    )
    path = path_of(on_disk)
    on_disk.close()
    with path.open("a") as file:
        file.write(line)
    with SessionManager.open(path) as again:
        warnings: list[str] = []
        again.on_warning = warnings.append
        assert shown_ids(again.projection) == ["c"]
        assert len(warnings) == 1
        assert "'foreign'" in warnings[0]


# Opening ----------------------------------------------------------------------------------------


def test_a_new_session_is_a_private_file_in_the_folder_of_its_working_directory(
    tmp_path: Path, isolated_environment: Path
):
    with SessionManager.create(tmp_path, session_id="mine") as manager:
        path = path_of(manager)
        assert path.parent.parent == isolated_environment / "sessions"
        assert path.parent.name == f"--{str(tmp_path).strip('/').replace('/', '-')}--"
        assert path.name.endswith("_mine.jsonl")
        assert (manager.session_id, manager.cwd) == ("mine", str(tmp_path))
        assert path.stat().st_mode & 0o777 == 0o600
        assert repr(manager) == f"<SessionManager mine {path}, 0 entries>"


@pytest.mark.parametrize("session_id", ["", "../x", "a/b", ".hidden", "a b"])
def test_a_session_id_that_is_no_name_is_refused(session_id: str, tmp_path: Path):
    # Mutation: using any text as a file name.
    with pytest.raises(ValueError, match="session id"):
        SessionManager.create(tmp_path, session_dir=tmp_path, session_id=session_id)


def test_the_newest_session_of_a_working_directory_is_continued_else_one_is_created(tmp_path: Path):
    with SessionManager.continue_recent(tmp_path) as created:
        created.append_message(said("a"))
    with SessionManager.continue_recent(tmp_path) as continued:
        assert continued.path == created.path
        assert continued.build_messages() == [said("a")]
    with SessionManager.continue_recent(tmp_path / "elsewhere") as other:
        assert other.path != created.path


def test_sessions_are_listed_and_found_by_id_and_path(tmp_path: Path):
    with SessionManager.create(tmp_path, session_id="one") as first:
        first.append_message(said("hello"))
    with SessionManager.create(tmp_path / "b", session_id="two"):
        pass
    assert [info.id for info in SessionManager.list(tmp_path)] == ["one"]
    assert sorted(info.id for info in SessionManager.list_all()) == ["one", "two"]
    assert SessionManager.find("one") == first.path
    assert SessionManager.find(path_of(first)) == first.path
    with pytest.raises(SessionNotFoundError):
        SessionManager.find("three")
    with pytest.raises(SessionNotFoundError):
        SessionManager.open(tmp_path / "none.jsonl")


def test_what_is_there_but_no_session_and_what_is_not_unique_say_so(tmp_path: Path):
    # Mutation: in `find_header` or `find` leave `why` out.
    note = tmp_path / "note.txt"
    note.write_text("hello\n")
    with pytest.raises(SessionNotFoundError, match="neither a session's header nor an entry"):
        SessionManager.open(SessionManager.find(note))
    for session_id in ("ab1", "ab2"):
        SessionManager.create(tmp_path, session_id=session_id).close()
    with pytest.raises(SessionNotFoundError, match="2 ids begin so"):
        SessionManager.find("ab")


def test_one_writer_at_a_time_and_readers_never_blocked(on_disk: SessionManager):
    with pytest.raises(SessionLockedError) as refused:
        SessionManager.open(path_of(on_disk))
    assert refused.value.pid == os.getpid()
    with SessionManager.open(path_of(on_disk), read_only=True) as reader:
        assert reader.is_read_only
    with reopened(on_disk) as again:
        assert not again.is_read_only


def test_a_read_only_or_closed_session_refuses_every_append_and_writes_no_side_file(on_disk: SessionManager):
    # Mutation: writing the side file before asking.
    on_disk.append_message(said("a"))
    path = path_of(on_disk)
    on_disk.close()
    on_disk.close()
    before = path.read_bytes()
    with SessionManager.open(path, read_only=True) as reader:
        for session in (reader, on_disk):
            with pytest.raises(SessionReadOnlyError):
                session.append_custom("state", 1)
        with pytest.raises(SessionReadOnlyError):
            reader.append_message(said("x" * (300 * 1024)))
        assert len(reader) == 1
    assert path.read_bytes() == before
    assert not (path.parent / "blobs").exists()


# Forks ------------------------------------------------------------------------------------------


def grown(manager: SessionManager) -> tuple[list[Entry], MessageEntry]:
    """A session with a side branch, labels on both branches, a compaction with an edit; and the side branch's end."""
    first = manager.append_message(said("first"))
    second = manager.append_message(answered("second", "c1"))
    manager.append_message(ToolResultMessage(tool_call_id="c1", tool_name="read", content=as_content("r")))
    manager.append_label(first.id, "start")
    kept = manager.append_message(said("kept"))
    side = manager.append_message(said("side"))
    manager.append_label(second.id, "from the side")
    manager.append_label(first.id, None)
    manager.branch(kept.id)
    manager.append_compaction_entry(replace(prepared(manager, kept.id)), [(kept.id, as_content("shorter"))])
    manager.append_message(said("last"))
    return manager.get_branch(), side


def test_a_fork_has_every_line_byte_for_byte_under_a_header_of_its_own(on_disk: SessionManager):
    # Mutation: encoding the entries again under new ids.
    grown(on_disk)
    with SessionManager.fork_from(path_of(on_disk)) as fork:
        source, copy = path_of(on_disk).read_bytes().splitlines(), path_of(fork).read_bytes().splitlines()
        assert copy[1:] == source[1:]
        assert fork.header.parent_session == str(on_disk.path)
        assert fork.session_id != on_disk.session_id
        assert path_of(fork).parent == path_of(on_disk).parent
        assert fork.build_messages() == on_disk.build_messages()
        assert fork.labels == on_disk.labels
    with SessionManager.open(SessionManager.find(fork.session_id, session_dir=path_of(on_disk).parent.parent)) as again:
        assert again.build_messages() == on_disk.build_messages()


def test_a_fork_at_any_entry_has_the_path_its_context_and_its_labels_and_nothing_else(manager: SessionManager):
    # Mutation: leaving out labels that hang elsewhere; leaving the batch name on an edit without its compaction.
    grown(manager)
    for entry in list(manager):
        with SessionManager.fork_from(manager, entry_id=entry.id) as fork:
            branch = manager.get_branch(entry.id)
            assert fork.leaf_id == entry.id
            assert fork.build_messages() == manager.build_messages(entry.id)
            on_path = {step.id for step in branch}
            # A label that the fork ends with is its last word, whatever was said elsewhere.
            labelled = on_path - ({entry.target_id} if isinstance(entry, LabelEntry) else set())
            assert [step.id for step in fork.get_branch()] == [step.id for step in branch]
            assert [fork.labels.get(key) for key in labelled] == [manager.labels.get(key) for key in labelled]
            assert all(step.id in on_path or isinstance(step, LabelEntry) for step in fork)
            assert not fork.damage
            if fork.path is not None:
                source = set(path_of(manager).read_bytes().splitlines())
                own = [line for line in path_of(fork).read_bytes().splitlines()[1:] if line not in source]
                edits = [step for step in branch if isinstance(step, ContextEditEntry) and step.id == entry.id]
                assert len(own) == len(fork) - len(branch) + len(edits)


def test_a_fork_of_a_damaged_file_shows_the_same_context(on_disk: SessionManager):
    # Mutation: copying the line of an entry whose parent is damaged.
    for number in range(4):
        on_disk.append_message(said(str(number)))
    path = path_of(on_disk)
    on_disk.close()
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:2], lines[2][:60] + b"\0\0\n", *lines[3:]]))
    with SessionManager.open(path) as damaged:
        assert damaged.build_messages() == [said("0"), said("2"), said("3")]
        for entry_id in (None, damaged.leaf_id):
            with SessionManager.fork_from(damaged, entry_id=entry_id) as fork:
                assert fork.build_messages() == damaged.build_messages()


def test_a_fork_goes_where_it_is_told(on_disk: SessionManager, tmp_path: Path):
    on_disk.append_message(said("a"))
    with SessionManager.fork_from(on_disk, cwd=tmp_path / "b", session_dir=tmp_path / "forks") as fork:
        assert path_of(fork).parent.parent == tmp_path / "forks"
        assert fork.cwd == str(tmp_path / "b")
    with SessionManager.in_memory(tmp_path) as memory:
        memory.append_message(said("m"))
        with SessionManager.fork_from(memory) as fork:
            assert fork.path is None
            assert fork.build_messages() == [said("m")]
        with SessionManager.fork_from(memory, session_dir=tmp_path / "forks") as fork:
            assert path_of(fork).exists()


def test_a_fork_of_what_is_not_there_leaves_nothing_behind(on_disk: SessionManager, tmp_path: Path):
    with pytest.raises(EntryNotFoundError):
        SessionManager.fork_from(on_disk, entry_id="nowhere", session_dir=tmp_path / "forks")
    with pytest.raises(SessionNotFoundError):
        SessionManager.fork_from(tmp_path / "none.jsonl", session_dir=tmp_path / "forks")
    assert not (tmp_path / "forks").exists()


# Crashes and full disks -------------------------------------------------------------------------


def run_python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *arguments],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def test_a_killed_process_leaves_the_header_and_every_entry(tmp_path: Path):
    # Mutation: writing the file at the first answer, or at the end.
    done = run_python(
        """
        import os, signal, sys
        from session_store import SessionManager, UserMessage, TextContent
        manager = SessionManager.create(sys.argv[1], session_dir=sys.argv[1])
        manager.append_message(UserMessage(content=(TextContent("hello"),)))
        print(manager.path, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
        """,
        str(tmp_path),
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    with SessionManager.open(done.stdout.strip()) as manager:
        assert isinstance(manager.header, SessionHeader)
        assert [item.text for item in manager.build_messages()] == ["hello"]  # type: ignore[union-attr]
        assert not manager.damage


def test_what_the_disk_refuses_is_taken_pending_and_written_before_the_next_entry(on_disk: SessionManager):
    # Mutation: raising, or dropping the entry, when a write fails.
    on_disk.append_message(said("a"))
    warnings: list[str] = []
    on_disk.on_warning = warnings.append
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path_of(on_disk).stat().st_size + 10, limits[1]))
    try:
        refused = on_disk.append_message(said("b"))
        on_disk.append_message(said("x" * (300 * 1024)))
        assert on_disk.pending == 2
        assert on_disk.leaf_id != refused.id
        assert [message.text for message in on_disk.build_messages()][:2] == ["a", "b"]  # type: ignore[union-attr]
        with pytest.raises(SessionWriteError):
            on_disk.sync()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert len(warnings) == 1
    on_disk.append_message(said("c"))
    assert on_disk.pending == 0
    on_disk.sync()
    with SessionManager.open(path_of(on_disk), read_only=True) as reader:
        assert reader.build_messages() == on_disk.build_messages()
        assert not reader.damage


def test_nothing_per_append_depends_on_the_length_of_the_session(manager: SessionManager):
    # Mutation: building the projection anew, or walking to the root, at each append.
    for number in range(50):
        manager.append_message(said(str(number)))
    assert len(manager.projection.messages) == 50
    assert manager.get_custom("state") is None
    watched: Any = _Watched(manager._tree)
    manager._tree = watched
    for append in APPENDS.values():
        last = manager.append_message(said("next"))
        if append is not APPENDS["branch summary"]:
            append(manager, last.id)
        assert pairs_ok(item.message for item in build_context(manager.projection))
        assert manager.get_custom("state") in (None, {"n": 1})
    assert watched.walks == 0


class _Watched:
    """A tree that counts walks towards the root."""

    def __init__(self, tree: Any) -> None:
        self._inner = tree
        self.walks = 0

    def __getattr__(self, name: str) -> Any:
        if name in ("ancestors", "path"):
            self.walks += 1
        return getattr(self._inner, name)

    def __contains__(self, entry_id: object) -> bool:
        return entry_id in self._inner

    def __len__(self) -> int:
        return len(self._inner)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._inner)
