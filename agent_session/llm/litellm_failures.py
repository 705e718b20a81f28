"""From an exception of litellm's to the error that is raised: what the provider said is read out of it again.

litellm wraps the provider's answer in its own words, several times over, and chooses by them what class to raise. The
answer itself, where there was one, lies at the bottom, and is read as any other client reads it; else the words are.
Of litellm's own decisions one is taken over where ours is unsure: that a request was too large. That it did not notice
means nothing. Classes are known by name, so that litellm need not be imported for this. The error that results does not
hold litellm's, which may hold the key.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from agent_session.errors import MissingCredentialsError, ModelError
from agent_session.llm.client import ModelRequest
from agent_session.llm.endpoint import api_key_variable, base_url_variable
from agent_session.llm.failures import (
    Refusal,
    error_from,
    network_error,
    read_refusal,
    silence_error,
    stream_cut_error,
)
from agent_session.llm.overflow import classify
from agent_session.llm.overflow_wording import names_field, plain
from agent_session.llm.payload import encode_text

_DEEPEST: Final = 12
_HTTP_PACKAGES: Final = frozenset({"aiohttp", "httpcore", "httpx"})
_UNSURE: Final = frozenset({"bad_request", "server", "unknown"})
_ANYTHING: Final = re.compile("")

_WRAPPING: Final = re.compile(r"\s*(?:litellm\.\w+:|\w*Error:|\w+(?:Exception|Error)\s+-|Error code: \d+(?:\s+-)?)\s*")
_APPENDED: Final = re.compile(
    r"\s*(?:Original exception: |Traceback \(most recent call last\)|This looks like a bug in LiteLLM).*", re.DOTALL
)
_NO_KEY: Final = re.compile(r"api[ _-]?key|credentials", re.IGNORECASE)


def error_of(
    failure: Exception,
    request: ModelRequest,
    *,
    key: str | None,
    is_near_limit: bool,
    has_begun: bool,
    patterns: Sequence[re.Pattern[str]] = (),
) -> ModelError:
    """The error to raise for `failure`, not raised yet.

    Args:
        failure: what litellm raised.
        request: what was asked.
        key: the key that was sent; it is taken out of all that is kept.
        is_near_limit: see `overflow.classify`.
        has_begun: whether the answer had begun; a broken connection is a cut stream then.
        patterns: see `overflow.classify`.
    """
    model_id = request.model.id
    layers = list(_layers(failure))
    told = _told(layers, key, has_begun=has_begun)
    refusal = told.refusal
    kind = classify(refusal.status, refusal.text, code=refusal.code, patterns=patterns).kind
    if kind in _UNSURE:
        if "LLM Provider NOT provided" in refusal.text:
            return _unknown_provider(request)
        if told.is_silence:
            return silence_error(model_id, request.silence_seconds)
        if told.is_broken:
            why = refusal.headline or type(failure).__name__
            return stream_cut_error(model_id, why) if has_begun else network_error(model_id, "the provider", why)
        if _is_overflow_to_litellm(layers, refusal.text):
            patterns = (*patterns, _ANYTHING)
    error = error_from(
        refusal,
        model_id=model_id,
        now=time.time(),
        headers=told.headers,
        is_near_limit=is_near_limit,
        patterns=patterns,
    )
    is_about_key = isinstance(error, MissingCredentialsError) or (kind in _UNSURE and _NO_KEY.search(refusal.text))
    return _no_key(request, refusal) if key is None and is_about_key else error


@dataclass(frozen=True, slots=True, kw_only=True)
class _Told:
    """What is known of a failure: the provider's refusal, or that nobody answered."""

    refusal: Refusal
    headers: Mapping[str, str]
    is_broken: bool = False
    is_silence: bool = False


