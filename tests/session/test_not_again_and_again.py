"""What keeps a session from compacting, or asking, again and again; and what starts nothing any more after an abort."""

from __future__ import annotations

import base64
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import anyio
import pytest

from agent_session import (
    AgentEnd,
    AgentSession,
    AgentSettled,
    CompactionEnd,
    CompactionResult,
    ContextOverflowError,
    ImageContent,
    MessageDiscarded,
    Model,
    TurnEnd,
    Warning,
    tool,
)
from agent_session.testing import always, call, calls, fail, hold, reply, stop
from session_store import SessionManager, TextContent, UserMessage
from tests.pictures import png
from tests.session.scene import SUMMARY, Scene, fill, filled, scene, texts, words

TOO_LONG = fail(400, "Range of input length should be [1, 1000]")
FULL = (950, 0, 0, 5)


@tool
def look(at: str) -> str:
    """Look at something.

    Args:
        at: What.
    """
    return words(30, f"seen {at}")


def methods(stage: Scene) -> list[tuple[str, str | None]]:
    return [(end.outcome.status, end.outcome.method) for end in stage.of(CompactionEnd)]


# The row of failures ---------------------------------------------------------------------------------


async def another_model(session: AgentSession) -> None:
    await session.set_model(Model("openai/another", context_window=1_000))


async def other_settings(session: AgentSession) -> None:
    session.update_settings(compaction={"max_summary_calls": 7})


async def a_veto(session: AgentSession) -> None:
    """Nothing that counts."""


@pytest.mark.parametrize(
    ("between", "third"),
    [
        pytest.param(another_model, ("failed", "model"), id="another model"),
        pytest.param(other_settings, ("failed", "model"), id="other settings"),
        pytest.param(a_veto, ("applied", "digest"), id="nothing"),
    ],
)
async def test_another_model_or_other_settings_begin_the_row_of_failures_afresh(
    tmp_path: Path, between: Callable[[AgentSession], Any], third: tuple[str, str]
) -> None:
    # Mutation: in `AgentSession.set_model`, or in `update_settings`, keep the count.
    steps = [*filled(), *(reply(words(10), usage=FULL) for _ in range(3))]
    async with scene(tmp_path, steps, summaries=[always(fail(400, "no"))]) as stage:
        await fill(stage)
        await stage.session.prompt("first")
        # The check before the request, and the one after the turn: the second attempt and, as it fails, the wait.
        await stage.session.prompt("second")
        assert methods(stage) == [("failed", "model"), ("failed", "model")]
        await between(stage.session)
        await stage.session.prompt("third")
        assert methods(stage)[2] == third


async def test_a_manual_compaction_ends_the_row_of_failures(tmp_path: Path) -> None:
    # Mutation: in `Backoff.record` count by automatic compactions alone.
    steps = [*filled(), reply("1", usage=FULL), reply("2", usage=FULL), reply("3", usage=FULL)]
    summaries: list[Any] = [fail(400, "no"), fail(400, "no"), reply(SUMMARY), always(fail(400, "no"))]
    async with scene(tmp_path, steps, summaries=summaries) as stage:
        await fill(stage)
        await stage.session.prompt("first")
        await stage.session.prompt("second")
        assert stage.outcomes == ["failed", "failed"]
        assert (await stage.session.compact()).method == "model"
        await stage.session.prompt(words(60, "third"))
        # Not left alone, and not without the model.
        assert methods(stage)[3:] == [("failed", "model")]


async def test_a_digest_does_not_end_the_row_of_failures(tmp_path: Path) -> None:
    # Mutation: in `Backoff.record` take any compaction that was applied for a success.
    steps = [*filled(), *(reply(words(100), usage=FULL) for _ in range(6))]
    async with scene(tmp_path, steps, summaries=[always(fail(400, "no"))]) as stage:
        await fill(stage)
        for number in range(6):
            await stage.session.prompt(f"more {number}")
        assert methods(stage)[:3] == [("failed", "model"), ("failed", "model"), ("applied", "digest")]
        assert {method for _, method in methods(stage)[3:]} == {"digest"}
        assert len(stage.summary_requests) == 2


