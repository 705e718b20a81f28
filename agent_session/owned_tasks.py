"""The tasks that outlive a call: the one module that uses asyncio's own tasks.

Everything else is anyio, where no task outlives its block. What cannot live in a block lives here: a run that
a queue started, and extensions' handlers, which must be left behind when they overrun or swallow cancellation.
Rule: every task has an owner that keeps a reference to it, hears of its crash and ends it.
"""

from __future__ import annotations

import asyncio
import math
import traceback
from collections.abc import Callable, Coroutine
from contextvars import Context
from types import FrameType
from typing import Any, Protocol, TypeVar

import anyio

T = TypeVar("T")

GRACE_SECONDS = 2.0
"""How long what is cancelled or shielded may still take, all of it together."""

LOOK_AGAIN_SECONDS = 0.25


class Overrun(Exception):
    """The time of `attend` was up. The task was cancelled and left behind; what it still says is discarded.

    `stack` is where it stood. `was_cut_short`: not the task's own limit, but the end of an aborted run.
    """

    def __init__(self, name: str, limit: float | None, *, stack: str, was_cut_short: bool) -> None:
        self.limit = limit
        self.stack = stack
        self.was_cut_short = was_cut_short
        time = (
            f"{GRACE_SECONDS:g} s after an abort" if was_cut_short or limit is None else f"{limit:g} s of its own time"
        )
        super().__init__(f"{name} did not end within {time} and was abandoned")


