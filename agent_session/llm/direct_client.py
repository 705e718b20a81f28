"""The skeleton of every client that speaks to a provider straight over httpx.

From the address and the key to the last event, the same for every wire format: one request, a refusal as the error it
means, a stream or a whole body, and everything closed in order when the block ends, whatever ended it. What is a
format's own is a payload, a path, a header for the key, and an `AnswerStream`. Keys are read for each request, sent as
a header, and are in no payload, log or error.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol

import anyio
import orjson
from typing_extensions import override

from agent_session.errors import MissingCredentialsError, ModelRequestError
from agent_session.llm.client import Finish, ModelRequest, PreparedRequest, StreamEvent
from agent_session.llm.endpoint import api_key_for, api_key_variable, base_url_for, base_url_variable, is_known_host
from agent_session.llm.failures import (
    Refusal,
    ended_in_error,
    error_from,
    is_near_limit,
    read_refusal,
    stream_cut_error,
)
from agent_session.llm.payload import encode
from agent_session.llm.sse import EventDecoder
from agent_session.llm.transport import CLOSE_SECONDS, Transport, drain

if TYPE_CHECKING:
    import re

    import httpx

# What servers that stream in OpenAI's manner send last, whatever the events before it were.
_DONE: Final = b"[DONE]"


class AnswerStream(Protocol):
    """One answer as its format says it: JSON objects in, neutral events out. Pure: bytes were read elsewhere.

    `finish_reason` is the provider's word once it came, None before; empty where the answer ended without one.
    """

    finish_reason: str | None

    def events(self, data: Mapping[str, Any]) -> Iterator[StreamEvent]:
        """What one event of the stream says, in order; the final event is `finish()`'s."""
        ...

    def whole(self, data: Mapping[str, Any]) -> Iterator[StreamEvent]:
        """The same for an answer in one piece, from a server that was asked to stream and does not."""
        ...

    def finish(self) -> Finish:
        """The final event, to be given once, when nothing more comes."""
        ...