async def test_an_overflow_is_compacted_although_attempts_have_just_failed(tmp_path: Path) -> None:
    # Mutation: in `Run._recover` ask the back-off.
    steps = [*filled(), reply("1", usage=FULL), TOO_LONG, reply("after all")]
    async with scene(tmp_path, steps, summaries=[always(fail(400, "no"))]) as stage:
        await fill(stage)
        await stage.session.prompt("first")
        assert str(await stage.session.prompt("second")) == "after all"
        assert methods(stage) == [("failed", "model"), ("failed", "model"), ("applied", "digest")]
        assert [end.reason for end in stage.of(CompactionEnd)] == ["threshold", "threshold", "overflow"]


# How often within one run ------------------------------------------------------------------------------


async def test_the_cap_of_one_run_is_not_the_next_ones(tmp_path: Path) -> None:
    # Mutation: count applied compactions, or warn of their cap, once for the session.
    steps = [*filled(), *(reply(words(60), usage=FULL) for _ in range(2)), reply("done")]
    once = {"max_compactions_per_run": 1}
    async with scene(tmp_path, steps, compaction=once) as stage:
        await fill(stage)
        await stage.session.prompt(words(60, "first"))
        await stage.session.prompt(words(60, "second"))
        assert stage.outcomes == ["applied", "applied"]
        assert [event.text for event in stage.of(Warning)] == []
        await stage.session.prompt("third")


async def test_a_new_prompt_may_recover_though_no_answer_came_since_the_last_overflow(tmp_path: Path) -> None:
    # Mutation: keep the recoveries that are left for the session instead of the prompt.
    steps = [*filled(12, 100), TOO_LONG, TOO_LONG, TOO_LONG, reply("at last")]
    async with scene(tmp_path, steps, window=8_000, keep=1_500) as stage:
        await fill(stage, 12, 100)
        with pytest.raises(ContextOverflowError):
            await stage.session.prompt("first")
        assert str(await stage.session.prompt("second")) == "at last"
        assert stage.outcomes == ["applied", "applied"]


@pytest.mark.parametrize("recoveries", [0, 1, 2])
async def test_so_many_recoveries_are_made_in_a_row_as_the_setting_allows(tmp_path: Path, recoveries: int) -> None:
    # Mutation: in `Run.execute` begin with one recovery whatever the setting.
    allowed = {"overflow_recoveries": recoveries}
    steps = [*filled(12, 100), *([TOO_LONG] * (recoveries + 1))]
    async with scene(tmp_path, steps, window=8_000, keep=1_500, compaction=allowed) as stage:
        await fill(stage, 12, 100)
        with pytest.raises(ContextOverflowError):
            await stage.session.prompt("go")
        assert stage.outcomes == ["applied"] * recoveries
        assert [event.will_retry for event in stage.of(AgentEnd)] == [*[True] * recoveries, False]


async def test_calls_of_an_answer_to_too_much_input_run_once_and_the_run_goes_on_after_a_compaction(
    tmp_path: Path,
) -> None:
    # Mutation: in `recovery.judge` take an answer above the window for an overflow: it would be asked for again.
    ran: list[str] = []

    @tool
    def touch(name: str) -> str:
        """Touch.

        Args:
            name: What.
        """
        ran.append(name)
        return "touched"

    over = calls([("touch", {"name": "a"})], text="On it.", usage=(1_200, 0, 0, 5))
    async with scene(tmp_path, [*filled(), over, reply("done")], tools=[touch]) as stage:
        await fill(stage)
        assert str(await stage.session.prompt("go")) == "done"
        assert ran == ["a"]
        assert len(stage.chat_requests) == 5
        assert [entry.reason for entry in stage.compactions] == ["overflow"]
        assert "On it." in texts(stage.session.messages)
        assert stage.told("turn_end", "compaction_end", "agent_end") == [
            "turn_end",
            "compaction_end",
            "turn_end",
            "agent_end",
        ]
        assert stage.lines("context_edit") == []


