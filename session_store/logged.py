"""`LoggedSession`: a session with its log, and the one way in.

Owns the log and the side files. The rule it keeps: an entry is encoded, decoded again and in the log before
the tree knows of it. So a session in memory, one on disk and the same one reopened are equal, and an append
that is refused changes nothing. What can be appended is said in `writing`.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

from session_store.blobs import BlobStore
from session_store.codec import decode_entry, encode_entry, parse_line
from session_store.entries import Entry, SessionHeader
from session_store.errors import EntryNotFoundError, SessionReadOnlyError
from session_store.ids import new_id, now_iso
from session_store.log import DamageReport, EntryLog
from session_store.log_lines import LogLines
from session_store.migrations import FIRST_TREE_VERSION
from session_store.reading import SessionReader
from session_store.tree import EntryTree

_E = TypeVar("_E", bound=Entry)


class LoggedSession(SessionReader):
    """What `SessionReader` answers, over a log that is open until `close`."""

    def __init__(self, log: EntryLog) -> None:
        """Take over a log that was just opened; `close` closes it."""
        self._lines: LogLines | None = None
        if log.version < FIRST_TREE_VERSION:
            # Its entries have no ids to be found by, and move to another file at the first append.
            loaded = log.load()
            self._damage = loaded.damage
            super().__init__(EntryTree(loaded.entries))
        else:
            self._lines = LogLines(log)
            super().__init__(EntryTree(source=self._lines))
        self._log = log
        self._log.on_warning = self._warn
        self._blobs: BlobStore | None = None
        self._temporary_folder: Path | None = None

    # The log ------------------------------------------------------------------------------------

    @property
    def damage(self) -> DamageReport:
        """What was met so far in the part of the log that was read."""
        return self._lines.damage if self._lines is not None else self._damage

    @property
    def header(self) -> SessionHeader:
        return self._log.header

    @property
    def path(self) -> Path | None:
        """The file; None in memory. A version-1 session moves to a new file at its first append."""
        return self._log.path

    @property
    def session_id(self) -> str:
        return self._log.header.id

    @property
    def cwd(self) -> str:
        """The working directory that the session was made for."""
        return self._log.header.cwd

    @property
    def is_read_only(self) -> bool:
        return self._log.is_read_only

    @property
    def pending(self) -> int:
        """How many entries are in memory only, because the disk refused them."""
        return self._log.pending

    @property
    def blobs(self) -> BlobStore:
        """Where text too large for a line goes: beside the file; for a session in memory a folder that ends with it."""
        return self._blob_store()

    def sync(self) -> None:
        """Return when all that was appended is on the disk. Blocks: call it from a thread.

        Raises:
            SessionWriteError: the disk refused, or entries are still pending.
        """
        self._log.sync()

    def close(self) -> None:
        """Write what is pending, sync, give up the lock. Safe to call twice.

        Raises:
            SessionWriteError: entries are pending and could still not be written.
        """
        try:
            self._log.close()
        finally:
            if self._temporary_folder is not None:
                shutil.rmtree(self._temporary_folder, ignore_errors=True)

    # The one way in -----------------------------------------------------------------------------

    def _next(self) -> dict[str, Any]:
        return {"id": new_id(), "parent_id": self.leaf_id, "timestamp": now_iso()}

    def _append_one(self, entry: _E) -> _E:
        stored = self._append([entry])[0]
        assert isinstance(stored, type(entry))
        return stored

    def _bytes_before_next(self) -> int | None:
        """How many bytes of lines the log has, the header's not counted; None where the next line goes elsewhere."""
        return self._log.size - self._log.body_start if self._lines is not None else None

    def _append(self, entries: Sequence[Entry]) -> list[Entry]:
        lines = [encode_entry(entry) for entry in entries]
        stored = [decode_entry(parse_line(line) or {}) for line in lines]
        self._log.append(lines)
        start = self._log.size - sum(map(len, lines))
        for entry, line in zip(stored, lines, strict=True):
            self._admit(entry, start=start, length=len(line))
            start += len(line)
        return stored

    def _blob_store(self) -> BlobStore:
        if self._blobs is None:
            if self.path is not None:
                folder = self.path.parent
            else:
                folder = self._temporary_folder = Path(tempfile.mkdtemp(prefix="agent-session-"))
            self._blobs = BlobStore(folder)
        return self._blobs

    def _require(self, entry_id: str, *, role: str = "entry") -> None:
        if entry_id not in self:
            raise EntryNotFoundError(entry_id, role=role)

    def _require_writable(self) -> None:
        # Before a side file is written for a line that could not be.
        if self.is_read_only:
            raise SessionReadOnlyError(self.path)
