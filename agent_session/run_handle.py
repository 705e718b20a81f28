"""One run as a block: its events to iterate, its text, its result."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import anyio
from typing_extensions import override

from agent_session.activity import Activity
from agent_session.dispatch import EventStream
from agent_session.events import Event, MessageDiscarded, MessageStart, MessageUpdate
from agent_session.llm.client import TextDelta
from agent_session.prompting import Said
from agent_session.session_core import SessionCore
from agent_session.tools.images import ImageSource
from session_store.messages import AssistantMessage
from session_store.showing import quoted


class RunHandle:
    """Iterate it for the run's events, the last of them `agent_settled`. `text`: what the newest answer says so far."""

    def __init__(self, core: SessionCore, activity: Activity, stream: EventStream, said: Said) -> None:
        self._core = core
        self._said = said
        self._ended_at: float | None = None
        self._activity = activity
        self._stream = stream
        self._ended = anyio.Event()
        self._message: AssistantMessage | None = None
        self._error: Exception | None = None
        self.text = ""

    def __aiter__(self) -> AsyncIterator[Event]:
        return self._stream

    async def result(self) -> AssistantMessage | None:
        """Wait for the end: the last answer, as `session.prompt` returns it. Raises what `prompt` raises."""
        await self._ended.wait()
        if self._error is not None:
            raise self._error
        return self._message

    def steer(self, text: str, *, images: Sequence[ImageSource] = ()) -> None:
        """Say something before the run's next request. Image files are read before it returns."""
        self._core.enqueue("steer", Said(text=text, images=images, folder=self._core.cwd).message_now())

    def abort(self) -> None:
        """End the run; `result()` returns when it is over. What is queued stays in the queue."""
        if not self._activity.ended.is_set():
            self._activity.abort()

    @override
    def __repr__(self) -> str:
        return f"<RunHandle {self._state}: `async for event in` it, await .result(), .text>"

    @property
    def _state(self) -> str:
        """What was said, since when it runs or how it ended, and how much of an answer there is."""
        seconds = (self._ended_at or time.monotonic()) - self._activity.since
        if self._ended_at is None:
            way = f"running for {seconds:.1f} s"
        elif self._error is not None:
            way = f"failed after {seconds:.1f} s ({type(self._error).__name__})"
        else:
            way = f"{'aborted' if self._activity.is_aborted else 'done'} after {seconds:.1f} s"
        return f"{quoted(self._said.text)}, {way}, {len(self.text):,} characters of text"

    def _listen(self, event: Event) -> None:
        if isinstance(event, MessageStart | MessageDiscarded):
            self.text = ""
        elif isinstance(event, MessageUpdate) and isinstance(event.delta, TextDelta):
            self.text += event.delta.text

    async def _drive(self, said: Said) -> None:
        try:
            self._message = await self._core.hold_run(self._activity, said)
        except Exception as error:  # noqa: BLE001 - `result()` raises it
            self._error = error
        finally:
            self._ended_at = time.monotonic()
            self._ended.set()
            self._stream.close()


@asynccontextmanager
async def open_handle(core: SessionCore, text: str, images: Sequence[ImageSource]) -> AsyncIterator[RunHandle]:
    """Reserve the run at once and drive it in a task the session owns; leaving the block early aborts it.

    Raises:
        SessionBusyError: something else runs.
    """
    said = Said(text=text, images=images, folder=core.cwd)
    core.check_open()
    activity = core.gate.claim("run")
    async with core.dispatcher.events() as stream:
        handle = RunHandle(core, activity, stream, said)
        unsubscribe = core.dispatcher.subscribe(handle._listen)
        core.owned.spawn(handle._drive(said), name="run")
        try:
            yield handle
        finally:
            handle.abort()
            with anyio.CancelScope(shield=True):
                await handle._ended.wait()
            unsubscribe()
