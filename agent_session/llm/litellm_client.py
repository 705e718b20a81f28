"""litellm, for the providers that nothing here speaks to directly. The one module that imports it.

litellm is imported by the first request, in a thread, since that takes seconds. It is told to use the data it brings:
nothing is fetched for prices, headers or tokenizers. What it would print is silenced, where it was not the program
itself that imported it. Its connections are shared by the whole process and are litellm's to close; the stream of a
request is closed when the block ends, whatever ended it.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import anyio
import anyio.to_thread
from typing_extensions import override

from agent_session.errors import ModelError
from agent_session.llm.chat_stream import ChatStream
from agent_session.llm.client import (
    ModelRequest,
    PreparedRequest,
    ResponseId,
    StreamEvent,
    ToolCallDelta,
    UsageReport,
)
from agent_session.llm.endpoint import api_key_for, base_url_for, is_known_host
from agent_session.llm.failures import ended_in_error, is_near_limit, silence_error, stream_cut_error
from agent_session.llm.litellm_failures import error_of
from agent_session.llm.litellm_payload import API, litellm_payload
from agent_session.llm.payload import encode
from agent_session.llm.transport import CLOSE_SECONDS

if TYPE_CHECKING:
    import re

# Read by litellm when it is imported, the last one also later. Without them it asks GitHub for its tables.
_OFFLINE: Final = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS": "True",
    "LITELLM_OFFLINE_MODE": "true",
}
_LOGGERS: Final = ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy")

# litellm puts a signature that it also gives separately behind an id, for clients that know only ids.
_SIGNATURE_IN_ID: Final = "__thought__"

# The provider whose address litellm wants without the version.
_ADDS_VERSION: Final = "anthropic"

_LATER_SECONDS = 5.0


class LiteLLMClient:
    """A `ModelClient` for whatever litellm speaks to: `provider/name` as litellm spells it.

    Args:
        base_url: the provider's address, as litellm wants it; None takes `<PROVIDER>_BASE_URL`, else litellm's own.
        api_key: used where a request brings none; None takes `<PROVIDER>_API_KEY`, else what litellm finds itself.
        options: further arguments of `litellm.acompletion`, such as `vertex_project`.
        overflow_patterns: further texts by which a provider says that a request was too long.
    """

    def __init__(
        self,
        base_url: str | None = None,
        api_key: str | None = None,
        *,
        options: Mapping[str, Any] | None = None,
        overflow_patterns: Sequence[re.Pattern[str]] = (),
    ) -> None:
        self._base_url = base_url
        self._api_key = api_key
        self._options = dict(options or {})
        self._patterns = tuple(overflow_patterns)

    @override
    def __repr__(self) -> str:
        return f"LiteLLMClient({repr(self._base_url) if self._base_url else ''})"

    @property
    def api(self) -> str:
        return API

    def prepare(self, request: ModelRequest) -> PreparedRequest:
        """The arguments for litellm; equal requests give equal ones."""
        return PreparedRequest(request=request, payload=litellm_payload(request))

    @asynccontextmanager
    async def stream(self, prepared: PreparedRequest) -> AsyncIterator[AsyncIterator[StreamEvent]]:
        """Send it, and stream the answer.

        Raises:
            MissingCredentialsError: no key, one that is refused, or a provider that litellm does not know.
            ContextOverflowError: the request is larger than the model takes.
            RateLimitError: too many requests or tokens a minute; `retry_at` where the provider said.
            ModelRequestError: any other refusal, no connection, a stream that broke off, or silence.
        """
        request = prepared.request
        key = request.api_key or self._api_key or api_key_for(request.model.provider)
        answer = await self._open(prepared, key)
        events = self._events(answer, prepared, key)
        try:
            yield events
        finally:
            with anyio.move_on_after(CLOSE_SECONDS, shield=True):
                await events.aclose()
                await answer.aclose()

    async def aclose(self) -> None:
        """Nothing is closed: the connections are litellm's, which shares them in the process and ends them with it."""

    async def _open(self, prepared: PreparedRequest, key: str | None) -> Any:
        """The stream as litellm gives it, its headers there and nothing of it read."""
        request = prepared.request
        litellm = await anyio.to_thread.run_sync(_litellm, abandon_on_cancel=True)
        arguments = {
            **self._options,
            **prepared.payload,
            "api_key": key,
            "base_url": self._address(request),
            "extra_headers": dict(prepared.headers) or None,
            # Retries are the session's: it counts and announces them. The limit is kept here, litellm's is a second.
            "max_retries": 0,
            "num_retries": 0,
            "timeout": request.silence_seconds + _LATER_SECONDS,
            "drop_params": True,
        }
        arguments = {name: value for name, value in arguments.items() if value is not None}
        error: ModelError | None = None
        with anyio.move_on_after(request.silence_seconds) as limit:
            try:
                return await litellm.acompletion(**arguments)
            except Exception as failure:  # noqa: BLE001 - litellm raises what the provider's library raises
                error = self._error(failure, prepared, key, has_begun=False)
        if error is None or limit.cancel_called:
            raise silence_error(request.model.id, request.silence_seconds)
        raise error  # out here, so that it does not hold litellm's, which holds the key

    def _address(self, request: ModelRequest) -> str | None:
        """The address to give; None leaves it to litellm, which puts `/v1` behind Anthropic's itself."""
        provider = request.model.provider
        address = self._base_url or base_url_for(provider)
        if address is None or is_known_host(provider, address):
            return None
        return address.rstrip("/").removesuffix("/v1") if provider == _ADDS_VERSION else address

    async def _events(
        self, answer: Any, prepared: PreparedRequest, key: str | None
    ) -> AsyncGenerator[StreamEvent, None]:
        request = prepared.request
        stream = ChatStream()
        is_empty = True
        while (chunk := await self._next(answer, prepared, key)) is not None:
            for event in stream.events(_plain(chunk)):
                is_empty = is_empty and isinstance(event, UsageReport | ResponseId)
                if isinstance(event, UsageReport):
                    if _is_reported(answer):
                        yield event
                elif isinstance(event, ToolCallDelta) and event.id is not None:
                    yield replace(event, id=event.id.partition(_SIGNATURE_IN_ID)[0])
                else:
                    yield event
        if stream.finish_reason is None or (is_empty and not _has_ended(answer)):
            raise stream_cut_error(request.model.id)
        stream.finish_reason = _reason(answer, stream.finish_reason)
        if stream.finish_reason == "error":
            raise ended_in_error(request.model.id)
        yield stream.finish()

    async def _next(self, answer: Any, prepared: PreparedRequest, key: str | None) -> Any:
        """The next chunk; None at the end."""
        silence_seconds = prepared.request.silence_seconds
        error: ModelError | None = None
        with anyio.move_on_after(silence_seconds) as limit:
            try:
                return await anext(answer, None)
            except Exception as failure:  # noqa: BLE001 - see `_open`
                error = self._error(failure, prepared, key, has_begun=True)
        if error is None or limit.cancel_called:
            raise silence_error(prepared.request.model.id, silence_seconds)
        raise error

    def _error(self, failure: Exception, prepared: PreparedRequest, key: str | None, *, has_begun: bool) -> ModelError:
        request = prepared.request
        return error_of(
            failure,
            request,
            key=key,
            is_near_limit=is_near_limit(len(encode(prepared.payload)), request.model),
            has_begun=has_begun,
            patterns=(*self._patterns, *request.overflow_patterns),
        )


