"""A subscription: what `on` returns, and the types of the handlers it takes.

Rule: decorating leaves a handler what it was, so that it can be called in its own tests, and async stays async
to a type checker.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Generic, TypeAlias, TypeVar, overload

from typing_extensions import override

from agent_session.events import Event
from agent_session.extending.context import ExtensionContext
from agent_session.extending.registry import Unsubscribe
from agent_session.raising import at_the_call
from session_store.showing import one_line

E = TypeVar("E", bound=Event)
A = TypeVar("A")

Handler: TypeAlias = (
    Callable[[E, ExtensionContext], Awaitable[A | None] | A | None] | Callable[[E], Awaitable[A | None] | A | None]
)
"""Called with the event, and with the context if it takes two; sync or async; None is no opinion."""


@at_the_call
class Subscription(Generic[E, A]):
    """What `on` returns.

    Called with a handler it registers it and gives it back, so that it decorates; called without, it takes off
    everything it registered.
    """

    def __init__(self, event: str, add: Callable[[Callable[..., Any]], Unsubscribe]) -> None:
        self._event = event
        self._add = add
        self._registered: list[tuple[str, Unsubscribe]] = []

    @overload
    def __call__(
        self, handler: Callable[[E, ExtensionContext], Coroutine[Any, Any, A | None]], /
    ) -> Callable[[E, ExtensionContext], Coroutine[Any, Any, A | None]]: ...
    @overload
    def __call__(
        self, handler: Callable[[E], Coroutine[Any, Any, A | None]], /
    ) -> Callable[[E], Coroutine[Any, Any, A | None]]: ...
    @overload
    def __call__(
        self, handler: Callable[[E, ExtensionContext], A | None], /
    ) -> Callable[[E, ExtensionContext], A | None]: ...
    @overload
    def __call__(self, handler: Callable[[E], A | None], /) -> Callable[[E], A | None]: ...
    @overload
    def __call__(self, /) -> None: ...
    def __call__(self, handler: Callable[..., Any] | None = None, /) -> Callable[..., Any] | None:
        if handler is not None:
            self._registered.append((getattr(handler, "__qualname__", repr(handler)), self._add(handler)))
            return handler
        for _, unsubscribe in self._registered:
            unsubscribe()
        self._registered.clear()
        return None

    @override
    def __repr__(self) -> str:
        if not self._registered:
            return f"<Subscription to {self._event}, without a handler: call it with one, or decorate one with it>"
        handlers = one_line(", ".join(name for name, _ in self._registered))
        return f"<Subscription to {self._event}, handled by {handlers}: call it without arguments to take that off>"