class DirectClient(ABC):
    """A `ModelClient` but for what is its format's own.

    Args:
        base_url: the provider's address, to which `path` is appended; None takes `<PROVIDER>_BASE_URL`, else what is
            known of the provider.
        api_key: used where a request brings none; None takes `<PROVIDER>_API_KEY`.
        timeout: seconds to connect and to send. Silence is limited by the request, the total is not.
        http_client: used instead of an own one, and not closed.
        overflow_patterns: further texts by which a server says that a request was too long.
    """

    path: ClassVar[str]
    """Where below the address requests go, with its slash."""

    final_types: ClassVar[frozenset[str]] = frozenset()
    """The `type` of events behind which nothing more is read; `[DONE]` is known to all."""

    def __init__(
        self,
        base_url: str | None = None,
        api_key: str | None = None,
        *,
        timeout: float = 30.0,
        http_client: httpx.AsyncClient | None = None,
        overflow_patterns: Sequence[re.Pattern[str]] = (),
    ) -> None:
        self._base_url = base_url
        self._api_key = api_key
        self._transport = Transport(timeout=timeout, http_client=http_client)
        self._patterns = tuple(overflow_patterns)

    @override
    def __repr__(self) -> str:
        return f"{type(self).__name__}({repr(self._base_url) if self._base_url else ''})"

    @property
    @abstractmethod
    def api(self) -> str:
        """The wire format's name as it is logged."""

    @abstractmethod
    def prepare(self, request: ModelRequest) -> PreparedRequest:
        """The payload for this request; equal requests give equal bytes."""

    @abstractmethod
    def _headers(self, key: str | None) -> dict[str, str]:
        """The format's own headers, in lower case, the key in one of them; None for servers that need none."""

    @abstractmethod
    def _answer(self) -> AnswerStream:
        """What reads one answer."""

    def _offered(self, payload: Mapping[str, Any], base_url: str) -> Mapping[str, Any]:
        """The payload as this server is known to take it."""
        return payload

    def _conceded(self, payload: Mapping[str, Any], base_url: str, refusal: Refusal) -> Mapping[str, Any] | None:
        """The payload without the option that was refused; None where no option was: the refusal is raised then."""
        return None

    @asynccontextmanager
    async def stream(self, prepared: PreparedRequest) -> AsyncIterator[AsyncIterator[StreamEvent]]:
        """Send it, and stream the answer.

        Raises:
            MissingCredentialsError: no address, the provider's own service without a key, or a key that is refused.
            ContextOverflowError: the request is larger than the model takes.
            RateLimitError: too many requests or tokens a minute; `retry_at` where the provider said.
            ModelRequestError: any other refusal, no connection, a stream that broke off, or silence.
        """
        request = prepared.request
        base_url = self._address(request)
        key = self._key(request, base_url)
        response = await self._open(prepared, base_url, key)
        chunks = self._transport.chunks(response, model_id=request.model.id, silence_seconds=request.silence_seconds)
        events = self._events(chunks, request, key)
        try:
            yield events
        finally:
            # In this order: a generator that still reads would keep the connection.
            with anyio.move_on_after(CLOSE_SECONDS, shield=True):
                await events.aclose()
                await chunks.aclose()
                await response.aclose()

    async def aclose(self) -> None:
        """Close pooled connections; a later request opens new ones."""
        await self._transport.aclose()

    def _address(self, request: ModelRequest) -> str:
        provider = request.model.provider
        address = self._base_url or base_url_for(provider)
        if address is None:
            raise MissingCredentialsError(
                f"no address for {request.model.id}: set {base_url_variable(provider)}, or give "
                f"{type(self).__name__}(base_url=...)",
                kind="auth",
            )
        return address.rstrip("/")

    def _key(self, request: ModelRequest, base_url: str) -> str | None:
        provider = request.model.provider
        key = request.api_key or self._api_key or api_key_for(provider)
        if key is None and is_known_host(provider, base_url):
            raise MissingCredentialsError(
                f"no key for {request.model.id}: set {api_key_variable(provider)}, or give AgentSession(api_key=...)",
                kind="auth",
            )
        return key

    async def _open(self, prepared: PreparedRequest, base_url: str, key: str | None) -> httpx.Response:
        """A response that is no refusal, its body not yet read. What was refused is never sent again unchanged."""
        request = prepared.request
        headers = self._headers(key) | {name.lower(): value for name, value in prepared.headers.items()}
        payload = self._offered(prepared.payload, base_url)
        while True:
            body = encode(payload)
            response = await self._transport.post(
                f"{base_url}{self.path}",
                body=body,
                headers=headers,
                model_id=request.model.id,
                silence_seconds=request.silence_seconds,
            )
            if response.status_code < 400:
                return response
            refusal = read_refusal(response.status_code, await self._transport.error_body(response), secret=key)
            conceded = self._conceded(payload, base_url, refusal)
            if conceded is None:
                raise error_from(
                    refusal,
                    model_id=request.model.id,
                    now=time.time(),
                    headers=response.headers,
                    is_near_limit=is_near_limit(len(body), request.model),
                    patterns=self._all_patterns(request),
                )
            payload = conceded

    async def _events(
        self, chunks: AsyncIterator[bytes], request: ModelRequest, key: str | None
    ) -> AsyncGenerator[StreamEvent, None]:
        answer = self._answer()
        decoder = EventDecoder()
        first = await _first(chunks)
        if first.lstrip()[:1] in (b"{", b"["):
            # Not by the content type, which some get wrong. No line of a stream begins so.
            async for piece in self._whole_answer(answer, first, chunks, request, key):
                yield piece
            return
        chunk: bytes | None = first
        is_over = False
        while not is_over:
            is_over = chunk is None
            for event in decoder.close() if chunk is None else decoder.feed(chunk):
                if event.data == _DONE:
                    answer.finish_reason = answer.finish_reason or ""
                    is_over = True
                    break
                data = self._data(event.data, request, key, is_error=event.name == "error")
                for piece in answer.events(data):
                    yield piece
                is_over = is_over or data.get("type") in self.final_types
            if not is_over:
                chunk = await _next(chunks, answer)
        yield _finish(answer, request)
        await drain(chunks)

    async def _whole_answer(
        self, answer: AnswerStream, first: bytes, chunks: AsyncIterator[bytes], request: ModelRequest, key: str | None
    ) -> AsyncGenerator[StreamEvent, None]:
        body = b"".join([first, *[chunk async for chunk in chunks]])
        for piece in answer.whole(self._data(body, request, key)):
            yield piece
        yield _finish(answer, request)

    def _data(
        self, body: bytes, request: ModelRequest, key: str | None, *, is_error: bool = False
    ) -> Mapping[str, Any]:
        """What an event or a body says; an error is raised as the error it names."""
        try:
            data = orjson.loads(body)
        except orjson.JSONDecodeError as error:
            if not is_error:
                raise stream_cut_error(request.model.id, "something came that is not JSON") from error
            data = None
        if isinstance(data, list) and data:
            data = data[0]
        if is_error or _is_error(data):
            raise error_from(
                read_refusal(200, body, secret=key),
                model_id=request.model.id,
                now=time.time(),
                patterns=self._all_patterns(request),
            )
        return data if isinstance(data, dict) else {}

    def _all_patterns(self, request: ModelRequest) -> tuple[re.Pattern[str], ...]:
        return (*self._patterns, *request.overflow_patterns)


async def _first(chunks: AsyncIterator[bytes]) -> bytes:
    """The beginning, up to the first chunk that is not blank; some servers send white space while they think."""
    begun = b""
    async for chunk in chunks:
        begun += chunk
        if chunk.strip():
            break
    return begun


async def _next(chunks: AsyncIterator[bytes], answer: AnswerStream) -> bytes | None:
    """The next chunk; None at the end, also where the connection broke after the answer was whole."""
    try:
        return await anext(chunks, None)
    except ModelRequestError:
        if answer.finish_reason is None:
            raise
        return None


def _finish(answer: AnswerStream, request: ModelRequest) -> Finish:
    if answer.finish_reason is None:
        raise stream_cut_error(request.model.id)
    if answer.finish_reason == "error":
        raise ended_in_error(request.model.id)
    return answer.finish()


def _is_error(data: Any) -> bool:
    """Whether this is an error that came in the place of an answer, in one of the forms there are."""
    if not isinstance(data, dict):
        return False
    status = data.get("base_resp")  # beside `choices`, which are none then
    is_refused = isinstance(status, dict) and status.get("status_code") not in (None, 0)
    return is_refused or bool(data.get("error") or "error" in (data.get("object"), data.get("type")))
