"""What a refusal for size teaches, how the compaction after it differs from any other, and what is kept beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_session import CompactionEnd, ContextOverflowError, tool
from agent_session.compaction.text_tokens import estimate_text_tokens
from agent_session.compaction.tokens import estimate_message_tokens
from agent_session.testing import Step, always, call, calls, fail, reply
from session_store import SessionManager
from session_store.messages import AssistantMessage, TextContent, UserMessage
from tests.session.scene import SUMMARY, fill, filled, scene, words

NO_NUMBERS = fail(400, "Input is too long for requested model.")


def refused(limit: int, requested: int) -> Step:
    return fail(
        400, f"This model's maximum context length is {limit} tokens. However, your messages resulted in {requested}."
    )


@tool
def giant(size: int) -> str:
    """Give a result of so many words.

    Args:
        size: How many.
    """
    return words(size)


# What is learned ----------------------------------------------------------------------------------


async def test_a_refusal_without_numbers_teaches_that_this_much_is_too_much(tmp_path: Path) -> None:
    # Mutation: in `Run._note_limit` learn from numbers only.
    async with scene(tmp_path, [*filled(12, 100), NO_NUMBERS, reply("Good.")], window=8_000) as stage:
        await fill(stage, 12, 100)
        before = stage.session.context_usage()
        assert str(await stage.session.prompt("Go on.")) == "Good."
        assert stage.session.context_usage().threshold < before.tokens + 100 < before.threshold


async def test_a_refusal_of_a_small_context_says_nothing_of_the_window(tmp_path: Path) -> None:
    # Mutation: in `Run._note_limit` leave `_MOST_MISCOUNT` out.
    async with scene(tmp_path, [*filled(), NO_NUMBERS, reply("Good.")], window=8_000) as stage:
        await fill(stage)
        threshold = stage.session.context_usage().threshold
        assert str(await stage.session.prompt("Go on.")) == "Good."
        assert stage.session.context_usage().threshold == threshold


async def test_the_size_that_the_refusal_names_is_the_size_before(tmp_path: Path) -> None:
    # Mutation: in `Run._recover` give no `refused_tokens`; make `_MOST_SCALE` of `prepare` 1.5.
    steps = [*filled(12, 100), refused(8_000, 12_000), reply("Good.")]
    async with scene(tmp_path, steps, window=8_000) as stage:
        await fill(stage, 12, 100)
        await stage.session.prompt("Go on.")
        [end] = stage.of(CompactionEnd)
        assert end.outcome.tokens_before == 12_000
        # What is left is told on the same scale, about four times what we count.
        estimated = sum(map(estimate_message_tokens, stage.session.messages))
        assert end.outcome.tokens_after > 3 * (estimated - 100)


async def test_a_context_that_was_refused_without_a_number_is_as_large_as_we_count_at_least(tmp_path: Path) -> None:
    # Mutation: in `EntryMaker.prepare` go by what was reported before, although the provider refuses it.
    low = [reply(words(100), usage=(1_500, 0, 0, 10)) for _ in range(12)]
    async with scene(tmp_path, [*low, NO_NUMBERS, reply("Good.")], window=2_000) as stage:
        await fill(stage, 12, 100)
        assert str(await stage.session.prompt("Go on.")) == "Good."
        [end] = stage.of(CompactionEnd)
        assert end.outcome.tokens_before > 2_500


# What is done about it ------------------------------------------------------------------------------


async def test_after_a_refusal_shrinking_alone_must_leave_room_to_spare(tmp_path: Path) -> None:
    # Mutation: in `prepare_compaction` let `enough` be the whole room for an overflow too.
    steps = [*filled(7, 100), call("giant", size=1_200), NO_NUMBERS, reply("Good.")]
    async with scene(tmp_path, steps, tools=[giant], window=4_000) as stage:
        await fill(stage, 7, 100)
        assert str(await stage.session.prompt("Look.")) == "Good."
        [end] = stage.of(CompactionEnd)
        assert (end.outcome.status, end.outcome.method) == ("applied", "model")


async def test_a_context_refused_right_after_its_compaction_is_compacted_further(tmp_path: Path) -> None:
    # Mutation: in `prepare_compaction` skip an overflow too where nothing is new.
    twice = {"overflow_recoveries": 2}
    steps = [*filled(12, 100), NO_NUMBERS, NO_NUMBERS, reply("Good.")]
    async with scene(tmp_path, steps, window=8_000, keep=1_500, compaction=twice) as stage:
        await fill(stage, 12, 100)
        assert str(await stage.session.prompt("Go on.")) == "Good."
        assert stage.outcomes == ["applied", "applied"]


async def test_a_digest_takes_a_quarter_of_what_the_model_turned_out_to_take(tmp_path: Path) -> None:
    # Mutation: in `EntryMaker._digest` take a quarter of the window.
    steps = [*filled(12, 100), refused(2_000, 3_100), reply("Good.")]
    digest = {"summarizer": "digest"}
    async with scene(tmp_path, steps, summaries=[], window=8_000, compaction=digest) as stage:
        await fill(stage, 12, 100)
        assert str(await stage.session.prompt("Go on.")) == "Good."
        [entry] = stage.compactions
        assert estimate_text_tokens(entry.summary) <= 2_000 // 4


# Giants beside a summary ------------------------------------------------------------------------------


async def test_a_giant_that_is_kept_is_shrunk_in_the_write_of_its_compaction(tmp_path: Path) -> None:
    # Mutation: in `Fitting` plan no giants.
    steps = [*filled(12, 60), call("giant", size=1_200), reply("Seen.")]
    async with scene(tmp_path, steps, tools=[giant], window=4_000) as stage:
        await fill(stage, 12, 60)
        await stage.session.prompt("Look.")
        outcome = await stage.session.compact(keep_recent_tokens=1_200)
        assert (outcome.status, outcome.method, len(outcome.edits)) == ("applied", "model", 1)
        edit, entry = stage.lines()[-2:]
        assert edit["type"] == "context_edit"
        assert edit["batch"] == entry["id"]


async def test_what_is_kept_beside_a_summary_is_shrunk_further_where_it_does_not_fit(tmp_path: Path) -> None:
    # Mutation: in `Fitting._fit` leave the tail as it is.
    batch = [("giant", {"size": 680 + number}) for number in range(6)]
    steps = [*filled(), calls(batch), reply("Seen.")]
    async with scene(tmp_path, steps, tools=[giant], window=4_000, provider_window=4_000) as stage:
        await fill(stage)
        assert str(await stage.session.prompt("Look.")) == "Seen."
        [end] = stage.of(CompactionEnd)
        assert end.outcome.method == "model"
        assert end.outcome.edits
        assert len(stage.chat_requests) == 3 + 2


async def test_a_call_is_kept_back_for_the_second_half_of_a_turn_that_is_cut_in_two(tmp_path: Path) -> None:
    # Mutation: in `orders_of` keep none back: the history takes all three.
    bounds = {"enabled": False, "max_summary_calls": 3}
    steps = [*filled(4, 400), *(call("giant", size=300) for _ in range(4)), reply("Seen.")]
    summaries = [reply(SUMMARY) for _ in range(3)]
    async with scene(tmp_path, steps, summaries=summaries, tools=[giant], window=3_000, compaction=bounds) as stage:
        await fill(stage, 4, 400)
        await stage.session.prompt("Look.")
        outcome = await stage.session.compact(keep_recent_tokens=800)
        assert (outcome.status, outcome.method) == ("applied", "model")
        assert "## Turn in progress" in str(outcome.summary)


async def test_a_summary_is_asked_for_no_more_than_what_is_kept_leaves_room_for(tmp_path: Path) -> None:
    # Mutation: in `EntryMaker._order` leave `max_tokens` to the settings.
    long = {"summary_max_tokens": 5_000}
    async with scene(tmp_path, [*filled(6, 60), reply(words(3_050))], window=4_000, compaction=long) as stage:
        await fill(stage, 6, 60)
        await stage.session.prompt("Write it.")
        [end] = stage.of(CompactionEnd)
        assert end.outcome.status == "applied"
        asked = [request.payload["max_tokens"] for request in stage.summary_requests]
        assert asked
        assert all(0 < tokens < 900 for tokens in asked)


# What was tried before, and is not enough -------------------------------------------------------------


def summarised(tmp_path: Path, summary: str, *kept: str) -> SessionManager:
    """A session whose context is a summary, and after it what was kept: answers."""
    manager = SessionManager.create(tmp_path, session_dir=tmp_path / "sessions")
    manager.append_message(UserMessage(content=(TextContent("Long ago."),), timestamp=0))
    ids = [manager.append_message(AssistantMessage(content=(TextContent(text),))).id for text in kept]
    manager.append_compaction(summary, ids[0] if ids else None, 5_000)
    return manager


async def test_a_summary_larger_than_its_share_is_made_smaller_with_whatever_can_go_beside_it(tmp_path: Path) -> None:
    # Mutation: in `prepare_compaction` let two messages go at least, whatever the summary takes.
    manager = summarised(tmp_path, f"## Goal\nThe goal. {words(1_400)}", "Noted.")
    steps = [refused(2_000, 2_900), reply("Good.")]
    digest = {"summarizer": "digest"}
    async with scene(tmp_path, steps, summaries=[], manager=manager, window=8_000, compaction=digest) as stage:
        assert str(await stage.session.prompt("Go on.")) == "Good."
        entry = stage.compactions[-1]
        assert entry.reason == "overflow"
        assert "The goal." in entry.summary
        assert estimate_text_tokens(entry.summary) <= 2_000 // 4


async def test_a_small_summary_and_one_message_are_too_little_after_a_refusal_too(tmp_path: Path) -> None:
    # Mutation: in `prepare_compaction` take every summary for a giant.
    manager = summarised(tmp_path, "## Goal\nThe goal.", "Noted.")
    async with scene(tmp_path, [NO_NUMBERS], summaries=[], manager=manager, window=8_000) as stage:
        with pytest.raises(ContextOverflowError):
            await stage.session.prompt("Go on.")
        assert stage.outcomes == []


async def test_a_digest_is_halved_until_it_fits_beside_what_must_be_kept(tmp_path: Path) -> None:
    # Mutation: in `EntryMaker._fitting_entry` do not count `digest_halvings` up.
    # One token of ours is about three of theirs, so that 560 must stay, 60 more just fit, and 120 are too many.
    manager = summarised(tmp_path, f"## Goal\nThe goal. {words(400)}", "Noted.")
    steps = [refused(2_000, 3_600), reply("Good.")]
    digest = {"summarizer": "digest"}
    async with scene(tmp_path, steps, summaries=[], manager=manager, window=8_000, compaction=digest) as stage:
        assert str(await stage.session.prompt(words(440, "Read this:"))) == "Good."
        [end] = stage.of(CompactionEnd)
        assert end.outcome.method == "digest"
        assert end.outcome.tokens_after < 2_000


async def test_what_fits_by_our_count_is_tried_although_what_left_weighed_more_than_we_count(tmp_path: Path) -> None:
    # Mutation: in `EntryMaker._fitting_entry` go by the scale of what was refused alone.
    manager = summarised(tmp_path, f"## Goal\nThe goal. {words(400)}", "Noted.")
    steps = [refused(2_000, 3_600), reply("Good.")]
    digest = {"summarizer": "digest"}
    async with scene(tmp_path, steps, summaries=[], manager=manager, window=8_000, compaction=digest) as stage:
        assert str(await stage.session.prompt(words(480, "Read this:"))) == "Good."
        [end] = stage.of(CompactionEnd)
        assert end.outcome.tokens_after > 2_000


async def test_results_that_must_stay_are_shrunk_to_fit_beside_the_summary(tmp_path: Path) -> None:
    # Mutation: in `prepare_compaction` leave the summary's tokens out of `enough`.
    manager = summarised(tmp_path, f"## Goal\nThe goal. {words(1_200)}")
    batch = [("giant", {"size": 700 + number}) for number in range(3)]
    async with scene(
        tmp_path, [calls(batch), reply("Seen.")], summaries=[], manager=manager, tools=[giant], window=4_000,
        provider_window=4_000, keep=2_000,
    ) as stage:  # fmt: skip
        assert str(await stage.session.prompt("Look.")) == "Seen."
        [end] = stage.of(CompactionEnd)
        assert (end.outcome.status, end.outcome.method) == ("applied", "shrink")
        assert len(stage.chat_requests) == 2


async def test_a_summary_that_leaves_too_much_is_cut_to_the_room_where_no_less_can_be_kept(tmp_path: Path) -> None:
    # Mutation: in `EntryMaker._fitting_entry` do not cut it.
    long = {"summary_max_tokens": 1_000}
    steps = [*filled(12, 100), reply(words(2_300))]
    summaries = [always(reply(f"## Goal\nThe goal. {words(700)}"))]
    async with scene(tmp_path, steps, summaries=summaries, window=4_000, compaction=long) as stage:
        await fill(stage, 12, 100)
        await stage.session.prompt("Write it.")
        [end] = stage.of(CompactionEnd)
        assert (end.outcome.status, end.outcome.method) == ("applied", "model")
        assert end.outcome.tokens_after <= stage.session.context_usage().threshold
        assert "The goal." in end.outcome.summary
