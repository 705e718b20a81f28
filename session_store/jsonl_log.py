"""A session as one JSONL file: append-only bytes under a lock.

The rule it keeps: a line is in the file, whole, before `append` returns, or it waits in memory and is in front
of the next append; bytes once written are never changed. The two exceptions are of opening for writing: a
torn last line is moved aside, a whole one is given its newline.

A version-1 file is not even that: it keeps every byte, and the first append goes to a new file beside it.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

from typing_extensions import override

from session_store.codec import encode_entry, encode_header
from session_store.durable_files import make_private_folder, sync_folder, write_all, write_whole_file
from session_store.entries import SessionHeader
from session_store.errors import (
    SessionNotFoundError,
    SessionReadOnlyError,
    SessionStoreError,
    SessionWriteError,
    StaleLeafError,
)
from session_store.ids import new_id, now_iso
from session_store.loading import FoundHeader, find_header, load_lines
from session_store.locations import file_name
from session_store.lock import NEEDS_NO_LOCK, WriterLock
from session_store.log import LoadedLog
from session_store.migrations import FIRST_TREE_VERSION, RETIRED_HEADER_FIELDS
from session_store.torn_tail import settle_tail

_APPENDING = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC

# Where there is no fdatasync (macOS), fsync is the nearest.
_sync_data: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)


class JsonlLog:
    """One file, one descriptor, one lock. Made by `create` and `open`.

    Appends belong to one thread; `sync` may run in another one meanwhile.
    """

    def __init__(self, path: Path, found: FoundHeader, *, fd: int, lock: WriterLock | None) -> None:
        """Take over a descriptor and a lock; no lock is a read-only log."""
        self.on_warning: Callable[[str], None] | None = None
        self._path = path
        self._name = os.fspath(path)
        self._header = found.header
        self._version = found.version
        self._body_start = found.end
        self._fd = fd
        self._lock = lock
        self._size = os.fstat(fd).st_size
        self._inode = os.fstat(fd).st_ino
        self._pending: list[bytes] = []
        self._refusal: OSError | None = None  # why the last write failed; None after one that did not
        self._has_fragment = False  # the file is longer than `_size`, by a part of a failed write
        self._is_dirty = False
        self._is_folder_dirty = False
        self._is_closed = False
        self._guard = threading.Lock()  # `sync` writes what is pending, from its own thread

    @classmethod
    def create(cls, path: Path, header: SessionHeader) -> Self:
        """A new file with its header in it, private, locked; folders that are missing are created.

        Raises:
            FileExistsError: there is such a file.
            SessionWriteError: the disk refused; no file is left.
        """
        try:
            make_private_folder(path.parent)
        except OSError as error:
            raise SessionWriteError(path, f"its folder could not be made ({error.strerror})") from error
        if path.exists():
            raise FileExistsError(f"{path}: there is a file of that name; open it, or choose another id")
        lock = WriterLock(path)
        try:
            fd = _created(path)
            try:
                line = encode_header(header)
                write_all(fd, line)
            except OSError as error:
                os.close(fd)
                path.unlink(missing_ok=True)
                raise SessionWriteError(path, f"the header could not be written ({error.strerror})") from error
        except BaseException:
            lock.release()
            raise
        log = cls(path, FoundHeader(header=header, version=header.version, end=len(line)), fd=fd, lock=lock)
        log._is_dirty = log._is_folder_dirty = True
        return log

    @classmethod
    def open(cls, path: Path, *, read_only: bool = False) -> Self:
        """The log in that file. A writer locks it and settles its last line; a reader changes nothing.

        Raises:
            SessionNotFoundError: there is no such file, it may not be opened, or it is no session.
            SessionLockedError: another writer owns it.
            SessionWriteError: a lock cannot be made beside it, or what a kill left at its end cannot be kept aside.
            UnsupportedVersionError: a newer release wrote it.
        """
        if not path.is_file():
            raise SessionNotFoundError(str(path))
        lock = None if read_only else WriterLock(path)
        fd = -1
        try:
            try:
                fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC if read_only else _APPENDING)
                with path.open("rb") as lines:
                    found = find_header(lines, path)
            except OSError as error:
                verb = "read" if read_only else "written"
                raise SessionNotFoundError(str(path), why=f"it cannot be {verb} ({error.strerror})") from error
            if not read_only and found.version >= FIRST_TREE_VERSION:
                _settle(fd, path)
            return cls(path, found, fd=fd, lock=lock)
        except BaseException:
            if fd >= 0:
                os.close(fd)
            if lock is not None:
                lock.release()
            raise

    @override
    def __repr__(self) -> str:
        return f"<JsonlLog {self._path}, {self._size:,} bytes>"

    @property
    def header(self) -> SessionHeader:
        return self._header

    @property
    def path(self) -> Path | None:
        return self._path

    @property
    def is_read_only(self) -> bool:
        return self._lock is None

    @property
    def pending(self) -> int:
        return len(self._pending)

    @property
    def size(self) -> int:
        return self._size + sum(map(len, self._pending))

    @property
    def version(self) -> int:
        return self._version

    @property
    def body_start(self) -> int:
        return self._body_start

    def read(self, start: int, length: int) -> bytes:
        """As `EntryLog.read`.

        Raises:
            SessionNotFoundError: the log is closed, and its file is gone.
        """
        with self._guard:  # lines that wait may be written meanwhile, by `sync`
            if self._is_closed:
                return self._read_closed(start, length)
            there = os.pread(self._fd, min(length, self._size - start), start) if start < self._size else b""
            if not self._pending or start + length <= self._size:
                return there
            behind = max(0, start - self._size)
            return there + b"".join(self._pending)[behind : behind + length - len(there)]

    def _read_closed(self, start: int, length: int) -> bytes:
        try:
            with self._path.open("rb", buffering=0) as file:
                return os.pread(file.fileno(), length, start)
        except FileNotFoundError:
            raise SessionNotFoundError(str(self._path), why="it was closed, and then removed") from None

    def load(self) -> LoadedLog:
        with self._path.open("rb", buffering=1 << 20) as lines:
            return load_lines(lines, self._header, version=self._version)

    def append(self, lines: Sequence[bytes]) -> None:
        for line in lines:
            if not line.endswith(b"\n"):
                raise ValueError("a line without its newline would run into the next one")
        with self._guard:
            if self._is_closed or self._lock is None:
                raise SessionReadOnlyError(self._path, "closed" if self._is_closed else "opened read-only")
            warning = self._write(lines)
        self._warn(warning)

    def sync(self) -> None:
        """As `EntryLog.sync`; what is pending is tried once more, and may raise what `append` raises."""
        with self._guard:
            if self._is_closed or self._lock is None:
                return
            warning = self._write(()) if self._pending else None
            if self._pending:
                raise self._unwritten()
            descriptor = os.dup(self._fd)  # `close` and a new file may not take it away meanwhile
        self._warn(warning)
        try:
            self._make_durable(descriptor)
        finally:
            os.close(descriptor)

    def close(self) -> None:
        with self._guard:
            if self._is_closed:
                return
            self._is_closed = True
            warning = None
            try:
                if self._pending:
                    try:
                        warning = self._write(())
                    except SessionStoreError as error:
                        raise SessionWriteError(self._path, str(error), pending=len(self._pending)) from error
                if self._pending:
                    raise self._unwritten()
                self._make_durable(self._fd)
            finally:
                os.close(self._fd)
                if self._lock is not None:
                    self._lock.release()
        self._warn(warning)

    def _write(self, lines: Sequence[bytes]) -> str | None:
        """Write what is pending and then the lines, or keep them all. Returns what the host should know."""
        self._check_unchanged()
        waiting = [*self._pending, *lines] if self._pending else list(lines)
        if not waiting:
            return None  # and no reason to move a version-1 session
        warning: str | None = None
        try:
            if self._version < FIRST_TREE_VERSION:
                warning = self._move_to_successor(waiting)
            else:
                self._write_at_end(b"".join(waiting))
        except OSError as error:
            self._pending = waiting
            if self._refusal is None:
                warning = f"{self._path}: {error.strerror}; what cannot be written is kept and tried again"
            self._refusal = error
        else:
            self._pending = []
            self._refusal = None
        return warning

    def _check_unchanged(self) -> None:
        assert self._lock is not None
        self._lock.check()
        try:
            found = os.stat(self._name)  # noqa: PTH116 - before every append; `Path.stat` costs as much again
        except FileNotFoundError:
            raise StaleLeafError(self._path, self._size, 0) from None
        is_as_left = found.st_size == self._size or (self._has_fragment and found.st_size > self._size)
        if found.st_ino != self._inode or not is_as_left:
            raise StaleLeafError(self._path, self._size, found.st_size)

    def _write_at_end(self, data: bytes) -> None:
        if self._has_fragment:
            self._drop_fragment()
        try:
            write_all(self._fd, data)
        except BaseException:
            self._has_fragment = True
            self._drop_fragment()
            raise
        self._size += len(data)
        self._is_dirty = True

    def _drop_fragment(self) -> None:
        os.ftruncate(self._fd, self._size)
        self._has_fragment = False

    def _move_to_successor(self, lines: Sequence[bytes]) -> str:
        """Write all entries, upcast, and the lines to a new file beside the old one, and go on there."""
        old_path, old_fd, old_lock = self._path, self._fd, self._lock
        header = _successor_header(self._header, old_path)
        path = old_path.with_name(file_name(header))
        entries = (encode_entry(entry) for entry in self.load().entries)
        lock = WriterLock(path)
        try:
            write_whole_file(path, itertools.chain([encode_header(header)], entries, lines))
            fd = os.open(path, _APPENDING)
        except BaseException:
            lock.release()
            raise
        found = os.fstat(fd)
        self._path, self._name = path, os.fspath(path)
        self._header, self._version = header, header.version
        self._body_start = len(encode_header(header))
        self._fd, self._lock, self._size, self._inode = fd, lock, found.st_size, found.st_ino
        os.close(old_fd)
        if old_lock is not None:
            old_lock.release()
        return f"{old_path} has format version 1 and stays as it is; the session goes on in {path}"

    def _make_durable(self, descriptor: int) -> None:
        was_dirty, self._is_dirty = self._is_dirty, False
        try:
            if was_dirty:
                _sync_data(descriptor)
            if self._is_folder_dirty:
                sync_folder(self._path.parent)
                self._is_folder_dirty = False
        except OSError as error:
            self._is_dirty = was_dirty
            raise SessionWriteError(self._path, f"could not be made durable ({error.strerror})") from error

    def _unwritten(self) -> SessionWriteError:
        why = self._refusal.strerror if self._refusal is not None else None
        return SessionWriteError(self._path, f"could not be written ({why})", pending=len(self._pending))

    def _warn(self, warning: str | None) -> None:
        if warning is not None and self.on_warning is not None:
            self.on_warning(warning)


def _created(path: Path) -> int:
    """Raises: SessionWriteError."""
    try:
        return os.open(path, _APPENDING | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise SessionWriteError(path, f"the file could not be made ({error.strerror})") from error


def _settle(fd: int, path: Path) -> None:
    """Raises: SessionWriteError."""
    try:
        settle_tail(fd, path)
    except OSError as error:
        why = f"the part of a line at its end could not be kept aside ({error.strerror}); {NEEDS_NO_LOCK}"
        raise SessionWriteError(path, why) from error


def _successor_header(header: SessionHeader, path: Path) -> SessionHeader:
    extra = {key: value for key, value in (header.extra or {}).items() if key not in RETIRED_HEADER_FIELDS}
    return SessionHeader(
        id=new_id(), timestamp=now_iso(), cwd=header.cwd, parent_session=str(path.absolute()), extra=extra or None
    )