@pytest.mark.parametrize("usage", [FULL, (1_200, 0, 0, 5)], ids=["threshold", "above the window"])
async def test_with_compaction_off_nothing_is_compacted_by_itself(tmp_path: Path, usage: Any) -> None:
    # Mutation: in `Run._check` do not look at `enabled`.
    async with scene(
        tmp_path, [*filled(), reply("kept", usage=usage), reply("on")], compaction={"enabled": False}
    ) as stage:
        await fill(stage)
        assert str(await stage.session.prompt("go")) == "kept"
        assert str(await stage.session.prompt("go on")) == "on"
        assert stage.outcomes == []
        assert (await stage.session.compact()).status == "applied"


# After an abort ------------------------------------------------------------------------------------------


ENDS: dict[str, Any] = {
    "refused": TOO_LONG,
    "filled the window": stop("model_context_window_exceeded", text="half"),
    "no room for an answer": stop("length", usage=(995, 0, 0, 0)),
    "at the threshold": reply("full", usage=FULL),
    "above the window": reply("over", usage=(1_200, 0, 0, 5)),
}


@pytest.mark.parametrize("summarizer", ["model", "digest"])
@pytest.mark.parametrize("event", ["turn_end", "agent_end"])
@pytest.mark.parametrize("last", ENDS.values(), ids=ENDS)
async def test_an_abort_when_an_answer_has_come_to_its_end_starts_no_compaction(
    tmp_path: Path, last: Any, event: str, summarizer: str
) -> None:
    # Mutation: look nowhere whether the run was ended: a digest needs no await to be applied; in `Run._recover` alone,
    # and the failed attempt is edited away.
    async with scene(tmp_path, [*filled(), last], compaction={"summarizer": summarizer}) as stage:
        await fill(stage)
        asked = len(stage.provider.requests) + 1
        stage.session.on(event, lambda event, ctx: ctx.abort())  # type: ignore[call-overload]
        with anyio.fail_after(5):
            await stage.session.prompt("go")
        assert len(stage.provider.requests) == asked
        assert stage.told("before_compact", "compaction_start", "compaction_end") == []
        assert stage.lines("compaction") == stage.lines("context_edit") == []
        assert stage.names[-1] == "agent_settled"


@pytest.mark.parametrize(
    "last",
    [fail(503, "busy"), TOO_LONG, fail(400, "image exceeds 5 MB maximum: 6291456 bytes > 5242880 bytes")],
    ids=["busy", "refused", "an image is refused"],
)
async def test_an_abort_when_an_attempt_is_discarded_starts_nothing_any_more(tmp_path: Path, last: Any) -> None:
    # Mutation: in `Run._ask_until_answered` begin the retry, or take images out, before looking whether it was ended.
    image = ImageContent(base64.b64encode(png()).decode(), "image/png")
    async with scene(tmp_path, [*filled(), last], window=8_000) as stage:
        await fill(stage)
        stage.session.on("message_discarded", lambda event, ctx: ctx.abort())
        with anyio.fail_after(5):
            await stage.session.prompt("go", images=[image])
        assert len(stage.provider.requests) == 4
        assert stage.told("retry_start", "before_compact", "compaction_end") == []
        assert stage.lines("context_edit") == []
        assert stage.of(AgentSettled)[-1].aborted is True