class EndedByCancellation(Exception):
    """The task ended cancelled although nobody here cancelled it: its own failure, not the caller's end."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name} ended with a cancellation that nobody asked for")


class Clock(Protocol):
    """What measures the time of `attend`; `extending.clock.OwnClock` is it."""

    @property
    def limit(self) -> float | None: ...
    @property
    def has_run_out(self) -> bool: ...
    def governing(self, *, cap: float = ...) -> Any: ...
    def stop(self) -> None: ...


class Shield:
    """Keeps the caller's cancellation off what is attended to, shortens it instead, and gives it back.

    One shield serves all that is attended to in one place, so that together they take no longer than
    `deadline()` says once a cancellation came (absolute; None: `GRACE_SECONDS` from then).
    """

    def __init__(self, deadline: Callable[[], float | None]) -> None:
        self._deadline = deadline
        self._cap: float | None = None

    @property
    def is_cancelled(self) -> bool:
        return self._cap is not None

    def cap(self) -> float:
        """When everything under this shield ends, absolute; infinite while nobody cancelled."""
        if self._cap is None and self._deadline() is None:
            return math.inf
        given = self._deadline()
        own = math.inf if self._cap is None else self._cap
        return own if given is None else min(own, given)

    def note_cancellation(self) -> None:
        if self._cap is None:
            self._cap = anyio.current_time() + GRACE_SECONDS

    def give_back(self) -> None:
        """Let a cancellation that was held off arrive at the caller's next await.

        An anyio scope delivers it again by itself; asyncio says it once, so it is said again here, with the
        count of requests that `asyncio.timeout` and task groups compare left as it was.
        """
        if self._cap is None or anyio.current_effective_deadline() == -math.inf:
            return
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            task.uncancel()
            task.cancel()


class OwnedTasks:
    """The tasks of one session. `on_crash(name, error)` hears of spawned ones that ended with an exception."""

    def __init__(self, on_crash: Callable[[str, BaseException], None]) -> None:
        self._on_crash = on_crash
        self._tasks: set[asyncio.Task[Any]] = set()

    @property
    def names(self) -> tuple[str, ...]:
        """Of those that still run."""
        return tuple(sorted(task.get_name() for task in self._tasks))

    @staticmethod
    def require_loop(what: str) -> None:
        """For verbs that are no coroutines and yet start tasks.

        Raises:
            RuntimeError: no event loop runs in this thread.
        """
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            raise RuntimeError(f"{what} start a run: call them from the session's event loop (async code)") from None

    def spawn(self, work: Coroutine[Any, Any, Any], *, name: str, context: Context | None = None) -> None:
        """Run `work` until it ends or `cancel_all`.

        It inherits the caller's context variables, or lives in `context` itself, where others can then look.
        """
        self._start(work, name, context).add_done_callback(self._report_crash)

    async def attend(
        self,
        work: Coroutine[Any, Any, T],
        *,
        name: str,
        clock: Clock,
        context: Context | None = None,
        shield: Shield | None = None,
    ) -> T:
        """The result of `work`, run in a task of its own so that it can be left behind.

        `context` has the task's context variables, by default a copy of the caller's.

        Without a shield the caller's cancellation ends this at once, whatever `work` makes of its own.

        Raises:
            Overrun: the clock ran out first, or the shield's time did.
            EndedByCancellation: `work` ended cancelled, and not because of this call.
        """
        task = self._start(work, name, context)
        try:
            await _ended(task, clock, shield)
            if task.cancelled():
                raise EndedByCancellation(name)
            if task.done():
                return task.result()
            raise Overrun(name, clock.limit, stack=_stack_of(task), was_cut_short=not clock.has_run_out)
        finally:
            clock.stop()
            if not task.done():
                task.cancel()

    async def finish(self, work: Coroutine[Any, Any, T], *, name: str, on_cancel: Callable[[], None]) -> T:
        """The result of `work`, which runs to its end whatever cancels the caller, an asyncio cancellation included.

        That is delivered at the caller's next await; `on_cancel` is called when it comes.
        """
        shield = Shield(lambda: None)
        task = self._start(work, name)
        while not task.done():
            try:
                with anyio.CancelScope(shield=True):
                    await asyncio.wait((task,))
            except anyio.get_cancelled_exc_class():  # noqa: ASYNC103 - held off, not lost: `give_back` returns it
                shield.note_cancellation()
                on_cancel()
        shield.give_back()
        return task.result()

    async def cancel_all(self, *, within: float = GRACE_SECONDS) -> tuple[str, ...]:
        """Cancel every task but the caller's own and wait for them, at most `within` seconds.

        Returns the names of those that swallowed it and run on.
        """
        tasks = self._tasks - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        if tasks:
            with anyio.move_on_after(within, shield=True):
                await asyncio.wait(tasks)
        return tuple(sorted(task.get_name() for task in tasks if not task.done()))

    def _start(self, work: Coroutine[Any, Any, T], name: str, context: Context | None = None) -> asyncio.Task[T]:
        task = asyncio.create_task(work, name=name, context=context)
        self._tasks.add(task)
        task.add_done_callback(self._forget)
        return task

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # seen: what an abandoned task still raises is nobody's news

    def _report_crash(self, task: asyncio.Task[Any]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._on_crash(task.get_name(), error)


def loop_time() -> float:
    """`anyio.current_time()`, in callbacks of the loop too, where there is no task for anyio to ask."""
    return asyncio.get_running_loop().time()


def entrance() -> Callable[..., object]:
    """How other threads get something called in the event loop that runs here: `enter(function, *arguments)`.

    It does not wait; calls come in the order in which they were made. Once the loop is closed it raises RuntimeError.
    """
    return asyncio.get_running_loop().call_soon_threadsafe


async def _ended(task: asyncio.Task[Any], clock: Clock, shield: Shield | None) -> None:
    """Return when the task has ended or its time is up."""
    if shield is None:
        with clock.governing():
            await asyncio.wait((task,))
        return
    while not task.done() and not clock.has_run_out and anyio.current_time() < shield.cap():
        try:
            # An abort cannot be felt inside a shield that the caller put up itself: look again now and then.
            cap = min(shield.cap(), anyio.current_time() + LOOK_AGAIN_SECONDS)
            with anyio.CancelScope(shield=shield.is_cancelled), clock.governing(cap=cap):
                await asyncio.wait((task,))
        except anyio.get_cancelled_exc_class():  # noqa: ASYNC103
            shield.note_cancellation()  # held off, not lost: `give_back` returns it


def _stack_of(task: asyncio.Task[Any]) -> str:
    """Where a suspended task stands, outermost call first; `Task.get_stack` shows only the outermost."""
    frames: list[tuple[FrameType, int]] = []
    waiting: object = task.get_coro()
    while waiting is not None:
        frame = getattr(waiting, "cr_frame", None) or getattr(waiting, "gi_frame", None)
        if frame is None:
            break
        frames.append((frame, frame.f_lineno))
        waiting = getattr(waiting, "cr_await", None) or getattr(waiting, "gi_yieldfrom", None)
    return "".join(traceback.StackSummary.extract(iter(frames)).format())
