"""One writer for each session: an advisory lock beside the file.

The lock is `flock` on `<file>.lock`, so the kernel gives it back the moment its owner is dead, and never
before: a stopped owner still owns, and there is no time limit to get wrong. The text in the lock file only
says who the owner is; it decides nothing.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import weakref
from pathlib import Path

from session_store.errors import SessionLockedError, SessionWriteError
from session_store.ids import now_iso

NEEDS_NO_LOCK = "SessionManager.open(path, read_only=True) writes nothing and needs no lock"

_OWNER_LIMIT_BYTES = 4096

_held: weakref.WeakSet[WriterLock] = weakref.WeakSet()


class WriterLock:
    """Held from construction until `release`. A second one for the same file is refused, in this process too."""

    def __init__(self, path: Path) -> None:
        """Take the lock of the session file `path`; the file itself need not exist.

        Raises:
            SessionLockedError: somebody else has it; `owner` says who.
            SessionWriteError: the folder lets nobody make one.
        """
        self._path = path
        # Two names of one file must meet in one lock.
        self._lock_path = os.path.realpath(path) + ".lock"
        self._fd: int | None = self._acquire()
        found = os.fstat(self._fd)
        self._identity = (found.st_dev, found.st_ino)
        _held.add(self)

    def check(self) -> None:
        """See that the lock is still this writer's. Costs one `stat`.

        Raises:
            SessionLockedError: it was released, or its file was removed or replaced, so that another writer
                may have it now.
        """
        if self._fd is not None:
            try:
                found = os.stat(self._lock_path)  # noqa: PTH116 - before every append; a Path costs as much again
            except FileNotFoundError:
                found = None
            if found is not None and (found.st_dev, found.st_ino) == self._identity:
                return
        raise SessionLockedError(self._path, _owner_in(self._lock_path))

    def release(self) -> None:
        """Give the lock up and take its file away. Safe to call twice."""
        if self._fd is None:
            return
        # Removed while it is still held: whoever opened it meanwhile finds that it is not the file any more.
        with contextlib.suppress(SessionLockedError, OSError):
            self.check()
            Path(self._lock_path).unlink()
        self._abandon()

    def _abandon(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _acquire(self) -> int:
        while True:
            try:
                fd = os.open(self._lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            except OSError as error:
                why = f"its lock file cannot be opened ({error.strerror}: {self._lock_path}); {NEEDS_NO_LOCK}"
                raise SessionWriteError(self._path, why) from error
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if self._is_current(fd):
                    _write_owner(fd)
                    return fd
            except BlockingIOError:
                os.close(fd)
                raise SessionLockedError(self._path, _owner_in(self._lock_path)) from None
            except OSError as error:
                os.close(fd)
                why = f"its lock file cannot be locked ({error.strerror}: {self._lock_path}); {NEEDS_NO_LOCK}"
                raise SessionWriteError(self._path, why) from error
            except BaseException:
                os.close(fd)
                raise
            os.close(fd)  # its owner removed it between our open and our lock: try the new one

    def _is_current(self, fd: int) -> bool:
        try:
            named = Path(self._lock_path).stat()
        except FileNotFoundError:
            return False
        held = os.fstat(fd)
        return (named.st_dev, named.st_ino) == (held.st_dev, held.st_ino)


def _write_owner(fd: int) -> None:
    owner = {"pid": os.getpid(), "host": os.uname().nodename, "since": now_iso()}
    # Information for people, best effort: a full disk must not keep a session from being opened.
    with contextlib.suppress(OSError):
        os.ftruncate(fd, 0)
        os.pwrite(fd, json.dumps(owner).encode() + b"\n", 0)


def _owner_in(lock_path: str) -> dict[str, object]:
    try:
        with Path(lock_path).open("rb") as file:
            owner = json.loads(file.read(_OWNER_LIMIT_BYTES))
    except (OSError, ValueError):
        return {}
    return owner if isinstance(owner, dict) and "pid" in owner else {}


def _forget_locks_of_parent() -> None:
    """A forked child inherits the descriptors, but the parent is the writer: kept open, they would outlive it."""
    for lock in list(_held):
        lock._abandon()


os.register_at_fork(after_in_child=_forget_locks_of_parent)
