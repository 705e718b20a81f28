"""A compaction comes to an end whatever is in its way: giants, summaries that do not fit, models that do not answer."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson
import pytest

from agent_session import (
    CompactionEnd,
    CompactionError,
    CompactionResult,
    ContextCannotFitError,
    ContextOverflowError,
    Warning,
    tool,
)
from agent_session.compaction.prompts import LIVE_INSTRUCTION
from agent_session.compaction.text_tokens import estimate_text_tokens
from agent_session.llm.client import ThinkingLevel
from agent_session.testing import Step, always, call, calls, fail, reply, stop
from session_store import SessionManager
from session_store.messages import TextContent, UserMessage
from tests.session.scene import SUMMARY, fill, filled, results, scene, texts, words


@tool
def giant(size: int) -> str:
    """Give a result of so many words.

    Args:
        size: How many.
    """
    return "HEAD " + words(size) + " TAIL"


def said(text: str) -> UserMessage:
    return UserMessage(content=(TextContent(text),), timestamp=0)


# Shrink -----------------------------------------------------------------------------------------


async def test_a_giant_result_in_what_is_kept_is_shrunk_and_no_summary_is_asked_for(tmp_path: Path) -> None:
    # Mutation: in `Compactor._attempt` leave out the branch for `shrinks_alone`.
    steps = [call("giant", size=3_400), reply("Seen.")]
    async with scene(tmp_path, steps, summaries=[], tools=[giant], window=4_000) as stage:
        answer = await stage.session.prompt("Look.")
        assert str(answer) == "Seen."
        [end] = stage.of(CompactionEnd)
        outcome = end.outcome
        assert (outcome.status, outcome.method, outcome.entry) == ("applied", "shrink", None)
        assert outcome.tokens_after < outcome.tokens_before // 2
        assert [edit["type"] for edit in stage.lines("context_edit")] == ["context_edit"]
        [result] = results(stage.session.messages)
        assert result.text.startswith("HEAD")
        assert result.text.rstrip().endswith("TAIL")
        full = [path for path in (tmp_path / "sessions").rglob("blobs/*") if path.read_text().startswith("HEAD")]
        assert len(full) == 1
        assert str(full[0]) in result.text


async def test_a_result_of_five_windows_is_shrunk_before_the_request_and_can_be_read_in_full(tmp_path: Path) -> None:
    # Mutation: in `prepare_compaction` leave the giants as they are: the provider refuses the request.
    steps = [call("giant", size=20_000), reply("Seen.")]
    async with scene(tmp_path, steps, summaries=[], tools=[giant], window=4_000, provider_window=4_000) as stage:
        assert str(await stage.session.prompt("Look.")) == "Seen."
        assert len(stage.chat_requests) == 2
        assert len(results(stage.session.messages)[0].text) < 5_000


async def test_giants_that_do_not_fit_together_are_shrunk_further(tmp_path: Path) -> None:
    # Mutation: in `Fitting._fit` do not shrink the tail beyond its giants.
    batch = [("giant", {"size": 680 + number}) for number in range(6)]
    steps = [calls(batch), reply("Seen.")]
    async with scene(tmp_path, steps, tools=[giant], window=4_000, provider_window=4_000) as stage:
        assert str(await stage.session.prompt("Look.")) == "Seen."
        assert stage.outcomes[0] == "applied"


async def test_without_anything_to_shrink_there_is_no_progress_and_nothing_is_paid(tmp_path: Path) -> None:
    # Mutation: in `Compactor._attempt` leave out `_refuse_hopeless`.
    # The model answers in 920 tokens, which must be kept and may not be rewritten.
    steps = [reply("Short."), reply(words(920)), reply("Good.")]
    async with scene(tmp_path, steps, keep=100) as stage:
        await stage.session.prompt("One.")
        await stage.session.prompt("Two.")
        [end] = stage.of(CompactionEnd)
        assert end.outcome.status == "failed"
        assert "no progress" in str(end.outcome.error)
        assert stage.compactions == stage.summary_requests == []
        assert str(await stage.session.prompt("Three.")) == "Good."


async def test_a_prompt_that_can_never_fit_is_named_with_its_size_and_the_session_goes_on(tmp_path: Path) -> None:
    # Mutation: in `Run._recover` leave `error` as the provider's.
    async with scene(tmp_path, [reply("Good.")], provider_window=1_000) as stage:
        with pytest.raises(ContextCannotFitError) as raised:
            await stage.session.prompt(words(5_000, "PASTED"))
        what, tokens = raised.value.largest_items[0]
        assert what == UserMessage.__name__
        assert tokens > 4_000
        assert isinstance(raised.value.__cause__, ContextOverflowError)
        assert str(await stage.session.prompt("Short.")) == "Good."
        assert "PASTED" in stage.summary_requests[0].text


# Chunks -----------------------------------------------------------------------------------------


async def test_a_history_of_three_windows_is_summarised_in_a_bounded_number_of_calls(tmp_path: Path) -> None:
    # Mutation: in `chunked` put all parts into one group.
    manager = SessionManager.create(tmp_path, session_dir=tmp_path / "sessions")
    for number in range(60):
        manager.append_message(said(words(50, f"planted-{number}")))
    async with scene(tmp_path, [reply("Good.")], manager=manager, window=2_000, provider_window=2_000) as stage:
        outcome = await stage.session.compact()
        assert outcome.status == "applied"
        assert 2 <= len(stage.summary_requests) <= 8
        read = "".join(request.text for request in stage.summary_requests) + "".join(texts(stage.session.messages))
        assert all(f"planted-{number} " in read for number in range(60))
        assert str(await stage.session.prompt("Go on.")) == "Good."


async def test_one_message_of_three_windows_is_read_in_pieces(tmp_path: Path) -> None:
    # Mutation: in `_grouped` take a part that is too large as it is.
    async with scene(tmp_path, [reply("Good.")], window=2_000, provider_window=2_000) as stage:
        with pytest.raises(ContextCannotFitError):
            await stage.session.prompt("FIRST " + words(6_000) + " LAST")
        await stage.session.prompt("Short.")
        read = "".join(request.text for request in stage.summary_requests)
        assert "FIRST" in read
        assert "LAST" in read
        assert len(stage.summary_requests) <= 8


async def test_a_summary_model_that_counts_more_than_we_do_is_given_less(tmp_path: Path) -> None:
    # Mutation: in `Summarizer._with_model` raise the first refusal for size.
    too_long = fail(400, "This model's maximum context length is 2500 tokens, however you requested 3600.")
    summaries: list[Step] = [too_long, always(reply(SUMMARY))]
    async with scene(tmp_path, filled(12, 100), summaries=summaries, window=4_000) as stage:
        await fill(stage, 12, 100)
        outcome = await stage.session.compact()
        assert outcome.status == "applied"
        first, *others = stage.summary_requests
        assert all(len(request.text) < len(first.text) for request in others)


async def test_a_previous_summary_larger_than_the_room_is_read_as_part_of_the_record(tmp_path: Path) -> None:
    # Mutation: in `chunked` give the previous summary beside the text whatever its size.
    def large(api: Any) -> None:
        @api.on("before_compact")
        def answer(event: Any) -> CompactionResult | None:
            return CompactionResult("BIG " + words(1_100)) if event.previous_summary is None else None

    steps = filled(3, 300) + filled(2, 60)
    async with scene(
        tmp_path, steps, window=2_400, provider_window=2_400, extensions=[large], compaction={"enabled": False}
    ) as stage:
        await fill(stage, 3, 300)
        first = await stage.session.compact()
        assert first.method == "handler"
        await fill(stage, 2, 60)
        second = await stage.session.compact()
        assert (second.status, second.method) == ("applied", "model")
        assert "BIG" in stage.summary_requests[0].text


async def test_no_call_is_made_where_the_history_needs_more_calls_than_there_may_be(tmp_path: Path) -> None:
    # Mutation: in `chunked` return what is needed whatever `most_chunks` says.
    manager = SessionManager.create(tmp_path, session_dir=tmp_path / "sessions")
    for number in range(1_500):
        manager.append_message(said(f"message {number} with a few words in it"))
    async with scene(tmp_path, [], summaries=[], manager=manager, window=2_000) as stage:
        outcome = await stage.session.compact()
        # The context does not fit the window: what the model cannot do is done without it.
        assert (outcome.status, outcome.method) == ("applied", "digest")
        assert "1,500" in str(outcome.why) or "calls" in str(outcome.why)


# Digest -----------------------------------------------------------------------------------------


async def test_where_the_model_gives_no_summary_and_the_context_does_not_fit_a_digest_stands_in(tmp_path: Path) -> None:
    # Mutation: in `EntryMaker.made` raise the model's error whatever the size.
    steps = [
        *filled(),
        fail(400, "maximum context length is 1000 tokens, your messages resulted in 1200"),
        reply("Good."),
    ]
    summaries = [always(fail(400, "the model is gone"))]
    async with scene(tmp_path, steps, summaries=summaries, keep=100) as stage:
        await fill(stage)
        assert str(await stage.session.prompt("Once more.")) == "Good."
        [end] = stage.of(CompactionEnd)
        assert (end.outcome.status, end.outcome.method) == ("applied", "digest")
        assert "the model is gone" in end.outcome.why
        [entry] = stage.compactions
        assert entry.method == "digest"
        assert entry.details["digestOf"]["messages"] == end.outcome.entries_summarized
        assert "question 0" in entry.summary


async def test_a_manual_compaction_that_fails_in_a_window_with_room_is_an_error(tmp_path: Path) -> None:
    # Mutation: in `EntryMaker.made` make a digest of every failure.
    async with scene(tmp_path, filled(), summaries=[always(fail(400, "the model is gone"))]) as stage:
        await fill(stage)
        with pytest.raises(CompactionError, match="the model is gone"):
            await stage.session.compact()
        assert stage.compactions == []


async def test_the_third_automatic_failure_in_a_row_is_a_digest(tmp_path: Path) -> None:
    # Mutation: in `EntryMaker.made` do not ask the back-off.
    steps = [reply(words(10), usage=(950, 0, 0, 10)) for _ in range(4)]
    async with scene(tmp_path, [*filled(), *steps], summaries=[always(stop("stop", text=" "))]) as stage:
        await fill(stage)
        for number in range(4):
            await stage.session.prompt(words(20, f"more {number}"))
        methods = [(end.outcome.status, end.outcome.method) for end in stage.of(CompactionEnd)]
        assert methods[:3] == [("failed", "model"), ("failed", "model"), ("applied", "digest")]


async def test_with_the_digest_as_summariser_no_model_is_asked(tmp_path: Path) -> None:
    # Mutation: in `EntryMaker.made` do not look at the setting.
    async with scene(tmp_path, filled(), summaries=[], compaction={"summarizer": "digest"}) as stage:
        await fill(stage)
        outcome = await stage.session.compact()
        assert (outcome.status, outcome.method, outcome.usage) == ("applied", "digest", None)
        assert "question 0" in str(outcome.summary)


# Prefix -----------------------------------------------------------------------------------------


PREFIX = {"summary_input": "prefix"}


async def test_a_prefix_summary_begins_with_the_bytes_of_the_last_request(tmp_path: Path) -> None:
    # Mutation: in `Summarizer._from_prefix` put the instruction into the system prompt, or leave the tools out; forbid
    # them in words alone to every provider.
    summaries = [reply(SUMMARY, usage=(90, 640, 0, 30))]
    async with scene(tmp_path, filled(), summaries=summaries, tools=[giant], window=20_000, compaction=PREFIX) as stage:
        await fill(stage)
        outcome = await stage.session.compact("Look at the tests.")
        assert outcome.status == "applied"
        [asked], last = stage.summary_requests, stage.chat_requests[-1]
        before, after = orjson.dumps(last.payload["messages"]), orjson.dumps(asked.payload["messages"])
        assert after.startswith(before[:-1])
        assert asked.payload["tools"] == last.payload["tools"]
        assert asked.payload["tool_choice"] == "none"
        assert "Look at the tests." in asked.last_user_text
        assert outcome.usage is not None
        assert outcome.usage.cache_read == 640


@pytest.mark.parametrize("level", ["off", "medium"])
async def test_a_prefix_summary_changes_nothing_that_anthropics_cache_goes_by(
    tmp_path: Path, level: ThinkingLevel
) -> None:
    # Mutation: in `Summarizer._from_prefix` forbid tools to Claude too, or give thinking the summary's limit alone.
    thought = [] if level == "off" else [calls([("giant", {"size": 3})], thinking="Hm")]
    async with scene(
        tmp_path,
        [*thought, *filled()],
        model="anthropic/claude-sonnet-4-5",
        thinking_level=level,
        tools=[giant],
        window=20_000,
        compaction=PREFIX | {"summary_max_tokens": 600},
    ) as stage:
        await fill(stage)
        assert (await stage.session.compact(keep_recent_tokens=150)).status == "applied"
        [asked], last = stage.summary_requests, stage.chat_requests[-1]
        asked_of, last_of = (_in_the_cache(request.payload) for request in (asked, last))
        assert asked_of["messages"].startswith(last_of["messages"][:-2])
        assert asked.last_text.startswith(LIVE_INSTRUCTION)
        assert asked_of | {"messages": ""} == last_of | {"messages": ""}
        assert ("thinking" in asked.payload) == (level == "medium")


def _in_the_cache(payload: Mapping[str, Any]) -> dict[str, Any]:
    """What of a request decides whether its messages are in Anthropic's cache; where the marks stand does not."""
    by = ("system", "tools", "tool_choice", "thinking", "output_config", "messages")
    kept: dict[str, Any] = orjson.loads(orjson.dumps({name: payload.get(name) for name in by}))
    for message in (*kept["messages"], {"content": kept["system"]}):
        for block in message["content"]:
            block.pop("cache_control", None)
    return kept | {"messages": orjson.dumps(kept["messages"])}


