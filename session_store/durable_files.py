"""Bytes and names that are on the disk, private to their owner, when a call returns."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from session_store.ids import new_id


def make_private_folder(folder: Path) -> None:
    """Create the folder and what is missing above it, for their owner only; what is there stays as it is."""
    missing = []
    while not folder.is_dir():
        missing.append(folder)
        folder = folder.parent
    for folder in reversed(missing):
        folder.mkdir(mode=0o700, exist_ok=True)


def write_all(fd: int, data: bytes) -> None:
    """Write every byte: one `write`, and more only where the system took less than all.

    Raises:
        OSError: the disk refused; a part may have been written.
    """
    written = os.write(fd, data)
    while written < len(data):
        written += os.write(fd, memoryview(data)[written:])


def write_whole_file(path: Path, chunks: Iterable[bytes]) -> None:
    """A file that appears under its name when it is whole and on the disk, in place of one that was there.

    Raises:
        OSError: the disk refused; nothing is left.
    """
    draft = path.with_name(f".{path.name}.{new_id()}.tmp")
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(fd, "wb") as file:
            file.writelines(chunks)
            file.flush()
            os.fsync(file.fileno())
        draft.rename(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in the folder durable."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
