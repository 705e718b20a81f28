"""Who handles what: handlers in load order, then registration order, each with the name of its owner.

Rule: a dispatch works on what was there when it began. The handlers of an event are an immutable tuple that
every change replaces, so a handler that registers another does not meet it in the same dispatch; one that
was taken off is not called any more, even then.
"""

from __future__ import annotations

import difflib
import inspect
import itertools
from collections.abc import Callable
from enum import Enum
from typing import Any, TypeAlias

from agent_session.errors import ExtensionError
from agent_session.events import Event
from agent_session.extending.context import ExtensionContext, Tenure
from agent_session.hooks import EVENTS


class _Default(Enum):
    TIMEOUT = "the session's `hook_timeout`"


DEFAULT_TIMEOUT = _Default.TIMEOUT
TimeLimit: TypeAlias = float | _Default | None
"""Seconds of a handler's own time; None for no limit; by default `Settings.hook_timeout`."""

Unsubscribe: TypeAlias = Callable[[], None]

SYNONYMS = {f"session_before_{what}": f"before_{what}" for what in ("compact", "tree", "fork", "switch")}
"""Names that users of Pi know, understood at run time."""

CONTEXT_PARAMETERS = ("ctx", "context")


class Owner:
    """Somebody whose handlers stand together in the order: an extension, from when it began to load.

    The program that holds the session is an owner too, but each handler of its own stands where it was
    registered among the extensions, under its own name (`order` None). `withdrawals` take back what is
    registered elsewhere in its name, such as tools.
    """

    def __init__(self, name: str, tenure: Tenure, *, order: int | None) -> None:
        self.name = name
        self.tenure = tenure
        self.context = ExtensionContext(tenure)
        self.order = order
        self.withdrawals: list[Callable[[], None]] = []


class Registration:
    """One handler of one event. `owner` is the name it is reported under."""

    __slots__ = ("context", "event", "handler", "is_active", "owner", "rank", "takes_context", "timeout")

    def __init__(
        self, event: str, handler: Callable[..., Any], owner: Owner, timeout: TimeLimit, rank: tuple[int, int]
    ) -> None:
        self.event = event
        self.handler = handler
        self.owner = owner.name if owner.order is not None else _name_of(handler)
        self.context = owner.context
        self.timeout = timeout
        self.rank = rank
        self.takes_context = _takes_context(handler, owner.name, event)
        self.is_active = True

    def call(self, event: Event) -> Any:
        """What the handler returns: its answer, or an awaitable of it."""
        return self.handler(event, self.context) if self.takes_context else self.handler(event)


class HandlerRegistry:
    """The handlers of one session."""

    def __init__(self) -> None:
        self._handlers: dict[str, tuple[Registration, ...]] = {}
        self._ranks = itertools.count()

    def admit(self, name: str, tenure: Tenure) -> Owner:
        """A new owner whose handlers come after those of everybody admitted before."""
        return Owner(name, tenure, order=next(self._ranks))

    def handlers(self, event: str) -> tuple[Registration, ...]:
        return self._handlers.get(event, ())

    def add(
        self, event: str | type[Event], handler: Callable[..., Any], owner: Owner, timeout: TimeLimit = DEFAULT_TIMEOUT
    ) -> Unsubscribe:
        """Put a handler in its place; returns what takes it off again (a second call does nothing).

        Raises:
            ExtensionError: no such event, or nothing that could be called with one, or a limit that is none.
        """
        name = event_name(event, owner.name)
        if not callable(handler):
            raise ExtensionError(owner.name, f"the handler of {name} is {type(handler).__name__}, not callable")
        if isinstance(timeout, (int, float)) and not timeout > 0:
            raise ExtensionError(owner.name, f"timeout={timeout!r} for {name}: seconds above 0, or None for no limit")
        rank = next(self._ranks)
        registration = Registration(name, handler, owner, timeout, (rank if owner.order is None else owner.order, rank))
        self._handlers[name] = tuple(sorted((*self.handlers(name), registration), key=lambda one: one.rank))

        def unsubscribe() -> None:
            self._drop(registration)

        return unsubscribe

    def remove_owner(self, owner: Owner) -> None:
        """Take off everything that this owner registered, last come first."""
        while owner.withdrawals:
            owner.withdrawals.pop()()
        for registrations in tuple(self._handlers.values()):
            for registration in registrations:
                if registration.context is owner.context:
                    self._drop(registration)

    def _drop(self, registration: Registration) -> None:
        registration.is_active = False
        left = tuple(one for one in self.handlers(registration.event) if one is not registration)
        if left:
            self._handlers[registration.event] = left
        else:
            self._handlers.pop(registration.event, None)


def event_name(event: str | type[Event], owner: str) -> str:
    """The event's own name, from its name, a synonym or its class.

    Raises:
        ExtensionError: there is no such event; the text lists those whose names are near.
    """
    if isinstance(event, str):
        name = SYNONYMS.get(event, event)
        if name in EVENTS:
            return name
        near = difflib.get_close_matches(event, [*EVENTS, *SYNONYMS], n=3)
        advice = f"did you mean {' or '.join(near)}?" if near else f"there are: {', '.join(sorted(EVENTS))}"
        raise ExtensionError(owner, f"there is no event {event!r}; {advice}")
    if event in EVENTS.values():
        return event.name
    raise ExtensionError(
        owner,
        f"{event!r} is no event; give a name such as 'before_compact', or a class of agent_session.hooks or events",
    )


def _takes_context(handler: Callable[..., Any], owner: str, event: str) -> bool:
    """Whether it is called with `(event, ctx)` rather than `(event)`.

    A second parameter with a default is not handed the context, unless it is named for it: a default is how
    a lambda in a loop keeps a value.
    """
    try:
        signature = inspect.signature(handler)
    except ValueError:  # a builtin that does not tell
        return False
    places = [
        parameter
        for parameter in signature.parameters.values()
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    takes_context = len(places) > 1 and (places[1].default is places[1].empty or places[1].name in CONTEXT_PARAMETERS)
    takes_context |= any(parameter.kind is parameter.VAR_POSITIONAL for parameter in signature.parameters.values())
    try:
        signature.bind(*([None] * (1 + takes_context)))
    except TypeError as error:
        raise ExtensionError(
            owner, f"the handler {_name_of(handler)} of {event} must take (event, ctx) or (event): {error}"
        ) from error
    return takes_context


def _name_of(handler: Callable[..., Any]) -> str:
    function = getattr(handler, "func", handler)  # of a functools.partial
    name = getattr(function, "__qualname__", type(function).__qualname__)
    return f"{getattr(function, '__module__', None) or type(function).__module__}.{name}"