@pytest.mark.parametrize(
    ("method", "event"),
    [
        *product(["model", "digest", "handler"], ["before_compact", "compaction_start", "session_compact"]),
        *product(["shrink"], ["before_compact", "compaction_start"]),
    ],
)
async def test_an_abort_from_inside_an_automatic_compaction_stores_nothing(
    tmp_path: Path, event: str, method: str
) -> None:
    # Mutation: in `Compactor._attempt` look at the compaction's own scope alone, or not before edits.
    @tool
    def giant() -> str:
        """Give a result that fills the window."""
        return words(6_000 if method == "shrink" else 150)

    def stopping(api: Any) -> None:
        if method == "handler":
            api.on("before_compact", lambda event: CompactionResult("Mine."))
        api.on(event, lambda event, ctx: ctx.abort())

    batch = calls([("giant", {})], usage=None if method == "shrink" else (3_950, 0, 0, 5))
    steps = [*(filled() if method != "shrink" else []), batch]
    async with scene(
        tmp_path,
        steps,
        tools=[giant],
        extensions=[stopping],
        window=4_000,
        compaction={"summarizer": "digest" if method == "digest" else "model"},
    ) as stage:
        if method != "shrink":
            await fill(stage)
        with anyio.fail_after(5):
            await stage.session.prompt("Look.")
        assert stage.outcomes == ["aborted"]
        assert stage.lines("compaction") == stage.lines("context_edit") == []
        assert stage.of(AgentSettled)[-1].aborted is True


async def test_after_an_abort_between_two_turns_the_next_is_not_even_told(tmp_path: Path) -> None:
    # Mutation: in `Run._check` do not look whether the run was ended.
    async with scene(tmp_path, [call("look", at="a")], tools=[look]) as stage:
        stage.session.on("turn_end", lambda event, ctx: ctx.abort())
        with anyio.fail_after(5):
            await stage.session.prompt("go")
        assert stage.told("turn_start", "turn_end") == ["turn_start", "turn_end"]


async def test_an_abort_from_a_warning_that_a_check_gives_starts_no_compaction(tmp_path: Path) -> None:
    # Mutation: in `Compactor.run` do not look whether its caller was cancelled.
    manager = SessionManager.create(tmp_path, session_dir=tmp_path / "sessions")
    for number in range(12):
        manager.append_message(UserMessage(content=(TextContent(words(60, f"question {number}")),)))
    digest = {"summarizer": "digest"}
    async with scene(tmp_path, [], manager=manager, reserve=5_000, compaction=digest) as stage:
        stage.session.on("warning", lambda event, ctx: ctx.abort())
        with anyio.fail_after(5):
            await stage.session.prompt("go")
        assert len(stage.of(Warning)) == 1
        assert stage.told("before_compact", "compaction_end") == []
        assert stage.compactions == []


async def test_an_abort_while_an_overflow_is_compacted_ends_the_run_and_asks_nothing_again(tmp_path: Path) -> None:
    # Mutation: in `SessionCore.abort` end the compaction alone.
    held = hold(reply(SUMMARY))
    async with scene(tmp_path, [*filled(), TOO_LONG, reply("later")], window=8_000, summaries=[held]) as stage:
        await fill(stage)
        with anyio.fail_after(5):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(stage.session.prompt, "go")
                await held.started.wait()
                await stage.session.abort()
                assert stage.session.is_idle
        assert stage.outcomes == ["aborted"]
        assert len(stage.chat_requests) == 4
        assert str(await stage.session.prompt("go on")) == "later"


async def test_waiting_to_ask_again_ends_at_once_with_an_abort(tmp_path: Path) -> None:
    # Mutation: in `Run._ask_until_answered` wait in a shielded scope.
    busy = fail(503, "busy", headers={"Retry-After": "50"})
    async with scene(tmp_path, [busy, reply("later")]) as stage:
        with anyio.fail_after(5):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(stage.session.prompt, "go")
                while not stage.session.is_retrying:
                    await anyio.lowlevel.checkpoint()
                await stage.session.abort()
        assert [event.reason for event in stage.of(MessageDiscarded)]
        assert len(stage.provider.requests) == 1
        assert str(await stage.session.prompt("go on")) == "later"
        assert len(stage.of(TurnEnd)) == 2
