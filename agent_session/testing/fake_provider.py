"""A provider on 127.0.0.1 that plays a script: real sockets, real bytes, real disconnects.

It speaks chat completions, as OpenAI does, and messages, as Anthropic does, both streamed: the path says which is
wanted. It serves whoever connects while its event loop runs, other processes and threads too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import anyio
import anyio.from_thread
import orjson
from typing_extensions import override

from agent_session.llm.openai_compatible import OpenAICompatibleClient
from agent_session.models import Model
from agent_session.testing import chat_wire, messages_wire
from agent_session.testing.http_server import Exchange, HttpServer
from agent_session.testing.provider_rules import error_body, is_summary_request, refusal_of
from agent_session.testing.recording import Arrivals, RecordedRequest, four_characters_a_token
from agent_session.testing.script import Answer, Refusal, Script, Step

SCRIPT_FAULT_CODE = "script_fault"
CONTENT_TYPE = "text/event-stream"

_PREFIX = "/v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wire:
    """One format: where it is served, and how requests, refusals and answers look in it."""

    path: str
    as_chat: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None
    refusal_of: Callable[[RecordedRequest, int | None], Refusal | None]
    error_body: Callable[[Refusal], bytes]
    answer_events: Callable[[Answer, RecordedRequest, Iterator[str]], Iterator[bytes]]


_CHAT = _Wire(path=chat_wire.PATH, refusal_of=refusal_of, error_body=error_body, answer_events=chat_wire.answer_events)
_MESSAGES = _Wire(
    path=messages_wire.PATH,
    as_chat=messages_wire.as_chat,
    refusal_of=messages_wire.refusal_of,
    error_body=messages_wire.error_body,
    answer_events=messages_wire.answer_events,
)


class FakeProvider:
    """`async with FakeProvider([reply("hi")]) as provider:` and point a client at `provider.base_url`.

    Without an event loop: `with FakeProvider([reply("hi")]).serving() as provider:`.
    Steps, `summaries` and `context_window` as for `ScriptedModel`. `count_text` gives the tokens of a text, for usage
    that is "auto" and for the window; without it four characters are one. `requests` are what came in, with their
    bytes and headers. Leaving the block checks that the script was used up and that nothing else was asked.
    """

    def __init__(
        self,
        steps: Iterable[Step] = (),
        *,
        summaries: Iterable[Step] | None = None,
        context_window: int | None = None,
        count_text: Callable[[str], int] = four_characters_a_token,
        name: str = "openai/scripted",
    ) -> None:
        self._script = Script(steps, summaries)
        self._context_window = context_window
        self._count_text = count_text
        self._call_ids = self._script.call_ids()
        self._server = HttpServer(self._handle)
        self._faults: list[Exception] = []
        self._client: OpenAICompatibleClient | None = None
        self.model = Model(name, context_window=context_window)
        self._arrivals = Arrivals()

    @property
    def base_url(self) -> str:
        """The address for a client, once the block is entered."""
        return f"http://127.0.0.1:{self._server.port}{_PREFIX}"

    @property
    def client(self) -> OpenAICompatibleClient:
        """A client for this provider, closed with it."""
        if self._client is None:
            self._client = OpenAICompatibleClient(self.base_url, "scripted-key")
        return self._client

    @property
    def remaining(self) -> int:
        """How many steps are left, `always` not counted."""
        return self._script.remaining

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
            AssertionError: steps are left, there were requests without a step, or a step itself failed.
        """
        if self._faults:
            raise AssertionError(f"the script failed: {self._faults[0]!r}") from self._faults[0]
        self._script.assert_done()

    @contextmanager
    def serving(self) -> Iterator[Self]:
        """Serve from a thread, for tests without an event loop of their own. Checks at the end as `async with` does.

        Give the session a client of its own for `base_url`: this provider's `client`, `arrived` and steps that are held
        belong to that thread.
        """
        with anyio.from_thread.start_blocking_portal() as portal, portal.wrap_async_context_manager(self):
            yield self

    @override
    def __repr__(self) -> str:
        return f"<FakeProvider {self.model.id}, {len(self.requests)} requests, {self.remaining} steps left>"

    async def __aenter__(self) -> Self:
        await self._server.start()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with anyio.CancelScope(shield=True):
            if self._client is not None:
                await self._client.aclose()
            await self._server.stop()
        if exc is None:
            self.assert_done()

    async def _handle(self, exchange: Exchange) -> None:
        path = exchange.path.partition("?")[0]
        wire = next((wire for wire in (_CHAT, _MESSAGES) if path == _PREFIX + wire.path), None)
        if exchange.method != "POST" or wire is None:
            await self._refuse(exchange, _CHAT, Refusal(status=404, text=f"nothing is served at {exchange.path}"))
            return
        payload = _payload_of(exchange.body)
        if payload is None:
            text = "the body is no JSON object with a list of messages"
            await self._refuse(exchange, wire, Refusal(status=400, text=text))
            return
        recorded = self._record(exchange, wire, payload)
        exchange.on_disconnect = recorded.disconnected.set
        try:
            play = wire.refusal_of(recorded, self._context_window) or await self._script.take(recorded)
            events = None if isinstance(play, Refusal) else self._events(play, wire, recorded)
        except Exception as error:  # noqa: BLE001 - a step is the test's code: the fault is told at the end of the block
            self._faults.append(error)
            await self._refuse(exchange, wire, Refusal(status=400, text=str(error), code=SCRIPT_FAULT_CODE))
            return
        if isinstance(play, Refusal):
            await self._refuse(exchange, wire, play)
        elif events is not None:
            await self._stream(exchange, play, events)
        recorded.is_answered = True

    def _record(self, exchange: Exchange, wire: _Wire, payload: dict[str, Any]) -> RecordedRequest:
        recorded = RecordedRequest(
            number=len(self.requests) + 1,
            payload=payload,
            raw=exchange.body,
            chat=None if wire.as_chat is None else wire.as_chat(payload),
            headers=exchange.headers,
            count_text=self._count_text,
        )
        recorded.is_summary = self._script.separates_summaries and is_summary_request(recorded)
        self._arrivals.add(recorded)
        return recorded

    def _events(self, answer: Answer, wire: _Wire, recorded: RecordedRequest) -> list[bytes]:
        return list(wire.answer_events(answer, recorded, self._call_ids))

    async def _refuse(self, exchange: Exchange, wire: _Wire, refusal: Refusal) -> None:
        await exchange.send(
            refusal.status, wire.error_body(refusal), {"content-type": "application/json", **refusal.headers}
        )

    async def _stream(self, exchange: Exchange, answer: Answer, events: list[bytes]) -> None:
        if events or answer.ending != "hang":
            await exchange.begin({"content-type": CONTENT_TYPE})
        for event in events:
            if answer.pace:
                await anyio.sleep(answer.pace)
            await exchange.write(event)
        if answer.ending == "hang":
            await anyio.sleep_forever()
        if answer.ending == "drop":
            exchange.drop()
        else:
            await exchange.end()


def _payload_of(body: bytes) -> dict[str, Any] | None:
    try:
        payload = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    return payload if isinstance(payload, dict) and isinstance(payload.get("messages"), list) else None
