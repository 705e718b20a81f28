"""A real coding session in the oldest format: 1,019 lines, found in the folder that AGENT_SESSION_TEST_DATA names."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

import pytest

from session_store import SessionManager
from session_store.context import NO_RESULT_TEXT, build_context, dangling_calls, pairs_ok
from session_store.entries import Entry, MessageEntry, ThinkingLevelChangeEntry
from session_store.messages import AssistantMessage, ToolResultMessage, UserMessage, as_content

FILE_NAME = "real-session-v1-a.jsonl"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    folder = os.environ.get("AGENT_SESSION_TEST_DATA")
    if folder is None:
        pytest.skip("AGENT_SESSION_TEST_DATA names no folder with real sessions")
    return Path(shutil.copy(Path(folder) / FILE_NAME, tmp_path / FILE_NAME))


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def answers(entries: list[Entry]) -> list[AssistantMessage]:
    messages = [entry.message for entry in entries if isinstance(entry, MessageEntry)]
    return [message for message in messages if isinstance(message, AssistantMessage)]


def test_it_opens_whole_and_its_bytes_stay_untouched(copy: Path):
    # Mutation: migrating the file in place.
    before = sha256(copy)
    with SessionManager.open(copy) as manager:
        entries = manager.get_branch()
        assert not manager.damage
        assert len(entries) == len(manager) == 1018
        assert sum(isinstance(entry, MessageEntry) for entry in entries) == 914
        assert sum(isinstance(entry, ThinkingLevelChangeEntry) for entry in entries) == 103
        assert [entry.id for entry in entries[:3]] == ["00000001", "00000002", "00000003"]
        assert manager.get_latest_compaction_entry() is None
        assert manager.projection.provider == "anthropic"
    assert sha256(copy) == before
    assert list(copy.parent.iterdir()) == [copy] or {path.name for path in copy.parent.iterdir()} == {
        FILE_NAME,
        f"{FILE_NAME}.lock",
    }


def test_its_context_is_a_valid_request_without_what_failed(copy: Path):
    # Mutation: keeping aborted or empty answers; answering the calls of failed ones.
    with SessionManager.open(copy, read_only=True) as manager:
        recorded = answers(manager.get_branch())
        failed = [message for message in recorded if message.is_failed]
        assert len([message for message in recorded if not message.content]) == 14
        assert len(failed) == 22
        answered = {
            entry.message.tool_call_id
            for entry in manager
            if isinstance(entry, MessageEntry) and isinstance(entry.message, ToolResultMessage)
        }
        unanswered = [call for message in recorded for call in message.tool_calls if call.id not in answered]
        assert len(unanswered) == 18
        context = manager.build_messages()
        assert pairs_ok(context)
        assert len(context) == 914 - 22
        sent = [message for message in context if isinstance(message, AssistantMessage)]
        assert all(message.content and not message.is_failed for message in sent)
        # All 18 belong to answers that failed: they leave with them, and nobody answers them.
        assert not {call.id for call in unanswered} & {call.id for message in sent for call in message.tool_calls}
        assert not [item for item in context if isinstance(item, ToolResultMessage) and item.text == NO_RESULT_TEXT]
        assert dangling_calls(manager.projection) == []


def test_its_unanswered_calls_are_answered_where_their_message_did_not_fail(copy: Path):
    # Mutation: leaving an unanswered call in the middle as it is.
    text = copy.read_text().replace('"stopReason":"error"', '"stopReason":"toolUse"')
    copy.write_text(text.replace('"stopReason":"aborted"', '"stopReason":"toolUse"'))
    with SessionManager.open(copy, read_only=True) as manager:
        context = manager.build_messages()
        assert pairs_ok(context)
        assert len([i for i in context if isinstance(i, ToolResultMessage) and i.text == NO_RESULT_TEXT]) == 18
        assert len(context) == 914 - 14 + 18


def test_an_append_goes_to_a_version_3_file_beside_it_that_reopens_identical(copy: Path):
    # Mutation: appending to the version-1 file.
    before = sha256(copy)
    message = UserMessage(content=as_content("go on"), timestamp=1)
    warnings: list[str] = []
    with SessionManager.open(copy) as manager:
        manager.on_warning = warnings.append
        old_context = manager.build_messages()
        old_id = manager.session_id
        entry = manager.append_message(message)
        assert manager.path is not None
        assert manager.path.parent == copy.parent
        assert manager.path != copy
        assert manager.session_id != old_id
        assert manager.header.version == 3
        assert manager.header.parent_session == str(copy)
        assert len(warnings) == 1
        context, entries, totals = manager.build_messages(), list(manager), manager.totals
        assert context == [*old_context, message]
    assert sha256(copy) == before
    with SessionManager.open(manager.path) as again:
        assert again.build_messages() == context
        assert list(again) == entries
        assert again.totals == totals
        assert again.leaf_id == entry.id
        assert not again.damage


def test_it_is_compacted_forked_and_listed_like_any_other(copy: Path, tmp_path: Path):
    with SessionManager.open(copy) as manager:
        kept = [item for item in build_context(manager.projection) if isinstance(item.message, UserMessage)][-3]
        manager.append_compaction("summary", kept.entry.id, 150_000)
        assert manager.path is not None
        assert pairs_ok(manager.build_messages())
        assert len(manager.build_messages()) < 100
        for entry_id in (None, kept.entry.id):
            with SessionManager.fork_from(manager, entry_id=entry_id, session_dir=tmp_path / "forks") as fork:
                assert fork.build_messages() == manager.build_messages(entry_id)
    with SessionManager.fork_from(copy, session_dir=tmp_path / "forks") as fork:
        assert len(fork) == 1018
    rows = SessionManager.list(manager.cwd, session_dir=tmp_path / "forks")
    assert len(rows) == 3
    assert all(row.first_message and row.damaged is None for row in rows)
