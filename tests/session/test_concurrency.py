"""Two things at once: one gate, nothing lost, nothing stuck."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from agent_session import (
    AgentSession,
    AgentSettled,
    CompactionEnd,
    Model,
    QueueUpdate,
    SessionBusyError,
    ToolExecutionStart,
    Veto,
    tool,
)
from agent_session.activity import ActivityGate
from agent_session.testing import ScriptedModel, call, fail, hold, reply
from tests.session.scene import SUMMARY, fill, filled, scene, texts


async def attempt(outcomes: list[Any], verb: Callable[[], Awaitable[Any]]) -> None:
    try:
        outcomes.append(await verb())
    except Exception as error:  # noqa: BLE001 - the test looks at it
        outcomes.append(error)


async def test_two_compactions_at_once_are_one_compaction_and_one_refusal(tmp_path: Path) -> None:
    # Mutation: in `SessionCore.compact` leave the `is_claimed_for` checks out.
    held = hold(reply(SUMMARY))
    async with scene(tmp_path, filled(), summaries=[held]) as stage:
        await fill(stage)
        outcomes: list[Any] = []
        with anyio.fail_after(5):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(attempt, outcomes, stage.session.compact)
                tasks.start_soon(attempt, outcomes, stage.session.compact)
                await held.started.wait()
                held.release()
        refused, applied = outcomes
        assert isinstance(refused, SessionBusyError)
        assert refused.activity == "compaction"
        assert applied.status == "applied"
        assert len(stage.lines("compaction")) == 1


async def test_the_tree_does_not_move_under_an_automatic_compaction(tmp_path: Path) -> None:
    # Mutation: give tree moves a gate of their own.
    held = hold(reply(SUMMARY))
    steps = [*filled(), reply("full", usage=(950, 0, 0, 5))]
    async with scene(tmp_path, steps, summaries=[held]) as stage:
        await fill(stage)
        first = stage.lines("message")[0]["id"]
        with anyio.fail_after(5):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(stage.session.prompt, "go")
                await held.started.wait()
                assert stage.session.is_compacting
                with pytest.raises(SessionBusyError):
                    await stage.session.navigate_tree(first)
                held.release()
        assert stage.outcomes == ["applied"]


async def test_an_abort_ends_the_compaction_and_returns_when_it_is_over(tmp_path: Path) -> None:
    # Mutation: in `SessionCore.abort` return without waiting, or cancel the run alone.
    held = hold(reply(SUMMARY))
    async with scene(tmp_path, [*filled(), reply("fine")], summaries=[held]) as stage:
        await fill(stage)
        outcomes: list[Any] = []
        with anyio.fail_after(5):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(attempt, outcomes, stage.session.compact)
                await held.started.wait()
                await stage.session.abort()
                assert not stage.session.is_compacting
                assert stage.session.is_idle
        assert outcomes[0].status == "aborted"
        assert stage.lines("compaction") == []
        assert str(await stage.session.prompt("next")) == "fine"


async def test_an_abort_during_an_automatic_compaction_ends_the_run_with_it(tmp_path: Path) -> None:
    # Mutation: in `Compactor.run` swallow the cancellation of an outer scope; in `ActivityGate.nest` leave the
    # `finally` out.
    held = hold(reply(SUMMARY))
    steps = [*filled(), reply("full", usage=(950, 0, 0, 5))]
    async with scene(tmp_path, steps, summaries=[held]) as stage:
        await fill(stage)
        was_compacting: list[bool] = []
        stage.session.on("agent_settled", lambda event: was_compacting.append(stage.session.is_compacting))
        outcomes: list[Any] = []
        with anyio.fail_after(5):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(attempt, outcomes, lambda: stage.session.prompt("go"))
                await held.started.wait()
                await stage.session.abort()
        assert [(answer.stop_reason, answer.text) for answer in outcomes] == [("aborted", "")]
        assert stage.outcomes == ["aborted"]
        assert stage.names[-2:] == ["compaction_end", "agent_settled"]
        assert stage.of(AgentSettled)[-1].aborted
        assert was_compacting == [False]
        stage.check_whole()


def raising(api: Any) -> None:
    @api.on("before_compact")
    def broken(event: object) -> None:
        raise RuntimeError("broken on purpose")


def vetoing(api: Any) -> None:
    api.on("before_compact", lambda event: Veto("no"))


@pytest.mark.parametrize(
    ("summary", "extensions", "status"),
    [
        pytest.param(reply(SUMMARY), [], "applied", id="ok"),
        pytest.param(fail(400, "no"), [], "failed", id="failed"),
        pytest.param(None, [vetoing], "vetoed", id="vetoed"),
        pytest.param(hold(reply(SUMMARY)), [], "aborted", id="aborted"),
        pytest.param(hold(reply(SUMMARY)), [], "cancelled", id="its caller cancelled"),
        pytest.param(reply(SUMMARY), [raising], "applied", id="a handler raised"),
    ],
)
async def test_after_any_ending_the_session_is_idle_and_a_prompt_works(
    tmp_path: Path, summary: Any, extensions: list[Any], status: str
) -> None:
    # Mutation: in `ActivityGate.hold` leave the `finally` out.
    summaries = [] if summary is None else [summary]
    async with scene(tmp_path, [*filled(), reply("fine")], summaries=summaries, extensions=extensions) as stage:
        stage.expects_failures = True
        await fill(stage)
        with anyio.fail_after(5):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(attempt, [], stage.session.compact)
                if status == "aborted":
                    await summary.started.wait()
                    stage.session.abort_compaction()
                elif status == "cancelled":
                    await summary.started.wait()
                    tasks.cancel_scope.cancel()
        assert stage.outcomes == ["aborted" if status == "cancelled" else status]
        stage.check_whole()
        assert str(await stage.session.prompt("go on")) == "fine"


async def test_messages_queued_during_an_automatic_compaction_are_sent_in_order_once(tmp_path: Path) -> None:
    # Mutation: in `Run.execute` leave the loop over the queue out.
    held = hold(reply(SUMMARY))
    steps = [*filled(), reply("full", usage=(950, 0, 0, 5)), reply("to the first"), reply("to the second")]
    async with scene(tmp_path, steps, summaries=[held]) as stage:
        await fill(stage)
        with anyio.fail_after(5):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(stage.session.prompt, "go")
                await held.started.wait()
                stage.session.follow_up("first")
                stage.session.follow_up("second")
                assert stage.session.pending_messages == ("first", "second")
                held.release()
        said = [line["message"]["content"][0]["text"] for line in stage.lines("message")][-5:]
        assert said == ["full", "first", "to the first", "second", "to the second"]
        assert stage.session.pending_messages == ()
        assert stage.of(QueueUpdate)[-1].follow_up == ()


async def test_messages_queued_during_a_manual_compaction_start_a_run_by_themselves(tmp_path: Path) -> None:
    # Mutation: in `SessionCore._hold_compaction` leave `wake` out.
    held = hold(reply(SUMMARY))
    async with scene(tmp_path, [*filled(), reply("answered")], summaries=[held]) as stage:
        await fill(stage)
        with anyio.fail_after(5):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(stage.session.compact)
                await held.started.wait()
                stage.session.follow_up("queued")
                held.release()
            await stage.session.wait_for_idle()
        assert texts(stage.session.messages)[-2:] == ["queued", "answered"]


async def test_a_prompt_during_a_manual_compaction_waits_and_runs_even_if_it_fails(tmp_path: Path) -> None:
    # Mutation: in `SessionCore.prompt` leave `is_claimed_for("compaction")` out.
    held = hold(fail(400, "no"))
    async with scene(tmp_path, [*filled(), reply("one"), reply("two")], summaries=[held]) as stage:
        await fill(stage)
        outcomes: list[Any] = []
        with anyio.fail_after(5):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(attempt, outcomes, stage.session.compact)
                await held.started.wait()
                tasks.start_soon(attempt, outcomes, lambda: stage.session.prompt("first"))
                await anyio.wait_all_tasks_blocked()
                tasks.start_soon(attempt, outcomes, lambda: stage.session.prompt("second"))
                await anyio.wait_all_tasks_blocked()
                held.release()
        assert [str(outcome) for outcome in outcomes[1:]] == ["one", "two"]
        assert texts(stage.session.messages)[-4:] == ["first", "one", "second", "two"]


async def test_two_prompts_at_once_are_one_run_and_one_refusal(tmp_path: Path) -> None:
    # Mutation: in `ActivityGate.claim` let the second one in.
    async with scene(tmp_path, [reply("a")]) as stage:
        outcomes: list[Any] = []
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(attempt, outcomes, lambda: stage.session.prompt("a"))
            tasks.start_soon(attempt, outcomes, lambda: stage.session.prompt("b"))
        assert isinstance(outcomes[0], SessionBusyError)
        assert str(outcomes[1]) == "a"
        assert stage.session.is_idle
        assert texts(stage.session.messages) == ["a", "a"]


@pytest.mark.parametrize(
    ("if_busy", "expected"),
    [
        ("wait", ["a", "first", "b", "second"]),
        ("follow_up", ["a", "first", "b", "second"]),
        ("steer", ["a", "first", "b", "second"]),
    ],
)
async def test_a_prompt_on_a_busy_session_waits_or_is_queued_as_told(
    tmp_path: Path, if_busy: Any, expected: list[str]
) -> None:
    # Mutation: in `SessionCore.prompt` leave "wait", or "steer" and "follow_up", out.
    held = hold(reply("first"))
    async with scene(tmp_path, [held, reply("second")]) as stage:
        outcomes: list[Any] = []
        with anyio.fail_after(5):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(attempt, outcomes, lambda: stage.session.prompt("a"))
                await held.started.wait()
                tasks.start_soon(attempt, outcomes, lambda: stage.session.prompt("b", if_busy=if_busy))
                await anyio.wait_all_tasks_blocked()
                held.release()
        assert texts(stage.session.messages) == expected
        answers = [str(outcome) for outcome in outcomes]
        assert answers == (["first", "second"] if if_busy == "wait" else ["None", "second"])


async def test_a_manual_compaction_aborts_the_run_and_delivers_what_was_queued(tmp_path: Path) -> None:
    # Mutation: in `SessionCore._compact_in_turn` clear the queue, or do not abort.
    held = hold(reply("never"))
    async with scene(tmp_path, [*filled(), held, reply("answered")]) as stage:
        await fill(stage)
        outcomes: list[Any] = []
        with anyio.fail_after(5):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(attempt, outcomes, lambda: stage.session.prompt("go"))
                await held.started.wait()
                stage.session.follow_up("queued")
                tasks.start_soon(attempt, outcomes, stage.session.compact)
            await stage.session.wait_for_idle()
        assert outcomes[0].stop_reason == "aborted"
        assert outcomes[1].status == "applied"
        assert texts(stage.session.messages)[-3:] == ["go", "queued", "answered"]


async def test_a_manual_compaction_goes_before_the_prompts_that_wait(tmp_path: Path) -> None:
    # Mutation: in `ActivityGate.claim_in_turn` do not look at `first`.
    held = hold(reply("never"))
    async with scene(tmp_path, [*filled(), held, reply("answered")]) as stage:
        await fill(stage)
        outcomes: list[Any] = []
        with anyio.fail_after(5):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(attempt, outcomes, lambda: stage.session.prompt("go"))
                await held.started.wait()
                tasks.start_soon(attempt, outcomes, lambda: stage.session.prompt("wait", if_busy="wait"))
                await anyio.wait_all_tasks_blocked()
                tasks.start_soon(attempt, outcomes, stage.session.compact)
        aborted, compacted, answered = outcomes
        assert aborted.stop_reason == "aborted"
        assert compacted.status == "applied"
        assert str(answered) == "answered"


async def test_an_abort_gives_back_what_was_queued(tmp_path: Path) -> None:
    # Mutation: in `SessionCore.abort` leave the queue alone, or drop it.
    held = hold(reply("never"))
    async with scene(tmp_path, [held, reply("fine")]) as stage:
        with anyio.fail_after(5):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(stage.session.prompt, "go")
                await held.started.wait()
                stage.session.steer("one")
                stage.session.follow_up("two")
                assert await stage.session.abort() == ["one", "two"]
        assert stage.session.pending_messages == ()
        await stage.session.prompt("next")
        assert "one" not in texts(stage.session.messages)


async def test_a_handler_that_prompts_its_own_session_is_queued_and_one_that_compacts_it_is_told_how(
    tmp_path: Path,
) -> None:
    # Mutation: make `ActivityGate.is_inside` return False: both would wait for themselves.
    errors: list[Any] = []

    def nosy(api: Any) -> None:
        @api.on("turn_end")
        async def inside(event: Any) -> None:
            if event.turn_index == 0:
                assert await stage.session.prompt("from inside") is None
                await attempt(errors, stage.session.compact)

    async with scene(tmp_path, [reply("one"), reply("two")], extensions=[nosy]) as stage:
        with anyio.fail_after(5):
            assert str(await stage.session.prompt("go")) == "two"
        assert texts(stage.session.messages) == ["go", "one", "from inside", "two"]
        assert "request_compaction" in str(errors[0])


async def test_a_compaction_that_a_handler_asks_for_comes_at_the_next_safe_point(tmp_path: Path) -> None:
    # Mutation: in `Run._check` leave `compaction_asks` alone.
    @tool
    def look() -> str:
        """Look."""
        return "seen"

    def asking(api: Any) -> None:
        @api.on("tool_execution_end")
        def ask(event: Any, ctx: Any) -> None:
            ctx.request_compaction("because I say so")

    async with scene(tmp_path, [*filled(), call("look"), reply("done")], tools=[look], extensions=[asking]) as stage:
        await fill(stage)
        assert str(await stage.session.prompt("go")) == "done"
        assert stage.outcomes == ["applied"]
        order = stage.told("tool_execution_end", "turn_end", "compaction_end", "agent_end")
        assert order == ["tool_execution_end", "turn_end", "compaction_end", "turn_end", "agent_end"]


async def test_an_abort_asked_for_by_a_handler_comes_before_the_first_side_effect(tmp_path: Path) -> None:
    # Mutation: in `run_calls` run each call as soon as it is prepared.
    ran: list[str] = []

    @tool
    def touch(name: str) -> str:
        """Touch."""
        ran.append(name)
        return name

    from agent_session.testing import calls

    def stopping(api: Any) -> None:
        @api.on("tool_call")
        def stop_second(event: Any, ctx: Any) -> None:
            if event.arguments["name"] == "b":
                ctx.abort()

    async with scene(
        tmp_path, [calls([("touch", {"name": "a"}), ("touch", {"name": "b"})])], tools=[touch], extensions=[stopping]
    ) as stage:
        with anyio.fail_after(5):
            await stage.session.prompt("go")
        assert ran == []
        assert stage.of(ToolExecutionStart) == []
        assert stage.names[-1] == "agent_settled"
        assert stage.of(CompactionEnd) == []


async def test_text_for_an_idle_session_starts_a_run_of_its_own(tmp_path: Path) -> None:
    # Mutation: in `AgentSession._queue` leave `wake` out.
    async with scene(tmp_path, [reply("one"), reply("two")]) as stage:
        stage.session.steer("first")
        with anyio.fail_after(5):
            await stage.session.wait_for_idle()
            stage.session.follow_up("second")
            await stage.session.wait_for_idle()
        assert texts(stage.session.messages) == ["first", "one", "second", "two"]


async def test_an_abort_of_a_compaction_ends_those_that_its_handlers_asked_for(tmp_path: Path) -> None:
    # Mutation: in `SessionCore.abort` leave `_drop_asks` out.
    def asking(api: Any) -> None:
        @api.on("before_compact")
        def ask(event: Any, ctx: Any) -> None:
            ctx.request_compaction("once more")

    held = hold(reply(SUMMARY))
    async with scene(tmp_path, filled(), summaries=[held], extensions=[asking]) as stage:
        await fill(stage)
        with anyio.fail_after(5):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(stage.session.compact)
                await held.started.wait()
                await stage.session.abort()
            await stage.session.wait_for_idle()
        assert stage.outcomes == ["aborted"]


async def test_two_sessions_that_ask_each_other_do_not_wait_for_themselves(tmp_path: Path) -> None:
    # Mutation: in `ActivityGate` forget what somebody who waits in line runs inside of.
    @tool
    async def delegate() -> str:
        """Let the other session do it."""
        return str(await other.prompt("do it", if_busy="wait"))

    @tool
    async def call_back() -> str:
        """Tell the first session something."""
        return str(await first.prompt("by the way"))

    held = hold(reply("busy"))
    steps = [call("delegate"), reply("delegated"), reply("noted")]
    async with ScriptedModel(steps) as one, ScriptedModel([held, call("call_back"), reply("done")]) as two:
        model = Model("scripted/model", context_window=10_000)
        first = AgentSession(model, client=one, tools=[delegate], cwd=tmp_path)
        other = AgentSession(model, client=two, tools=[call_back], cwd=tmp_path)
        async with first, other:
            with anyio.fail_after(5):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(other.prompt, "something else")
                    await held.started.wait()
                    tasks.start_soon(first.prompt, "go")
                    await anyio.wait_all_tasks_blocked()
                    held.release()
            assert texts(other.messages)[-3:] == ["", "None", "done"]
            assert texts(first.messages) == ["go", "", "done", "delegated", "by the way", "noted"]


async def test_a_gate_that_was_handed_to_somebody_who_was_just_cancelled_is_free() -> None:
    # Mutation: in `ActivityGate.claim_in_turn` give nothing back where the wait was cancelled after it had ended.
    gate = ActivityGate()
    holder = gate.claim("run")
    waiting = asyncio.create_task(gate.claim_in_turn("run"))
    while not gate.waiting:
        await anyio.lowlevel.checkpoint()
    # Both before it wakes up.
    gate.release(holder)
    waiting.cancel()
    await asyncio.wait([waiting])
    assert waiting.cancelled()
    assert gate.is_idle
    with anyio.fail_after(5):
        await gate.wait_idle()
