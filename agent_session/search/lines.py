"""Matching the lines of one file after the other, with what stands around them.

The rule: memory does not grow with a file. A file of up to `CHUNK_BYTES` is one block of lines, a larger one several.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

from agent_session.search.requests import GrepRequest, RequestError

CHUNK_BYTES = 16 * 1024 * 1024
SNIFFED_BYTES = 8 * 1024

SHOWN_CHARACTERS = 400
"""Of a longer line the part around the match is shown."""

MAX_OUTPUT_CHARACTERS = 4_000_000
"""With many lines of context a few thousand matches would be more than anybody reads."""

SEPARATOR = "--"

_SPECIAL = frozenset(r".^$*+?{}[]\|()")


class NotTextError(Exception):
    """The file holds a null byte, or a line longer than a block."""


class LineSearch:
    """Collects matching lines as `path:number: text`, and those around them as `path-number- text`."""

    def __init__(self, request: GrepRequest) -> None:
        """Raises: RequestError: the pattern is empty, or no regular expression, or has more than one line."""
        self.lines: list[str] = []
        self.matches = 0
        self.is_limited = False
        self._limit = request.limit
        self._context = request.context
        self._characters = 0
        self._search = _compiled(request).search
        self._needle: bytes | None = None
        if not request.ignores_case and (request.is_literal or _SPECIAL.isdisjoint(request.pattern)):
            self._needle = request.pattern.encode("utf-8", "surrogatepass")

    def look_into(self, file: BinaryIO, shown: str) -> None:
        """Raises: NotTextError; what was found before stays."""
        last, until = -1, -1  # the last line that was shown, and the last one to be shown after a match
        number = 1
        carried: list[str] = []  # the end of the block before: lines that may have to be shown
        for block in self._blocks(file):
            fresh = _lines(block, is_first=number == 1)
            block_lines = carried + fresh
            first = number - len(carried)
            for hit in [n for n, line in enumerate(fresh, number) if self._search(line)]:
                for n in range(last + 1, min(until, hit - 1) + 1):
                    self._show_context(shown, n, block_lines[n - first])
                    last = n
                if self.matches == self._limit or self._characters > MAX_OUTPUT_CHARACTERS:
                    self.is_limited = True
                    return
                start = max(first, hit - self._context, last + 1)
                if self._context and self.lines and start != last + 1:
                    self.lines.append(SEPARATOR)
                for n in range(start, hit):
                    self._show_context(shown, n, block_lines[n - first])
                self._show_match(shown, hit, block_lines[hit - first])
                last, until = hit, hit + self._context
            number += len(fresh)
            for n in range(last + 1, min(until, number - 1) + 1):
                self._show_context(shown, n, block_lines[n - first])
                last = n
            carried = block_lines[-self._context :] if self._context else []

    def _blocks(self, file: BinaryIO) -> Iterator[bytes]:
        size = os.fstat(file.fileno()).st_size
        for count, block in enumerate(_blocks(file)):
            if count == 0 and b"\0" in block[:SNIFFED_BYTES]:
                raise NotTextError
            # A plain text that is not in the whole file is in none of its lines.
            if self._needle is not None and len(block) == size and self._needle not in block:
                return
            yield block

    def _show_match(self, shown: str, number: int, line: str) -> None:
        found = self._search(line)
        self._show(f"{shown}:{number}: {_excerpt(line, found.start() if found else 0)}")
        self.matches += 1

    def _show_context(self, shown: str, number: int, line: str) -> None:
        self._show(f"{shown}-{number}- {_excerpt(line, 0)}")

    def _show(self, line: str) -> None:
        self.lines.append(line)
        self._characters += len(line)


@contextmanager
def opened(path: str) -> Iterator[BinaryIO]:
    """The file, to be read.

    Raises:
        OSError: it cannot be opened, or is a symlink, a folder, a pipe or a device.
    """
    # Not blocking, since opening a pipe waits for a writer; judged when open, since a name can change.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError("not a file")
        yield file


def _compiled(request: GrepRequest) -> re.Pattern[str]:
    if not request.pattern:
        raise RequestError("the pattern is empty: it would match every line")
    if "\n" in request.pattern:
        raise RequestError(
            "the pattern has more than one line, and lines are matched one by one: search for one of them"
        )
    flags = re.IGNORECASE if request.ignores_case else re.NOFLAG
    try:
        return re.compile(re.escape(request.pattern) if request.is_literal else request.pattern, flags)
    except (re.error, OverflowError, RecursionError) as error:
        raise RequestError(
            f"{request.pattern!r} is no regular expression of Python's: {error}; literal=true takes it as plain text"
        ) from error


def _blocks(file: BinaryIO) -> Iterator[bytes]:
    """Whole lines, about `CHUNK_BYTES` of them at a time."""
    rest = b""
    while len(chunk := file.read(CHUNK_BYTES)) == CHUNK_BYTES:
        end = chunk.rfind(b"\n") + 1
        if not end:
            raise NotTextError
        yield rest + chunk[:end]
        rest = chunk[end:]
    if rest or chunk:
        yield rest + chunk


def _lines(block: bytes, *, is_first: bool) -> list[str]:
    r"""Split after "\n" only, as the other tools count; without the carriage returns of "\r\n"."""
    text = block.decode("utf-8", "replace").replace("\r\n", "\n").removesuffix("\n")
    return (text.removeprefix("\ufeff") if is_first else text).split("\n")


def _excerpt(line: str, position: int) -> str:
    if len(line) <= SHOWN_CHARACTERS:
        return line
    start = max(0, min(position - SHOWN_CHARACTERS // 4, len(line) - SHOWN_CHARACTERS))
    end = start + SHOWN_CHARACTERS
    return f"{'…' if start else ''}{line[start:end]}{'…' if end < len(line) else ''}"
