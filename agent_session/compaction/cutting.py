"""Cutting a text to a number of tokens: its head, its tail.

Pure. The rule it keeps: what comes out fits by the estimate that everything else is measured with, whatever the
script; no character is divided, and the cut is at the end of a line where one is near. What it costs follows what is
kept, not what is cut away.
"""

from __future__ import annotations

from collections.abc import Callable

from agent_session.compaction.text_tokens import MOST_CHARS_PER_TOKEN, estimate_text_tokens
from session_store.blobs import first_bytes, last_bytes


def head_within(text: str, most_tokens: int, *, most_bytes: int | None = None) -> str:
    """As much of the beginning as fits into `most_tokens`, and into `most_bytes` of UTF-8; "" where nothing does."""
    window = text[: _most_chars(most_tokens, most_bytes)]
    if most_bytes is not None:
        window = first_bytes(window.encode("utf-8", "surrogatepass"), most_bytes).decode("utf-8", "surrogatepass")
    part = window[: _fitting_chars(len(window), most_tokens, lambda chars: window[:chars])]
    if len(part) == len(text):
        return text
    line_end = part.rfind("\n", len(part) * 3 // 4) + 1
    return part[:line_end] if line_end else part


def tail_within(text: str, most_tokens: int, *, most_bytes: int | None = None) -> str:
    """The same of the end."""
    window = text[max(0, len(text) - _most_chars(most_tokens, most_bytes)) :]
    if most_bytes is not None:
        window = last_bytes(window.encode("utf-8", "surrogatepass"), most_bytes).decode("utf-8", "surrogatepass")
    length = len(window)
    part = window[length - _fitting_chars(length, most_tokens, lambda chars: window[length - chars :]) :]
    if len(part) == len(text) or text[len(text) - len(part) - 1] == "\n":
        return part
    return part[part.find("\n", 0, len(part) // 4) + 1 :]


def _most_chars(most_tokens: int, most_bytes: int | None) -> int:
    """More characters than this are too much in any script."""
    chars = max(0, most_tokens) * MOST_CHARS_PER_TOKEN
    return chars if most_bytes is None else min(chars, most_bytes)


def _fitting_chars(length: int, most_tokens: int, part: Callable[[int], str]) -> int:
    """How many of `length` characters fit, `part(n)` being n of them: nearly the most, found in a few estimates."""
    tokens = estimate_text_tokens(part(length))
    if tokens <= most_tokens:
        return length
    fits, fits_tokens = 0, 0
    over, over_tokens = length, tokens
    aim = most_tokens - most_tokens // 64
    while over - fits > 1 and fits_tokens < most_tokens - most_tokens // 32:
        # By proportion, and never nearer to an end than an eighth: texts of several scripts are uneven.
        margin = max(1, (over - fits) // 8)
        guess = fits + (over - fits) * (aim - fits_tokens) // (over_tokens - fits_tokens)
        guess = min(max(guess, fits + margin), over - margin)
        tokens = estimate_text_tokens(part(guess))
        if tokens <= most_tokens:
            fits, fits_tokens = guess, tokens
        else:
            over, over_tokens = guess, tokens
    return fits
