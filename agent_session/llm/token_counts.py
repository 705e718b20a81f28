"""Which numbers in a refusal count tokens, and which of them is the limit.

A number is known by the words around it: "at most 8192", "8192 tokens available" and "> 8192" name a limit, "you sent
9001" an amount, "by 305 tokens" neither. Where two numbers are left the smaller one is the limit: that the request was
larger is what the refusal says. A number that may be something else, a code or a count of bytes, is none: the session
would take it for its working limit. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from itertools import pairwise, takewhile, zip_longest
from typing import Final

_LARGEST: Final = 100_000_000
_FACTORS: Final = {"": 1, "k": 1_000, "m": 1_000_000}

_MOST_NUMBERS: Final = 50
"""How many numbers are looked at: a refusal has a few, a list of ids or vectors has thousands."""

_REACH: Final = 12
_REACH_AFTER: Final = 4
"""How many words a number is behind, or before, the one that says what it is, at most."""

# `8192`, `131,072`, `131.072`, `131 072`, `131'072`, `128k`, `5.5k`, `8192.0`; ids, dates and versions are none.
_GROUPED: Final = r"\d{1,3}(?:(?:,\d{3}){1,3}|(?:\.\d{3}){1,3}|(?:[_'\u2019]\d{3}){1,3}|(?: \d{3}){1,3})"
_NUMBER: Final = rf"(?<![A-Za-z\d_.,$€#\-])(?:{_GROUPED}|\d{{1,12}})(?:[.,]\d{{1,2}}(?=[kKM])|\.0+(?!\d))?[kKM]?"

# Letters of languages that write no blanks: a run of them is several words.
_UNSPACED: Final = r"\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3"

_PIECE: Final = re.compile(
    rf"(?P<number>{_NUMBER}(?![A-Za-z\d_]|[.:\-]\d|/\d+/|,\d))"
    rf"|(?P<run>[{_UNSPACED}]+)|(?P<word>[^\W\d{_UNSPACED}][^\W{_UNSPACED}]*)"
    r"|(?P<symbol>[<>=≤≥]+|[/+\[\](),;]|[.!?。]\s)"
)
_RANGE: Final = re.compile(rf"\[\s*\d+\s*,\s*({_NUMBER})\s*[\])]")

_TOKEN_UNIT: Final = re.compile(r"[\s\-]*(?:input |prompt )?(?:tok|jeton|token|токен|个|トークン|토큰)", re.IGNORECASE)
_OTHER_UNIT: Final = re.compile(
    r"[\s\-]*(?:%|(?:[kmgt]i?)?b(?:ytes?)?\b|char|zeichen|字符|字节|m?s\b|sec|min|hour|day|px|pixel|image|page"
    r"|messages?\b|requests?\b|times\b|retr|tools?\b|files?\b|inputs?\b(?!\s+tokens)|x\d)",
    re.IGNORECASE,
)
_NAMES_CODE: Final = re.compile(
    r"\b(?:code|status|http|line|version|request[ _]id)\W{0,3}$|\berror\s$|<$", re.IGNORECASE
)
_LONE_CODE: Final = re.compile(r"\(\d{1,4}\)\W*$")
_EXCESS_BEFORE: Final = re.compile(r"\b(?:by|um)\s+(?:about\s+)?$", re.IGNORECASE)
_EXCESS_AFTER: Final = re.compile(
    r"\s*(?:input |prompt )?tokens?\s+(?:over|beyond|above|more|too|past|longer|zu)\b(?!\s+(?:the |a |its )?\d)"
    r"|\s+more than (?:the|its|this)\b",
    re.IGNORECASE,
)

_PLUS: Final = re.compile(r"\+|\bplus\b", re.IGNORECASE)
_IS_MORE: Final = re.compile(r">|<=|≤|exceed|\b(?:greater|larger|longer|more) than|\babove\b|\bover\b", re.IGNORECASE)
_OF: Final = re.compile(
    r"\W*(?:tokens?)?\W*(?:/|(?:out )?of|von|sur|su|из)\W*(?:a |the |un |max\w* )*\W*", re.IGNORECASE
)
_VERSUS: Final = re.compile(r"\W*(?:\w+\W+){0,2}(?:vs|versus|against|compared (?:to|with))\W*", re.IGNORECASE)


class _Role(Enum):
    LIMIT = auto()
    WINDOW = auto()  # a limit where nothing says that the number is something else
    AMOUNT = auto()
    MINIMUM = auto()
    OUTPUT = auto()
    NONE = auto()


_ROLES_OF_WORDS: Final = {
    _Role.OUTPUT: (r"max_?(?:output|completion|new)?_?tokens|output\w*|completions?|generat\w+|num_predict|response",),
    _Role.MINIMUM: (r"min(?:imum|_\w+)?|least",),
    _Role.LIMIT: (
        r"max(?:imum|imal\w*|_\w+)?|limit\w*|ceiling|cap|capacity|budget|most|up|only|just|all",
        r"than|exceed\w*|surpass\w*|beyond|above|over|past|within|into|below|under|[<>]=?|[≤≥]",
        r"allow\w*|configured|permit\w*|support\w*|accepte?s?|takes?|handles?|reads?|serves?|available",
        r"m[áa]xim\w*|massim\w*|límite|лимит\w*|максим\w*|höchstens|erlaubt\w*|zulässig\w*|verarbeitet|nur",
        r"überschreitet|dépasse|supera|excede",
    ),
    _Role.AMOUNT: (
        r"ha[sd]|got|used?|uses|using|contain\w*|request(?:ed|s)?|result\w*|receiv\w*|suppl\w+|sent|send|given?",
        r"provided|actual|current|counted|needs?|needed|came|totals?|weighs|found|was|were|long",
        r"umfasst|enthält|hat|contient",
    ),
    _Role.WINDOW: (r"ctx|window|slots|[ck]onte[xk]t\w*|contesto",),
}
_ROLE_OF_WORD: Final = {role: re.compile("|".join(words), re.IGNORECASE) for role, words in _ROLES_OF_WORDS.items()}
_ROLE_IN_RUN: Final = {
    _Role.LIMIT: re.compile("最大|最多|上限|限制|超过|超出|支持|최대|超え"),
    _Role.AMOUNT: re.compile("请求|共|输入"),
}
# What the model has is its limit. Read backwards, from the number on.
_HOLDER: Final = re.compile(r"ha[sd] (?:model|deployment|engine|endpoint|window|slot|\w*ctx)", re.IGNORECASE)

# Sayings whose words would be misread one by one.
_ADDS_UP: Final = re.compile(
    r"\b(?:(?:adds?|sums?|comes?|came|amounts?)(?:\s+up)?\s+to|(?:takes?|uses?|fills?) up)\b", re.IGNORECASE
)
_ABBREVIATED: Final = re.compile(r"\b(max|min|ca|approx|vs)\.\s", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Count:
    value: int
    role: _Role
    start: int
    end: int
    names_tokens: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenCounts:
    """Tokens, None where the text does not name them.

    `requested` is compared with the limit; `output` of it is room that was asked for the answer, the rest is the input.
    `is_limit_named`: a word says so, it is no inference.
    """

    limit: int | None = None
    requested: int | None = None
    output: int = 0
    is_limit_named: bool = False


def token_counts(text: str, *, codes: str = "") -> TokenCounts:
    """The limit that `text` names and the amount above it.

    Args:
        text: what a provider said of a request, as `overflow_wording.plain` makes it.
        codes: its codes, joined by spaces: numbers among them count nothing.
    """
    text = _ABBREVIATED.sub(r"\1 ", _ADDS_UP.sub("totals", text))
    counts = _counts(text, codes)
    if comparison := _sum(text, counts) or _share(text, counts):
        return comparison
    found = _RANGE.search(text)
    limit = _value(found.group(1)) if found else _named_limit(counts)
    if limit is None:
        return _two(counts) or TokenCounts()
    requested = _above(limit, counts)
    output = _output_of(requested, limit, counts)
    return TokenCounts(limit=limit, requested=requested, output=output, is_limit_named=True)


def _output_of(requested: int | None, limit: int, counts: Sequence[_Count]) -> int:
    """What of the amount was asked for the answer, where the other numbers add up to it."""
    parts = [count for count in counts if count.value not in (requested, limit)]
    outputs = [count.value for count in parts if count.role is _Role.OUTPUT]
    # A word between two parts may seem to say it of both: the input is hardly the smaller one.
    return min(outputs, default=0) if sum(count.value for count in parts) == requested else 0


def _sum(text: str, counts: Sequence[_Count]) -> TokenCounts | None:
    """`A + B > C`, with whatever words between them."""
    for first, second, third in zip(counts, counts[1:], counts[2:], strict=False):
        between, behind = text[first.end : second.start], text[second.end : third.start]
        if _PLUS.search(between) and _IS_MORE.search(behind) and first.value + second.value > third.value:
            requested = first.value + second.value
            # In the order of the words where a word says it: "input length and `max_tokens` exceed ...: 9 + 2 > 10".
            is_with_output = any(_ROLE_OF_WORD[_Role.OUTPUT].fullmatch(word) for word in re.findall(r"\w+", text))
            output = second.value if is_with_output else 0
            return TokenCounts(limit=third.value, requested=requested, output=output, is_limit_named=True)
    return None


def _share(text: str, counts: Sequence[_Count]) -> TokenCounts | None:
    """`A of B`, `A / B`, and `A vs. B` in either order."""
    for first, second in pairwise(counts):
        is_share = first.value > second.value and _OF.fullmatch(text, first.end, second.start)
        if is_share or (first.value != second.value and _VERSUS.fullmatch(text, first.end, second.start)):
            smaller, larger = sorted((first.value, second.value))
            return TokenCounts(limit=smaller, requested=larger, is_limit_named=True)
    return None


def _named_limit(counts: Sequence[_Count]) -> int | None:
    limits = [count for count in counts if count.role in (_Role.LIMIT, _Role.WINDOW)]
    # What is larger than nothing else is hardly the limit of anything.
    passed = [limit for limit in limits if any(other.value > limit.value for other in counts)]
    for role in (_Role.LIMIT, _Role.WINDOW):
        for limit in passed or limits:
            if limit.role is role:
                return limit.value
    return None


def _two(counts: Sequence[_Count]) -> TokenCounts | None:
    """Two numbers, of which no word says which is the limit; one of them at least counts tokens."""
    ours = [count for count in counts if count.role is not _Role.OUTPUT]
    values = sorted({count.value for count in ours})
    if len(values) != 2 or not any(count.names_tokens for count in ours):
        return None
    smaller, larger = values
    # As good as named where the larger one is what was sent, and the smaller one something else.
    is_named = all((count.role is _Role.AMOUNT) == (count.value == larger) for count in ours)
    return TokenCounts(limit=smaller, requested=larger, is_limit_named=is_named)


def _above(limit: int, counts: Sequence[_Count]) -> int | None:
    return max((count.value for count in counts if count.value > limit), default=None)


def _counts(text: str, codes: str) -> list[_Count]:
    pieces = list(_PIECE.finditer(text))
    numbers = [place for place, piece in enumerate(pieces) if piece.lastgroup == "number"]
    is_alone = len(numbers) == 1
    numbers = [place for place in numbers if _may_count_tokens(text, pieces[place], codes, is_alone=is_alone)]
    half = _MOST_NUMBERS // 2
    return [
        _Count(
            value=_value(pieces[place].group()),
            role=_role(pieces, place),
            start=pieces[place].start(),
            end=pieces[place].end(),
            names_tokens=_TOKEN_UNIT.match(text, pieces[place].end()) is not None,
        )
        for place in (*numbers[:half], *numbers[half:][-half:])
    ]


def _may_count_tokens(text: str, number: re.Match[str], codes: str, *, is_alone: bool) -> bool:
    """Whether this is no code, no count of something else, and not only what is too much."""
    before = text[max(0, number.start() - 16) : number.start()]
    if number.group() in codes.split() or _NAMES_CODE.search(before):
        return False
    if is_alone and _LONE_CODE.match(text, number.start() - 1):
        return False
    if (
        _EXCESS_BEFORE.search(before)
        or _EXCESS_AFTER.match(text, number.end())
        or _OTHER_UNIT.match(text, number.end())
    ):
        return False
    return 0 < _value(number.group()) <= _LARGEST


def _role(pieces: Sequence[re.Match[str]], place: int) -> _Role:
    """By the nearest word that says it, before the number or right behind it; no further than the next number."""
    before, distance_before = _nearest(pieces[max(0, place - _REACH) : place][::-1])
    behind = takewhile(lambda piece: piece.group() != ",", pieces[place + 1 : place + 1 + _REACH_AFTER])
    after, distance_after = _nearest(list(behind))
    return after if distance_after < distance_before else before


def _nearest(pieces: Sequence[re.Match[str]]) -> tuple[_Role, int]:
    """The role that the nearest of these gives, and how far off it is."""
    weak, weak_distance = _Role.NONE, _REACH + 1
    for distance, (piece, following) in enumerate(zip_longest(pieces, pieces[1:]), start=1):
        if piece.lastgroup == "number" or piece.group()[:1] in ".!?。;":
            break
        role = _role_of(piece)
        if role is _Role.AMOUNT and following and _HOLDER.fullmatch(f"{piece.group()} {following.group()}"):
            role = _Role.LIMIT
        if role is _Role.WINDOW and weak is _Role.NONE:
            weak, weak_distance = role, distance
        elif role is _Role.OUTPUT and weak is _Role.WINDOW:
            break
        elif role not in (_Role.WINDOW, _Role.NONE):
            return role, distance
    return weak, weak_distance


def _role_of(piece: re.Match[str]) -> _Role:
    word = piece.group()
    if piece.lastgroup == "run":
        return next((role for role, shape in _ROLE_IN_RUN.items() if shape.search(word)), _Role.NONE)
    # An identifier says by its parts what it is where it does not as a whole, the last of them first.
    parts = [word, *reversed(word.split("_"))] if "_" in word else [word]
    roles = (role for part in parts for role, shape in _ROLE_OF_WORD.items() if shape.fullmatch(part))
    return next(roles, _Role.NONE)


def _value(digits: str) -> int:
    factor = _FACTORS[digits[-1].lower()] if digits[-1].isalpha() else 1
    digits = digits.rstrip("kKM")
    if re.fullmatch(_GROUPED, digits):
        return int(re.sub(r"\D", "", digits)) * factor
    return int(float(digits.replace(",", ".")) * factor)
