"""OpenAI's chat completions, straight over httpx: for OpenAI and everybody who speaks like it.

One hop from the socket to the caller: a plain generator, no task and no queue for a chunk. The response is closed
when the block ends, whatever ended it. Keys are read for each request, sent as a header, and are in no
payload, log or error.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio
import orjson
from typing_extensions import override

from agent_session.errors import MissingCredentialsError, ModelRequestError
from agent_session.llm.chat_stream import ChatStream
from agent_session.llm.client import Finish, ModelRequest, PreparedRequest, StreamEvent
from agent_session.llm.convert import chat_payload
from agent_session.llm.endpoint import (
    api_key_for,
    api_key_variable,
    base_url_for,
    base_url_variable,
    is_known_host,
    is_openai_host,
)
from agent_session.llm.failures import error_from, read_refusal, stream_cut_error
from agent_session.llm.payload import encode
from agent_session.llm.sse import EventDecoder, ServerEvent
from agent_session.llm.transport import CLOSE_SECONDS, Transport, drain

if TYPE_CHECKING:
    import re

    import httpx

_DONE = b"[DONE]"
_NEAR_LIMIT = 0.8
_BYTES_PER_TOKEN = 4


class OpenAICompatibleClient:
    """A `ModelClient` for chat completions.

    Args:
        base_url: the address up to `/chat/completions`; None takes `<PROVIDER>_BASE_URL`, else OpenAI's own.
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
        self._base_url = base_url.rstrip("/") if base_url else None
        self._api_key = api_key
        self._transport = Transport(timeout=timeout, http_client=http_client)
        self._patterns = tuple(overflow_patterns)
        self._refuses_usage_option: set[str] = set()

    @override
    def __repr__(self) -> str:
        return f"OpenAICompatibleClient({self._base_url or 'the address of the provider'!r})"

    @property
    def api(self) -> str:
        return "openai-completions"

    def prepare(self, request: ModelRequest) -> PreparedRequest:
        """The payload for this request; equal requests give equal bytes.

        Raises:
            MissingCredentialsError: nothing says where the provider is.
        """
        key = "max_completion_tokens" if is_openai_host(self._address(request)) else "max_tokens"
        return PreparedRequest(request=request, payload=chat_payload(request, output_limit_key=key))

    @asynccontextmanager
    async def stream(self, prepared: PreparedRequest) -> AsyncIterator[AsyncIterator[StreamEvent]]:
        """Send it, and stream the answer.

        Raises:
            MissingCredentialsError: OpenAI's own service without a key, or a key that is refused.
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
                f"OpenAICompatibleClient(base_url=...)",
                kind="auth",
            )
        return address.rstrip("/")

    def _key(self, request: ModelRequest, base_url: str) -> str | None:
        """The key to send; None for servers that need none."""
        provider = request.model.provider
        key = request.api_key or self._api_key or api_key_for(provider)
        if key is None and is_known_host(provider, base_url):
            raise MissingCredentialsError(
                f"no key for {request.model.id}: set {api_key_variable(provider)}, or give AgentSession(api_key=...)",
                kind="auth",
            )
        return key

    async def _open(self, prepared: PreparedRequest, base_url: str, key: str | None) -> httpx.Response:
        """A response that is no refusal, its body not yet read.

        Sent a second time, and without the usage option from then on, where that option was all that was refused.
        """
        payload = prepared.payload
        if base_url in self._refuses_usage_option:
            payload = _without_usage_option(payload)
        response = await self._send(prepared, base_url, key, payload)
        if response.status_code < 400:
            return response
        body = await self._transport.error_body(response)
        if response.status_code in (400, 422) and "stream_options" in payload and _names_usage_option(body):
            self._refuses_usage_option.add(base_url)
            response = await self._send(prepared, base_url, key, _without_usage_option(payload))
            if response.status_code < 400:
                return response
            body = await self._transport.error_body(response)
        model = prepared.request.model
        raise error_from(
            read_refusal(response.status_code, body, secret=key),
            model_id=model.id,
            now=time.time(),
            headers=response.headers,
            is_near_limit=len(encode(payload)) / _BYTES_PER_TOKEN >= _NEAR_LIMIT * model.context_limit,
            patterns=self._patterns,
        )

    async def _send(
        self, prepared: PreparedRequest, base_url: str, key: str | None, payload: Mapping[str, Any]
    ) -> httpx.Response:
        headers = {} if key is None else {"authorization": f"Bearer {key}"}
        headers |= {name.lower(): value for name, value in prepared.headers.items()}
        return await self._transport.post(
            f"{base_url}/chat/completions",
            body=encode(payload),
            headers=headers,
            model_id=prepared.request.model.id,
            silence_seconds=prepared.request.silence_seconds,
        )

    async def _events(
        self, chunks: AsyncIterator[bytes], request: ModelRequest, key: str | None
    ) -> AsyncGenerator[StreamEvent, None]:
        answer = ChatStream()
        decoder = EventDecoder()
        is_over = False
        while not is_over:
            chunk = await _next(chunks, answer)
            is_over = chunk is None
            for event in decoder.close() if chunk is None else decoder.feed(chunk):
                if event.data == _DONE:
                    answer.finish_reason = answer.finish_reason or ""
                    is_over = True
                    break
                for piece in answer.events(self._chunk(event, request, key)):
                    yield piece
        yield _finish(answer, request)
        await drain(chunks)

    async def _whole_answer(
        self, chunks: AsyncIterator[bytes], request: ModelRequest, key: str | None
    ) -> AsyncGenerator[StreamEvent, None]:
        """An answer in one JSON object, from a server that was asked to stream and does not."""
        answer = ChatStream()
        body = b"".join([chunk async for chunk in chunks])
        for piece in answer.events(self._chunk(ServerEvent(body), request, key)):
            yield piece
        yield _finish(answer, request)

    def _chunk(self, event: ServerEvent, request: ModelRequest, key: str | None) -> Mapping[str, Any]:
        """The chunk in an event; an error event is raised as the error it names."""
        try:
            chunk = orjson.loads(event.data)
        except orjson.JSONDecodeError as error:
            if event.name != "error":
                raise stream_cut_error(request.model.id, "an event came that is not JSON") from error
            chunk = None
        if event.name == "error" or _is_error(chunk):
            raise error_from(
                read_refusal(200, event.data, secret=key),
                model_id=request.model.id,
                now=time.time(),
                patterns=self._patterns,
            )
        return chunk if isinstance(chunk, dict) else {}


async def _next(chunks: AsyncIterator[bytes], answer: ChatStream) -> bytes | None:
    """The next chunk; None at the end, also where the connection broke after the answer was whole."""
    try:
        return await anext(chunks, None)
    except ModelRequestError:
        if answer.finish_reason is None:
            raise
        return None


def _finish(answer: ChatStream, request: ModelRequest) -> Finish:
    if answer.finish_reason is None:
        raise stream_cut_error(request.model.id)
    if answer.finish_reason == "error":
        raise ModelRequestError(f"{request.model.id}: the provider ended its answer with an error", kind="server")
    return answer.finish()


def _is_error(chunk: Any) -> bool:
    return isinstance(chunk, dict) and bool(chunk.get("error") or chunk.get("object") == "error")


def _without_usage_option(payload: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in payload.items() if name != "stream_options"}


def _names_usage_option(body: bytes) -> bool:
    return b"stream_options" in body or b"include_usage" in body
