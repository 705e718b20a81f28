"""A model client in process that answers from a script: no network, the runtime's real path otherwise."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Self

import anyio
from typing_extensions import override

from agent_session.errors import ModelError
from agent_session.llm.client import Finish, ModelRequest, PreparedRequest, StreamEvent, UsageReport
from agent_session.llm.convert import chat_payload
from agent_session.llm.failures import error_from, read_refusal, silence_error, stream_cut_error
from agent_session.llm.finish import stop_reason_for
from agent_session.llm.payload import encode, encode_text
from agent_session.models import Model
from agent_session.testing.provider_rules import error_body, is_summary_request, refusal_of
from agent_session.testing.recording import Arrivals, RecordedRequest
from agent_session.testing.script import Answer, Refusal, Script, Step


class ScriptedModel:
    """A `ModelClient` that answers request after request from `steps`.

    Requests of the summariser are answered from `summaries` where that is given. With `context_window` (tokens) larger
    requests are refused as a provider refuses them; so are calls without results. `requests` is what was asked.
    `async with` checks at its end that the script was used up; `assert_done()` does so at any time.
    """

    def __init__(
        self,
        steps: Iterable[Step] = (),
        *,
        summaries: Iterable[Step] | None = None,
        context_window: int | None = None,
        name: str = "scripted/model",
    ) -> None:
        self._script = Script(steps, summaries)
        self._context_window = context_window
        self._call_ids: Iterator[str] = self._script.call_ids()
        self.model = Model(name, context_window=context_window)
        self._arrivals = Arrivals()
        self.is_closed = False

    @property
    def api(self) -> str:
        return "scripted"

    @property
    def remaining(self) -> int:
        """How many steps are left, `always` not counted."""
        return self._script.remaining

    def prepare(self, request: ModelRequest) -> PreparedRequest:
        return PreparedRequest(request=request, payload=chat_payload(request))

    @asynccontextmanager
    async def stream(self, prepared: PreparedRequest) -> AsyncIterator[AsyncIterator[StreamEvent]]:
        """Play the next step.

        Raises:
            ModelError: the step is a refusal, or a stream that fails.
            AssertionError: the script has no step for this request.
        """
        recorded = self._record(prepared)
        try:
            play = refusal_of(recorded, self._context_window) or await self._script.take(recorded)
            if isinstance(play, Refusal):
                recorded.is_answered = True
                raise self._error(play, prepared.request)
            events = self._events(play, recorded, prepared.request)
            try:
                yield events
            finally:
                await events.aclose()
        finally:
            if not recorded.is_answered:
                recorded.disconnected.set()

    async def aclose(self) -> None:
        self.is_closed = True

    @property
    def requests(self) -> list[RecordedRequest]:
        """What was asked so far, in order."""
        return self._arrivals.requests

    async def arrived(self, number: int) -> RecordedRequest:
        """The request with this number, from 1, once it came in; its answer may not have begun."""
        return await self._arrivals.arrived(number)

    def assert_done(self) -> None:
        """Check that every step was asked for, and nothing else was.

        Raises:
            AssertionError: steps are left, or there were requests without a step.
        """
        self._script.assert_done()

    @override
    def __repr__(self) -> str:
        return f"<ScriptedModel {self.model.id}, {len(self.requests)} requests, {self.remaining} steps left>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()
        if exc is None:
            self.assert_done()

    def _record(self, prepared: PreparedRequest) -> RecordedRequest:
        recorded = RecordedRequest(
            number=len(self.requests) + 1,
            payload=prepared.payload,
            raw=encode(prepared.payload),
            headers={key.lower(): value for key, value in prepared.headers.items()},
            request=prepared.request,
        )
        recorded.is_summary = self._script.separates_summaries and is_summary_request(recorded)
        self._arrivals.add(recorded)
        return recorded

    async def _events(
        self, answer: Answer, recorded: RecordedRequest, request: ModelRequest
    ) -> AsyncGenerator[StreamEvent, None]:
        for delta in answer.deltas(self._call_ids):
            await anyio.sleep(answer.pace)
            yield delta
        if answer.ending == "hang":
            await anyio.sleep(request.silence_seconds)
            raise silence_error(request.model.id, request.silence_seconds)
        recorded.is_answered = True
        if answer.ending == "error":
            raise error_from(
                read_refusal(200, encode_text(answer.error)),
                model_id=request.model.id,
                now=time.time(),
                patterns=request.overflow_patterns,
            )
        if answer.ending != "finish":
            raise stream_cut_error(request.model.id)
        if (usage := answer.reported(recorded)) is not None:
            yield UsageReport(usage)
        yield Finish(stop_reason_for(answer.finish, has_tool_calls=bool(answer.calls)), answer.finish)

    @staticmethod
    def _error(refusal: Refusal, request: ModelRequest) -> ModelError:
        return error_from(
            read_refusal(refusal.status, error_body(refusal)),
            model_id=request.model.id,
            now=time.time(),
            headers={key.lower(): value for key, value in refusal.headers.items()},
            patterns=request.overflow_patterns,
        )
