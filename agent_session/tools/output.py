"""How much of a text a model is shown, and where the rest is.

The rule: what is cut says so, at the place of the cut, with the way to the full text; a cut never divides
a character. Lines end with a line feed; bytes are those of UTF-8.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from session_store.blobs import BlobStore, first_bytes, last_bytes
from session_store.json_lines import replace_surrogates

MAX_LINES = 2_000
MAX_BYTES = 50 * 1024

Keep: TypeAlias = Literal["head", "tail"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """The part of a text that is shown. `first_line` and `last_line` count from 1, both included.

    `is_line_divided`: one line alone was more than the bytes allowed, so the cut lies inside it.
    """

    text: str
    first_line: int
    last_line: int
    total_lines: int
    total_bytes: int
    is_cut: bool = False
    is_line_divided: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundedText:
    """`text` with its pointer line, where it was cut; `full_text` is then the file with all of it."""

    text: str
    cut: Cut
    full_text: Path | None = None


def bound(
    text: str, blobs: BlobStore, *, max_lines: int = MAX_LINES, max_bytes: int = MAX_BYTES, keep: Keep = "head"
) -> BoundedText:
    """The text if it is small, else its head or tail and a line that names the file with all of it.

    Writes that file: call it from a thread.

    Raises:
        OSError: the full text could not be stored.
    """
    text = replace_surrogates(text)
    part = cut(text, max_lines=max_lines, max_bytes=max_bytes, keep=keep)
    if not part.is_cut:
        return BoundedText(text=text, cut=part)
    path = blobs.put(text)
    which = f"lines {part.first_line:,}-{part.last_line:,}"
    if part.is_line_divided:
        which = f"the {'start' if keep == 'head' else 'end'} of line {part.first_line:,}"
    pointer = (
        f"[output cut: this is {which} of {part.total_lines:,} ({part.total_bytes:,} bytes in all). "
        f"Full text, to be read with offset and limit: {path}]"
    )
    shown = f"{part.text.rstrip(chr(10))}\n{pointer}" if keep == "head" else f"{pointer}\n{part.text}"
    return BoundedText(text=shown, cut=part, full_text=path)


def cut(text: str, *, max_lines: int = MAX_LINES, max_bytes: int = MAX_BYTES, keep: Keep = "head") -> Cut:
    """The first or last whole lines that fit into both limits; a piece of one line where not even that fits."""
    data = text.encode("utf-8", "replace")
    total = count_lines(data)
    if len(data) <= max_bytes and total <= max_lines:
        return Cut(text=text, first_line=min(1, total), last_line=total, total_lines=total, total_bytes=len(data))
    window, is_divided = _head(data, max_bytes) if keep == "head" else _tail(data, max_bytes)
    lines = _lines(window)[:max_lines] if keep == "head" else _lines(window)[-max_lines:]
    first = 1 if keep == "head" else total - len(lines) + 1
    return Cut(
        text=b"".join(lines).decode("utf-8", "replace"),
        first_line=first,
        last_line=first + len(lines) - 1,
        total_lines=total,
        total_bytes=len(data),
        is_cut=True,
        is_line_divided=is_divided,
    )


def count_lines(data: bytes) -> int:
    return data.count(b"\n") + (0 if not data or data.endswith(b"\n") else 1)


def _head(data: bytes, max_bytes: int) -> tuple[bytes, bool]:
    if len(data) <= max_bytes:
        return data, False
    end = data.rfind(b"\n", 0, max_bytes)
    if end >= 0:
        return data[: end + 1], False
    return first_bytes(data, max_bytes), True


def _tail(data: bytes, max_bytes: int) -> tuple[bytes, bool]:
    start = len(data) - max_bytes
    if start <= 0:
        return data, False
    newline = data.find(b"\n", start - 1, len(data) - 1)  # the last byte's newline ends a line, it starts none
    if newline >= 0:
        return data[newline + 1 :], False
    return last_bytes(data, max_bytes), True


def _lines(data: bytes) -> list[bytes]:
    r"""Split after "\n" only: `splitlines` would also split at a carriage return, and the numbers would be off."""
    parts = data.split(b"\n")
    return [part + b"\n" for part in parts[:-1]] + [part for part in parts[-1:] if part]
