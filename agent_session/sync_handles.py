"""What the verbs of a `SyncSession` hand out: runs, streams of events, extensions, without `await`.

Rule: each of them only passes on; what it stands for is used on the session's thread alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from typing_extensions import override

from agent_session.dispatch import EventStream
from agent_session.events import Event
from agent_session.extending.extension_set import LoadedExtension
from agent_session.extending.on import On
from agent_session.extending.registry import DEFAULT_TIMEOUT, HandlerRegistry, Owner, TimeLimit, Unsubscribe
from agent_session.raising import at_the_call
from agent_session.run_handle import RunHandle
from agent_session.session_thread import SessionThread
from agent_session.tools.images import ImageSource
from session_store.messages import AssistantMessage


@at_the_call
class SyncEventStream:
    """An endless iterator over events; it ends when the session is closed. Buffers without bound.

    Ctrl-C while it waits raises KeyboardInterrupt.
    """

    def __init__(self, thread: SessionThread, stream: EventStream) -> None:
        self._thread = thread
        self._stream = stream

    @override
    def __repr__(self) -> str:
        return f"<SyncEventStream, {self._stream._state}: `for event in` it>"

    def __iter__(self) -> Iterator[Event]:
        return self

    def __next__(self) -> Event:
        event = self._thread.ask(lambda: _next_of(self._stream))
        if event is None:
            raise StopIteration
        return event


@at_the_call
class SyncRunHandle:
    """Iterate it for the run's events, the last of them `agent_settled`. `text`: what the newest answer says so far.

    The first Ctrl-C while it waits aborts the run, whose last events still come.
    """

    def __init__(self, thread: SessionThread, run: RunHandle) -> None:
        self._thread = thread
        self._run = run

    @property
    def text(self) -> str:
        return self._run.text

    @override
    def __repr__(self) -> str:
        return f"<SyncRunHandle {self._run._state}: `for event in` it, .result(), .text>"

    def __iter__(self) -> Iterator[Event]:
        return self

    def __next__(self) -> Event:
        event = self._thread.ask(lambda: _next_of(self._run), aborts=True)
        if event is None:
            raise StopIteration
        return event

    def result(self) -> AssistantMessage | None:
        """Wait for the end: the last answer, as `prompt` returns it. Raises what `prompt` raises."""
        return self._thread.ask(self._run.result, aborts=True)

    def steer(self, text: str, *, images: Sequence[ImageSource] = ()) -> None:
        """Say something before the run's next request."""
        self._thread.look(lambda: self._run.steer(text, images=images))

    def abort(self) -> None:
        """End the run; `result()` returns when it is over. What is queued stays in the queue."""
        self._thread.look(self._run.abort)


@at_the_call
class SyncLoadedExtension:
    """What `SyncSession.load` returns. `name` is what reports call it."""

    def __init__(self, thread: SessionThread, extension: LoadedExtension) -> None:
        self._thread = thread
        self._extension = extension

    @property
    def name(self) -> str:
        return self._extension.name

    @property
    def is_loaded(self) -> bool:
        return self._extension.is_loaded

    def unload(self) -> None:
        """Tell it (`session_shutdown`, reason unload), then take it out. A second call does nothing."""
        self._thread.ask(self._extension.unload)

    @override
    def __repr__(self) -> str:
        return repr(self._extension)


@at_the_call
class _RegistryOfAnotherThread(HandlerRegistry):
    """Registers on the session's thread: the registry itself is not made for several."""

    def __init__(self, thread: SessionThread, registry: HandlerRegistry) -> None:
        super().__init__()
        self._thread = thread
        self._registry = registry

    @override
    def add(
        self, event: str | type[Event], handler: Callable[..., Any], owner: Owner, timeout: TimeLimit = DEFAULT_TIMEOUT
    ) -> Unsubscribe:
        unsubscribe = self._thread.look(lambda: self._registry.add(event, handler, owner, timeout))
        return lambda: self._thread.look(unsubscribe)


def on_another_thread(thread: SessionThread, on: On) -> On:
    """The same `on`, to be called from other threads."""
    return On(_RegistryOfAnotherThread(thread, on._registry), on._owner)


async def _next_of(events: EventStream | RunHandle) -> Event | None:
    async for event in events:
        return event
    return None
