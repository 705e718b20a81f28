"""Reading and replacing one file, for the tools that do.

The rules: a file is replaced whole or not at all, and keeps its mode; whoever reads a file in order to
write it holds the file's lock from before the one until after the other, so that parallel calls do not
undo one another. The locks are those of threads: tools of several sessions, each in its own event loop,
meet here. Everything blocks: call it from a thread.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import BinaryIO
from weakref import WeakValueDictionary

_locks: WeakValueDictionary[Path, Lock] = WeakValueDictionary()
_locks_lock = Lock()


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Alone with the file of this resolved path, among all tools of this process."""
    with _locks_lock:
        lock = _locks.setdefault(path, Lock())
    with lock:
        yield


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """The file, to be read.

    Raises:
        OSError: it is not there, or may not be read; or it is a folder, or a pipe or device, which could
            block for ever or have no end.
    """
    # Not blocking, since opening a pipe waits for a writer; judged when open, since a name can change.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        _check_regular(os.fstat(descriptor).st_mode)
    except OSError:
        os.close(descriptor)
        raise
    with os.fdopen(descriptor, "rb") as file:
        yield file


def replace(path: Path, data: bytes) -> bool:
    """Write the file whole, its folders made where they are missing; whether it is new.

    Raises:
        OSError: a folder could not be made, there is something else than a writable file, or it could not
            be written; the old content is then intact.
    """
    before = _writable(path)
    if before is None:
        path.parent.mkdir(parents=True, exist_ok=True)
    # Beside the file, since only within one file system is a replacement atomic. Mode 0666: the umask applies.
    temporary = path.parent / f".{path.name[:40]}.{secrets.token_hex(6)}.tmp"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            if before is not None:
                with suppress(PermissionError):  # only root may give a file away; else the new one is ours
                    os.fchown(file.fileno(), before.st_uid, before.st_gid)
                os.fchmod(file.fileno(), stat.S_IMODE(before.st_mode))
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
    return before is None


def _writable(path: Path) -> os.stat_result | None:
    """What is there now; None for nothing."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    _check_regular(found.st_mode)
    if not found.st_mode & stat.S_IWUSR:  # a replacement would succeed: it asks for a right to the folder only
        raise PermissionError(
            errno.EACCES, f"read-only (mode {stat.S_IMODE(found.st_mode):04o}), change its mode first"
        )
    return found


def _check_regular(mode: int) -> None:
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "is a folder, not a file")
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "is a pipe, a socket or a device, not a file")
