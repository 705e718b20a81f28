"""What a provider's refusal means: above all, whether the request was too large.

Decided by shape, not by a list of providers: an overflow names a quantity of input (prompt, messages, context,
tokens) together with a limit that it passed. What only looks like it is told apart first: limits per minute,
settings of the output, oversized images, broken call pairs, credentials. The whole body is read, JSON inside
strings included, since gateways wrap the upstream's words. Pure: no clock, no network.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from agent_session.errors import ModelErrorKind

_OVERFLOW_FINISH: Final = frozenset({"model_context_window_exceeded", "model_length"})


def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE | re.VERBOSE)


_RATE_CODE = _compiled(r"rate_?limit|throttl|too_?many_?requests|resource_?exhausted|overloaded_rate")
_RATE_TEXT = _compiled(
    r"per[ ]min(ute)?\b | \b[TR]P[MD]\b | rate[ ]?limit | too[ ]many[ ]requests | throttl | requests[ ]per"
    r"| please[ ]wait[ ]before | quota[ ]exceeded"
)
_CREDIT = _compiled(
    r"insufficient_quota | exceeded[ ]your[ ]current[ ]quota | credit[ ]balance | billing_(hard|not)"
    r"| insufficient[ _](credits?|funds|balance)"
)
_AUTH_CODE = _compiled(r"authentication|invalid_api_key|permission_?(error|denied)|unauthori[sz]ed|unauthenticated")
_SERVER_CODE = _compiled(
    r"server_?error | overloaded | api_error | internal | timeout | unavailable | bad_?gateway | upstream"
)

_OVERFLOW_CODE = _compiled(
    r"context_?(length|window|size)_?exceed | exceed\w*_context | (prompt|input)\w*_(exceed|too_(long|large))"
    r"| max_(prompt|input)_tokens_exceed"
)
_BYTES = _compiled(
    r"request_too_large | payload[ ](size|too[ ]large)"
    r"| (request|body|entity|payload)[ ](entity[ ])?(is[ ])?too[ ]large"
    r"| (message|request|body|payload|content)[ ]size\b (?!.{0,80}tokens) .{0,60} (exceed|limit|larger|maximum)"
    r"| exceeds?[ ]the[ ]maximum[ ](request[ ])?size | \d[ ]?(bytes|[kmg]i?b)\b .{0,40} (exceed|limit|maximum|>)"
    r"| (exceed|limit|maximum|larger[ ]than) .{0,40} \d[ ]?(bytes|[kmg]i?b)\b"
)
_LONG_STRING = _compiled(r"(messages|input)(\[\d+\]|\.\d+)\S*(content|text|output)\S* .{0,10} string[ ]too[ ]long")
_PAIRING = _compiled(
    r"(tool_?(use|calls?|result)|tool[ ](calls?|results?|message)|function[ ]?call|thought_?signature|call_id)"
    r".{0,120} (without|missing|must[ ]be[ ]followed|did[ ]not[ ]have|preced|no[ ]matching|not[ ]found|unexpected"
    r"|duplicate)"
    r"| (missing|unexpected|duplicate|no)[ ](a[ ])?`?(tool_?(use|calls?|result|output)|tool[ ](calls?|results?|output)"
    r"|function[ ]?call|thought_?signature) | signature[ ]in[ ]thinking"
)
_MEDIA = _compiled(r"\b(images?|audio|video|pdf|document|file|media|attachment)s?\b")
_MEDIA_FAULT = _compiled(
    r"dimension|exceed|too[ ](large|many|big|small)|unsupported|not[ ]supported|invalid|could[ ]not[ ]process"
    r"|unable[ ]to[ ]process|maximum|at[ ]most|corrupt|download"
)
_TOKENS = _compiled(r"\btokens?\b | context[ ](length|window) | prompt[ ]is[ ]too[ ]long")
_OUTPUT = _compiled(
    r"max_?(output_?|completion_?|new_?)?tokens(?!\w) | max[ ](output|completion|new)[ ]tokens | output[ ]tokens"
    r"| completion[ ]tokens"
)

_INPUT = _compiled(r"\b(prompts?|inputs?|messages?|context|conversation|requests?|requested|history)\b")
_MEASURE = _compiled(
    r"\btokens?\b | \blength\b | \bcontext[ ](window|size|limit|length)\b | too[ ](long|large) | \bwindow\b"
)
_PASSED = _compiled(
    r"exceed | too[ ](long|large|many|big) | (longer|larger|greater|more)[ ]than | reduce[ ]the[ ]length"
    r"| \bmaximum\b | \bmax[ ](context|prompt|input) | must[ ]be[ ]<= | should[ ]be[ ]\["
    r"| must[ ]have[ ](less|fewer)[ ]than | \d[ ](tokens?[ ])?>[ ]?\d"
    r"| token[ ]limit | over[ ]the[ ]limit | (beyond|above)[ ]the | does[ ]not[ ]fit | at[ ]most"
)
_INPUT_OF_OUTPUT = _compiled(r"\b(prompts?|inputs?|messages?|context|conversation|history)\b")

_NUMBER: Final = r"(?<![\w.\-])(\d{1,3}(?:[,_]\d{3})+|\d+)(?![\w\-])(?!\.\d)"
_ANY_NUMBER = re.compile(_NUMBER)
_SUM = re.compile(rf"{_NUMBER}\s*\+\s*{_NUMBER}\s*>\s*{_NUMBER}")
_RANGE = re.compile(rf"\[\s*\d+\s*,\s*{_NUMBER}\s*\]")
_COMPARED = re.compile(rf"(?:>|<=|≤)\s*{_NUMBER}")
_BEFORE_MAXIMUM = re.compile(rf"{_NUMBER}\s+(?:tokens?\s+)?max(?:imum)?\b", re.IGNORECASE)
_AFTER_MAXIMUM = re.compile(
    r"(?:\bmax(?:imum)?\b|\blimit\b|context (?:length|window|size)|\ballowed\b|up to|(?:less|fewer) than)"
    rf"(?:(?!\bby\b)[^\d]){{0,40}}?{_NUMBER}",
    re.IGNORECASE,
)
_RATE_LIMIT = re.compile(rf"\blimit:?\s+{_NUMBER}", re.IGNORECASE)
_RATE_REQUESTED = re.compile(rf"\brequested:?\s+{_NUMBER}", re.IGNORECASE)
_PER_MINUTE_TOKENS = _compiled(r"tokens[ ]per | \bTPM\b")

_EMPTY_IS_OVERFLOW: Final = frozenset({"cerebras"})
_LARGEST_LIMIT = 100_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Classification:
    """What sort of refusal. `limit` and `requested` are tokens, where the provider named them."""

    kind: ModelErrorKind
    limit: int | None = None
    requested: int | None = None


def classify(
    status: int | None,
    text: str,
    *,
    code: str = "",
    provider: str = "",
    is_near_limit: bool = False,
    patterns: Sequence[re.Pattern[str]] = (),
) -> Classification:
    """What a refusal means.

    Args:
        status: the HTTP status; None or 200 for an error inside a stream.
        text: everything the provider said (`refusal.words_of` gathers it from a body).
        code: its codes and types, joined by spaces.
        provider: decides, with `is_near_limit`, what an empty body means.
        is_near_limit: whether the request was, by estimate, about as large as the model takes.
        patterns: texts the user knows to be overflows; they win over everything else.
    """
    if any(pattern.search(text) for pattern in patterns):
        return _overflow(text)
    if status == 402 or _CREDIT.search(code) or _CREDIT.search(text):
        return Classification(kind="auth")
    if status in (401, 403) or _AUTH_CODE.search(code):
        return Classification(kind="auth")
    if status == 429 or _RATE_CODE.search(code) or _RATE_TEXT.search(text):
        return _rate(text)
    if _OVERFLOW_CODE.search(code):
        return _overflow(text)
    if not text.strip() and status in (400, 413) and (provider in _EMPTY_IS_OVERFLOW or is_near_limit):
        return Classification(kind="overflow")
    if kind := _kind_by_text(text):
        return _overflow(text) if kind == "overflow" else Classification(kind=kind)
    if status == 413 or _BYTES.search(code):
        return Classification(kind="overflow_bytes")
    return Classification(kind=_kind_by_status(status, code))


def is_overflow_finish(raw: str) -> bool:
    """Whether a finish reason says that the window was full."""
    return raw.lower() in _OVERFLOW_FINISH


def _kind_by_text(text: str) -> ModelErrorKind | None:
    """The look-alikes first, then the shape of an overflow."""
    if _PAIRING.search(text):
        return "pairing"
    counts_tokens = _TOKENS.search(text) is not None
    if _MEDIA.search(text) and _MEDIA_FAULT.search(text) and not counts_tokens:
        return "content"
    if not counts_tokens and (_BYTES.search(text) or _is_giant_string(text)):
        return "overflow_bytes"
    if "string too long" in text.lower():
        return "bad_request"
    if _OUTPUT.search(text) and not _INPUT_OF_OUTPUT.search(_without_output_words(text)):
        return "output_setting"
    if _INPUT.search(text) and _MEASURE.search(text) and _PASSED.search(text):
        return "overflow"
    return None


def _kind_by_status(status: int | None, code: str) -> ModelErrorKind:
    if status is not None and status >= 500:
        return "server"
    if status is not None and status >= 400:
        return "bad_request"
    if re.search(r"invalid_?(request|argument)|bad_?request|not_?found", code, re.IGNORECASE):
        return "bad_request"
    # An error inside a stream: the request had been accepted, so it is the provider's.
    return "server" if status is not None or _SERVER_CODE.search(code) else "unknown"


def _is_giant_string(text: str) -> bool:
    """A message's text longer than the provider takes in characters; a short limit is about ids and names."""
    if not _LONG_STRING.search(text):
        return False
    limit = _first_number(_AFTER_MAXIMUM, text)
    return limit is not None and limit >= 10_000