async def test_a_prefix_that_does_not_fit_is_asked_for_as_text(tmp_path: Path) -> None:
    # Mutation: in `Summarizer.takes_live` say yes always.
    async with scene(tmp_path, filled(), compaction=PREFIX) as stage:
        await fill(stage)
        outcome = await stage.session.compact()
        assert outcome.status == "applied"
        assert "tools" not in stage.summary_requests[0].payload
        assert len(stage.summary_requests) == 1


async def test_a_prefix_answered_with_a_tool_call_is_asked_for_as_text(tmp_path: Path) -> None:
    # Mutation: in `Summarizer.summarize_live` raise what failed.
    summaries = [call("giant", size=3), reply(SUMMARY)]
    async with scene(tmp_path, filled(), summaries=summaries, tools=[giant], window=20_000, compaction=PREFIX) as stage:
        await fill(stage)
        outcome = await stage.session.compact()
        assert outcome.status == "applied"
        assert ["tools" in request.payload for request in stage.summary_requests] == [True, False]


# Too large all the same ---------------------------------------------------------------------------


async def test_where_a_summary_leaves_too_much_less_is_kept(tmp_path: Path) -> None:
    # Mutation: in `EntryMaker._fitting_entry` take the first entry.
    # The summariser writes almost twice what it may, so that summary and tail together pass the threshold of 2,344.
    summaries: list[Step] = [reply(SUMMARY), reply(words(980)), always(reply(SUMMARY))]
    off = {"enabled": False, "summary_max_tokens": 700}
    async with scene(tmp_path, filled(12, 100), summaries=summaries, window=2_500, compaction=off) as stage:
        await fill(stage, 12, 100)
        outcome = await stage.session.compact(keep_recent_tokens=1_400)
        assert outcome.status == "applied"
        assert len(stage.summary_requests) > 2
        assert outcome.tokens_after is not None
        assert outcome.tokens_after <= 2_344


