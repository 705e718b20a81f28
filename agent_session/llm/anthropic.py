"""Anthropic's messages, straight over httpx: for Claude and everybody who speaks like it.

One hop from the socket to the caller, and the response closed when the block ends, whatever ended it. Keys are read for
each request, sent as a header, and are in no payload, log or error.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import anyio
import orjson
from typing_extensions import override

from agent_session.errors import MissingCredentialsError, ModelError, ModelRequestError
from agent_session.llm.anthropic_payload import API, messages_payload
from agent_session.llm.anthropic_stream import MessagesStream
from agent_session.llm.client import ModelRequest, PreparedRequest, StreamEvent
from agent_session.llm.endpoint import (
    api_key_for,
    api_key_variable,
    base_url_for,
    base_url_variable,
    is_known_host,
)
from agent_session.llm.failures import error_from, read_refusal, stream_cut_error
from agent_session.llm.payload import encode
from agent_session.llm.sse import EventDecoder
from agent_session.llm.transport import CLOSE_SECONDS, Transport, drain

if TYPE_CHECKING:
    import re

    import httpx

PROVIDER: Final = "anthropic"
API_VERSION: Final = "2023-06-01"

_NEAR_LIMIT = 0.8
_BYTES_PER_TOKEN = 4


class AnthropicClient:
    """A `ModelClient` for Anthropic's messages.

    Args:
        base_url: the address up to `/v1/messages`, with or without the `/v1`; None takes `<PROVIDER>_BASE_URL`, else
            Anthropic's own.
        api_key: used where a request brings none; None takes `<PROVIDER>_API_KEY`.
        timeout: seconds to connect and to send. Silence is limited by the request, the total is not.
        http_client: used instead of an own one, and not closed.
        overflow_patterns: further texts by which a server says that a request was too long.
    """

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
        return f"AnthropicClient({self._base_url or 'the address of the provider'!r})"

    @property
    def api(self) -> str:
        return API

    def prepare(self, request: ModelRequest) -> PreparedRequest:
        """The payload for this request; equal requests give equal bytes."""
        return PreparedRequest(request=request, payload=messages_payload(request))

    @asynccontextmanager
    async def stream(self, prepared: PreparedRequest) -> AsyncIterator[AsyncIterator[StreamEvent]]:
        """Send it, and stream the answer.

        Raises:
            MissingCredentialsError: no address, Anthropic's own service without a key, or a key that is refused.
            ContextOverflowError: the request is larger than the model takes.
            RateLimitError: too many requests or tokens a minute; `retry_at` where the provider said.
            ModelRequestError: any other refusal, no connection, a stream that broke off, or silence.
        """
        request = prepared.request
        base_url = self._address(request)
        key = self._key(request, base_url)
        response = await self._open(prepared, base_url, key)
        chunks = self._transport.chunks(response, model_id=request.model.id, silence_seconds=request.silence_seconds)
        is_stream = not response.headers.get("content-type", "").startswith("application/json")
        events = self._events(chunks, request, key) if is_stream else self._whole_answer(chunks, request, key)
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
                f"AnthropicClient(base_url=...)",
                kind="auth",
            )
        return address.rstrip("/").removesuffix("/v1")

    def _key(self, request: ModelRequest, base_url: str) -> str | None:
        """The key to send; None for servers that need none."""
        provider = request.model.provider
        key = request.api_key or self._api_key or api_key_for(provider)
        if key is None and is_known_host(provider, f"{base_url}/v1"):
            raise MissingCredentialsError(
                f"no key for {request.model.id}: set {api_key_variable(provider)}, or give AgentSession(api_key=...)",
                kind="auth",
            )
        return key

    async def _open(self, prepared: PreparedRequest, base_url: str, key: str | None) -> httpx.Response:
        """A response that is no refusal, its body not yet read."""
        body = encode(prepared.payload)
        model = prepared.request.model
        headers = {"anthropic-version": API_VERSION} | ({} if key is None else {"x-api-key": key})
        headers |= {name.lower(): value for name, value in prepared.headers.items()}
        response = await self._transport.post(
            f"{base_url}/v1/messages",
            body=body,
            headers=headers,
            model_id=model.id,
            silence_seconds=prepared.request.silence_seconds,
        )
        if response.status_code < 400:
            return response
        raise error_from(
            read_refusal(response.status_code, await self._transport.error_body(response), secret=key),
            model_id=model.id,
            now=time.time(),
            headers=response.headers,
            is_near_limit=len(body) / _BYTES_PER_TOKEN >= _NEAR_LIMIT * model.context_limit,
            patterns=self._patterns,
        )

    async def _events(
        self, chunks: AsyncIterator[bytes], request: ModelRequest, key: str | None
    ) -> AsyncGenerator[StreamEvent, None]:
        answer = MessagesStream()
        decoder = EventDecoder()
        is_over = False
        while not is_over:
            chunk = await _next(chunks, answer)
            is_over = chunk is None
            for event in decoder.close() if chunk is None else decoder.feed(chunk):
                data = self._data(event.data, request, key, is_error=event.name == "error")
                for piece in answer.events(data):
                    yield piece
                is_over = is_over or data.get("type") == "message_stop"
        if answer.stop_reason is None:
            raise stream_cut_error(request.model.id)
        yield answer.finish()
        await drain(chunks)

    async def _whole_answer(
        self, chunks: AsyncIterator[bytes], request: ModelRequest, key: str | None
    ) -> AsyncGenerator[StreamEvent, None]:
        """An answer in one JSON object, from a server that was asked to stream and does not."""
        answer = MessagesStream()
        message = self._data(b"".join([chunk async for chunk in chunks]), request, key)
        if not isinstance(message.get("content"), list):
            raise stream_cut_error(request.model.id, "the answer is no message")
        for piece in answer.whole(message):
            yield piece
        yield answer.finish()

    def _data(
        self, body: bytes, request: ModelRequest, key: str | None, *, is_error: bool = False
    ) -> Mapping[str, Any]:
        """What an event says; an error is raised as the error it names."""
        try:
            data = orjson.loads(body)
        except orjson.JSONDecodeError as error:
            if not is_error:
                raise stream_cut_error(request.model.id, "an event came that is not JSON") from error
            data = None
        if is_error or (isinstance(data, dict) and (data.get("type") == "error" or data.get("error"))):
            raise self._error(body, request, key)
        return data if isinstance(data, dict) else {}

    def _error(self, body: bytes, request: ModelRequest, key: str | None) -> ModelError:
        return error_from(
            read_refusal(200, body, secret=key), model_id=request.model.id, now=time.time(), patterns=self._patterns
        )


async def _next(chunks: AsyncIterator[bytes], answer: MessagesStream) -> bytes | None:
    """The next chunk; None at the end, also where the connection broke after the answer was whole."""
    try:
        return await anext(chunks, None)
    except ModelRequestError:
        if answer.stop_reason is None:
            raise
        return None
