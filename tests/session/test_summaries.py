"""How a summary is come by: which model, how many calls, how it is paid for, and what the runtime checks of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from agent_session import (
    AgentSession,
    Amend,
    BeforeCompact,
    CompactionEnd,
    CompactionError,
    CompactionProgress,
    CompactionResult,
    Model,
    ModelRequestError,
    SessionCompact,
    Settings,
    Usage,
)
from agent_session.compaction.tokens import estimate_fixed_request_tokens, estimate_message_tokens
from agent_session.llm.client import PreparedRequest, StreamEvent, TextDelta, UsageReport
from agent_session.recorder import add_usage
from agent_session.testing import ScriptedModel, always, call, cut, fail, reply, stop
from session_store import SessionManager
from session_store.messages import Cost
from tests.session.scene import SUMMARY, fill, filled, scene, texts, words

# Which model ------------------------------------------------------------------------------------


async def test_a_summary_model_writes_the_summary_and_the_sessions_model_stays(tmp_path: Path) -> None:
    # Mutation: in `Summarizer.summarize` ask the session's model.
    async with scene(tmp_path, filled(), summaries=[reply(SUMMARY)], compaction={"summary_model": "openai/s"}) as stage:
        await fill(stage)
        outcome = await stage.session.compact()
        assert [request.payload["model"] for request in stage.summary_requests] == ["s"]
        assert outcome.entry is not None
        assert outcome.entry.model == "openai/s"
        assert stage.session.model.id == "openai/scripted"


async def test_a_summary_model_that_refuses_is_replaced_by_the_sessions_own(tmp_path: Path) -> None:
    # Mutation: in `Summarizer.summarize` raise what the first model raised.
    summaries: list[Any] = [fail(400, "no such model"), reply(SUMMARY)]
    async with scene(tmp_path, filled(), summaries=summaries, compaction={"summary_model": "openai/s"}) as stage:
        await fill(stage)
        outcome = await stage.session.compact()
        assert [request.payload["model"] for request in stage.summary_requests] == ["s", "scripted"]
        assert outcome.entry is not None
        assert outcome.entry.model == "openai/scripted"


async def test_a_summary_is_written_with_little_thinking_and_once_more_without_where_it_was_cut(tmp_path: Path) -> None:
    # Mutation: in `Summarizer._call` take the session's level, or fail at once where it stopped for length.
    model = ScriptedModel(filled(), summaries=[stop("length", text="## Goal"), reply(SUMMARY)])
    session = AgentSession(
        Model("scripted/model", context_window=4_000),
        session_manager=SessionManager.in_memory(tmp_path),
        client=model,
        tools=[],
        thinking_level="high",
        cwd=tmp_path,
    )
    async with model, session:
        for number in range(3):
            await session.prompt(words(60, f"question {number}"))
        assert (await session.compact()).status == "applied"
        levels = [recorded.request.thinking_level for recorded in model.requests if recorded.request is not None]
        assert levels == ["high", "high", "high", "minimal", "off"]


async def test_a_summary_that_fails_for_the_moment_is_asked_for_again(tmp_path: Path) -> None:
    # Mutation: in `Summarizer._answered` raise the first error.
    async with scene(tmp_path, filled(), summaries=[fail(503, "busy"), reply(SUMMARY)]) as stage:
        await fill(stage)
        assert (await stage.session.compact()).status == "applied"
        assert len(stage.summary_requests) == 2


# How many calls ---------------------------------------------------------------------------------


async def test_what_is_too_large_for_one_call_is_folded_into_the_summary_part_by_part(tmp_path: Path) -> None:
    # Mutation: in `Summarizer._with_model` send all of it at once, or each part without the summary of those before;
    # in `compaction_attempt.summarized` tell no progress.
    summaries = [reply("Of the first part."), reply("Of two parts."), reply("Of all parts.")]
    off = {"enabled": False}
    async with scene(tmp_path, filled(4, 150), summaries=summaries, window=1_600, compaction=off) as stage:
        await fill(stage, 4, 150)
        outcome = await stage.session.compact(keep_recent_tokens=400)
        asked = [request.last_user_text for request in stage.summary_requests]
        assert outcome.summary is not None
        assert outcome.summary.startswith("Of all parts.")
        assert "Of the first part." in asked[1]
        assert "Of two parts." in asked[2]
        assert all(len(text) < 2_000 * 4 for text in asked)
        for number in range(3):
            assert sum(f"question {number} word" in text for text in asked) == 1
        progress = [(event.chunk, event.chunks) for event in stage.of(CompactionProgress)]
        assert progress == [(1, 3), (2, 3), (3, 3)]


async def test_no_call_is_made_where_a_summary_needs_more_than_the_setting_allows(tmp_path: Path) -> None:
    # Mutation: in `chunked` return what is needed whatever `most_chunks` says.
    limit = {"max_summary_calls": 1}
    async with scene(tmp_path, filled(20, 60), summaries=[], window=4_000, compaction=limit) as stage:
        await fill(stage, 20, 60)
        with pytest.raises(CompactionError, match="max_summary_calls"):
            await stage.session.compact(keep_recent_tokens=100)
        assert stage.lines("compaction") == []


async def test_no_more_calls_are_made_for_a_summary_than_the_setting_allows(tmp_path: Path) -> None:
    # Mutation: in `Summarizer._answered` do not count: the fallback model is asked too.
    summaries = [stop("stop", text=" ")]
    limit = {"max_summary_calls": 1, "summary_model": "openai/s"}
    async with scene(tmp_path, filled(), summaries=summaries, compaction=limit) as stage:
        await fill(stage)
        with pytest.raises(CompactionError, match="max_summary_calls"):
            await stage.session.compact()
        assert len(stage.summary_requests) == 1
        assert stage.lines("compaction") == []


async def test_a_turn_that_is_cut_in_two_is_summarised_after_the_history(tmp_path: Path) -> None:
    # Mutation: in `compaction_attempt.summarized` leave the beginning of the turn out, or ask for it first.
    from agent_session import tool

    @tool
    def look(at: str) -> str:
        """Look at something."""
        return words(40, f"seen {at}")

    steps = [*filled(2), *(call("look", at=str(number)) for number in range(8)), reply("done")]
    summaries = [reply("HISTORY"), reply("BEGINNING")]
    async with scene(tmp_path, steps, summaries=summaries, window=8_000, tools=[look]) as stage:
        await fill(stage, 2)
        await stage.session.prompt("look at eight things")
        outcome = await stage.session.compact(keep_recent_tokens=120)
        history, beginning = (request.last_user_text for request in stage.summary_requests)
        assert "question 0" in history
        assert "seen 0" not in history
        assert "seen 0" in beginning
        assert "question 0" not in beginning
        assert outcome.summary is not None
        assert outcome.summary.index("HISTORY") < outcome.summary.index("BEGINNING")


# What it costs ----------------------------------------------------------------------------------


class CutSummaries:
    """A client whose summaries break off after their usage was reported."""

    api = "own"

    def __init__(self, model: ScriptedModel) -> None:
        self._model = model

    def prepare(self, request: Any) -> PreparedRequest:
        return self._model.prepare(request)

    @asynccontextmanager
    async def stream(self, prepared: PreparedRequest) -> AsyncIterator[AsyncIterator[StreamEvent]]:
        async def broken() -> AsyncIterator[StreamEvent]:
            yield TextDelta(0, "## Goal")
            yield UsageReport(Usage(input=300, output=7))
            raise ModelRequestError("gone", kind="bad_request")

        if "question 0" in str(prepared.payload) and "record of the conversation" in str(prepared.payload):
            yield broken()
        else:
            async with self._model.stream(prepared) as events:
                yield events

    async def aclose(self) -> None:
        await self._model.aclose()


async def test_what_a_summary_cost_that_broke_off_is_paid_for(tmp_path: Path) -> None:
    # Mutation: in `Summarizer._stream` count whole answers only.
    model = ScriptedModel(filled())
    session = AgentSession(
        Model("scripted/model", context_window=4_000),
        session_manager=SessionManager.in_memory(tmp_path),
        client=CutSummaries(model),
        tools=[],
        cwd=tmp_path,
    )
    async with model, session:
        for number in range(3):
            await session.prompt(words(60, f"question {number}"))
        with pytest.raises(CompactionError) as caught:
            await session.compact()
        assert caught.value.outcome is not None
        assert caught.value.outcome.usage == Usage(input=300, output=7)
        assert session.stats().compaction.total_tokens == 307


@pytest.mark.parametrize("step", [reply(SUMMARY), cut(after=5)], ids=["whole", "cut"])
async def test_what_a_summary_cost_that_nobody_reported_is_no_zero(tmp_path: Path, step: Any) -> None:
    # Mutation: in `Summarizer._stream` add what was reported alone, or only what has a finish.
    async with scene(tmp_path, filled(), summaries=[always(step)], retry={"max_retries": 0}) as stage:
        await fill(stage)
        with suppress(CompactionError):
            await stage.session.compact()
        stats = stage.session.stats()
        assert (stats.total.requests, stats.compaction.requests) == (4, 1)
        assert stats.compaction.has_unknown_cost
        assert str(stats.compaction) == "0 tokens, cost unknown"


async def test_what_several_failed_attempts_cost_is_added_up(tmp_path: Path) -> None:
    # Mutation: in `Recorder.owe` forget what was owed before.
    summaries = [reply(" ", usage=(300, 0, 0, 1)), reply(" ", usage=(200, 0, 0, 1))]
    async with scene(tmp_path, [*filled(), reply("ok")], summaries=summaries) as stage:
        await fill(stage)
        for _ in range(2):
            with pytest.raises(CompactionError):
                await stage.session.compact()
        assert stage.session.stats().compaction.total_tokens == 502
        await stage.session.prompt("go on")
        (usage,) = stage.lines("usage")
        assert usage["usage"]["totalTokens"] == 502
        assert stage.session.stats().compaction.total_tokens == 502


async def test_what_a_summary_cost_stands_on_its_entry_a_handlers_own_spending_included(tmp_path: Path) -> None:
    # Mutation: in `EntryMaker.entry` store no usage, or only what the runtime spent.
    async def mine(event: BeforeCompact) -> CompactionResult:
        made = await event.summarize()
        return CompactionResult(made.summary, usage=Usage(input=50, output=5))

    async with scene(tmp_path, filled(), summaries=[reply(SUMMARY, usage=(400, 0, 0, 40))]) as stage:
        await fill(stage)
        stage.session.on("before_compact", mine)
        outcome = await stage.session.compact()
        assert outcome.usage is not None
        assert outcome.usage.total_tokens == 495
        assert stage.lines("compaction")[0]["usage"]["totalTokens"] == 495
        assert stage.session.stats().compaction.total_tokens == 495


# What handlers may ask, and what is checked -----------------------------------------------------


async def test_the_time_of_a_summary_is_not_its_handlers_own(tmp_path: Path) -> None:
    # Mutation: in `AttemptServices.summarize` let the handler's clock run.
    async def mine(event: BeforeCompact) -> CompactionResult:
        return await event.summarize()

    slow = reply(SUMMARY, chunks=8, pace=0.02)
    settings = Settings().merged(
        {"hook_timeout": 0.05, "compaction": {"reserve_tokens": 100, "keep_recent_tokens": 200}}
    )
    async with scene(tmp_path, filled(), summaries=[slow], settings=settings) as stage:
        await fill(stage)
        stage.session.on("before_compact", mine)
        assert (await stage.session.compact()).method == "handler"


async def test_a_handlers_summary_follows_the_users_instructions_too(tmp_path: Path) -> None:
    # Mutation: in `AttemptServices.summarize` leave the request's instructions out.
    async def mine(event: BeforeCompact) -> CompactionResult:
        return await event.summarize(instructions="Only decisions.")

    async with scene(tmp_path, filled(), summaries=[reply(SUMMARY)]) as stage:
        await fill(stage)
        stage.session.on("before_compact", mine)
        await stage.session.compact("And the date.")
        asked = stage.summary_requests[0].last_user_text
        assert asked.index("And the date.") < asked.index("Only decisions.")


async def test_an_amended_summary_is_measured_again(tmp_path: Path) -> None:
    # Mutation: in `Compactor._commit` store the amended entry as it is.
    async with scene(tmp_path, filled(), window=8_000) as stage:
        await fill(stage)
        unsubscribe = stage.session.on("session_compact", lambda event: Amend(summary=words(2_000)))
        with pytest.raises(CompactionError, match="no progress"):
            await stage.session.compact()
        assert stage.lines("compaction") == []
        unsubscribe()
        stage.session.on("session_compact", lambda event: Amend(summary=words(50)))
        outcome = await stage.session.compact()
        assert outcome.tokens_after == stage.session.context_usage().tokens


async def test_a_handler_that_cancels_when_the_entry_is_ready_cancels_it(tmp_path: Path) -> None:
    # Mutation: in `Compactor._attempt` do not look at the scope after the last decision.
    def cancel(event: SessionCompact) -> Amend:
        event.scope.cancel()
        return Amend(summary="All the same.")

    async with scene(tmp_path, filled()) as stage:
        await fill(stage)
        before = stage.path.read_bytes()
        stage.session.on("session_compact", cancel)
        assert (await stage.session.compact()).status == "aborted"
        assert stage.path.read_bytes() == before


async def test_a_branch_that_moved_meanwhile_is_not_compacted(tmp_path: Path) -> None:
    # Mutation: in `Compactor._commit` do not compare the leaf: its boundary alone is still on the branch.
    async with scene(tmp_path, filled()) as stage:
        await fill(stage)
        second_last = stage.lines("message")[-2]["id"]

        def move(event: SessionCompact) -> None:
            stage.session.session_manager.branch(second_last)

        stage.session.on("session_compact", move)
        with pytest.raises(CompactionError, match="moved"):
            await stage.session.compact()
        assert stage.lines("compaction") == []


async def test_what_is_appended_meanwhile_stays_behind_the_boundary(tmp_path: Path) -> None:
    # Mutation: in `Compactor._commit` refuse a leaf that went on.
    async with scene(tmp_path, filled()) as stage:
        await fill(stage)

        def note(event: SessionCompact) -> None:
            stage.session.session_manager.append_custom_message("note", "said meanwhile")

        stage.session.on("session_compact", note)
        assert (await stage.session.compact()).status == "applied"
        assert texts(stage.session.messages)[-1] == "said meanwhile"


async def test_the_size_afterwards_is_told_on_the_scale_of_the_size_before(tmp_path: Path) -> None:
    # Mutation: in `EntryMaker.tokens_after` leave the scale out; in `ContextMeter.measure` leave the ratio out.
    steps = [*filled(), reply("full", usage=(950, 0, 0, 5))]
    async with scene(tmp_path, steps) as stage:
        await fill(stage)
        await stage.session.prompt("last")
        (outcome,) = (event.outcome for event in stage.of(CompactionEnd))
        assert (outcome.status, outcome.tokens_before) == ("applied", 955)
        # By the estimate alone the context was far smaller than the provider said.
        estimated = sum(map(estimate_message_tokens, stage.session.messages)) + estimate_fixed_request_tokens("Answer.")
        assert outcome.tokens_after > 1.2 * estimated
        assert outcome.tokens_after == stage.session.context_usage().tokens


def test_a_sum_of_costs_is_unknown_where_one_of_them_is() -> None:
    # Mutation: in `add_usage` take an unknown cost for zero.
    known = Usage(input=1, cost=Cost(input=0.5, output=0, cache_read=0, cache_write=0, total=0.5))
    total = add_usage(known, known)
    assert total.cost is not None
    assert total.cost.total == 1.0
    assert add_usage(known, Usage(input=1)).cost is None
    assert add_usage(Usage(input=1), known).input == 2
