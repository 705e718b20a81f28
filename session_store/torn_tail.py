"""What stands after the last newline of a file, and what a writer does about it before the first append.

A kill in the middle of a write leaves a part of a line. Appending to it would glue the next line to it and lose
both, so a part is moved aside; bytes that are a whole value, of a program that ends lines differently, only
get their newline.
"""

from __future__ import annotations

import os
from pathlib import Path

from session_store.durable_files import write_all
from session_store.json_lines import is_json_value

_BLOCK_BYTES = 64 * 1024


def settle_tail(fd: int, path: Path) -> None:
    """Make the file end with a newline. `fd` is open for reading and appending, the caller has the lock.

    The part of a line is in `<file>.damaged`, on the disk, before it is cut off.
    """
    size = os.fstat(fd).st_size
    start = find_tail(fd, size)
    if start == size:
        return
    tail = os.pread(fd, size - start, start)
    if is_json_value(tail):
        write_all(fd, b"\n")
    else:
        _keep_aside(tail, path.with_name(path.name + ".damaged"))
        os.ftruncate(fd, start)


def find_tail(fd: int, size: int) -> int:
    """The offset behind the last newline of the first `size` bytes; `size` where nothing follows it."""
    end = size
    while end > 0:
        start = max(0, end - _BLOCK_BYTES)
        newline = os.pread(fd, end - start, start).rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        end = start
    return 0


def _keep_aside(tail: bytes, path: Path) -> None:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        size = os.fstat(fd).st_size
        separator = b"\n" if size > 0 and os.pread(fd, 1, size - 1) != b"\n" else b""
        write_all(fd, separator + tail)
        os.fsync(fd)
    finally:
        os.close(fd)
