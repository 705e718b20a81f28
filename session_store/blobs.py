"""Side files for what is too large for a line, named by the hash of their content.

A blob is written once, whole, and never changed, so that sessions and their forks may share it. It is on the
disk before its path is given out: the line that points to it must not survive a power cut alone.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from typing_extensions import override

from session_store.durable_files import make_private_folder, write_whole_file
from session_store.json_lines import replace_surrogates

TEXT_LIMIT_BYTES = 256 * 1024
HEAD_BYTES = 16 * 1024
TAIL_BYTES = 16 * 1024

_SHA256 = re.compile(r"[0-9a-f]{64}")
_MARK = re.compile(r"\[\.\.\. [\d,]+ of [\d,]+ bytes are left out here; the full text is in ([^\n]+?) \.\.\.\]")


class BlobStore:
    """The blobs beside the sessions of one folder: `<folder>/blobs/<sha256>`."""

    def __init__(self, folder: Path) -> None:
        """`folder` is that of the sessions; nothing is created before the first `put`."""
        self._folder = folder / "blobs"

    @override
    def __repr__(self) -> str:
        return f"<BlobStore {self._folder}>"

    @property
    def folder(self) -> Path:
        """Where the blobs lie; a tool may read there although it is outside of its own folder."""
        return self._folder

    def path_of(self, data: bytes | str) -> Path:
        """Where `put` stores this content; nothing is written."""
        return self._folder / hashlib.sha256(_content_of(data)).hexdigest()

    def put(self, data: bytes | str) -> Path:
        """Store the bytes, or the text as UTF-8; the same content again is the same file.

        Raises:
            OSError: the disk refused; nothing half written is left under the blob's name.
        """
        content = _content_of(data)
        path = self.path_of(content)
        if path.exists():
            return path
        make_private_folder(self._folder)
        write_whole_file(path, (content,))
        return path

    def get(self, sha: str) -> bytes:
        """The content with that hash (64 hexadecimal digits).

        Raises:
            ValueError: `sha` is no such hash.
            FileNotFoundError: there is no such blob.
        """
        if _SHA256.fullmatch(sha) is None:
            raise ValueError(f"{sha!r} is not a SHA-256 in hexadecimal digits")
        return (self._folder / sha).read_bytes()


def _content_of(data: bytes | str) -> bytes:
    return replace_surrogates(data).encode() if isinstance(data, str) else data


def bound_text(
    text: str, store: BlobStore, *, limit: int = TEXT_LIMIT_BYTES, head: int = HEAD_BYTES, tail: int = TAIL_BYTES
) -> str:
    """The text, or above `limit` its beginning and end with the path of the full text between them.

    Sizes are bytes of UTF-8. `head` and `tail`, together less than `limit`, are what is kept at most; only whole
    characters are.

    Raises:
        OSError: the full text could not be stored.
    """
    if len(text) * 4 <= limit:  # no character takes more than four bytes
        return text
    content = replace_surrogates(text).encode()
    if len(content) <= limit:
        return text
    path = store.put(content)
    first, last = first_bytes(content, head), last_bytes(content, tail)
    cut = len(content) - len(first) - len(last)
    mark = f"[... {cut:,} of {len(content):,} bytes are left out here; the full text is in {path} ...]"
    return f"{first.decode()}\n{mark}\n{last.decode()}"


def first_bytes(content: bytes, most: int) -> bytes:
    """At most so many bytes from the beginning of UTF-8; no character is divided."""
    end = min(len(content), max(0, most))
    while 0 < end < len(content) and _is_continuation(content[end]):
        end -= 1
    return content[:end]


def last_bytes(content: bytes, most: int) -> bytes:
    """The same from the end."""
    start = max(0, len(content) - max(0, most))
    while start < len(content) and _is_continuation(content[start]):
        start += 1
    return content[start:]


def _is_continuation(byte: int) -> bool:
    return byte & 0xC0 == 0x80


def path_in_mark(text: str) -> str | None:
    """The path that the mark of `bound_text` names; None in a text that it has not cut."""
    mark = _MARK.search(text)
    return mark[1] if mark is not None else None
