"""When the provider says that it is too much: one recovery, then the truth."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent_session import (
    AgentEnd,
    CompactionEnd,
    ContextOverflowError,
    MessageDiscarded,
    MissingCredentialsError,
    ModelRequestError,
    tool,
)
from agent_session.testing import call, fail, reply, stop
from tests.session.scene import fill, filled, scene, texts, veto_on, words

TOO_LONG = "Range of input length should be [1, 1000]"


@tool
def look(at: str) -> str:
    """Look at something."""
    return words(60, f"seen {at}")


async def test_an_overflow_in_unusual_words_is_compacted_and_never_sent_again_unchanged(tmp_path: Path) -> None:
    # Mutation: in `llm.overflow` take the text out of its shapes: it becomes a plain 400, and the prompt fails.
    async with scene(tmp_path, [*filled(), fail(400, TOO_LONG), reply("fine")], window=8_000) as stage:
        await fill(stage)
        assert str(await stage.session.prompt("go")) == "fine"
        assert [entry.reason for entry in stage.compactions] == ["overflow"]
        before, after = stage.chat_requests[-2:]
        assert before.raw != after.raw
        assert len(stage.chat_requests) == 5


async def test_a_client_error_is_never_sent_again_unchanged(tmp_path: Path) -> None:
    # Mutation: in `llm.retry.is_retryable` return True for every status.
    async with scene(tmp_path, [fail(400, "temperature exceeds maximum of 2")]) as stage:
        with pytest.raises(ModelRequestError) as caught:
            await stage.session.prompt("go")
        assert (caught.value.kind, caught.value.status) == ("bad_request", 400)
        assert len(stage.provider.requests) == 1


async def test_a_second_overflow_ends_the_prompt_and_the_next_prompt_may_recover_again(tmp_path: Path) -> None:
    # Mutation: in `Run._recover` leave `_recoveries_left` as it is; in `execute` do not fill it up again.
    steps = [*filled(), fail(400, TOO_LONG), fail(400, TOO_LONG)]
    steps += [reply("small"), fail(400, TOO_LONG), reply("at last")]
    async with scene(tmp_path, steps, window=8_000) as stage:
        await fill(stage)
        with pytest.raises(ContextOverflowError):
            await stage.session.prompt(words(60, "first"))
        assert stage.outcomes == ["applied"]
        assert [event.will_retry for event in stage.of(AgentEnd)][-2:] == [True, False]
        stage.check_whole()
        await stage.session.prompt(words(60, "second"))
        assert str(await stage.session.prompt(words(60, "third"))) == "at last"
        assert stage.outcomes == ["applied", "applied"]


async def test_a_long_run_may_recover_once_for_every_answer_it_got(tmp_path: Path) -> None:
    # Mutation: in `Run._until_stopped` do not fill `_recoveries_left` up after an answer.
    looks = [call("look", at=str(number)) for number in range(3)]
    steps = [*filled(), fail(400, TOO_LONG), *looks, fail(400, TOO_LONG), reply("done")]
    async with scene(tmp_path, steps, window=8_000, tools=[look]) as stage:
        await fill(stage)
        assert str(await stage.session.prompt(words(30, "go"))) == "done"
        assert stage.outcomes == ["applied", "applied"]


async def test_with_compaction_off_an_overflow_is_said_once(tmp_path: Path) -> None:
    # Mutation: in `Run._agent_run` leave `enabled` out of `can_recover`.
    async with scene(tmp_path, [*filled(), fail(400, TOO_LONG)], compaction={"enabled": False}) as stage:
        await fill(stage)
        with pytest.raises(ContextOverflowError):
            await stage.session.prompt("go")
        assert len(stage.provider.requests) == 4
        assert stage.outcomes == []
        assert [event.will_retry for event in stage.of(AgentEnd)][-1] is False


async def test_a_veto_of_an_overflow_gives_the_overflow_error_and_keeps_the_queue(tmp_path: Path) -> None:
    # Mutation: in `Run._agent_run` go on after `_recover` gave False; in `Compactor._end` promise a retry all the same.
    steps = [*filled(), fail(400, TOO_LONG)]
    async with scene(tmp_path, steps, window=8_000, extensions=[veto_on("overflow")]) as stage:
        await fill(stage)

        def queue(event: object) -> None:
            if isinstance(event, CompactionEnd):
                stage.session.follow_up("still here")

        stage.session.subscribe(queue)
        with pytest.raises(ContextOverflowError) as caught:
            await stage.session.prompt("go")
        assert "vetoed" in str(caught.value.__notes__)
        assert [event.will_retry for event in stage.of(CompactionEnd)] == [False]
        assert stage.outcomes == ["vetoed"]
        assert stage.session.pending_messages == ("still here",)
        stage.check_whole()
        stage.session.clear_queue()


async def test_a_finish_reason_that_says_overflow_is_one(tmp_path: Path) -> None:
    # Mutation: in `turn.ask_model` leave `is_overflow_finish` out.
    steps = [*filled(), stop("model_context_window_exceeded", text="half an ans"), reply("whole answer")]
    async with scene(tmp_path, steps, window=8_000) as stage:
        await fill(stage)
        assert str(await stage.session.prompt("go")) == "whole answer"
        assert [entry.reason for entry in stage.compactions] == ["overflow"]
        assert "half an ans" not in texts(stage.session.messages)
        assert stage.of(MessageDiscarded)


async def test_a_session_too_small_to_compact_gives_the_overflow_error(tmp_path: Path) -> None:
    # Mutation: in `Run._recover` take "skipped" for "applied": the same request would be paid for again.
    async with scene(tmp_path, [fail(400, TOO_LONG)], window=8_000) as stage:
        with pytest.raises(ContextOverflowError):
            await stage.session.prompt("go")
        assert len(stage.provider.requests) == 1


async def test_the_failed_attempt_is_in_the_log_and_its_error_carries_it(tmp_path: Path) -> None:
    # Mutation: in `ask_model` record a failed attempt as any other answer, or do not hang it on its error.
    async with scene(tmp_path, [fail(401, "token expired or incorrect")]) as stage:
        with pytest.raises(MissingCredentialsError, match="expired") as caught:
            await stage.session.prompt("go")
        assert caught.value.message is not None
        assert caught.value.message.stop_reason == "error"
        assert stage.lines("message")[-1]["message"]["stopReason"] == "error"
        assert texts(stage.session.messages) == ["go"]


async def test_transient_failures_are_retried_and_leave_the_context(tmp_path: Path) -> None:
    # Mutation: in `is_sent` let failed answers through; in `Run._ask_until_answered` never say that it is retrying.
    steps: list[Any] = [fail(503, "busy"), fail(500, "oops"), fail(529, "overloaded"), reply("fine")]
    async with scene(tmp_path, steps) as stage:
        retrying: list[bool] = []
        stage.session.subscribe(
            lambda event: retrying.append(stage.session.is_retrying) if event.name.startswith("retry") else None
        )
        assert str(await stage.session.prompt("go")) == "fine"
        assert retrying == [True, True, True, False]
        assert texts(stage.session.messages) == ["go", "fine"]
        retries = [name for name in stage.names if name.startswith(("retry", "message_discarded"))]
        assert retries == ["message_discarded", "retry_start"] * 3 + ["retry_end"]
