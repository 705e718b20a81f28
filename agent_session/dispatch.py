"""The one dispatcher: decisions go to handlers, everything final goes to subscribers.

A decision is cancellable; a notification is shielded, its handlers have a time limit, and it never raises.
Subscribers are told after the handlers, once, in order. A sync listener is called bare; what an async one
returns is awaited before the next event goes out. A listener that raises is reported and stays subscribed.
"""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from typing import Any, TypeAlias

import anyio
from typing_extensions import override

from agent_session.events import Event, ExtensionFailed, MessageUpdate, Warning
from agent_session.hooks import D, Hooks
from agent_session.llm.client import TextDelta, ThinkingDelta

Listener: TypeAlias = Callable[[Event], object]
"""What it returns is awaited where that can be, and ignored otherwise."""

LISTENER_SECONDS = 30.0


class EventStream:
    """An endless async iterator over events; buffers without bound, updates of one message coalesce."""

    def __init__(self) -> None:
        self._buffer: deque[Event] = deque()
        self._arrived = anyio.Event()
        self._is_closed = False

    def _push(self, event: Event) -> None:
        if self._buffer and isinstance(event, MessageUpdate):
            joined = _coalesced(self._buffer[-1], event)
            if joined is not None:
                self._buffer[-1] = joined
                return
        self._buffer.append(event)
        self._arrived.set()

    def close(self) -> None:
        """No more events come; those in the buffer can still be read."""
        self._is_closed = True
        self._arrived.set()

    def __aiter__(self) -> EventStream:
        return self

    @override
    def __repr__(self) -> str:
        return f"<EventStream, {self._state}: `async for event in` it>"

    @property
    def _state(self) -> str:
        return f"{len(self._buffer):,} events not yet read{', closed' if self._is_closed else ''}"

    async def __anext__(self) -> Event:
        while not self._buffer:
            if self._is_closed:
                raise StopAsyncIteration
            self._arrived = anyio.Event()
            await self._arrived.wait()
        return self._buffer.popleft()


class Listening:
    """What `subscribe` returns: called, it takes the listener off."""

    def __init__(self, listener: Listener, take_off: Callable[[], None]) -> None:
        self._listener = listener
        self._take_off = take_off

    def __call__(self) -> None:
        self._take_off()

    @override
    def __repr__(self) -> str:
        return f"<{_listener_name(self._listener)}: call this to take it off>"


def _coalesced(last: Event, event: MessageUpdate) -> MessageUpdate | None:
    if not isinstance(last, MessageUpdate):
        return None
    before, delta = last.delta, event.delta
    if isinstance(before, TextDelta) and isinstance(delta, TextDelta) and before.index == delta.index:
        return replace(event, delta=TextDelta(delta.index, before.text + delta.text))
    if (
        isinstance(before, ThinkingDelta)
        and isinstance(delta, ThinkingDelta)
        and (before.index, before.redacted, before.signature) == (delta.index, delta.redacted, None)
    ):
        return replace(event, delta=replace(delta, thinking=before.thinking + delta.thinking))
    return None


def text_listener(on_text: Callable[[str], None]) -> Listener:
    """A listener that hands on the text of answers as it streams."""

    def listener(event: Event) -> None:
        if isinstance(event, MessageUpdate) and isinstance(event.delta, TextDelta):
            on_text(event.delta.text)

    return listener


def _listener_name(listener: Listener) -> str:
    return f"listener {getattr(listener, '__qualname__', repr(listener))}"


class Dispatcher:
    """`safe_point` is called whenever no handler is at work any more: what handlers asked for is honoured then."""

    def __init__(
        self,
        hooks: Hooks,
        *,
        safe_point: Callable[[], None] = lambda: None,
        on_listener_error: Callable[[ExtensionFailed], None] | None = None,
    ) -> None:
        self.hooks = hooks
        self._safe_point = safe_point
        self._at_work = 0
        self._listeners: list[Listener] = []
        self._streams: list[EventStream] = []
        self._awaiting: list[tuple[Listener, Event, Awaitable[Any]]] = []
        self._on_listener_error = on_listener_error

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` with every event; returns what takes it off again."""
        self._listeners.append(listener)

        def unsubscribe() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return Listening(listener, unsubscribe)

    @asynccontextmanager
    async def events(self) -> AsyncIterator[EventStream]:
        stream = EventStream()
        unsubscribe = self.subscribe(stream._push)
        self._streams.append(stream)
        try:
            yield stream
        finally:
            unsubscribe()
            self._streams.remove(stream)
            stream.close()

    def close_streams(self) -> None:
        for stream in self._streams:
            stream.close()

    async def decide(self, event: D, *, tell: bool = True) -> D:
        """The event as folded by its handlers. `tell=False`: its subject is told after it was recorded."""
        if self.hooks.has(type(event)):
            with self._handlers_at_work():
                event = await self.hooks.decide(event)
            for text in event.warnings:
                await self.notify(Warning(text=text))
        if tell:
            await self.tell(event)
        return event

    async def notify(self, event: Event) -> None:
        if self.hooks.has(type(event)):
            with self._handlers_at_work():
                await self.hooks.notify(event)
        self.report(event)
        if self._awaiting:
            await self._settle_listeners()

    @property
    def is_asking_handlers(self) -> bool:
        """Whether a handler is at work, so that a safe point is sure to come."""
        return self._at_work > 0

    @contextmanager
    def _handlers_at_work(self) -> Iterator[None]:
        self._at_work += 1
        try:
            yield
        finally:
            self._at_work -= 1
            if not self._at_work:
                self._safe_point()

    async def tell(self, event: Event) -> None:
        """Subscribers only: for a decision's subject that is now recorded."""
        self.report(event)
        if self._awaiting:
            await self._settle_listeners()

    def report(self, event: Event) -> None:
        """Tell subscribers from a place that cannot await; async listeners get their turn with the next event."""
        for listener in tuple(self._listeners):
            try:
                result = listener(event)
            except Exception as error:  # noqa: BLE001 - whatever a listener raises is its own failure
                self._listener_failed(listener, event, error)
            else:
                if inspect.isawaitable(result):
                    self._awaiting.append((listener, event, result))

    async def _settle_listeners(self) -> None:
        while self._awaiting:
            listener, event, result = self._awaiting.pop(0)
            try:
                await self.hooks.attend(result, name=_listener_name(listener), seconds=LISTENER_SECONDS)
            except Exception as error:  # noqa: BLE001 - see above
                self._listener_failed(listener, event, error)

    def _listener_failed(self, listener: Listener, event: Event, error: Exception) -> None:
        failure = ExtensionFailed(
            owner=_listener_name(listener),
            event=event.name,
            why=f"{type(error).__name__}: {error}",
            error=error,
        )
        if self._on_listener_error is not None:
            self._on_listener_error(failure)
        # One that fails on the report of a failure is not reported again: it would be told of that, and fail again.
        if not isinstance(event, ExtensionFailed):
            self.report(failure)
