"""Undoing a compaction: the context is as if it had not been, nothing is asked of a model, nothing leaves the log."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import anyio
import pytest

from agent_session import (
    ContextCannotFitError,
    EntryAppended,
    Model,
    SessionBusyError,
    SessionManager,
    SessionReadOnlyError,
)
from agent_session.testing import fail, hold, reply
from session_store import CompactionEntry, jsonl_log
from tests.session.scene import SUMMARY, fill, filled, scene, texts


async def test_an_undo_brings_back_what_was_summarised_and_keeps_what_came_after(tmp_path: Path) -> None:
    # Mutation: in `undo_compaction` return before the append; in `_measured` measure what stands now.
    async with scene(tmp_path, [*filled(), reply("later")]) as stage:
        await fill(stage)
        before = texts(stage.session.messages)
        compacted = await stage.session.compact(keep_recent_tokens=100)
        assert len(stage.session.messages) < len(before)
        await stage.session.prompt("and now?")
        asked = len(stage.provider.requests)
        tokens = stage.session.context_usage().tokens
        outcome = await stage.session.undo_compaction()
        assert texts(stage.session.messages) == [*before, "and now?", "later"]
        assert len(stage.provider.requests) == asked
        assert (outcome.status, outcome.reason, outcome.tokens_before) == ("applied", "manual", tokens)
        assert outcome.tokens_after == stage.session.context_usage().tokens > tokens
        assert outcome.entry is not None
        assert compacted.entry is not None
        assert outcome.entry.details["undoes"] == compacted.entry.id
        assert (outcome.entry.tokens_before, outcome.entry.tokens_after) == (tokens, outcome.tokens_after)
        assert str(outcome) == f"applied (manual): {tokens:,} -> {outcome.tokens_after:,} tokens"


async def test_an_undo_is_told_as_the_entries_it_appended_and_nothing_else(tmp_path: Path) -> None:
    # Mutation: in `undo_compaction` announce the compaction entry alone, or nothing.
    async with scene(tmp_path, filled()) as stage:
        await fill(stage)
        await stage.session.compact()
        stage.events.clear()
        outcome = await stage.session.undo_compaction()
        assert stage.names == ["entry_appended", "entry_appended"]
        assert [event.entry for event in stage.of(EntryAppended)] == [*outcome.edits, outcome.entry]


async def test_undoing_an_undo_compacts_again_with_the_summary_that_was_made(tmp_path: Path) -> None:
    # Mutation: in `plan_undo` skip undos when looking for the newest compaction.
    async with scene(tmp_path, filled()) as stage:
        await fill(stage)
        await stage.session.compact()
        compacted = texts(stage.session.messages)
        await stage.session.undo_compaction()
        await stage.session.undo_compaction()
        assert texts(stage.session.messages) == compacted
        assert len(stage.summary_requests) == 1


async def test_without_a_compaction_an_undo_is_skipped_and_writes_nothing(tmp_path: Path) -> None:
    # Mutation: in `undo_compaction` raise, or append an undo of nothing.
    async with scene(tmp_path, filled()) as stage:
        await fill(stage)
        before = stage.path.read_bytes()
        outcome = await stage.session.undo_compaction()
        assert (outcome.status, outcome.why) == ("skipped", "there is no compaction on this branch")
        assert stage.path.read_bytes() == before
        assert stage.names == []


async def test_the_branch_of_now_is_undone_after_a_move_in_the_tree(tmp_path: Path) -> None:
    # Mutation: in `plan_undo` look for the newest compaction of the file.
    async with scene(tmp_path, [*filled(), reply("on the other branch")]) as stage:
        await fill(stage)
        first = stage.lines("message")[0]["id"]
        leaf = stage.session.leaf_id
        assert leaf is not None
        whole = texts(stage.session.messages)
        compacted = await stage.session.compact()
        assert compacted.entry is not None
        await stage.session.navigate_tree(first)
        await stage.session.prompt("another way")
        assert (await stage.session.undo_compaction()).status == "skipped"
        await stage.session.navigate_tree(compacted.entry.id)
        await stage.session.undo_compaction()
        assert texts(stage.session.messages) == whole


@pytest.mark.parametrize("compactions", [1, 2])
@pytest.mark.parametrize("is_reopened", [False, True])
async def test_while_an_undo_is_the_newest_compaction_the_threshold_compacts_nothing(
    tmp_path: Path, compactions: int, is_reopened: bool
) -> None:
    # Mutation: in `Run._check` leave `_is_undone` out; in `CompactionEntry.is_undo` ask for a summary that shows.
    async with scene(tmp_path, filled(3) * compactions, reserve=200) as stage:
        for _ in range(compactions):
            await fill(stage)
            assert (await stage.session.compact(keep_recent_tokens=100)).status == "applied"
        await stage.session.undo_compaction()
    manager = SessionManager.open(stage.path)
    full = [reply("a lot", usage=(950, 0, 0, 5)), reply("more", usage=(960, 0, 0, 5)), reply("once more")]
    async with scene(tmp_path, full, manager=manager, reserve=200) as stage:
        if not is_reopened:
            await stage.session.undo_compaction()
            await stage.session.undo_compaction()
        await stage.session.prompt("go on")
        await stage.session.prompt("and on")
        assert stage.outcomes == []
        assert (await stage.session.compact()).status == "applied"
        await stage.session.prompt("again")
        stage.events.clear()


async def test_once_something_else_was_compacted_the_threshold_counts_again(tmp_path: Path) -> None:
    # Mutation: in `Run._is_undone` ask whether there is an undo anywhere on the branch.
    steps = [*filled(), reply("small"), reply("a lot", usage=(950, 0, 0, 5))]
    async with scene(tmp_path, steps) as stage:
        await fill(stage)
        await stage.session.compact()
        await stage.session.undo_compaction()
        await stage.session.compact()
        await stage.session.prompt("go on")
        stage.events.clear()
        await stage.session.prompt("and on")
        assert stage.outcomes == ["applied"]


async def test_an_overflow_compacts_whatever_was_undone(tmp_path: Path) -> None:
    # Mutation: in `Run._check` or `_recover` let an undo keep an overflow from being compacted.
    refused = fail(
        400, "maximum context length is 900 tokens, however you requested 1200 tokens", code="context_length"
    )
    async with scene(tmp_path, [*filled(), refused, reply("fits")]) as stage:
        await fill(stage)
        await stage.session.compact()
        await stage.session.undo_compaction()
        assert str(await stage.session.prompt("go on")) == "fits"
        assert stage.outcomes[-1] == "applied"
        newest = stage.session.session_manager.get_latest_compaction_entry()
        assert newest is not None
        assert (newest.reason, newest.is_undo) == ("overflow", False)


async def test_an_answer_above_the_window_compacts_whatever_was_undone(tmp_path: Path) -> None:
    # Mutation: in `Run._check` ask `_is_undone` of every reason.
    async with scene(tmp_path, [*filled(), reply("kept", usage=(1_100, 0, 0, 5))]) as stage:
        await fill(stage)
        await stage.session.compact()
        await stage.session.undo_compaction()
        stage.events.clear()
        assert str(await stage.session.prompt("go on")) == "kept"
        assert stage.outcomes == ["applied"]


async def test_what_the_model_would_not_take_is_not_brought_back(tmp_path: Path) -> None:
    # Mutation: in `_measured` compare with the threshold of the model, or not at all.
    async with scene(tmp_path, filled(), window=2_000, reserve=100) as stage:
        await fill(stage)
        await stage.session.compact(keep_recent_tokens=100)
        size = (await stage.session.undo_compaction()).tokens_after
        assert size is not None
        await stage.session.undo_compaction()
        await stage.session.set_model(Model("openai/smaller", context_window=size))
        before = stage.path.read_bytes()
        stage.events.clear()
        with pytest.raises(ContextCannotFitError) as caught:
            await stage.session.undo_compaction()
        assert caught.value.limit == size
        assert caught.value.largest_items
        assert stage.path.read_bytes() == before
        assert stage.names == []
        await stage.session.set_model(Model("openai/larger", context_window=size + 60))
        assert (await stage.session.undo_compaction()).status == "applied"
        usage = stage.session.context_usage()
        assert usage.threshold < usage.tokens < usage.window  # it is taken, above the threshold as it is


async def test_an_undo_is_refused_while_something_runs_and_from_inside_it(tmp_path: Path) -> None:
    # Mutation: in `SessionCore.move` wait for the gate instead of claiming it.
    refusals: list[BaseException] = []
    held = hold(reply("waited for"))
    async with scene(tmp_path, [*filled(), held]) as stage:
        await fill(stage)
        await stage.session.compact()

        @stage.session.on("before_request")
        async def asking(event: Any) -> None:
            try:
                await stage.session.undo_compaction()
            except SessionBusyError as error:
                refusals.append(error)

        with anyio.fail_after(5):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(stage.session.prompt, "wait")
                await held.started.wait()
                before = stage.path.read_bytes()
                with pytest.raises(SessionBusyError):
                    await stage.session.undo_compaction()
                assert stage.path.read_bytes() == before
                held.release()
        assert len(refusals) == 1


@pytest.mark.allow_blocking
async def test_an_undo_that_was_written_is_told_and_synced_whoever_is_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Mutation: in `undo_compaction` announce without the shield.
    synced: list[int] = []
    monkeypatch.setattr(jsonl_log, "_sync_data", lambda fd: synced.append(os.fstat(fd).st_size))
    async with scene(tmp_path, filled()) as stage:
        await fill(stage)
        whole = texts(stage.session.messages)
        await stage.session.compact()
        stage.events.clear()
        with anyio.CancelScope() as scope:

            @stage.session.on("entry_appended")
            async def cancelling(event: Any) -> None:
                scope.cancel()

            await stage.session.undo_compaction()
        assert scope.cancel_called
        assert synced[-1] == stage.path.stat().st_size
        assert [event.entry.id for event in stage.of(EntryAppended)] == [line["id"] for line in stage.lines()[-2:]]
        assert texts(stage.session.messages) == whole


async def test_an_undo_ends_the_row_of_failures(tmp_path: Path) -> None:
    # Mutation: in `undo_compaction` keep the count of failures.
    steps = [*filled(), reply("95 %", usage=(950, 0, 0, 5))]
    async with scene(tmp_path, steps, summaries=[reply(SUMMARY), fail(400, "no")]) as stage:
        await fill(stage)
        await stage.session.compact()
        await stage.session.prompt("go")
        assert stage.session._core.parts.backoff.failures == 1
        await stage.session.undo_compaction()
        assert stage.session._core.parts.backoff.failures == 0


async def test_a_log_that_is_only_read_cannot_be_undone(tmp_path: Path) -> None:
    # Mutation: in `LoggedSession._append` tell the tree before the log.
    async with scene(tmp_path, filled()) as stage:
        await fill(stage)
        await stage.session.compact()
        compacted = texts(stage.session.messages)
    async with scene(tmp_path, [], manager=SessionManager.open(stage.path, read_only=True)) as reading:
        with pytest.raises(SessionReadOnlyError):
            await reading.session.undo_compaction()
        assert texts(reading.session.messages) == compacted


async def test_reopened_and_forked_the_context_is_the_one_that_was_brought_back(tmp_path: Path) -> None:
    # Mutation: in `plan_undo` leave the edit out that omits the new entry's own summary.
    async with scene(tmp_path, filled()) as stage:
        await fill(stage)
        whole = texts(stage.session.messages)
        await stage.session.compact()
        await stage.session.undo_compaction()
        forked = await stage.session.fork(stage.session.leaf_id)
        with forked:
            assert texts(forked.build_messages()) == whole
    with SessionManager.open(stage.path) as again:
        assert texts(again.build_messages()) == whole
        assert isinstance(again.get_latest_compaction_entry(), CompactionEntry)


@pytest.mark.allow_blocking
async def test_an_undo_is_on_the_disk_when_it_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Mutation: in `undo_compaction` leave the flush out.
    synced: list[int] = []
    monkeypatch.setattr(jsonl_log, "_sync_data", lambda fd: synced.append(os.fstat(fd).st_size))
    async with scene(tmp_path, filled()) as stage:
        await fill(stage)
        await stage.session.compact()
        await stage.session.undo_compaction()
        assert synced[-1] == stage.path.stat().st_size
