"""From a provider's failure to the error that is raised, for every client the same way.

A refusal's body is read once: its words, also those wrapped as JSON inside strings, its codes, and when to come back.
The key that was sent is taken out of everything that is kept, since some providers repeat it. Silence, a
cut stream and a broken connection have a constructor each.
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any

import orjson

from agent_session.errors import (
    ContextOverflowError,
    MissingCredentialsError,
    ModelError,
    ModelErrorKind,
    ModelRequestError,
    RateLimitError,
)
from agent_session.models import Model

_NESTING = 3
_NEAR_LIMIT = 0.8
_BYTES_PER_TOKEN = 4
_CODE_KEYS = frozenset({"code", "type", "status", "reason"})
_COUNT_KEY = re.compile(r"token|ctx|context|limit|max|length", re.IGNORECASE)
# What some repeat of the request, or of the answer they threw away: whatever it says, the provider does not.
_ECHO_KEYS = frozenset({"input", "failed_generation"})
_KEPT_BODY_CHARS = 4_000
_SHOWN_CHARS = 600

_AGAIN_IN = re.compile(
    r"(?:try again|retry|wait)(?: \w+){0,2}? (?:in|after|for)? ?(\d+(?:\.\d+)?) ?(ms|s|sec|seconds|m|min|minutes)\b",
    re.IGNORECASE,
)
_RETRY_DELAY = re.compile(r"retry_?delay\\?\"?\s*:\s*\\?\"(\d+(?:\.\d+)?)s", re.IGNORECASE)
_UNIT_SECONDS = {"ms": 0.001, "s": 1.0, "sec": 1.0, "seconds": 1.0, "m": 60.0, "min": 60.0, "minutes": 60.0}
_MARKUP = re.compile(r"<[^>]*>")

_ADVICE: dict[ModelErrorKind, str] = {
    "overflow": "compact the session, or use a model with a larger window",
    "overflow_bytes": "the request is too large in bytes: remove images or large outputs, or compact the session",
    "request_exceeds_rate_budget": "this one request is larger than the whole budget of a minute, so waiting cannot "
    "help: compact the session, or raise the limit at the provider",
    "auth": "check the key and what it may use",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """An error answer, read. `text` is all its words, `code` all its codes, `headline` the first message."""

    status: int | None
    text: str
    code: str
    headline: str
    body: str


def read_refusal(status: int | None, body: bytes | str, *, secret: str | None = None) -> Refusal:
    """Read an error body. A status named inside the body counts where the answer itself had none above 399."""
    raw = body if isinstance(body, str) else body.decode("utf-8", "replace")
    if secret:
        raw = raw.replace(secret, "[key]")
    decoded = _decoded(raw)
    codes: list[str] = []
    words: list[str] = []
    if decoded is None:
        words.append(html.unescape(_MARKUP.sub(" ", raw)).strip())
    else:
        for key, value in _leaves(decoded, _NESTING):
            (codes if key in _CODE_KEYS else words).append(value)
    if status is None or status < 400:
        status = next((int(code) for code in codes if code.isdecimal() and 400 <= int(code) <= 599), status)
    words = list(dict.fromkeys(word for word in words if word))
    return Refusal(
        status=status,
        text="\n".join(words),
        code=" ".join(dict.fromkeys(codes)),
        headline=_headline(decoded, words),
        body=raw[:_KEPT_BODY_CHARS],
    )


def error_from(
    refusal: Refusal,
    *,
    model_id: str,
    now: float,
    headers: Mapping[str, str] | None = None,
    is_near_limit: bool = False,
    patterns: Sequence[re.Pattern[str]] = (),
) -> ModelError:
    """The error to raise for a refusal, not raised yet.

    Args:
        refusal: what the provider said.
        model_id: `provider/name`, for the text and for what an empty body means.
        now: Unix seconds, to make a moment of a waiting time.
        headers: the answer's, with keys in lower case; `retry-after` is read.
        is_near_limit: see `overflow.classify`.
        patterns: see `overflow.classify`.
    """
    from agent_session.llm.overflow import classify  # noqa: PLC0415 - 0.04 s of patterns, for who is refused

    found = classify(
        refusal.status,
        refusal.text,
        code=refusal.code,
        provider=model_id.partition("/")[0],
        is_near_limit=is_near_limit,
        patterns=patterns,
    )
    wait = retry_after_seconds(headers or {}, refusal.body, now=now)
    said = (refusal.headline or "no explanation")[:_SHOWN_CHARS]
    status = f" ({refusal.status})" if refusal.status is not None and refusal.status >= 400 else ""
    if found.kind in _ADVICE:
        said = f"{said.rstrip(' .')}; {_ADVICE[found.kind]}"
    return _CLASSES.get(found.kind, ModelRequestError)(
        f"{model_id} refused the request{status}: {said}",
        kind=found.kind,
        status=refusal.status,
        code=refusal.code or None,
        body=refusal.body,
        retry_at=None if wait is None else now + wait,
        limit=found.limit,
        requested=found.requested,
        requested_output=found.requested_output,
    )


def is_near_limit(byte_count: int, model: Model) -> bool:
    """Whether a request of so many bytes is about as large as the model takes, at four bytes a token."""
    return byte_count / _BYTES_PER_TOKEN >= _NEAR_LIMIT * model.context_limit


def ended_in_error(model_id: str) -> ModelRequestError:
    """An answer whose finish reason is that it failed, and nothing says why."""
    return ModelRequestError(f"{model_id}: the provider ended its answer with an error", kind="server")


def stream_cut_error(model_id: str, why: str = "the stream ended without its final event") -> ModelRequestError:
    """A stream that broke off: what came is not the whole answer."""
    return ModelRequestError(f"{model_id}: {why}; what came before is not the whole answer", kind="stream_cut")


def silence_error(model_id: str, seconds: float) -> ModelRequestError:
    """Nothing came for too long; how long the answer takes as a whole does not matter."""
    return ModelRequestError(
        f"{model_id}: nothing came for {seconds:g} seconds; the limit is `retry.silence_seconds` in the settings, for "
        "a summary `compaction.summary_silence_seconds`",
        kind="silence",
    )


def network_error(model_id: str, where: str, why: str) -> ModelRequestError:
    """No connection, or one that broke before there was an answer."""
    return ModelRequestError(f"{model_id}: no connection to {where}: {why}", kind="network")


def retry_after_seconds(headers: Mapping[str, str], body: str = "", *, now: float) -> float | None:
    """Seconds to wait as the provider asks: its header (a number, or a date), else its words, else None."""
    if (milliseconds := _seconds(headers.get("retry-after-ms"))) is not None:
        return milliseconds / 1000
    header = headers.get("retry-after")
    if header is not None:
        if (seconds := _seconds(header)) is not None:
            return seconds
        try:
            return max(0.0, parsedate_to_datetime(header).timestamp() - now)
        except ValueError:
            pass
    if found := _RETRY_DELAY.search(body):
        return float(found.group(1))
    if found := _AGAIN_IN.search(body):
        return float(found.group(1)) * _UNIT_SECONDS[found.group(2).lower()]
    return None


_CLASSES: dict[ModelErrorKind, type[ModelError]] = {
    "overflow": ContextOverflowError,
    "overflow_bytes": ContextOverflowError,
    "rate": RateLimitError,
    "request_exceeds_rate_budget": RateLimitError,
    "auth": MissingCredentialsError,
}


def _decoded(text: str) -> Any:
    """The JSON in `text`, or None where it is none."""
    if text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return None


def _leaves(value: Any, nesting: int, key: str = "") -> Iterator[tuple[str, str]]:
    """Every text below `value` and its key, also inside JSON that is a text; numbers where they are codes or counts."""
    if isinstance(value, dict):
        for inner_key, inner in value.items():
            if inner_key not in _ECHO_KEYS:
                yield from _leaves(inner, nesting, inner_key)
    elif isinstance(value, list):
        for inner in value:
            yield from _leaves(inner, nesting, key)
    elif isinstance(value, str):
        inner = _decoded(value) if nesting > 0 else None
        if inner is None:
            yield key, value
        else:
            yield from _leaves(inner, nesting - 1, key)
    elif isinstance(value, int) and key in _CODE_KEYS:
        yield key, str(value)
    elif isinstance(value, int) and not isinstance(value, bool) and _COUNT_KEY.search(key):
        yield "count", f"{key}: {value}"


def _headline(decoded: Any, words: Sequence[str]) -> str:
    """The provider's message; where a gateway wrapped another one, the longer of the two."""
    if decoded is None:
        return " ".join(words[0].split()) if words else ""
    messages = [value for key, value in _leaves(decoded, _NESTING) if key in ("message", "msg", "detail", "error")]
    return max(messages or list(words), key=len, default="")


def _seconds(header: str | None) -> float | None:
    """A waiting time as a number; None for a date, nonsense or nothing."""
    try:
        value = float(header) if header is not None else math.nan
    except ValueError:
        return None
    return max(0.0, value) if math.isfinite(value) else None
