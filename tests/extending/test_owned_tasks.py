"""Tasks that outlive a call: kept, heard of when they crash, ended with their session."""

from __future__ import annotations

import asyncio
import gc
import math

import anyio
import pytest
from anyio.lowlevel import checkpoint

from agent_session.extending.clock import OwnClock
from agent_session.owned_tasks import GRACE_SECONDS, Overrun, OwnedTasks, Shield


async def test_a_spawned_task_is_kept_until_it_ends():
    ended = anyio.Event()
    owned = OwnedTasks(lambda name, error: None)

    async def work() -> None:
        await checkpoint()
        gc.collect()
        await checkpoint()
        ended.set()

    owned.spawn(work(), name="work")
    assert owned.names == ("work",)
    with anyio.fail_after(5):
        await ended.wait()
        while owned.names:
            await checkpoint()


async def test_a_crash_is_told_with_the_tasks_name():
    crashes: list[tuple[str, BaseException]] = []
    owned = OwnedTasks(lambda name, error: crashes.append((name, error)))

    async def crash() -> None:
        raise LookupError("gone")

    owned.spawn(crash(), name="queued run")
    with anyio.fail_after(5):
        while owned.names:
            await checkpoint()

    # Mutation: leave out `_report_crash` -> nobody hears of it.
    ((name, error),) = crashes
    assert name == "queued run"
    assert str(error) == "gone"


async def test_cancelling_all_waits_for_those_that_end_and_names_those_that_do_not():
    owned = OwnedTasks(lambda name, error: None)
    let_go = anyio.Event()
    told: list[str] = []

    async def polite() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await checkpoint()
            told.append("cleaned up")

    async def deaf() -> None:
        while not let_go.is_set():
            try:
                await let_go.wait()
            except asyncio.CancelledError:  # noqa: ASYNC103 - what it is for
                continue  # noqa: ASYNC104

    owned.spawn(polite(), name="polite")
    owned.spawn(deaf(), name="deaf")
    await checkpoint()
    with anyio.fail_after(5):
        # Mutation: wait without `within` -> this waits for ever.
        assert await owned.cancel_all(within=0.1) == ("deaf",)
        assert told == ["cleaned up"]
        let_go.set()
        while owned.names:
            await checkpoint()


async def test_a_task_may_cancel_all_the_others_without_ending_itself():
    owned = OwnedTasks(lambda name, error: None)
    told: list[str] = []

    async def other() -> None:
        await anyio.sleep_forever()

    async def closing() -> None:
        await owned.cancel_all()
        told.append("closed")

    owned.spawn(other(), name="other")
    owned.spawn(closing(), name="closing")
    with anyio.fail_after(5):
        while owned.names:
            await checkpoint()
    # Mutation: cancel the caller's own task too -> nothing is told.
    assert told == ["closed"]


async def test_what_is_cancelled_before_it_began_is_closed():
    owned = OwnedTasks(lambda name, error: None)

    async def never_begun() -> None:
        raise AssertionError("it began")

    work = never_begun()
    with anyio.CancelScope() as scope:
        scope.cancel()
        await owned.attend(work, name="work", clock=OwnClock(5))
    await owned.cancel_all()
    # Mutation: run `work` inside another coroutine -> "was never awaited" when it is collected.
    with pytest.raises(RuntimeError, match="cannot reuse already awaited coroutine"):
        work.send(None)


async def test_a_second_cancellation_does_not_lengthen_what_the_first_left_over():
    shield = Shield(lambda: None)
    assert shield.cap() == math.inf
    shield.note_cancellation()
    cap = shield.cap()
    with anyio.fail_after(5):
        while anyio.current_time() + GRACE_SECONDS <= cap:
            await checkpoint()
    # Mutation: start the grace anew each time -> later.
    shield.note_cancellation()
    assert shield.cap() == cap


async def test_the_earlier_of_two_deadlines_ends_what_is_shielded():
    deadline = anyio.current_time() + 1
    shield = Shield(lambda: deadline)
    assert shield.cap() == deadline
    shield.note_cancellation()
    assert shield.cap() == deadline


async def test_the_result_of_a_task_that_ends_as_its_time_does_is_not_lost():
    owned = OwnedTasks(lambda name, error: None)

    async def quick() -> str:
        return "done"

    assert await owned.attend(quick(), name="quick", clock=OwnClock(5)) == "done"
    with anyio.fail_after(5), pytest.raises(Overrun, match="slow did not end within"):
        await owned.attend(anyio.sleep_forever(), name="slow", clock=OwnClock(0.01))
    await owned.cancel_all()
