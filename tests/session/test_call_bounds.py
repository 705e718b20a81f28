"""How many calls of a provider one prompt can cost, whatever fails: the bound is the specification's, as a formula."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from math import floor, log2
from pathlib import Path
from typing import Any

import pytest

from agent_session import AgentSessionError, CompactionEnd, TurnEnd, tool
from agent_session.testing import always, call, cut, fail, reply, stop, stream_error
from tests.session.scene import SUMMARY, Scene, fill, filled, scene, words

RETRIES = 1
SUMMARY_CALLS = 3

OVERFLOW = fail(400, "Range of input length should be [1, 1000]")
FULL = (950, 0, 0, 5)

FAILURES: dict[str, list[Any]] = {
    "refused": [always(fail(400, "no such thing"))],
    "a server error": [always(fail(503, "busy"))],
    "blank": [always(stop("stop", text="  "))],
    "cut for length": [always(stop("length", text="## Goal"))],
    "cut off": [always(cut())],
    "an error in the stream": [always(stream_error({"error": {"message": "internal", "type": "server_error"}}))],
    "a tool call": [always(call("step", size=1))],
    "too long itself": [always(OVERFLOW)],
    "as long as ever": [always(reply(words(800)))],
    "good": [always(reply(SUMMARY))],
}


@tool
def step(size: int) -> str:
    """Do a step.

    Args:
        size: Words of its result.
    """
    return words(size)


def bound(turns: int) -> int:
    """Calls for one prompt of so many turns, with the settings of `counted`."""
    failed = 1 + floor(log2(turns + 1))
    applied = 1 + turns // 3
    overflows = turns + 1
    return (2 * turns + 1) * (1 + RETRIES) + (failed + applied + overflows) * SUMMARY_CALLS * (1 + RETRIES)


async def counted(tmp_path: Path, steps: list[Any], summaries: list[Any], **options: Any) -> tuple[Scene, int]:
    """The scene after one more prompt, and the calls that it cost, summaries included."""
    async with scene(
        tmp_path,
        [*filled(), *steps],
        summaries=summaries,
        tools=[step],
        retry={"max_retries": RETRIES},
        compaction={"max_summary_calls": SUMMARY_CALLS},
        **options,
    ) as stage:
        await fill(stage)
        before = len(stage.provider.requests)
        with suppress(AgentSessionError):
            await stage.session.prompt("Go on.")
        return stage, len(stage.provider.requests) - before


@pytest.mark.parametrize("summaries", FAILURES.values(), ids=FAILURES)
async def test_a_run_at_the_threshold_stays_within_the_bound(tmp_path: Path, summaries: list[Any]) -> None:
    # Mutation: in `Backoff.should_attempt` say yes always; in `Run._check` leave out the cap of applied compactions.
    calls = [replace(call("step", size=30), usage=FULL) for _ in range(9)]
    stage, spent = await counted(tmp_path, [*calls, reply("done", usage=FULL)], summaries)
    turns = len(stage.of(TurnEnd))
    assert turns == 10
    assert spent <= bound(turns)
    failed = [end for end in stage.of(CompactionEnd) if end.outcome.status == "failed"]
    applied = [end for end in stage.of(CompactionEnd) if end.outcome.status == "applied"]
    assert len(failed) <= 1 + floor(log2(turns + 1))
    assert len(applied) <= 1 + turns // 3


@pytest.mark.parametrize("summaries", FAILURES.values(), ids=FAILURES)
async def test_a_provider_that_refuses_for_ever_stays_within_the_bound(tmp_path: Path, summaries: list[Any]) -> None:
    # Mutation: in `Run._recover` do not count recoveries down.
    stage, spent = await counted(tmp_path, [always(OVERFLOW)], summaries)
    assert spent <= bound(max(1, len(stage.of(TurnEnd))))
    assert len(stage.of(CompactionEnd)) <= 2


@pytest.mark.parametrize("summaries", FAILURES.values(), ids=FAILURES)
async def test_refusals_between_good_answers_stay_within_the_bound(tmp_path: Path, summaries: list[Any]) -> None:
    # Mutation: in `Run._until_stopped` give back recoveries after a failure too.
    steps = [part for _ in range(5) for part in (call("step", size=30), OVERFLOW)]
    stage, spent = await counted(tmp_path, [*steps, always(reply("done"))], summaries, check=False)
    assert spent <= bound(len(stage.of(TurnEnd)))


@pytest.mark.parametrize("failing", [fail(503, "busy"), cut(), fail(429, "slow down")], ids=["503", "cut", "429"])
async def test_an_endless_transient_failure_costs_its_retries_and_no_more(tmp_path: Path, failing: Any) -> None:
    # Mutation: in `Run._ask_until_answered` do not count the attempts.
    _, spent = await counted(tmp_path, [always(failing)], [])
    assert spent == 1 + RETRIES
