"""An event loop on a daemon thread, and calls into it from other threads.

Rule: whoever called gets an answer, whatever becomes of the loop, and hears Ctrl-C while waiting. What a call shows is
shown in the thread that called.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, Generic, TypeAlias, TypeVar, cast

import anyio

from agent_session.errors import SessionClosedError
from agent_session.events import Event
from agent_session.owned_tasks import GRACE_SECONDS, OwnedTasks, entrance

T = TypeVar("T")

Work: TypeAlias = Callable[[], Awaitable[T]]
"""What is called and awaited in the loop."""

Interrupt: TypeAlias = "Callable[[Call[Any]], Coroutine[Any, Any, None]]"
"""Brings a call to its end, in the loop."""

_within: contextvars.ContextVar[Call[Any] | None] = contextvars.ContextVar("agent_session_call", default=None)


class Call(Generic[T]):
    """One call into the loop, with an inbox through which it is shown and answered. `ended` is set when it is over."""

    def __init__(
        self,
        work: Work[T],
        *,
        show: Callable[[Event], None] | None = None,
        when_cancelled: Callable[[], T] | None = None,
    ) -> None:
        self._work = work
        self._show = show
        self._when_cancelled = when_cancelled
        self._inbox: SimpleQueue[Event | None] = SimpleQueue()
        self._scope: anyio.CancelScope | None = None
        self._is_cancelled = False
        self._is_answered = False
        self._has_result = False
        self._result: T | None = None
        self._error: BaseException | None = None
        self.ended: anyio.Event | None = None  # once it has begun
        # The tasks of the call live in this context, so that others can see what it is inside of.
        self.context = contextvars.copy_context()
        self.context.run(_within.set, self)

    # In the loop --------------------------------------------------------------------------------

    async def run(self) -> None:
        """Do the work; the outcome, a failure included, is the caller's."""
        assert self.ended is not None
        try:
            with anyio.CancelScope() as self._scope:
                if self._is_cancelled:
                    self._scope.cancel()
                self._result = await self._work()
                self._has_result = True
        except anyio.get_cancelled_exc_class():
            raise
        except BaseException as error:  # noqa: BLE001 - SystemExit too: it ends the caller's thread, not this one
            self._error = error
        finally:
            del self._work  # contexts live long, and hold their call: not also what it was about
            self.ended.set()
            self.abandon()

    async def over(self) -> None:
        """Wait for the end of a call that has begun."""
        if self.ended is not None:
            await self.ended.wait()

    @property
    def has_substitute(self) -> bool:
        """Whether there is a result when it is cancelled."""
        return self._when_cancelled is not None

    def is_within(self, place: Callable[[], bool]) -> bool:
        """What `place`, which looks at context variables, says inside of the call."""
        return self.context.run(place)

    def tell(self, event: Event) -> None:
        """A listener: shows the event where the call was made, if the call's own work caused it."""
        if _within.get() is self:
            self._inbox.put(event)

    def cancel(self) -> None:
        """End the work; its result is then what `when_cancelled` gives."""
        self._is_cancelled = True
        if self._scope is not None:
            self._scope.cancel()

    # In the calling thread ----------------------------------------------------------------------

    def abandon(self) -> None:
        """Nothing more comes of it. From any thread, any number of times."""
        self._inbox.put(None)

    def wait(self, *, timeout: float | None = None) -> None:
        """Show what is told until the work is over; at most `timeout` seconds from one thing to the next.

        Raises:
            queue.Empty: the time was up.
        """
        while not self._is_answered:
            event = self._inbox.get(timeout=timeout)
            if event is None:
                self._is_answered = True
            elif self._show is not None:
                self._show(event)

    def outcome(self) -> T:
        """The result of what is over.

        Raises:
            LoopEnded: it was never begun.
            SessionClosedError: it was ended with the loop.
            BaseException: what the work raised.
        """
        if self._error is not None:
            raise self._error
        if self._has_result:
            return cast("T", self._result)
        if self._is_cancelled and self._when_cancelled is not None:
            return self._when_cancelled()
        raise LoopEnded if self.ended is None else SessionClosedError