def _layers(failure: BaseException) -> Iterator[BaseException]:
    """The failure and what it was made of, from the outside in."""
    layer: BaseException | None = failure
    for _ in range(_DEEPEST):
        if layer is None:
            return
        yield layer
        below = getattr(layer, "original_exception", None)
        layer = below if isinstance(below, BaseException) else layer.__cause__ or layer.__context__


def _told(layers: Sequence[BaseException], key: str | None, *, has_begun: bool) -> _Told:
    for layer in layers:
        if type(layer).__name__ == "HTTPStatusError":
            response = layer.response  # type: ignore[attr-defined]  # httpx's, known by name
            return _Told(
                refusal=read_refusal(response.status_code, response.text, secret=key), headers=response.headers
            )
        if _is_transports(layer):
            name = type(layer).__name__
            is_silence = "Timeout" in name and "Connect" not in name
            refusal = read_refusal(None, _words(layers[0]), secret=key)
            return _Told(refusal=refusal, headers={}, is_broken=not is_silence, is_silence=is_silence)
    body = next((body for layer in layers if (body := _body(layer))), None)
    words, *below = dict.fromkeys(_words(layer) for layer in layers)
    below = [said for said in below if said not in words]
    return _Told(
        refusal=read_refusal(
            _status(layers, has_begun=has_begun),
            encode_text([words, *below, body]) if body or below else words,
            secret=key,
        ),
        headers=getattr(layers[0], "litellm_response_headers", None) or {},
    )


def _body(layer: BaseException) -> Any:
    """What the provider answered, where this layer kept it: JSON, or text that may be JSON."""
    body = getattr(layer, "body", None)
    if body is None:
        try:
            body = layer.response.text  # type: ignore[attr-defined]  # httpx's, where there is one
        except Exception:  # noqa: BLE001 - no response, or one whose stream was never read: httpx has a class for each
            return None
    if isinstance(body, bytes):
        return body.decode("utf-8", "replace")
    return body if isinstance(body, dict | list | str) else None


def _is_transports(layer: BaseException) -> bool:
    """Whether this says that the connection failed; a stream that just ends is told by a loop that does."""
    package = type(layer).__module__.partition(".")[0]
    return package in _HTTP_PACKAGES or isinstance(layer, OSError | StopAsyncIteration)


def _status(layers: Sequence[BaseException], *, has_begun: bool) -> int | None:
    """The status that litellm names, but for the one it makes up where it does not know what happened."""
    if any(type(layer).__name__ == "APIConnectionError" for layer in layers):
        return 200 if has_begun else None
    return next((status for layer in layers if isinstance(status := getattr(layer, "status_code", None), int)), None)


def _words(layer: BaseException) -> str:
    """What a layer says, without what was wrapped around it and hung on to it; empty where that is all."""
    said = _APPENDED.sub("", str(layer))
    while (wrapping := _WRAPPING.match(said)) is not None and wrapping.end() > 0:
        said = said[wrapping.end() :]
    return said.strip()


def _is_overflow_to_litellm(layers: Sequence[BaseException], text: str) -> bool:
    """Its yes is good, but for fields that are no conversation: their texts may be too long as well."""
    names = {parent.__name__ for layer in layers for parent in type(layer).__mro__}
    return "ContextWindowExceededError" in names and not names_field(plain(text))


def _no_key(request: ModelRequest, refusal: Refusal) -> MissingCredentialsError:
    return MissingCredentialsError(
        f"no key for {request.model.id}: set {api_key_variable(request.model.provider)}, or give "
        f"AgentSession(api_key=...); the answer without one: {refusal.headline}",
        kind="auth",
        status=refusal.status,
    )


def _unknown_provider(request: ModelRequest) -> MissingCredentialsError:
    provider = request.model.provider
    return MissingCredentialsError(
        f"no client for {request.model.id}: litellm knows no provider {provider!r}. Set {base_url_variable(provider)} "
        f"to the address of a server that speaks OpenAI's chat-completions format, or give AgentSession(client=...)",
        kind="auth",
    )