async def test_a_summary_far_longer_than_it_may_be_is_cut_section_by_section(tmp_path: Path) -> None:
    # Mutation: in `EntryMaker._tried` take it at any length; in `shortened_summary` take the head alone.
    endless = f"## Goal\nThe goal. {words(600)}\n\n## Next Steps\nThe next step. {words(600)} The very end."
    off = {"enabled": False, "summary_max_tokens": 200}
    async with scene(tmp_path, filled(16, 100), summaries=[reply(endless)], window=9_000, compaction=off) as stage:
        await fill(stage, 16, 100)
        outcome = await stage.session.compact(keep_recent_tokens=300)
        assert (outcome.status, outcome.method) == ("applied", "model")
        assert estimate_text_tokens(str(outcome.summary)) <= 200
        for kept in ("## Goal", "The goal.", "## Next Steps", "The next step.", "The very end."):
            assert kept in str(outcome.summary)


async def test_where_one_part_of_a_summary_is_far_too_long_the_others_are_not_paid_for(tmp_path: Path) -> None:
    # Mutation: in `Summarizer._from_text` go on with a summary of any length.
    off = {"enabled": False}
    summaries = [always(reply(words(500)))]
    async with scene(tmp_path, filled(12, 100), summaries=summaries, window=3_500, compaction=off) as stage:
        await fill(stage, 12, 100)
        with pytest.raises(CompactionError, match="would cost as much"):
            await stage.session.compact(keep_recent_tokens=100)
        assert len(stage.summary_requests) == 1


async def test_a_tool_that_fills_the_window_again_and_again_is_named(tmp_path: Path) -> None:
    # Mutation: in `Run._check` do not count what was applied.
    steps = [*[call("giant", size=700) for _ in range(6)], reply("Done.")]
    async with scene(tmp_path, steps, tools=[giant], provider_window=1_100) as stage:
        assert str(await stage.session.prompt("Look.")) == "Done."
        applied = [end for end in stage.of(CompactionEnd) if end.outcome.status == "applied"]
        by_threshold = [end for end in applied if end.reason == "threshold"]
        assert len(by_threshold) <= 1 + 7 // 3
        warnings = [warning.text for warning in stage.of(Warning)]
        assert all("giant" in text for text in warnings)
