"""One row of a list of sessions, made of the head and the tail of a file.

Whatever is in the file, there is a row: what is damaged says so in it. Memory and time are bounded by the
two parts that are read, never by the file.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path

from session_store.codec import decode_content, decode_header, parse_line
from session_store.entries import SessionHeader
from session_store.errors import UnsupportedVersionError
from session_store.json_lines import is_json_value, replace_surrogates
from session_store.locations import id_in_name
from session_store.messages import text_of
from session_store.migrations import version_of
from session_store.showing import Brief

_PART_BYTES = 32 * 1024
_FIRST_MESSAGE_CHARACTERS = 200

# The beginning of the text in a line that goes on behind the head.
_CUT_TEXT = re.compile(rb'"role":"user".*?"(?:text|content)":("(?:[^"\\]|\\.)*)', re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SessionInfo(Brief):
    """What head and tail of a session's file say.

    `created` is the header's ISO time, `modified` the file's in Unix seconds, `size` in bytes. `name` is the
    newest that was seen; `first_message` the beginning of the first user message, "" where it is not in the
    head. `message_count` is None for a file too large to be read whole. `damaged` says what is wrong, if anything
    was seen to be.
    """

    path: Path
    id: str
    cwd: str
    name: str | None
    created: str
    modified: float
    first_message: str
    message_count: int | None
    size: int
    damaged: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Glimpse:
    """The lines of the head (of the whole file where it is small) and of the tail, without their newlines.

    `cut` is the line at which the head ends, `rest` what follows the last newline of the file.
    """

    head: list[bytes]
    tail: list[bytes]
    cut: bytes
    rest: bytes
    is_whole: bool
    size: int
    modified: float


def describe(path: Path) -> SessionInfo:
    """The row of one file. Never raises for what is in the file, or for one that cannot be read."""
    try:
        glimpse = _look_at(path)
    except OSError as error:
        return SessionInfo(
            path=path,
            id=id_in_name(path),
            cwd="",
            name=None,
            created="",
            modified=0.0,
            first_message="",
            message_count=None,
            size=0,
            damaged=f"cannot be read: {error.strerror}",
        )
    header = _header_of(glimpse)
    return SessionInfo(
        path=path,
        id=(header.id if header else "") or id_in_name(path),
        cwd=header.cwd if header else "",
        name=_name_of(glimpse),
        created=header.timestamp if header else "",
        modified=glimpse.modified,
        first_message=_first_message(glimpse)[:_FIRST_MESSAGE_CHARACTERS],
        message_count=_message_count(glimpse),
        size=glimpse.size,
        damaged=_damage_of(glimpse, path),
    )


def _look_at(path: Path) -> _Glimpse:
    with path.open("rb", buffering=0) as file:
        status = os.fstat(file.fileno())
        is_whole = status.st_size <= 2 * _PART_BYTES
        head = os.pread(file.fileno(), 2 * _PART_BYTES if is_whole else _PART_BYTES, 0)
        tail = head if is_whole else os.pread(file.fileno(), _PART_BYTES, status.st_size - _PART_BYTES)
    *head_lines, cut = head.split(b"\n")
    rest = tail.rpartition(b"\n")[2]
    if is_whole and is_json_value(rest):
        head_lines.append(rest)
        rest = b""
    return _Glimpse(
        head=head_lines,
        tail=[] if is_whole else tail.split(b"\n")[1:-1],
        cut=b"" if is_whole else cut,
        rest=rest,
        is_whole=is_whole,
        size=status.st_size,
        modified=status.st_mtime,
    )


def _header_of(glimpse: _Glimpse) -> SessionHeader | None:
    for line in glimpse.head:
        data = parse_line(line)
        if data is not None and data.get("type") == "session":
            return decode_header(data)
    return None


def _damage_of(glimpse: _Glimpse, path: Path) -> str | None:
    first = parse_line(glimpse.head[0]) if glimpse.head else None
    if first is None or first.get("type") != "session":
        return "the first line is no header"
    try:
        version_of(first, path)
    except UnsupportedVersionError as error:
        return f"format version {error.version!r} is newer than {error.supported}"
    if any(not _has_the_ends_of_an_object(line) for line in (*glimpse.head, *glimpse.tail)):
        return "some lines are damaged"
    # A last line longer than the tail may be whole; that is for whoever opens the file to see.
    if glimpse.rest and (glimpse.is_whole or (glimpse.tail and not is_json_value(glimpse.rest))):
        return "the last line is torn"
    return None


def _has_the_ends_of_an_object(line: bytes) -> bool:
    """Cheaper than parsing, and enough for NULs and for halves; empty lines are no damage."""
    line = line.strip()
    return not line or (line.startswith(b"{") and line.endswith(b"}"))


def _name_of(glimpse: _Glimpse) -> str | None:
    """The newest name in the file's tail, else the one its newest checkpoint has, else the newest in its head."""
    for line in (*reversed(glimpse.tail), *reversed(glimpse.head)):
        if b'"session_info"' not in line and b'"checkpoint"' not in line:
            continue
        data = parse_line(line)
        if data is None:
            continue
        checkpoint = data.get("checkpoint")
        source = data if data.get("type") == "session_info" else checkpoint if isinstance(checkpoint, dict) else {}
        name = source.get("name")
        if isinstance(name, str):
            return name
    return None


def _first_message(glimpse: _Glimpse) -> str:
    for line in glimpse.head:
        if b'"user"' not in line:
            continue
        data = parse_line(line)
        message = data.get("message") if data is not None else None
        if isinstance(message, dict) and message.get("role") == "user":
            return text_of(decode_content(message.get("content")))
    found = _CUT_TEXT.search(glimpse.cut)
    return _text_of_cut(found[1].decode("utf-8", "ignore")) if found is not None else ""


def _text_of_cut(literal: str) -> str:
    """The text of a JSON string that has lost its end, perhaps in the middle of an escape."""
    for length in range(len(literal), max(0, len(literal) - 6), -1):
        try:
            return replace_surrogates(json.loads(literal[:length] + '"'))
        except ValueError:
            continue
    return ""


def _message_count(glimpse: _Glimpse) -> int | None:
    if not glimpse.is_whole:
        return None
    return sum(line.startswith(b'{"type":"message"') for line in glimpse.head)
