"""The one loop that asks handlers: decisions are folded, notifications are told, failures stay the handler's own.

Rule: nothing a handler does reaches the session but a checked answer. It gets a copy, has a limit on its own
time, and runs in a task that can be left behind; what it raises, answers wrongly or answers too late is one
`ExtensionFailed` that names it, and the default path goes on (a tool call is blocked). A decision ends with
its caller's cancellation, at once; a notification is shielded from it and only shortened.
"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import anyio

from agent_session.events import Event, ExtensionFailed
from agent_session.extending.answers import admitted
from agent_session.extending.clock import OwnClock, awaited, context_served_by
from agent_session.extending.copies import detached
from agent_session.extending.registry import DEFAULT_TIMEOUT, HandlerRegistry, Owner, Registration
from agent_session.hooks import Block, D
from agent_session.logs import get_logger
from agent_session.owned_tasks import Overrun, OwnedTasks, Shield

_log = get_logger()

_ABOUT_FAILURES = ("extension_failed", "warning")


def no_grace() -> float | None:
    """Nothing was aborted."""
    return None


class HookRunner:
    """Implements `hooks.Hooks` for one session.

    `hook_timeout()` is the default limit of a handler's own time in seconds, asked anew for each handler.
    `report` tells the subscribers of a failure, without waiting. `grace()` is when the shielded notifications
    of an aborted run must have ended (absolute, `anyio.current_time()`); None while nothing was aborted, and
    then a cancelled caller's notifications have `owned_tasks.GRACE_SECONDS` together.
    """

    def __init__(
        self,
        registry: HandlerRegistry,
        *,
        hook_timeout: Callable[[], float],
        report: Callable[[Event], None],
        tasks: OwnedTasks,
        grace: Callable[[], float | None] = no_grace,
    ) -> None:
        self._registry = registry
        self._hook_timeout = hook_timeout
        self._report = report
        self._tasks = tasks
        self._grace = grace

    def has(self, event: type[Event]) -> bool:
        """Whether anybody handles it."""
        return bool(self._registry.handlers(event.name))

    async def decide(self, event: D) -> D:
        """The event as folded by its handlers, in order, until one settles it.

        Cancelling the caller ends this at once, whatever the handler at work makes of its own cancellation.
        A handler's failure is reported, never raised.
        """
        for registration in self._registry.handlers(event.name):
            if event.is_settled:
                break
            if not registration.is_active:
                continue
            try:
                answer = await self._called(registration, event)
                # An empty dict is what a handler in Pi's style answers when it has nothing to say.
                if answer is not None and answer != {}:
                    event = event.fold(admitted(answer), registration.owner)
            except Exception as error:  # noqa: BLE001 - whatever a handler raises is its own failure
                failure = _failure(registration, event, error)
                await self.tell_failure(failure)
                if event.failure_blocks:
                    event = _blocked(event, failure)
        return event

    async def notify(self, event: Event, *, owner: Owner | None = None) -> None:
        """Call the handlers of a notification, of one owner only where one is given; never raises.

        Cancelling the caller shortens this and is delivered at the caller's next await.
        """
        registrations = self._registry.handlers(event.name)
        if not registrations or _is_failure_of_a_report(event):
            return
        shield = Shield(self._grace)
        try:
            for registration in registrations:
                if not registration.is_active or (owner is not None and registration.context is not owner.context):
                    continue
                try:
                    await self._called(registration, event, shield)
                except Exception as error:  # noqa: BLE001 - whatever a handler raises is its own failure
                    await self.tell_failure(_failure(registration, event, error))
        finally:
            shield.give_back()

    async def attend(self, work: Awaitable[object], *, name: str, seconds: float) -> None:
        """Wait for `work`, at most so many seconds; after an abort no longer than for the handlers of notifications.

        Raises:
            Exception: what it raised, or that it overran its time. Cancelling the caller is delivered afterwards.
        """
        shield = Shield(self._grace)
        try:
            await self._tasks.attend(_as_coroutine(work), name=name, clock=OwnClock(seconds), shield=shield)
        finally:
            shield.give_back()

    async def tell_failure(self, failure: ExtensionFailed) -> None:
        """Log it, report it to the subscribers, then to the handlers of `extension_failed`."""
        _log.error(
            "extension.failed", owner=failure.owner, hook=failure.event, why=failure.why, traceback=failure.traceback
        )
        self._report(failure)
        await self.notify(failure)

    async def _called(self, registration: Registration, event: Event, shield: Shield | None = None) -> Any:
        """What the handler answers to its copy of the event.

        Raises:
            Exception: what it raised, or that it overran its time.
        """
        try:
            answer = registration.call(detached(event))
        except anyio.get_cancelled_exc_class() as error:
            # Nothing was awaited, so nobody can have cancelled the caller in here: the handler made this up.
            raise RuntimeError(f"raised {type(error).__name__} of its own") from error  # noqa: ASYNC104
        if not inspect.isawaitable(answer):
            return answer
        clock = OwnClock(self._hook_timeout() if registration.timeout is DEFAULT_TIMEOUT else registration.timeout)
        name = f"the {registration.event} handler of {registration.owner}"
        work = _as_coroutine(answer)
        return await self._tasks.attend(work, name=name, clock=clock, context=context_served_by(clock), shield=shield)


def _as_coroutine(work: Awaitable[Any]) -> Coroutine[Any, Any, Any]:
    # A coroutine is the task's own, so that one cancelled before it began is closed, not forgotten.
    return work if inspect.iscoroutine(work) else awaited(work)


def _failure(registration: Registration, event: Event, error: Exception) -> ExtensionFailed:
    if isinstance(error, Overrun):
        return ExtensionFailed(
            owner=registration.owner, event=event.name, why=str(error), error=error, traceback=error.stack
        )
    return ExtensionFailed(
        owner=registration.owner,
        event=event.name,
        why=f"{type(error).__name__}: {error}",
        error=error,
        traceback="".join(traceback.format_exception(error)),
    )


def _blocked(event: D, failure: ExtensionFailed) -> D:
    reason = f"{failure.owner} could not check this call, so it did not run: {failure.why}"
    return event.fold(Block(reason), failure.owner)


def _is_failure_of_a_report(event: Event) -> bool:
    """A handler of failures that fails is told to subscribers only, or two of them would feed each other."""
    return isinstance(event, ExtensionFailed) and event.event in _ABOUT_FAILURES
