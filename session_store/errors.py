"""Errors of the session log.

    SessionStoreError
    ├── SessionNotFoundError      no file, no folder, or no session with that id
    ├── UnsupportedVersionError   the header names a format version newer than this library
    ├── EntryNotFoundError        an entry id that is not in the log
    ├── DuplicateEntryError       a caller-given id that the log already has
    ├── StaleLeafError            the file grew behind the writer's back
    ├── InvalidBoundaryError      a compaction boundary that would break the context
    ├── SessionLockedError        another writer owns the file
    ├── SessionReadOnlyError      an append to a log that was opened read-only, or is closed
    └── SessionWriteError         bytes that could not be written, or not be made durable

Facts are attributes; the text says what was wrong, where, and what to do. Cancellation is not in
this tree and is never wrapped.
"""

from __future__ import annotations

import os
from pathlib import Path


class SessionStoreError(Exception):
    """Root of everything the store raises on purpose."""


class SessionNotFoundError(SessionStoreError):
    """No session under that path or id. `where` is the folder that was searched, `why` what is there instead."""

    def __init__(self, what: str, *, where: Path | None = None, why: str | None = None) -> None:
        self.what = what
        self.where = where
        self.why = why
        place = f" in {where}" if where is not None else ""
        reason = f": {why}" if why is not None else ""
        super().__init__(f"no session {what!r}{place}{reason}; `SessionManager.list(cwd)` names the ones there are")


class UnsupportedVersionError(SessionStoreError):
    """The file was written by a newer version of the format."""

    def __init__(self, path: Path | None, version: object, supported: int) -> None:
        self.path = path
        self.version = version
        self.supported = supported
        super().__init__(
            f"{path or 'session'}: format version {version!r} is newer than {supported}, the newest this "
            f"release reads; the file was left untouched: upgrade agent-session-runtime to open it"
        )


class EntryNotFoundError(SessionStoreError):
    """An entry id that the log does not have."""

    def __init__(self, entry_id: str, *, role: str = "entry") -> None:
        self.entry_id = entry_id
        super().__init__(f"{role} {entry_id!r} is not in this session; nothing was changed")


class DuplicateEntryError(SessionStoreError):
    """A caller-given id that is already taken."""

    def __init__(self, entry_id: str) -> None:
        self.entry_id = entry_id
        super().__init__(f"entry id {entry_id!r} is already in this session; nothing was appended")


class StaleLeafError(SessionStoreError):
    """Somebody else appended to the file since this writer last looked."""

    def __init__(self, path: Path, expected_bytes: int, found_bytes: int) -> None:
        self.path = path
        self.expected_bytes = expected_bytes
        self.found_bytes = found_bytes
        what = f"the file has {found_bytes} bytes where this writer left {expected_bytes}; another program wrote to it"
        if not found_bytes:
            what = f"the file is gone, or empty, where this writer left {expected_bytes} bytes"
        super().__init__(
            f"{path}: {what}. Nothing was appended: open the session again to go on from what is there now"
        )


class InvalidBoundaryError(SessionStoreError):
    """A `first_kept_entry_id` that cannot be a boundary on this branch."""

    def __init__(self, entry_id: object, why: str) -> None:
        self.entry_id = entry_id
        self.why = why
        super().__init__(f"first_kept_entry_id {entry_id!r} cannot be the boundary: {why}; nothing was appended")


class SessionLockedError(SessionStoreError):
    """Another writer owns the session.

    `owner` has `pid`, `host` and `since` where they could be read; `pid` is None where not.
    """

    def __init__(self, path: Path, owner: dict[str, object]) -> None:
        self.path = path
        self.owner = owner
        self.pid = owner.get("pid")
        who = "somebody who does not say who, or its lock file was removed"
        if (self.pid, owner.get("host")) == (os.getpid(), os.uname().nodename):
            who = f"this process itself, since {owner.get('since', '?')}"
        elif owner:
            who = f"process {owner.get('pid', '?')} on {owner.get('host', '?')}, since {owner.get('since', '?')}"
        super().__init__(
            f"{path}: locked by {who}; close it there, or read it with "
            "SessionManager.open(path, read_only=True), or fork it with SessionManager.fork_from(path)"
        )


class SessionReadOnlyError(SessionStoreError):
    """An append to a session that was opened read-only or was closed."""

    def __init__(self, path: Path | None, why: str = "opened read-only") -> None:
        self.path = path
        super().__init__(f"{path or 'session'}: {why}; nothing was appended")


class SessionWriteError(SessionStoreError):
    """Bytes that could not be written or made durable. `pending` is how many entries still wait."""

    def __init__(self, path: Path | None, why: str, *, pending: int = 0) -> None:
        self.path = path
        self.pending = pending
        waiting = f"; {pending} entries are in memory only" if pending else ""
        super().__init__(f"{path or 'session'}: {why}{waiting}")