def _litellm() -> Any:
    """litellm, imported so that it neither fetches nor prints anything."""
    if "litellm" in sys.modules:
        return _import()  # waits where another thread is still importing
    os.environ.update(_OFFLINE)
    litellm = _import()
    litellm.suppress_debug_info = True
    for name in _LOGGERS:
        logger = logging.getLogger(name)
        for handler in list(logger.handlers):
            logger.removeHandler(handler)
        logger.addHandler(logging.NullHandler())
        logger.setLevel(logging.WARNING)  # below that are prompts
    return litellm


def _import() -> Any:
    import litellm  # noqa: PLC0415 - the door: not before somebody asks

    return litellm


def _plain(chunk: Any) -> Mapping[str, Any]:
    """A chunk as the JSON it was made of."""
    value = chunk if isinstance(chunk, dict) else chunk.model_dump(exclude_none=True)
    return value if isinstance(value, dict) else {}


def _is_reported(answer: Any) -> bool:
    """Whether the provider itself reported usage: litellm counts it where it did not, which is an estimate."""
    chunks = getattr(answer, "chunks", None)
    return not isinstance(chunks, list) or any(getattr(chunk, "usage", None) is not None for chunk in chunks)


def _has_ended(answer: Any) -> bool:
    """Whether the provider said why its answer ended: litellm ends one that never began with a plain stop."""
    return getattr(answer, "received_finish_reason", "") is not None


def _reason(answer: Any, given: str) -> str:
    """The provider's own finish reason where litellm kept it: it takes those it does not know for a plain stop."""
    raw = getattr(answer, "received_finish_reason", None)
    return raw if isinstance(raw, str) and raw else given
