"""A subscription: what `on` returns, and the types of the handlers it takes.

Rule: decorating leaves a handler what it was, so that it can be called in its own tests, and async stays async
to a type checker.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Generic, TypeAlias, TypeVar, overload

from agent_session.events import Event
from agent_session.extending.context import ExtensionContext
from agent_session.extending.registry import Unsubscribe

E = TypeVar("E", bound=Event)
A = TypeVar("A")

Handler: TypeAlias = (
    Callable[[E, ExtensionContext], Awaitable[A | None] | A | None] | Callable[[E], Awaitable[A | None] | A | None]
)
"""Called with the event, and with the context if it takes two; sync or async; None is no opinion."""


class Subscription(Generic[E, A]):
    """What `on` returns.

    Called with a handler it registers it and gives it back, so that it decorates; called without, it takes off
    everything it registered.
    """

    def __init__(self, add: Callable[[Callable[..., Any]], Unsubscribe]) -> None:
        self._add = add
        self._registered: list[Unsubscribe] = []

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
            self._registered.append(self._add(handler))
            return handler
        for unsubscribe in self._registered:
            unsubscribe()
        self._registered.clear()
        return None
