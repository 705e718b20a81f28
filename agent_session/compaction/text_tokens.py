"""How many tokens a text takes, without the tokenizer that knows.

The rule it keeps: an estimate leans to the dense side, since one that is too low ends in a refused request. Byte pair
encoders do not count characters: they split a text where letters, digits, signs and spaces meet, and spend about a
token on each piece. So the pieces are counted, by kind, and weighed. That holds for prose, code, JSON, logs,
identifiers and base64 alike, where "four characters a token" is off by up to three. Scripts other than Latin are
weighed by the character, and a long piece of one kind (forty letters without a break are no word) by how many symbols
it has.

All weights are hundredths of a token, fitted by least squares to two public encoders (cl100k, o200k) over source
files, documents, logs and random strings; where the two differ, the denser counts. `scripts/bench/token_estimate.py`
prints the error. Linear in the text, and done by methods of `bytes` and `int` that run at memory speed, never
character by character.
"""

from __future__ import annotations

from typing import Final

CHARS_PER_TOKEN = 4

MOST_CHARS_PER_TOKEN = 24
"""More characters than this are more than a token in any text: the cheapest are runs of spaces, 21 a token."""

# The kinds of characters; each is one bit, so that a shift and a mask find where a piece begins.
_LOWER, _UPPER, _DIGIT, _SPACE, _NEWLINE, _SIGN, _OTHER = (1 << bit for bit in range(7))

_PIECE = 31
_PIECE_OF: Final = {_LOWER | _SIGN: 24, _UPPER | _DIGIT: 68}
"""Beyond the weight of any piece."""

_CHARACTER = 4
_ALL_BUT_WORDS = 20
"""Beyond the weight of any character, for capitals, digits and signs."""

# Characters beyond ASCII, by the first byte of their UTF-8 form, the common ones first.
_SCRIPTS: Final = (
    (100, range(0xE3, 0xEE)),  # kana, ideographs, Hangul
    (36, range(0xD0, 0xD5)),  # Cyrillic
    (70, range(0xD8, 0xDC)),  # Arabic
    (10, range(0xC2, 0xCD)),  # accented Latin; it parts its word in two, which weighs more
    (90, (0xE0, 0xE2, 0xEE, 0xEF, *range(0xCD, 0xD0), *range(0xD5, 0xD8))),  # Indic, Thai, Greek, Hebrew, signs, boxes
    (260, range(0xF0, 0xF8)),  # emoji, rare ideographs
    (190, (0xE1, *range(0xDC, 0xE0))),  # Vietnamese tones, Georgian, Ethiopic, Syriac
)

_LONG_PIECE = 40
_PLAIN = 100 // CHARS_PER_TOKEN
_OPAQUE: Final = {_LOWER: 50, _UPPER: 62, _DIGIT: 34, _SIGN: 60}
"""For each character of a long piece with more than two symbols; one with fewer keeps the plain rule."""

_AT_ONCE = 1 << 16
"""Characters, so that what is worked on stays in the processor's cache."""

_ASCII: Final = bytes(range(0x80))
_CONTINUING: Final = bytes(range(0x80, 0xC0))


def _kind(byte: int) -> int:
    character = chr(byte)
    if byte >= 0x80:
        return _OTHER
    if character.isalpha():
        return _LOWER if character.islower() else _UPPER
    if character.isdigit():
        return _DIGIT
    if character in "\r\n":
        return _NEWLINE
    if character in " \t":
        return _SPACE
    # A control character is a piece of its own before any sign, as a capital is.
    return _SIGN if character.isprintable() else _UPPER


_KINDS: Final = bytes(map(_kind, range(0x100)))
_SCRIPT_OF: Final = bytes(
    next((number for number, (_, leads) in enumerate(_SCRIPTS) if byte in leads), 0) for byte in range(0x100)
)

_MASK: Final = {
    kind: int.from_bytes(bytes([kind]) * _AT_ONCE, "little") for kind in (*_PIECE_OF, _UPPER | _DIGIT | _SIGN)
}
"""Counting bits under a mask takes the same time for any text; `bytes.count` takes twice as long for a random one."""


def estimate_chars_as_tokens(text: str) -> int:
    """The plain rule alone, four characters a token, rounded up."""
    return -(-len(text) // CHARS_PER_TOKEN)


def estimate_text_tokens(text: str) -> int:
    """Tokens of `text` in any script, rounded up; 0 for no text. More text is never fewer tokens."""
    hundredths = 0
    for start in range(0, len(text), _AT_ONCE):
        hundredths += _hundredths(text[start : start + _AT_ONCE])
    return -(-hundredths // 100)


def _hundredths(text: str) -> int:
    raw = text.encode("utf-8", "surrogatepass")
    is_ascii = len(raw) == len(text)
    kinds = raw.translate(_KINDS) if is_ascii else raw.translate(_KINDS, _CONTINUING)
    characters = int.from_bytes(kinds, "little")
    # Each character's bit, without the bit of the character before it: set where a piece begins.
    pieces = characters ^ (characters & characters << 8)
    hundredths = _CHARACTER * len(kinds) + _PIECE * pieces.bit_count()
    hundredths += _ALL_BUT_WORDS * (characters & _MASK[_UPPER | _DIGIT | _SIGN]).bit_count()
    for kind, weight in _PIECE_OF.items():
        hundredths += weight * (pieces & _MASK[kind]).bit_count()
    hundredths += _surplus_of_long_pieces(text, kinds, pieces.to_bytes(len(kinds), "little"))
    return hundredths if is_ascii else hundredths + _surplus_of_scripts(raw)


def _surplus_of_long_pieces(text: str, kinds: bytes, beginnings: bytes) -> int:
    """What pieces without a break take beyond the weight of their characters. One of `kinds` is one of `text`."""
    unbroken = bytes(_LONG_PIECE - 1)
    hundredths, found = 0, beginnings.find(unbroken)
    while found >= 0:
        start, end = found - 1, _end_of(beginnings, found)
        kind = kinds[start]
        if kind != _OTHER:
            is_plain = kind not in _OPAQUE or _has_two_symbols(text[start:end])
            weight = (end - start) * (_PLAIN if is_plain else _OPAQUE[kind])
            counted = (end - start) * (_CHARACTER + (_ALL_BUT_WORDS if kind in (_UPPER, _DIGIT, _SIGN) else 0))
            hundredths += max(0, weight - counted - _PIECE - _piece_weight(kind))
        found = beginnings.find(unbroken, end)
    return hundredths


def _piece_weight(kind: int) -> int:
    return sum(weight for kinds, weight in _PIECE_OF.items() if kind & kinds)


def _end_of(beginnings: bytes, start: int) -> int:
    """Where the next piece begins."""
    width = _LONG_PIECE
    while True:
        left = len(beginnings[start : start + width].lstrip(b"\0"))
        start += width
        if left or start >= len(beginnings):
            return min(start, len(beginnings)) - left
        width *= 2


def _has_two_symbols(piece: str) -> bool:
    """Or one."""
    others = piece.lstrip(piece[0])
    return not others.lstrip(piece[0] + others[:1])


def _surplus_of_scripts(raw: bytes) -> int:
    """What characters beyond ASCII take beyond the weight of any character."""
    scripts = raw.translate(_SCRIPT_OF, _ASCII + _CONTINUING)
    hundredths, left = 0, len(scripts)
    for number, (weight, _) in enumerate(_SCRIPTS):
        if not left:
            break
        count = scripts.count(number)
        hundredths += weight * count
        left -= count
    return hundredths