class LoopThread:
    """The thread. It starts at once and ends with `stop`, or with the interpreter."""

    def __init__(self, name: str) -> None:
        self._tasks = OwnedTasks(lambda name, error: None)
        self._enter: Callable[..., object] | None = None
        self._stop: anyio.Event | None = None
        self._open_calls: set[Call[Any]] = set()  # somebody waits
        self._running: set[Call[Any]] = set()
        self._is_ending = False
        self._is_open = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()
        self._is_open.wait()

    @property
    def is_current(self) -> bool:
        """Whether the caller is this thread, which must not wait for itself."""
        return self._thread is threading.current_thread()

    def call(self, call: Call[T], interrupt: Interrupt | None = None) -> T:
        """Make the call and wait for it: its result.

        The first Ctrl-C starts `interrupt`, which lets the call come to an end of its own. A second, or the first where
        there is no `interrupt`, cancels the call and raises KeyboardInterrupt at once.

        Raises:
            LoopEnded: it was never begun.
            SessionClosedError: it was ended with the loop.
            BaseException: what the call's work raised.
        """
        presses = 0
        self._open_calls.add(call)
        try:
            while True:
                try:
                    # Again after a Ctrl-C, which may have come before it was begun; begun already, nothing happens.
                    self.begin(call)
                    if presses and interrupt is not None:
                        self._soon(self._spawn, interrupt, call)
                    call.wait()
                    return call.outcome()
                except KeyboardInterrupt:
                    presses += 1
                    if interrupt is None or presses > 1:
                        raise
        except BaseException:
            with suppress(LoopEnded):
                self._soon(call.cancel)
            raise
        finally:
            self._open_calls.discard(call)

    def begin(self, call: Call[Any]) -> None:
        """Start a call without waiting for it.

        Raises:
            LoopEnded: it cannot be begun any more.
        """
        self._soon(self._begin, call)

    def stop(self, *, wait: bool = True) -> None:
        """End the thread, and what still runs there. From any thread, any number of times."""
        if self._stop is not None:
            with suppress(LoopEnded):
                self._soon(self._stop.set)
        if wait and not self.is_current:
            self._thread.join()

    def _soon(self, function: Callable[..., object], *arguments: object) -> None:
        try:
            if self._enter is not None:
                self._enter(function, *arguments)
                return
        except RuntimeError:
            pass  # the loop is closed
        raise LoopEnded

    # In the thread ------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            with suppress(SystemExit):  # of a task that no call waits for: it ends its thread, as in any thread
                anyio.run(self._serve)
        finally:
            self._is_open.set()
            for call in tuple(self._open_calls):
                call.abandon()

    async def _serve(self) -> None:
        self._stop = anyio.Event()
        self._enter = entrance()
        self._is_open.set()
        try:
            await self._stop.wait()
            # Whoever said so may be in the middle of a call.
            with anyio.move_on_after(GRACE_SECONDS):
                while self._running:
                    await next(iter(self._running)).over()
        finally:
            self._is_ending = True
            await self._tasks.cancel_all()  # noqa: ASYNC102 - it shields itself

    def _begin(self, call: Call[Any]) -> None:
        if call.ended is not None:
            return
        if self._is_ending:
            call.abandon()
            return
        call.ended = anyio.Event()
        self._running.add(call)
        self._tasks.spawn(self._run_call(call), name="call", context=call.context)

    async def _run_call(self, call: Call[Any]) -> None:
        try:
            await call.run()
        finally:
            self._running.discard(call)

    def _spawn(self, interrupt: Interrupt, call: Call[Any]) -> None:
        self._tasks.spawn(interrupt(call), name="interrupt")


def at_once(work: Work[T]) -> T:
    """The result of work that need not wait, in the calling thread.

    Raises:
        WouldWait: it must, and was ended where it stood.
    """
    coroutine = _awaiting(work)
    try:
        coroutine.send(None)
    except StopIteration as end:
        return cast("T", end.value)
    coroutine.close()
    raise WouldWait


async def _awaiting(work: Work[T]) -> T:
    return await work()


def current_call() -> Call[Any]:
    """The call inside of which this is done, in the loop."""
    call = _within.get()
    assert call is not None
    return call


class LoopEnded(Exception):
    """Nothing is begun any more."""


class WouldWait(Exception):
    """What was to be done at once has to wait."""
