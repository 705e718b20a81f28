"""What a provider's refusal means: above all, whether the request was too large.

Decided by shape, not by a list of providers: `overflow_wording` says whether words name an overflow, `token_counts`
which numbers. What only looks like one is told apart here: limits per minute, settings of the output, bytes, oversized
images, broken call pairs, credentials. Pure: no clock, no network.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from agent_session.errors import ModelErrorKind
from agent_session.llm.overflow_wording import (
    counts_tokens,
    names_field,
    names_input,
    plain,
    says_too_long,
    states_limit,
)
from agent_session.llm.token_counts import token_counts


def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE | re.VERBOSE)


_URL: Final = re.compile(r"https?://\S+")

_RATE_CODE: Final = _compiled(r"rate_?limit|throttl|too_?many_?requests|resource_?exhausted")
_RATE_TEXT: Final = _compiled(
    r"per[ _-]?(min(ute)?|hour|day)\b | /[ ]?(min(ute)?|hour|day)\b | \b[TR]P[MDH]\b | rate[ ]?limit | ratenlimit"
    r"| too[ ]many[ ]requests | throttl | requests[ ]per | \b(this|each)[ ]minute\b | \bdaily\b"
    r"| please[ ]wait[ ]before | quota[ ]exceeded | 每分钟 | 每天 | 毎分 | 분당 | pro[ ](minute|stunde|tag)\b"
    r"| par[ ](minute|jour) | por[ ](minuto|día|dia) | в[ ]минуту"
)
_CREDIT: Final = _compiled(
    r"insufficient_quota | exceeded[ ]your[ ]current[ ]quota | credit[ ]balance | billing_(hard|not)"
    r"| insufficient[ _](credits?|funds|balance) | can[ ]only[ ]afford"
)
_AUTH_CODE: Final = _compiled(
    r"authentication | invalid_api_key | permission_?(error|denied) | unauthori[sz]ed | unauthenticated"
    r"| expired_?token"
)
_SERVER_CODE: Final = _compiled(
    r"server_?error | overloaded | api_error | internal | timeout | unavailable | bad_?gateway | upstream"
)

_BYTES: Final = _compiled(
    r"request[_ ]too[_ ]large | payload[ ](size|too[ ]large)"
    r"| (request|body|entity|payload)[ ](entity[ ])?(is[ ])?too[ ]large"
    r"| (message|request|body|payload|content)[ ]size\b (?!.{0,80}tokens) .{0,60} (exceed|limit|larger|maximum)"
    r"| exceeds?[ ]the[ ]maximum[ ](request[ ])?size"
)
_BYTE_COUNT: Final = _compiled(r"\d[ ]?(bytes?|[kmg]i?b)(?![a-z])")
_CHARACTER_COUNT: Final = _compiled(r"(?<!\d)(\d[\d,._ ]{0,14})[ -]?(characters?|chars?|zeichen|字符)(?![a-z])")
_STRING_LENGTH: Final = _compiled(
    r"string[ ]too[ ]long .{0,60}? maximum[ ]length[ ](\d+) | max_?length:?[ ](\d+)"
    r"| string[ ](?:value[ ])?length[ ]\(\d+\) .{0,40}? \((\d+)"
)
_CONVERSATION_FIELD: Final = _compiled(r"(messages|input)(\[\d+\]|\.\d+)\S*(content|text|output)")
_FEWEST_CHARACTERS = 10_000
_FEWEST_TOKENS = 256

_PAIRING: Final = _compiled(
    r"(tool[ _]?(use|calls?|results?|message)|function[ _]?(call|response)|thought_?signature|call_id)"
    r".{0,120} (without|missing|must[ ]be[ ]followed|did[ ]not[ ]have|preced|no[ ]matching|not[ ]found|unexpected"
    r"|duplicate|multiple|not[ ]follow|is[ ]equal|exceeds[ ]the[ ]number)"
    r"| (missing|unexpected|duplicate|no)[ ](a[ ])?`?(tool[ _]?(use|calls?|results?|responses?|output)"
    r"|function[ _]?call|thought_?signature) | signature`?[ ]in[ ]`?thinking"
    r"| number[ ]of[ ]function[ ]calls[ ]and | role[ ]'?tool'?[ ]must"
)
_MEDIA: Final = _compiled(
    r"(?<![a-z])(image|audio|video|pdf|document|file|media|attachment)s?(?![a-z])(?!s?[ ]names?\b)"
    r"| \bbild(er)?\b | 图片"
)
_MEDIA_FAULT: Final = _compiled(
    r"dimension|exceed|too[ ](large|many|big|small|long)|unsupported|not[ ]support|invalid|could[ ]not[ ]process"
    r"|unable[ ]to[ ]process|maximum|at[ ]most|corrupt|download|longer|above|zu[ ]groß|超过"
)
_TOKENS_OF_MEDIA: Final = _compiled(r"(image|audio|video)[ ]tokens? | per[ -](image|file|video)")
_OUTPUT: Final = _compiled(
    r"max_?(output_?|completion_?|new_?)?tokens(?!\w) | max(imum)?[ ](output|completion|new)[ ]tokens | output[ ]tokens"
    r"| completion[ ](tokens|length) | completions\b | num_predict | budget_tokens | tokens[ ]to[ ]generate"
    r"| max(imum)?[ ]tokens[ ](you[ ]requested|value) | requested[ ](output|completion)"
    r"| max_gen_len | generat(ion|ed)[ ](length|tokens)"
)
_SETTING_FAULT: Final = _compiled(r"\d | exceed | too[ ](large|high|big) | must | maximum | limit | greater")

_RATE_LIMIT: Final = re.compile(r"\blimit:?\s+(?:of\s+)?(\d[\d,_]*)", re.IGNORECASE)
_RATE_REQUESTED: Final = re.compile(
    r"\b(?:requested|request (?:has|of|with|contains|needs)):?\s+(\d[\d,_]*)", re.IGNORECASE
)
_BUDGET_OF_TOKENS: Final = _compiled(r"tokens?[ ]per | \bTP[MD]\b")

_EMPTY_IS_OVERFLOW: Final = frozenset({"cerebras"})

_BEGINNING_CHARS: Final = 3_000
_END_CHARS: Final = 1_000
"""How much of what was said is looked at: an explanation begins with what happened, a traceback ends with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Classification:
    """What sort of refusal. `limit` and `requested` are tokens, where the provider named them; of the latter
    `requested_output` is the room that was asked for an answer.
    """

    kind: ModelErrorKind
    limit: int | None = None
    requested: int | None = None
    requested_output: int = 0


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
        text: everything the provider said (`failures.read_refusal` gathers it from a body).
        code: its codes and types, joined by spaces.
        provider: decides, with `is_near_limit`, what an empty body means.
        is_near_limit: whether the request was, by estimate, about as large as the model takes.
        patterns: texts the user knows to be overflows; they win over everything else.
    """
    said = _looked_at(text)
    if any(pattern.search(text) for pattern in patterns):
        return _overflow(said, code)
    if status == 402 or _CREDIT.search(code) or _CREDIT.search(said):
        return Classification(kind="auth")
    if status in (401, 403) or _AUTH_CODE.search(code):
        return Classification(kind="auth")
    if status == 429 or _RATE_CODE.search(code) or _RATE_TEXT.search(said):
        return _rate(said)
    if says_too_long(plain(code)) and not _OUTPUT.search(code):
        return _overflow(said, code)
    if not said.strip() and status in (400, 413) and (provider in _EMPTY_IS_OVERFLOW or is_near_limit):
        return Classification(kind="overflow")
    if kind := _kind_by_text(said, code):
        if kind in ("output_setting", "bad_request") and status is not None and status >= 500:
            return Classification(kind="server")
        return _overflow(said, code) if kind == "overflow" else Classification(kind=kind)
    if status == 413 or _BYTES.search(code):
        return Classification(kind="overflow_bytes")
    return Classification(kind=_kind_by_status(status, code))


def _looked_at(text: str) -> str:
    """The parts of a long text that say what happened, without addresses, which say other things."""
    if len(text) > _BEGINNING_CHARS + _END_CHARS:
        # Whole words and lines: half a number would be another one.
        beginning = text[:_BEGINNING_CHARS].rpartition(" ")[0] or text[:_BEGINNING_CHARS]
        _, _, last_lines = text[-_END_CHARS:].partition("\n")
        text = f"{beginning}\n{last_lines}"
    return plain(_URL.sub(" ", text))


def _kind_by_text(said: str, code: str) -> ModelErrorKind | None:
    """The look-alikes first, then the shape of an overflow; numbers that say it outright come before both."""
    counts = token_counts(said, codes=code)
    has_tokens = counts_tokens(said)
    is_about_input = names_input(_OUTPUT.sub(" ", said))
    is_compared = counts.is_limit_named and counts.requested is not None
    compares = is_compared and has_tokens and not _TOKENS_OF_MEDIA.search(said)
    if compares and is_about_input and (counts.limit or 0) >= _FEWEST_TOKENS:
        return "overflow"
    if _PAIRING.search(said):
        return "pairing"
    if kind := _kind_of_size(said, has_tokens=has_tokens):
        return kind
    if names_field(said):
        return "bad_request"
    if _OUTPUT.search(said) and not is_about_input:
        return "output_setting" if _SETTING_FAULT.search(_OUTPUT.sub(" ", said)) else None
    return "overflow" if compares or says_too_long(said) else None


def _kind_by_status(status: int | None, code: str) -> ModelErrorKind:
    if status is not None and status >= 500:
        return "server"
    if status is not None and status >= 400:
        return "bad_request"
    if re.search(r"invalid_?(request|argument)|bad_?request|not_?found", code, re.IGNORECASE):
        return "bad_request"
    # An error inside a stream: the request had been accepted, so it is the provider's.
    return "server" if status is not None or _SERVER_CODE.search(code) else "unknown"


def _kind_of_size(said: str, *, has_tokens: bool) -> ModelErrorKind | None:
    """Something too large that is not counted in tokens: a picture, a body, a text in characters."""
    if _MEDIA.search(said) and _MEDIA_FAULT.search(said) and (not has_tokens or _TOKENS_OF_MEDIA.search(said)):
        return "content"
    if has_tokens:
        return None
    if found := _STRING_LENGTH.search(said):
        is_conversation = _CONVERSATION_FIELD.search(said) or "string too long" not in said.lower()
        return "overflow_bytes" if is_conversation and _first_number(found) >= _FEWEST_CHARACTERS else "bad_request"
    if _BYTES.search(said) or (_BYTE_COUNT.search(said) and (states_limit(said) or "limit" in said.lower())):
        return "overflow_bytes"
    if (found := _CHARACTER_COUNT.search(said)) and states_limit(said):
        return "overflow_bytes" if _first_number(found) >= _FEWEST_CHARACTERS else "bad_request"
    return None


def _rate(said: str) -> Classification:
    """A limit per minute; a single request above the whole minute's budget is told apart."""
    limit, requested = _RATE_LIMIT.search(said), _RATE_REQUESTED.search(said)
    if limit and requested and _BUDGET_OF_TOKENS.search(said):
        allowed, asked = _first_number(limit), _first_number(requested)
        if asked > allowed:
            return Classification(kind="request_exceeds_rate_budget", limit=allowed, requested=asked)
    return Classification(kind="rate")


def _overflow(said: str, code: str) -> Classification:
    counts = token_counts(said, codes=code)
    return Classification(
        kind="overflow", limit=counts.limit, requested=counts.requested, requested_output=counts.output
    )


def _first_number(found: re.Match[str]) -> int:
    return next((int(number) for group in found.groups() if group and (number := re.sub(r"\D", "", group))), 0)
