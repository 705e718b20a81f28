"""A handler's own time: the clock that its limit is measured on.

Rule: waiting for the runtime or for a person is not the handler's time. Whatever the runtime does on a
handler's behalf runs inside `paused()`, which stops the clock of the handler that is being served and does
nothing where there is none. Several pauses at once (two summaries side by side) count as one.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from contextvars import Context, ContextVar, copy_context
from typing import TypeVar

import anyio

T = TypeVar("T")

_serving: ContextVar[OwnClock | None] = ContextVar("agent_session_handler_clock", default=None)


class OwnClock:
    """Counts down `limit` seconds (None: no limit) while it runs; moves the deadline of the scope it governs."""

    def __init__(self, limit: float | None) -> None:
        self.limit = limit
        self._left = math.inf if limit is None else limit
        self._running_since: float | None = None
        self._pauses = 0
        self._scope: anyio.CancelScope | None = None
        self._cap = math.inf

    @property
    def has_run_out(self) -> bool:
        """Whether the handler used up its own time; a deadline that was put on top does not count."""
        return self._deadline() <= anyio.current_time()

    @contextmanager
    def governing(self, *, cap: float = math.inf) -> Iterator[None]:
        """End the block when the time is up, at the latest at `cap` (absolute), which no pause puts off."""
        if self._running_since is None and not self._pauses:
            self._running_since = anyio.current_time()
        self._cap = cap
        with anyio.CancelScope() as self._scope:
            self._apply()
            try:
                yield
            finally:
                self._scope = None

    def stop(self) -> None:
        """Nobody waits any more; later pauses mean nothing."""
        self._scope = None
        self._running_since = None
        self._left = math.inf

    def pause(self) -> None:
        self._pauses += 1
        if self._running_since is not None:
            self._left -= anyio.current_time() - self._running_since
            self._running_since = None
        self._apply()

    def resume(self) -> None:
        self._pauses -= 1
        if not self._pauses:
            self._running_since = anyio.current_time()
        self._apply()

    def _deadline(self) -> float:
        return math.inf if self._running_since is None else self._running_since + self._left

    def _apply(self) -> None:
        if self._scope is not None:
            self._scope.deadline = min(self._deadline(), self._cap)


@contextmanager
def paused() -> Iterator[None]:
    """Stop the clock of the handler in whose task this runs, or in one it started."""
    clock = _serving.get()
    if clock is None:
        yield
        return
    clock.pause()
    try:
        yield
    finally:
        clock.resume()


def context_served_by(clock: OwnClock) -> Context:
    """A copy of the caller's context variables, for a handler's task, in which `paused()` means `clock`."""
    context = copy_context()
    context.run(_serving.set, clock)
    return context


async def awaited(work: Awaitable[T]) -> T:
    """A coroutine of any awaitable, for what takes only coroutines."""
    return await work
