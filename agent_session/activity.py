"""What a session is doing: the gate that lets one activity in at a time.

Rule: deciding and reserving are one synchronous step. `claim` either takes the gate before the caller's first
await or refuses; `claim_in_turn` waits in order and is handed the gate by whoever leaves it, so nobody slips
in between. "Busy" means: somebody is between a claim and the end of `hold`. Activities nest (a compaction
inside a run); only the innermost is ever added or removed.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal, TypeAlias

import anyio
from typing_extensions import override

from agent_session import ctrl_c
from agent_session.errors import SessionBusyError
from agent_session.owned_tasks import GRACE_SECONDS, loop_time

ActivityKind: TypeAlias = Literal["run", "compaction", "tree"]

_ADVICE = {
    "run": "wait for it, abort() it, or give if_busy='wait', 'steer' or 'follow_up'",
    "compaction": "wait for it with wait_for_idle(), or abort_compaction()",
    "tree": "wait for it with wait_for_idle(), or abort()",
}

_current: ContextVar[Activity | None] = ContextVar("agent_session_activity", default=None)


class Activity:
    """One thing a session does, with the cancel scope that ends it.

    `is_aborted` says that somebody asked for the end, as opposed to the caller's own cancellation. `outer` is what its
    caller runs inside of, which may be another session's.
    """

    def __init__(self, kind: ActivityKind, gate: ActivityGate, outer: Activity | None) -> None:
        self.kind = kind
        self.gate = gate
        self.outer = outer
        self._scope: anyio.CancelScope | None = None
        self.since = time.monotonic()
        self.is_aborted = False
        self.is_abort_requested = False
        self.grace_until: float | None = None
        self.ended = anyio.Event()

    @property
    def scope(self) -> anyio.CancelScope:
        """Made by the task that enters it: a claim may come from a callback of the loop, where there is no task."""
        if self._scope is None:
            self._scope = anyio.CancelScope()
            if self.is_aborted:
                self._scope.cancel()
        return self._scope

    def abort(self) -> None:
        """Cancel it. Safe from anywhere in the loop, also before its scope was entered."""
        self.is_aborted = True
        self.begin_grace()
        if self._scope is not None:
            self._scope.cancel()

    def begin_grace(self) -> None:
        """From now on what is shielded has `GRACE_SECONDS` together: the end of something cancelled."""
        if self.grace_until is None:
            self.grace_until = loop_time() + GRACE_SECONDS

    @override
    def __repr__(self) -> str:
        return f"{self.kind} for {time.monotonic() - self.since:.1f} s"


class _Waiter:
    def __init__(self, kind: ActivityKind) -> None:
        self.kind = kind
        self.outer = _current.get()
        self.is_aborted = False
        self.activity: Activity | None = None
        self.handed_over = anyio.Event()


class ActivityGate:
    """`interrupt` ends what runs, for a person who pressed Ctrl-C where nobody else hears of it (`ctrl_c`)."""

    def __init__(self, interrupt: Callable[[], None] = lambda: None) -> None:
        self._interrupt = interrupt
        self._stack: list[Activity] = []
        self._waiters: deque[_Waiter] = deque()
        self._idle = anyio.Event()
        self._idle.set()

    @property
    def current(self) -> Activity | None:
        """The outermost activity."""
        return self._stack[0] if self._stack else None

    @property
    def is_idle(self) -> bool:
        return not self._stack

    @property
    def waiting(self) -> tuple[ActivityKind, ...]:
        return tuple(waiter.kind for waiter in self._waiters)

    def is_active(self, kind: ActivityKind) -> bool:
        return any(activity.kind == kind for activity in self._stack)

    def is_claimed_for(self, kind: ActivityKind) -> bool:
        """Whether an outermost activity of this kind runs or is next in line."""
        return (self.current is not None and self.current.kind == kind) or kind in self.waiting

    def is_inside(self) -> bool:
        """Whether the caller runs inside an activity of this session that has not ended.

        Child tasks inherit it, so a handler's own task counts; a watcher that outlives its activity does not.
        """
        activity = _current.get()
        while activity is not None:
            if activity.gate is self and not activity.ended.is_set():
                return True
            activity = activity.outer
        return False

    def claim(self, kind: ActivityKind) -> Activity:
        """Take the gate now, without an await.

        Raises:
            SessionBusyError: somebody has it, or is next in line.
        """
        if self._stack or self._waiters:
            busy = self._stack[0].kind if self._stack else self._waiters[0].kind
            raise SessionBusyError(busy, _ADVICE[busy])
        return self._admit(kind, _current.get())

    async def claim_in_turn(self, kind: ActivityKind, *, first: bool = False) -> Activity:
        """Wait for the gate; `first` goes before those who wait already."""
        if self.is_idle and not self._waiters:
            return self._admit(kind, _current.get())
        waiter = _Waiter(kind)
        if first:
            self._waiters.appendleft(waiter)
        else:
            self._waiters.append(waiter)
        try:
            await waiter.handed_over.wait()
        except BaseException:
            # Cancelled while waiting, or between being handed the gate and waking up.
            if waiter.activity is not None:
                self.release(waiter.activity)
            else:
                self._waiters.remove(waiter)
            raise
        assert waiter.activity is not None
        return waiter.activity

    @contextmanager
    def hold(self, activity: Activity) -> Iterator[Activity]:
        """Be inside `activity` until the block ends; then the next in line is let in.

        The block enters `activity.scope` itself, so that it can still tell of the end outside of it.
        """
        token = _current.set(activity)
        try:
            with ctrl_c.first_calls(self._interrupt):
                yield activity
        finally:
            _current.reset(token)
            self.release(activity)

    @contextmanager
    def nest(self, kind: ActivityKind) -> Iterator[Activity]:
        """An activity inside the current one."""
        assert self._stack, "nest() is for code that already holds the gate"
        activity = Activity(kind, self, _current.get())
        self._stack.append(activity)
        token = _current.set(activity)
        try:
            yield activity
        finally:
            _current.reset(token)
            self._stack.remove(activity)
            activity.ended.set()

    def release(self, activity: Activity) -> None:
        """End an outermost activity; a second call does nothing."""
        if activity.ended.is_set():
            return
        self._stack.clear()
        activity.ended.set()
        if self._waiters:
            waiter = self._waiters.popleft()
            waiter.activity = self._admit(waiter.kind, waiter.outer)
            if waiter.is_aborted:
                waiter.activity.abort()
            waiter.handed_over.set()
        else:
            self._idle.set()

    def abort_innermost(self, kind: ActivityKind) -> bool:
        """Abort the innermost activity of this kind, else those that are next in line; False when there is none."""
        for activity in reversed(self._stack):
            if activity.kind == kind:
                activity.abort()
                return True
        return self.abort_waiting(kind)

    def abort_waiting(self, kind: ActivityKind) -> bool:
        """Those of this kind that wait find themselves aborted when their turn comes; False when none waits."""
        waiters = [waiter for waiter in self._waiters if waiter.kind == kind]
        for waiter in waiters:
            waiter.is_aborted = True
        return bool(waiters)

    def request_abort(self) -> None:
        """Ask for the end of what runs, at its next safe point: for handlers, which must not cancel themselves."""
        if self.current is not None:
            self.current.is_abort_requested = True

    def honour_abort(self) -> None:
        """A safe point: if an abort was requested, the next await of the activity is cancelled."""
        if self.current is not None and self.current.is_abort_requested:
            self.current.abort()

    def grace_until(self) -> float | None:
        """When the shielded rest of what was cancelled must have ended (`anyio.current_time`); None: nothing was."""
        times = [activity.grace_until for activity in self._stack if activity.grace_until is not None]
        return min(times) if times else None

    async def wait_idle(self) -> None:
        """Return when nobody has it.

        Raises:
            SessionBusyError: whoever waits is inside, and would wait for itself.
        """
        if self._stack and self.is_inside():
            raise SessionBusyError(self._stack[0].kind, "a handler or tool cannot wait for its own session to be idle")
        while not self.is_idle:
            await self._idle.wait()

    def _admit(self, kind: ActivityKind, outer: Activity | None) -> Activity:
        if self._idle.is_set():
            self._idle = anyio.Event()
        activity = Activity(kind, self, outer)
        self._stack.append(activity)
        return activity

    @override
    def __repr__(self) -> str:
        if self.is_idle:
            return "idle"
        waiting = f", waiting: {', '.join(self.waiting)}" if self._waiters else ""
        return " > ".join(map(repr, self._stack)) + waiting
