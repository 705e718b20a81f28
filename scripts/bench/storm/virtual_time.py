"""An event loop whose time is its own: where nothing is ready, it jumps to the next timer.

The rule it keeps: no time passes but by such a jump, so that an hour of waiting costs nothing and every run of a
program takes the same virtual time. While a thread is at work for the loop the clock stands still. Where nothing is
ready, nothing is timed and no thread is at work, nobody will ever wake anybody: `Stalled`.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio
import anyio.to_thread
from typing_extensions import override

T = TypeVar("T")

_LONGEST_THREAD_SECONDS = 60.0
"""Of real time: how long a thread may hold the loop before it counts as one that never ends."""


class Stalled(Exception):
    """Every task waits for another one, for ever."""


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """`limiter` says how many threads are at work; it is set once the loop runs."""

    def __init__(self) -> None:
        self.now = 0.0
        self.limiter: anyio.CapacityLimiter | None = None
        super().__init__(_JumpingSelector(self))

    @override
    def time(self) -> float:
        return self.now

    @property
    def has_threads_at_work(self) -> bool:
        return self.limiter is not None and self.limiter.borrowed_tokens > 0


class _JumpingSelector(selectors.DefaultSelector):
    def __init__(self, loop: VirtualTimeLoop) -> None:
        super().__init__()
        self._loop = loop

    @override
    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        if self._loop.has_threads_at_work:
            ready = super().select(_LONGEST_THREAD_SECONDS)
            if not ready:
                raise Stalled(f"a thread did not end within {_LONGEST_THREAD_SECONDS:g} s")
            return ready
        if timeout is None:
            raise Stalled("nothing is ready and nothing is timed")
        self._loop.now += timeout
        return []


def run(work: Callable[[], Awaitable[T]]) -> T:
    """Run `work` to its end on a fresh loop of this kind.

    Raises:
        Stalled: it would have waited for ever.
    """
    loops: list[VirtualTimeLoop] = []

    def new_loop() -> VirtualTimeLoop:
        loops.append(VirtualTimeLoop())
        return loops[-1]

    async def main() -> T:
        loops[-1].limiter = anyio.to_thread.current_default_thread_limiter()
        return await work()

    return anyio.run(main, backend_options={"loop_factory": new_loop})
