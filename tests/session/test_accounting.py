"""What a session learns of its provider's way of counting, and what it does with that."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

from agent_session import (
    AgentSession,
    CompactionEnd,
    CompactionError,
    Model,
    ReplacedMessages,
    SessionManager,
    Warning,
)
from agent_session.calibration import HIGHEST_RATIO, LOWEST_RATIO, Calibration
from agent_session.compaction.tokens import estimate_fixed_request_tokens, estimate_message_tokens
from agent_session.testing import ScriptedModel, Step, always, fail, reply, stop
from tests.session.scene import SUMMARY, SYSTEM_PROMPT, Scene, fill, filled, scene, texts, words


def estimated(stage: Scene) -> int:
    messages = sum(map(estimate_message_tokens, stage.session.messages))
    return messages + estimate_fixed_request_tokens(SYSTEM_PROMPT)


# The ratio ----------------------------------------------------------------------------------------


def test_the_newest_report_decides_and_the_ratio_stays_within_its_bounds() -> None:
    # Mutations: keep the first ratio; leave the bounds out; learn nothing of the first request.
    known = Calibration()
    assert known.ratio("a/b") == 1.0
    assert known.learn("a/b", sent=50_000, reported=60_000)
    assert 1.19 < known.ratio("a/b") < 1.2
    assert known.learn("a/b", sent=50_000, reported=400_000)
    assert known.ratio("a/b") == HIGHEST_RATIO
    assert known.learn("a/b", sent=50_000, reported=21_000)
    assert known.ratio("a/b") == LOWEST_RATIO
    assert known.ratio("a/other") == 1.0


def test_a_short_first_request_hardly_counts() -> None:
    # Mutation: in `learn_refused` give one no weight.
    known = Calibration()
    known.learn("a/b", sent=20, reported=200)
    assert known.ratio("a/b") < 1.2


def test_a_report_far_below_what_was_sent_is_not_learned_from_and_takes_back_what_led_there() -> None:
    # Mutations: learn from every report; keep a ratio that cut reports have lowered.
    known = Calibration()
    for sent in (20_000, 30_000, 40_000):
        known.learn("a/b", sent=sent, reported=16_386)
    assert known.ratio("a/b") == LOWEST_RATIO
    for sent in (50_000, 60_000, 90_000):
        assert not known.learn("a/b", sent=sent, reported=16_386)
        assert known.ratio("a/b") == 1.0
    # Below the size at which the front was dropped it counts all of it again.
    assert known.learn("a/b", sent=10_000, reported=11_000)
    assert known.ratio("a/b") > 1.0


def test_a_low_count_that_grows_with_what_is_sent_is_a_count() -> None:
    # Mutation: in `learn` leave `first_low` out.
    known = Calibration()
    assert not known.learn("a/b", sent=10_000, reported=3_000)
    assert not known.learn("a/b", sent=10_500, reported=3_150)
    assert known.learn("a/b", sent=20_000, reported=6_000)
    assert known.ratio("a/b") == LOWEST_RATIO


async def test_what_a_provider_reported_scales_the_context_after_a_compaction(tmp_path: Path) -> None:
    # Mutations: in `ContextMeter.measure` give no ratio; in `prepare_compaction` let the scale be one.
    steps = [*(reply(words(3_000)) for _ in range(3)), reply("full", usage=(17_000, 0, 0, 5))]
    async with scene(tmp_path, steps, window=40_000, keep=2_000) as stage:
        for _ in range(4):
            await stage.session.prompt("Go on.")
        sent = estimated(stage)
        outcome = await stage.session.compact()
        assert outcome.tokens_after is not None
        assert outcome.tokens_after > 1.4 * estimated(stage)
        assert outcome.tokens_after / estimated(stage) < 17_500 / sent
        assert stage.session.context_usage().tokens == outcome.tokens_after
        # Mutation: in `undo_compaction` measure without the ratio.
        undone = await stage.session.undo_compaction()
        assert undone.tokens_after == stage.session.context_usage().tokens > 1.4 * estimated(stage)


async def test_a_resumed_session_learns_again_from_its_log(tmp_path: Path) -> None:
    # Mutation: in `ContextMeter._learn` pass over answers of an earlier process.
    steps = [*(reply(words(3_000)) for _ in range(3)), reply("full", usage=(17_000, 0, 0, 5))]
    async with scene(tmp_path, steps, window=40_000, keep=2_000) as stage:
        for _ in range(4):
            await stage.session.prompt("Go on.")
    manager = SessionManager.open(stage.path)
    async with scene(tmp_path, [], window=40_000, keep=2_000, manager=manager) as again:
        assert again.session.context_usage().tokens == 17_005
        outcome = await again.session.compact()
        assert outcome.tokens_after is not None
        assert outcome.tokens_after > 1.4 * estimated(again)


async def test_the_input_of_a_summary_is_bounded_by_the_same_ratio(tmp_path: Path) -> None:
    # Mutation: in `Summarizer._chunks` leave the ratio out.
    calls: list[int] = []
    for reported in (None, (30_000, 0, 0, 5)):
        steps = [*(reply(words(3_000)) for _ in range(5)), reply("full", usage=reported)]
        off = {"enabled": False, "summary_model": "openai/scripted"}
        async with scene(tmp_path, steps, window=24_000, keep=500, compaction=off) as stage:
            for _ in range(6):
                await stage.session.prompt("Go on.")
            await stage.session.compact()
            calls.append(len(stage.summary_requests))
    assert calls[1] > calls[0]


@pytest.mark.parametrize("requested", ["8100 tokens", "11100 tokens (8100 in the messages, 3000 in the completion)"])
async def test_a_refusal_that_names_what_was_sent_teaches_the_ratio(tmp_path: Path, requested: str) -> None:
    # Mutation: in `Run._note_limit` leave `learn_refused` out; there or in `_recover` take `requested` as it is.
    refusal = fail(400, f"This model's maximum context length is 8000 tokens. However, you requested {requested}.")
    steps: list[Step] = [*(reply(words(1_200)) for _ in range(4)), refusal, always(reply("Good."))]
    async with scene(tmp_path, steps, window=20_000, keep=1_000) as stage:
        for _ in range(4):
            await stage.session.prompt("Go on.")
        sizes: list[int] = []

        def note(event: object) -> None:
            if isinstance(event, CompactionEnd):
                sizes.append(stage.session.context_usage().tokens)

        stage.session.subscribe(note)
        await stage.session.prompt("Go on.")
        [end] = stage.of(CompactionEnd)
        assert (end.outcome.status, end.outcome.tokens_before) == ("applied", 8_100)
        assert sizes == [pytest.approx(end.outcome.tokens_after, rel=0.1)]


# A server that drops the front ------------------------------------------------------------------------


async def test_a_report_far_below_what_was_sent_is_no_anchor_and_is_warned_of_once(tmp_path: Path) -> None:
    # Mutations: in `ContextMeter.measure` trust every report; in `Run._note_report` warn each time.
    steps: list[Step] = [*(reply(words(4_000), usage=(0, 0, 0, 0)) for _ in range(3))]
    steps += [always(reply("ok", usage=(3_000, 0, 0, 5)))]
    async with scene(tmp_path, steps, window=60_000) as stage:
        for _ in range(3):
            await stage.session.prompt("Go on.")
        for _ in range(3):
            await stage.session.prompt("And now?")
            usage = stage.session.context_usage()
            assert not usage.is_reported
            assert usage.tokens >= estimated(stage) > 12_000
        (warning,) = stage.of(Warning)
        assert "3,000" in warning.text
        assert "num_ctx" in warning.text
        assert "context_window" in warning.text


async def test_a_handler_that_sends_less_is_no_server_that_drops_the_front(tmp_path: Path) -> None:
    # Mutation: in `ask_model` do not say what is sent: the report is held against the whole context.
    steps = [*(reply(words(4_000), usage=(0, 0, 0, 0)) for _ in range(3)), reply("ok", usage=(300, 0, 0, 5))]
    async with scene(tmp_path, steps, window=60_000) as stage:
        stage.session.on("context", lambda event: ReplacedMessages(event.messages[-1:]))
        for _ in range(4):
            await stage.session.prompt("Go on.")
        assert stage.session.context_usage().tokens == 305
        assert not stage.of(Warning)


async def test_a_summary_of_a_text_whose_front_was_dropped_is_refused(tmp_path: Path) -> None:
    # Mutation: in `Summarizer._stream` take whatever was counted.
    summaries = [always(reply(SUMMARY, usage=(900, 0, 0, 50)))]
    steps = [reply(words(3_000)) for _ in range(4)]
    async with scene(tmp_path, steps, summaries=summaries, window=60_000) as stage:
        for _ in range(4):
            await stage.session.prompt("Go on.")
        before = stage.session.messages
        error = await failure_of(stage)
        assert "drop the front" in error
        assert stage.session.messages == before


async def failure_of(stage: Scene) -> str:
    try:
        await stage.session.compact()
    except CompactionError as error:
        return str(error)
    raise AssertionError("the compaction was applied")


# Limits ---------------------------------------------------------------------------------------------


NO_NUMBERS = fail(400, "Input is too long for requested model.")


async def test_a_measured_limit_is_lifted_by_an_answer_to_more_and_a_named_one_is_not(tmp_path: Path) -> None:
    # Mutations: in `ModelState.lift_limit` lift every limit; or none.
    named = fail(400, "This model's maximum context length is 5000 tokens.")
    thresholds: list[int] = []
    for refusal in (NO_NUMBERS, named):
        steps: list[Step] = [reply(words(900)) for _ in range(4)]
        steps += [refusal, reply("Good."), reply("big", usage=(6_000, 0, 0, 5))]
        async with scene(tmp_path, steps, window=8_000) as stage:
            for _ in range(6):
                await stage.session.prompt("Go on.")
            thresholds.append(stage.session.context_usage().threshold)
    assert thresholds == [7_500, 4_688]


async def test_a_finish_reason_alone_lowers_no_limit(tmp_path: Path) -> None:
    # Mutation: in `Run._note_limit` measure whatever was refused.
    steps: list[Step] = [*filled(8, 300), stop("model_context_window_exceeded"), always(reply("Good."))]
    async with scene(tmp_path, steps, window=8_000) as stage:
        await fill(stage, 8, 300)
        before = stage.session.context_usage().threshold
        await stage.session.prompt("Go on.")
        assert stage.outcomes == ["applied"]
        assert stage.session.context_usage().threshold == before


# Once for each state of the log -----------------------------------------------------------------------


class CountingManager(SessionManager):
    """Counts how often a context is built."""

    builds = 0

    @override
    def build_context(self, leaf_id: str | None = None) -> Any:
        CountingManager.builds += 1
        return super().build_context(leaf_id)


async def test_the_context_is_built_once_for_each_state_of_the_log_however_many_ask(tmp_path: Path) -> None:
    # Mutation: in `ContextMeter.context` build it anew each time.
    CountingManager.builds = 0
    manager = CountingManager.in_memory(tmp_path)
    model = Model("openai/scripted", context_window=8_000)
    async with AgentSession(
        model, session_manager=manager, client=ScriptedModel([always(reply("ok"))]), tools=[], cwd=tmp_path
    ) as session:
        for _ in range(5):
            await session.prompt("Go on.")
            for _ in range(10):
                session.context_usage()
                assert session.messages
        states = len(manager.get_branch())
        assert CountingManager.builds <= states


async def test_an_edit_and_another_leaf_are_other_states(tmp_path: Path) -> None:
    # Mutation: in `ContextMeter.context` give what was built first.
    async with scene(tmp_path, [*filled(), reply("more")]) as stage:
        await fill(stage)
        first = stage.lines("message")[0]["id"]
        whole = stage.session.messages
        stage.session.session_manager.append_context_edit(first, None)
        assert len(stage.session.messages) == len(whole) - 1
        await stage.session.navigate_tree(stage.lines("message")[3]["id"])
        assert len(stage.session.messages) == 4
        await stage.session.prompt("again")
        assert texts(stage.session.messages)[-2:] == ["again", "more"]


async def test_estimates_are_kept_for_the_context_and_not_for_the_session(tmp_path: Path) -> None:
    # Mutation: in `ContextMeter.context` never let go of what left the context.
    async with scene(tmp_path, [always(reply(words(30)))], window=1_000) as stage:
        for number in range(120):
            await stage.session.prompt(words(20, f"question {number}"))
        ledger = stage.session._core.parts.meter.ledger
        assert len(ledger) <= 2 * len(stage.session.messages) + 64 + 4
        assert stage.compactions