def _without_output_words(text: str) -> str:
    return _OUTPUT.sub(" ", text)


def _rate(text: str) -> Classification:
    """A limit per minute; a single request above the whole minute's budget is told apart."""
    limit = _first_number(_RATE_LIMIT, text)
    requested = _first_number(_RATE_REQUESTED, text)
    if limit is not None and requested is not None and requested > limit and _PER_MINUTE_TOKENS.search(text):
        return Classification(kind="request_exceeds_rate_budget", limit=limit, requested=requested)
    return Classification(kind="rate")


def _overflow(text: str) -> Classification:
    """The limit by the words around it, the request as the largest number above the limit."""
    if total := _SUM.search(text):
        first, second, limit_text = (_number(group) for group in total.groups())
        return Classification(kind="overflow", limit=limit_text, requested=first + second)
    limit: int | None = None
    for shape in (_RANGE, _COMPARED, _AFTER_MAXIMUM, _BEFORE_MAXIMUM):
        limit = _first_number(shape, text)
        if limit is not None:
            break
    if limit is None:
        return Classification(kind="overflow")
    above = [
        number for found in _ANY_NUMBER.finditer(text) if limit < (number := _number(found.group(1))) <= _LARGEST_LIMIT
    ]
    return Classification(kind="overflow", limit=limit, requested=max(above, default=None))


def _first_number(shape: re.Pattern[str], text: str) -> int | None:
    found = shape.search(text)
    if found is None:
        return None
    number = _number(found.group(1))
    return number if 0 < number <= _LARGEST_LIMIT else None


def _number(digits: str) -> int:
    return int(digits.replace(",", "").replace("_", ""))
