"""However something ends: whoever waits is answered, what is queued is accounted for, and each start has its end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from agent_session import (
    AgentEnd,
    AgentSession,
    AssistantMessage,
    EntryAppended,
    Event,
    ExtensionContext,
    ExtensionFailed,
    MessageEnd,
    ModelError,
    RunChanges,
    SessionBusyError,
    SessionClosedError,
    SessionCompact,
    SessionShutdown,
    StaleLeafError,
    Veto,
    tool,
)
from agent_session.testing import FakeProvider, call, calls, fail, hold, reply
from session_store import SessionManager, SessionReadOnlyError, TextContent, UserMessage
from session_store.entries import UsageEntry
from tests.session.scene import SUMMARY, fill, scene, texts

# Who asked for a compaction is answered ----------------------------------------------------------


async def test_a_compaction_asked_of_a_run_that_fails_is_made_after_it(tmp_path: Path) -> None:
    # Mutation: in `SessionCore.hold_run` leave `_serve_asks` out of the `finally`.
    failing = hold(fail(400, "no such parameter"))
    async with scene(tmp_path, [reply("a"), reply("b"), failing]) as stage, anyio.create_task_group() as tasks:
        await fill(stage, 2)

        async def prompt() -> None:
            with pytest.raises(ModelError):
                await stage.session.prompt("fails")

        tasks.start_soon(prompt)
        with anyio.fail_after(5):
            await failing.started.wait()

            async def release() -> None:
                while not stage.session._core.parts.compaction_asks:
                    await anyio.lowlevel.checkpoint()
                failing.release()

            tasks.start_soon(release)
            outcome = await stage.session.compact(interrupt=False)
        assert outcome.status == "applied"


async def test_a_compaction_asked_of_a_run_is_answered_when_an_abort_ends_both(tmp_path: Path) -> None:
    # Mutation: in `Run._check` resolve the ask only after `run` returned, without `finally`.
    answer, summary = hold(reply("c")), hold(reply(SUMMARY))
    async with (
        scene(tmp_path, [reply("a"), reply("b"), answer], summaries=[summary]) as stage,
        anyio.create_task_group() as tasks,
    ):
        await fill(stage, 2)
        tasks.start_soon(stage.session.prompt, "go on")
        with anyio.fail_after(5):
            await answer.started.wait()

            async def abort() -> None:
                while not stage.session._core.parts.compaction_asks:
                    await anyio.lowlevel.checkpoint()
                answer.release()
                await summary.started.wait()
                await stage.session.abort()
                summary.release()

            tasks.start_soon(abort)
            outcome = await stage.session.compact(interrupt=False)
        assert outcome.status == "aborted"


async def test_a_compaction_that_must_not_interrupt_waits_for_the_next_in_line_as_well(tmp_path: Path) -> None:
    # Mutation: in `SessionCore.compact` ask once instead of while something runs.
    ending, going_on = anyio.Event(), anyio.Event()

    async def slow(event: AgentEnd, ctx: ExtensionContext) -> None:
        ending.set()
        await going_on.wait()

    first, second = hold(reply("c")), hold(reply("d"))
    async with scene(tmp_path, [reply("a"), reply("b"), first, second]) as stage, anyio.create_task_group() as tasks:
        await fill(stage, 2)
        said: list[str] = []
        outcomes: list[str] = []

        async def prompt(text: str) -> None:
            said.append(str(await stage.session.prompt(text, if_busy="wait")))

        async def compact() -> None:
            outcomes.append((await stage.session.compact(interrupt=False)).status)

        with anyio.fail_after(5):
            subscription = stage.session.on("agent_end", slow)
            tasks.start_soon(prompt, "first")
            await first.started.wait()
            tasks.start_soon(prompt, "second")
            tasks.start_soon(stage.session.abort)
            await ending.wait()
            subscription()
            # The first one is settling: nobody is left in it to honour what is asked now.
            tasks.start_soon(compact)
            while not stage.session._core.parts.compaction_asks:
                await anyio.lowlevel.checkpoint()
            going_on.set()
            await second.started.wait()
            second.release()
            while len(said) < 2 or not outcomes:
                await anyio.lowlevel.checkpoint()
        first.release()
        assert said == ["", "d"]
        assert outcomes == ["applied"]


@pytest.mark.parametrize("verb", ["abort", "abort_compaction"])
async def test_a_compaction_that_waits_for_the_run_it_interrupts_can_be_aborted(tmp_path: Path, verb: str) -> None:
    # Mutation: in `SessionCore.abort` and `ActivityGate.abort_innermost` leave `abort_waiting` out.
    ending, going_on = anyio.Event(), anyio.Event()

    async def slow(event: AgentEnd, ctx: ExtensionContext) -> None:
        ending.set()
        await going_on.wait()

    answer = hold(reply("c"))
    async with scene(tmp_path, [reply("a"), reply("b"), answer]) as stage, anyio.create_task_group() as tasks:
        await fill(stage, 2)
        stage.session.on("agent_end", slow)
        outcomes: list[str] = []

        async def compact() -> None:
            outcomes.append((await stage.session.compact()).status)

        with anyio.fail_after(5):
            tasks.start_soon(stage.session.prompt, "go on")
            await answer.started.wait()
            tasks.start_soon(compact)
            await ending.wait()
            if verb == "abort":
                tasks.start_soon(stage.session.abort)
                await anyio.lowlevel.checkpoint()
            else:
                assert stage.session.abort_compaction()
            going_on.set()
            while not outcomes:
                await anyio.lowlevel.checkpoint()
        answer.release()
        assert outcomes == ["aborted"]
        assert stage.told("before_compact", "compaction_end") == []


# The queue ---------------------------------------------------------------------------------------


async def test_what_is_queued_during_a_tree_move_is_answered_after_it(tmp_path: Path) -> None:
    # Mutation: in `SessionCore.move` leave `wake` out.
    summary = hold(reply(SUMMARY))
    async with (
        scene(tmp_path, [reply("a"), reply("b"), reply("c")], summaries=[summary]) as stage,
        anyio.create_task_group() as tasks,
    ):
        await stage.session.prompt("one")
        first = stage.session.leaf_id
        assert first is not None
        await stage.session.prompt("two")

        async def move() -> None:
            await stage.session.navigate_tree(first, summarize=True)

        tasks.start_soon(move)
        with anyio.fail_after(5):
            await summary.started.wait()
            stage.session.steer("three")
            summary.release()
            while stage.session.pending_messages:
                await anyio.lowlevel.checkpoint()
            await stage.session.wait_for_idle()
        assert texts(stage.session.messages)[-2:] == ["three", "c"]


async def test_a_follow_up_is_in_the_first_request_of_the_run_it_starts_before_what_handlers_add(
    tmp_path: Path,
) -> None:
    # Mutation: in `Run._agent_run` record `opening` before the queue is delivered, or instead of it.
    extra = UserMessage(content=(TextContent("extra"),), timestamp=0)
    async with scene(tmp_path, [reply("a")]) as stage:
        stage.session.on("before_agent_start", lambda event, ctx: RunChanges(messages=(extra,)))
        stage.session.follow_up("queued")
        with anyio.fail_after(5):
            await stage.session.wait_for_idle()
        assert texts(stage.session.messages) == ["queued", "extra", "a"]


async def test_nothing_is_asked_of_the_model_where_the_queue_was_taken_back_before_its_run(tmp_path: Path) -> None:
    # Mutation: in `Run._agent_run` go on where nothing was delivered.
    async with scene(tmp_path, [reply("a")]) as stage:
        await stage.session.prompt("one")
        stage.session.follow_up("taken back")
        assert stage.session.clear_queue() == ["taken back"]
        with anyio.fail_after(5):
            await stage.session.wait_for_idle()
        assert len(stage.provider.requests) == 1
        assert stage.told("agent_start", "agent_end") == ["agent_start", "agent_end"] * 2


async def test_an_abort_that_is_cancelled_itself_leaves_the_queue_as_it_was(tmp_path: Path) -> None:
    # Mutation: in `SessionCore.abort` leave `reinstate` out.
    entered = anyio.Event()

    async def slow(event: Event, ctx: ExtensionContext) -> None:
        entered.set()
        await anyio.sleep_forever()

    answer = hold(reply("a"))
    async with scene(tmp_path, [answer]) as stage, anyio.create_task_group() as tasks:
        subscription = stage.session.on("agent_end", slow)
        tasks.start_soon(stage.session.prompt, "one")
        with anyio.fail_after(5):
            await answer.started.wait()
            stage.session.follow_up("kept")
            async with anyio.create_task_group() as aborting:
                aborting.start_soon(stage.session.abort)
                await entered.wait()
                aborting.cancel_scope.cancel()
            assert stage.session.pending_messages == ("kept",)
            subscription()
            assert await stage.session.abort() == ["kept"]
        answer.release()
        stage.expects_failures = True


# Each start has its end --------------------------------------------------------------------------


async def test_a_turn_that_is_aborted_in_its_tools_ends_with_what_there_is_of_it(tmp_path: Path) -> None:
    # Mutation: in `tool_execution._run` tell the end outside of a `finally`; in `Run.end_agent_run` leave `_end_turn`
    # out; in `_until_stopped` leave `recorded_results` out of the `finally`.
    started = anyio.Event()

    @tool
    async def endless() -> str:
        """Never end."""
        started.set()
        await anyio.sleep_forever()
        return ""

    @tool
    async def quick() -> str:
        """End at once."""
        return "done"

    steps = [calls([("quick", {}), ("endless", {})])]
    async with scene(tmp_path, steps, tools=[quick, endless]) as stage, anyio.create_task_group() as tasks:
        tasks.start_soon(stage.session.prompt, "go")
        with anyio.fail_after(5):
            await started.wait()
            while "tool_result" not in stage.names:
                await anyio.lowlevel.checkpoint()
            await stage.session.abort()
        for what in ("agent", "turn", "tool_execution"):
            assert stage.names.count(f"{what}_start") == stage.names.count(f"{what}_end")
        assert stage.told("turn_end", "agent_end", "agent_settled") == ["turn_end", "agent_end", "agent_settled"]
        (end,) = stage.of(AgentEnd)
        assert texts(end.messages) == ["go", "", "done"]


async def test_retries_that_are_aborted_have_an_end_and_count_each_attempt_once(tmp_path: Path) -> None:
    # Mutation: in `Run._ask_until_answered` tell `RetryEnd` outside of the `finally`; in `_ask` take whatever failed
    # answer is the newest.
    held = hold(reply("never"))
    async with scene(tmp_path, [fail(503, "busy"), held]) as stage, anyio.create_task_group() as tasks:
        tasks.start_soon(stage.session.prompt, "go")
        with anyio.fail_after(5):
            await held.started.wait()
            await stage.session.abort()
        held.release()
        assert stage.told("retry_start", "retry_end") == ["retry_start", "retry_end"]
        (end,) = stage.of(AgentEnd)
        assert [type(message) for message in end.messages] == [UserMessage, AssistantMessage]


async def test_a_task_cancelled_while_its_run_settles_is_told_to_have_settled(tmp_path: Path) -> None:
    # Mutation: in `SessionCore.hold_run` await `_settle` in a shielded scope instead of by `finish`: asyncio's own
    # cancellation goes through it.
    ending, going_on = anyio.Event(), anyio.Event()

    async def listen(event: Event) -> None:
        if isinstance(event, AgentEnd):
            ending.set()
            await going_on.wait()

    async with scene(tmp_path, [reply("a"), reply("b")]) as stage:
        stage.session.subscribe(listen)
        task = asyncio.ensure_future(stage.session.prompt("one"))
        with anyio.fail_after(5):
            await ending.wait()
            task.cancel()
            await anyio.lowlevel.checkpoint()
            going_on.set()
            await asyncio.wait([task])
        assert task.cancelled()
        assert stage.names[-1] == "agent_settled"
        assert str(await stage.session.prompt("two")) == "b"


async def test_an_answer_whose_handlers_an_abort_cuts_off_is_kept_and_not_sent(tmp_path: Path) -> None:
    # Mutation: in `turn._recorded` leave the `except` out, or store the answer as it was.
    asked = anyio.Event()

    async def slow(event: MessageEnd, ctx: ExtensionContext) -> None:
        if isinstance(event.message, AssistantMessage):
            asked.set()
            await anyio.sleep_forever()

    async with scene(tmp_path, [reply("paid for", usage=(10, 0, 0, 5))]) as stage, anyio.create_task_group() as tasks:
        stage.session.on("message_end", slow)
        tasks.start_soon(stage.session.prompt, "go")
        with anyio.fail_after(5):
            await asked.wait()
            await stage.session.abort()
        assert [line["message"].get("stopReason") for line in stage.lines("message")] == [None, "aborted"]
        assert stage.lines("message")[-1]["message"]["usage"]["output"] == 5
        assert texts(stage.session.messages) == ["go"]


# Listeners ---------------------------------------------------------------------------------------


async def test_an_async_listener_that_always_raises_is_reported_once_for_each_event(tmp_path: Path) -> None:
    # Mutation: in `Dispatcher._listener_failed` report failures on the report of a failure as well.
    async def broken(event: Event) -> None:
        raise RuntimeError("broken")

    async with scene(tmp_path, [reply("a")]) as stage:
        stage.expects_failures = True
        unsubscribe = stage.session.subscribe(broken)
        with anyio.fail_after(5):
            await stage.session.prompt("one")
        unsubscribe()
        told = [event for event in stage.events if not isinstance(event, ExtensionFailed)]
        assert 0 < len(stage.of(ExtensionFailed)) <= len(told)


async def test_an_abort_waits_for_a_listener_no_longer_than_for_a_handler(tmp_path: Path) -> None:
    # Mutation: in `Dispatcher._settle_listeners` await what a listener returned with `fail_after(LISTENER_SECONDS)`.
    async def stuck(event: Event) -> None:
        await anyio.sleep_forever()

    answer = hold(reply("a"))
    async with scene(tmp_path, [answer]) as stage, anyio.create_task_group() as tasks:
        stage.expects_failures = True
        tasks.start_soon(stage.session.prompt, "one")
        with anyio.fail_after(5):
            await answer.started.wait()
            unsubscribe = stage.session.subscribe(stuck)
            await stage.session.abort()
            unsubscribe()
        answer.release()


# Waiting for oneself, closing --------------------------------------------------------------------


async def test_a_tool_that_waits_for_its_own_session_to_be_idle_is_refused(tmp_path: Path) -> None:
    # Mutation: in `ActivityGate.wait_idle` do not ask who waits.
    sessions: list[AgentSession] = []
    refused: list[Exception] = []

    @tool
    async def wait() -> str:
        """Wait for oneself."""
        try:
            await sessions[0].wait_for_idle()
        except SessionBusyError as error:
            refused.append(error)
        return "went on"

    async with scene(tmp_path, [call("wait"), reply("a")], tools=[wait]) as stage:
        sessions.append(stage.session)
        with anyio.fail_after(5):
            assert str(await stage.session.prompt("go")) == "a"
        assert refused


async def test_a_close_that_is_cancelled_closes_all_the_same(tmp_path: Path) -> None:
    # Mutation: in `SessionCore.close` await `_close` in a shielded scope: asyncio's own cancellation goes through it.
    ending, going_on = anyio.Event(), anyio.Event()

    async def slow(event: SessionShutdown, ctx: ExtensionContext) -> None:
        ending.set()
        await going_on.wait()

    async with scene(tmp_path, [], check=False) as stage:
        stage.session.on("session_shutdown", slow)
        task = asyncio.ensure_future(stage.session.close())
        with anyio.fail_after(5):
            await ending.wait()
            task.cancel()
            await anyio.lowlevel.checkpoint()
            going_on.set()
            await asyncio.wait([task])
        SessionManager.open(stage.path).close()


async def test_starting_is_refused_where_the_session_was_closed_meanwhile(tmp_path: Path) -> None:
    # Mutation: in `SessionCore._start_once` do not look at `is_closed` after the extensions were loaded.
    loading, going_on = anyio.Event(), anyio.Event()

    async def setup(api: Any) -> None:
        loading.set()
        await going_on.wait()

    async with FakeProvider() as provider:
        session = AgentSession(
            "openai/scripted", session_manager=SessionManager.in_memory(), client=provider.client, extensions=[setup]
        )
        task = asyncio.ensure_future(session.start())
        with anyio.fail_after(5):
            await loading.wait()
            closing = asyncio.ensure_future(session.close())
            await anyio.lowlevel.checkpoint()
            going_on.set()
            await asyncio.wait([task, closing])
        assert isinstance(task.exception() or SessionClosedError(), SessionClosedError)
        assert task.cancelled() or task.exception() is not None


async def test_the_handle_of_a_run_refuses_to_steer_a_closed_session(tmp_path: Path) -> None:
    # Mutation: in `RunHandle.steer` put it into the queue without `SessionCore.queue`.
    async with scene(tmp_path, [reply("a")]) as stage:
        async with stage.session.run("one") as run:
            await run.result()
        await stage.session.close()
        with pytest.raises(SessionClosedError):
            run.steer("lost")


def test_steering_outside_of_an_event_loop_is_refused_and_queues_nothing() -> None:
    # Mutation: in `SessionCore.queue` leave `require_loop` out.
    session = AgentSession("openai/scripted", session_manager=SessionManager.in_memory())
    with pytest.raises(RuntimeError, match="event loop"):
        session.steer("lost")
    assert session.pending_messages == ()


async def test_what_a_handler_leaves_in_the_log_while_the_session_closes_is_told(tmp_path: Path) -> None:
    # Mutation: in `SessionCore._close` leave `announce` out.
    def leave(event: SessionShutdown, ctx: ExtensionContext) -> None:
        ctx.append_entry("last", {"words": 1})

    async with scene(tmp_path, []) as stage:
        stage.session.on("session_shutdown", leave)
        await stage.session.close()
        assert stage.of(EntryAppended)[-1].entry.id == stage.lines()[-1]["id"]


# Costs -------------------------------------------------------------------------------------------


async def test_what_a_vetoed_summary_cost_is_told_and_owed_until_it_is_written(tmp_path: Path) -> None:
    # Mutation: in `Recorder._pay` forget what is owed before it is appended.
    def veto(event: SessionCompact, ctx: ExtensionContext) -> Veto:
        return Veto("no")

    steps = [reply("a"), reply("b")]
    async with scene(tmp_path, steps, summaries=[reply(SUMMARY, usage=(100, 0, 0, 50))], check=False) as stage:
        await fill(stage, 2)
        stage.session.on("session_compact", veto)
        assert (await stage.session.compact()).status == "vetoed"
        intact = stage.path.read_bytes()
        stage.path.write_bytes(intact + b"{}\n")
        with pytest.raises(StaleLeafError):
            await stage.session.set_name("refused")
        assert stage.session.stats().compaction.output == 50
        with stage.path.open("r+b") as file:
            file.truncate(len(intact))
        await stage.session.set_name("taken")
        assert [line["type"] for line in stage.lines()[-2:]] == ["usage", "session_info"]
        told = [event.entry for event in stage.of(EntryAppended)]
        assert isinstance(told[-2], UsageEntry)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda session: session.prompt("x", if_busy="queue"),
        lambda session: session.prompt("x", images=[3]),
        lambda session: session.compact(3),
        lambda session: session.compact(keep_recent_tokens="many"),
        lambda session: session.compact(keep_recent_tokens=-1),
        lambda session: session.set_model(3),
    ],
)
async def test_a_wrong_argument_is_refused_by_name_before_anything_is_done(
    tmp_path: Path, wrong: Callable[[AgentSession], Any]
) -> None:
    # Mutation: leave out the check of `if_busy` in `SessionCore.prompt`, of images in `user_message`, of instructions
    # and sizes in `CompactionRequest`, of the id's type in `Model`.
    async with scene(tmp_path, []) as stage:
        before = stage.path.read_bytes()
        with pytest.raises((TypeError, ValueError), match=r"if_busy|image|instructions|keep_recent_tokens|a model is"):
            await wrong(stage.session)
        assert stage.path.read_bytes() == before


async def test_a_read_only_session_is_not_compacted_at_anybodys_expense(tmp_path: Path) -> None:
    # Mutation: in `SessionCore._hold_compaction` do not look at `is_read_only`.
    async with scene(tmp_path, [reply("a"), reply("b")]) as stage:
        await fill(stage, 2)
    manager = SessionManager.open(stage.path, read_only=True)
    async with scene(tmp_path, [], summaries=[], manager=manager, check=False) as reading:
        with pytest.raises(SessionReadOnlyError):
            await reading.session.compact()
