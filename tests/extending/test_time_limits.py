"""A handler's own time, what becomes of one that overruns, and cancellation."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from agent_session.compaction.types import CompactionResult
from agent_session.events import AgentSettled, TurnStart
from agent_session.extending.clock import paused
from agent_session.extending.context import ExtensionContext
from agent_session.hooks import BeforeCompact, Input, ToolCallEvent, Veto
from agent_session.owned_tasks import GRACE_SECONDS
from tests.extending.fake_session import FakeCompaction, before_compact, open_session, tool_call


async def test_a_handler_that_overruns_is_left_behind_and_the_report_names_it_and_where_it_stood():
    async with open_session(hook_timeout=0.05) as session:

        @session.extensions.on("before_compact")
        async def sleeper(event: BeforeCompact) -> Veto:
            await anyio.sleep_forever()
            return Veto()

        session.extensions.on("before_compact", lambda event: CompactionResult("next"))
        with anyio.fail_after(5):
            # Mutation: give the clock no limit -> this waits for ever.
            event = await session.extensions.hooks.decide(before_compact())

    assert event.result == CompactionResult("next")
    (failure,) = session.failures
    assert failure.owner.endswith("sleeper")
    assert "0.05 s of its own time" in failure.why
    assert "sleep_forever" in (failure.traceback or "")


async def test_a_handler_that_swallows_cancellation_holds_nobody_up_and_its_late_answer_counts_for_nothing():
    async with open_session(hook_timeout=0.05) as session:
        stubborn = session.stubborn(Veto("too late"))
        session.extensions.on("before_compact", stubborn)
        with anyio.fail_after(5):
            # Mutation: await the task after cancelling it -> this waits for ever.
            event = await session.extensions.hooks.decide(before_compact())
            assert event.veto is None
            assert any("Stubborn" in name for name in session.owned.names)
            stubborn.let_go.set()
            await stubborn.ended.wait()
            await checkpoint()
        assert event.veto is None
        assert len(session.failures) == 1
        assert not session.owned.names
    assert stubborn.cancellations >= 1


async def test_a_tool_call_whose_handler_overruns_is_blocked():
    async with open_session(hook_timeout=0.05) as session:
        session.extensions.on("tool_call", session.stubborn())

        with anyio.fail_after(5):
            event = await session.extensions.hooks.decide(tool_call(command="ls"))

        assert event.block is not None
        assert "own time" in event.block.reason


async def test_a_handlers_own_timeout_goes_before_the_sessions():
    async with open_session(hook_timeout=0.02) as session:
        slow = anyio.Event()

        async def patient(event: Input) -> None:
            await slow.wait()

        session.extensions.on("input", patient, timeout=None)
        async with anyio.create_task_group() as group:

            async def let_go_after_the_sessions_limit() -> None:
                limit = anyio.current_time() + 0.1
                while anyio.current_time() < limit:
                    await checkpoint()
                slow.set()

            group.start_soon(let_go_after_the_sessions_limit)
            with anyio.fail_after(5):
                await session.extensions.hooks.decide(Input(text="hi"))
        # Mutation: always use `hook_timeout()` -> it is reported.
        assert session.failures == []

        session.extensions.on("before_compact", session.stubborn(), timeout=0.03)
        with anyio.fail_after(5):
            await session.extensions.hooks.decide(before_compact())
        assert "0.03 s" in session.failures[0].why


async def test_the_clock_stands_still_while_the_runtime_summarises():
    async def stream_slowly() -> None:
        await anyio.sleep(0.3)

    async with open_session(hook_timeout=0.15) as session:

        @session.extensions.on("before_compact")
        async def other_prompt(event: BeforeCompact) -> CompactionResult:
            return await event.summarize(prompt="decisions")

        with anyio.fail_after(5):
            event = await session.extensions.hooks.decide(before_compact(FakeCompaction(stream_slowly)))

    # Mutation: make `paused` do nothing -> it overruns.
    assert session.failures == []
    assert event.result == CompactionResult("summary with decisions")


async def test_the_clock_goes_on_after_a_pause():
    async def summarising() -> None:
        await anyio.sleep(0.1)

    async with open_session(hook_timeout=0.1) as session:

        @session.extensions.on("before_compact")
        async def summarise_then_hang(event: BeforeCompact) -> None:
            await event.summarize()
            await anyio.sleep_forever()

        with anyio.fail_after(5):
            # Mutation: leave the deadline away in `resume` -> this waits for ever.
            await session.extensions.hooks.decide(before_compact(FakeCompaction(summarising)))

    assert len(session.failures) == 1


async def test_two_pauses_at_once_are_one():
    async def summarising() -> None:
        await anyio.sleep(0.3)

    async with open_session(hook_timeout=0.2) as session:

        @session.extensions.on("before_compact")
        async def both(event: BeforeCompact) -> None:
            async with anyio.create_task_group() as group:
                group.start_soon(event.summarize)

                async def shorter() -> None:
                    with paused():
                        await anyio.sleep(0.02)

                group.start_soon(shorter)

        with anyio.fail_after(5):
            # Mutation: resume at the end of the first pause -> it overruns while the other still waits.
            await session.extensions.hooks.decide(before_compact(FakeCompaction(summarising)))

    assert session.failures == []


class SlowPerson:
    async def confirm(self, title: str, detail: str, default: bool) -> bool:
        await anyio.sleep(0.2)
        return True

    async def ask(self, question: str, choices: Sequence[str]) -> str | None:
        await anyio.sleep(0.2)
        return choices[0]

    def notify(self, text: str, level: str) -> None: ...


async def test_the_clock_stands_still_while_a_person_thinks():
    async with open_session(hook_timeout=0.15, interaction=SlowPerson()) as session:
        answers: list[Any] = []

        @session.extensions.on("tool_call")
        async def gate(event: ToolCallEvent, ctx: ExtensionContext) -> None:
            answers.append(await ctx.confirm("Run it?"))
            answers.append(await ctx.ask("Which?", ["a", "b"]))

        with anyio.fail_after(5):
            event = await session.extensions.hooks.decide(tool_call(command="ls"))

    # Mutation: leave `paused()` out of `confirm` or `ask` -> blocked.
    assert event.block is None
    assert answers == [True, "a"]


async def test_cancelling_the_caller_ends_a_decision_at_once_even_if_the_handler_swallows_it():
    async with open_session() as session:
        stubborn = session.stubborn(Veto())
        session.extensions.on("before_compact", stubborn)
        started = time.monotonic()
        with anyio.fail_after(5):
            async with anyio.create_task_group() as group:
                group.start_soon(session.extensions.hooks.decide, before_compact())
                await stubborn.started.wait()
                group.cancel_scope.cancel()
        # Mutation: shield the wait of a decision -> this takes five seconds.
        assert time.monotonic() - started < 1
        assert session.failures == []
        with anyio.fail_after(5):
            stubborn.let_go.set()
            await stubborn.ended.wait()
        # Mutation: leave the task running without cancelling it -> 0.
        assert stubborn.cancellations == 1


async def test_a_cancelled_task_of_plain_asyncio_ends_a_decision_too():
    async with open_session() as session:
        stubborn = session.stubborn()
        session.extensions.on("before_compact", stubborn)
        task = asyncio.ensure_future(session.extensions.hooks.decide(before_compact()))
        with anyio.fail_after(5):
            await stubborn.started.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task


async def test_handlers_inherit_the_callers_context_variables():
    activity: ContextVar[str] = ContextVar("activity", default="none")
    seen: list[str] = []

    async with open_session() as session:

        async def asynchronous(event: Input) -> None:
            seen.append(activity.get())
            activity.set("changed by the handler")

        session.extensions.on("input", asynchronous)
        session.extensions.on("input", lambda event: seen.append(activity.get()))
        activity.set("run 7")
        await session.extensions.hooks.decide(Input(text="hi"))

    # Mutation: start the task in an empty context -> "none".
    assert seen == ["run 7", "run 7"]


async def test_notifications_reach_every_handler_of_a_cancelled_caller():
    told: list[str] = []

    async with open_session() as session:

        async def slow(event: AgentSettled) -> None:
            await checkpoint()
            told.append("async")

        session.extensions.on("agent_settled", slow)
        session.extensions.on("agent_settled", lambda event: told.append("sync"))
        with anyio.CancelScope() as scope:
            scope.cancel()
            # Mutation: wait for the first handler unshielded only -> it is cancelled before it began.
            await session.extensions.hooks.notify(AgentSettled(aborted=True))
            told.append("returned")
            await checkpoint()
            told.append("never")

    assert told == ["async", "sync", "returned"]
    assert session.failures == []


async def test_the_notifications_of_a_cancelled_caller_have_two_seconds_together():
    async with open_session(hook_timeout=60) as session:
        hanging = [session.stubborn() for _ in range(3)]
        for handler in hanging:
            session.extensions.on("agent_settled", handler)
        started, busy = time.monotonic(), time.process_time()
        with anyio.fail_after(30):
            async with anyio.create_task_group() as group:
                group.start_soon(session.extensions.hooks.notify, AgentSettled(aborted=True))
                await hanging[0].started.wait()
                group.cancel_scope.cancel()
        # Mutation: a shield for each handler instead of one for all -> six seconds.
        # Mutation: catch the cancellation again and again instead of shielding from it -> busy all the time.
        assert time.process_time() - busy < GRACE_SECONDS / 2
        assert GRACE_SECONDS - 0.1 < time.monotonic() - started < GRACE_SECONDS + 1
        assert len(session.failures) == 3
        assert all("after an abort" in failure.why for failure in session.failures)


async def test_a_deadline_given_by_the_session_ends_notifications_that_its_own_shield_hides_from_the_abort():
    async with open_session(hook_timeout=60) as session:
        hanging = session.stubborn()
        session.extensions.on("agent_settled", hanging)
        with anyio.fail_after(5):
            async with anyio.create_task_group() as group:

                async def settle() -> None:
                    with anyio.CancelScope(shield=True):
                        await session.extensions.hooks.notify(AgentSettled(aborted=True))

                group.start_soon(settle)
                await hanging.started.wait()
                session.grace_until = anyio.current_time() + 0.1
                # Mutation: ask `grace` once, when the wait begins -> this takes a minute.
        assert len(session.failures) == 1


async def test_an_asyncio_cancellation_during_a_notification_arrives_after_it():
    told: list[str] = []
    going, go_on = anyio.Event(), anyio.Event()

    async with open_session() as session:

        @session.extensions.on("turn_start")
        async def slow(event: TurnStart) -> None:
            going.set()
            await go_on.wait()
            told.append("handler ended")

        async def caller() -> None:
            await session.extensions.hooks.notify(TurnStart(turn_index=0))
            told.append("notify returned")
            await checkpoint()
            told.append("never")

        with anyio.fail_after(5):
            task = asyncio.ensure_future(caller())
            await going.wait()
            task.cancel()
            await checkpoint()
            go_on.set()
            # Mutation: forget the cancellation (leave out `give_back`) -> "never" is told.
            with pytest.raises(asyncio.CancelledError):
                await task

    assert told == ["handler ended", "notify returned"]


async def test_a_timeout_of_asyncio_around_a_notification_is_still_a_timeout():
    async with open_session() as session:
        released = anyio.Event()

        async def slow(event: TurnStart) -> None:
            await released.wait()

        async def within_a_timeout() -> None:
            async with asyncio.timeout(0.05):
                asyncio.get_running_loop().call_later(0.15, released.set)
                await session.extensions.hooks.notify(TurnStart(turn_index=0))
                await checkpoint()

        session.extensions.on("turn_start", slow)
        with anyio.fail_after(5):
            # Mutation: cancel again without `uncancel` -> CancelledError instead of TimeoutError.
            with pytest.raises(TimeoutError):
                await within_a_timeout()
    assert session.failures == []


def fail() -> None:
    raise ZeroDivisionError


async def test_a_notification_handler_that_raises_or_overruns_is_reported_and_the_next_one_called():
    told: list[str] = []

    async with open_session(hook_timeout=0.05) as session:
        session.extensions.on("turn_start", lambda event: fail())
        session.extensions.on("turn_start", session.stubborn())
        session.extensions.on("turn_start", lambda event: told.append("third"))
        with anyio.fail_after(5):
            # Mutation: let an exception out of `notify` -> ZeroDivisionError here.
            await session.extensions.hooks.notify(TurnStart(turn_index=0))

    assert told == ["third"]
    assert [failure.event for failure in session.failures] == ["turn_start", "turn_start"]


async def test_what_nobody_handles_starts_no_task_and_awaits_nothing():
    async with open_session() as session:
        working = session.extensions.hooks.notify(TurnStart(turn_index=0))
        # Mutation: put the shield up before looking for handlers, or a checkpoint -> the coroutine does not end here.
        with pytest.raises(StopIteration):
            working.send(None)
        deciding = session.extensions.hooks.decide(Input(text="hi"))
        with pytest.raises(StopIteration):
            deciding.send(None)
