"""The port between the tree and the bytes: what every log must do.

Adapters: `MemoryLog`, `JsonlLog`. `session_store.testing.LogContract` is the suite they all pass. All
methods are plain functions; an append is ordered, synchronous and short.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from session_store.entries import Entry, SessionHeader
from session_store.lines import Line
from session_store.showing import Brief


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class DamageRecord(Brief):
    """Something in the file that could not be used as it stands.

    `kind`: torn_tail, bad_line, missing_parent, duplicate_id, orphan_edit, second_header, unknown_type.
    `line_number` counts from 1, and is None where what stands before it was not read; `raw` is at most the first 200
    bytes.
    """

    kind: str
    line_number: int | None
    detail: str
    raw: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class DamageReport(Brief):
    """What was met so far. `complete` is False where not every line was parsed: a resume reads the end of a file."""

    records: tuple[DamageRecord, ...] = ()
    complete: bool = True

    def __bool__(self) -> bool:
        return bool(self.records)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class LoadedLog(Brief):
    """All entries in file order, upcast to the current version, with what was wrong.

    `lines`: where each entry is in the log, and what it hangs on; empty for a version whose lines no append goes under.
    """

    header: SessionHeader
    entries: tuple[Entry, ...]
    damage: DamageReport
    lines: tuple[Line, ...] = ()


class EntryLog(Protocol):
    """An append-only list of lines under one header.

    `on_warning`, where it is set, is told in one sentence what the host should know: once for each series of
    failed writes, and when the log moves to a new file.
    """

    on_warning: Callable[[str], None] | None

    @property
    def header(self) -> SessionHeader: ...

    @property
    def path(self) -> Path | None:
        """The file, or None for a log in memory."""
        ...

    @property
    def is_read_only(self) -> bool: ...

    @property
    def pending(self) -> int:
        """How many lines were accepted but could not be written yet (a full disk)."""
        ...

    @property
    def size(self) -> int:
        """Bytes of the log, pending lines included: where the next line will begin."""
        ...

    @property
    def version(self) -> int:
        """The format version of the lines in it."""
        ...

    @property
    def body_start(self) -> int:
        """Where the lines below the header begin, in bytes."""
        ...

    def read(self, start: int, length: int) -> bytes:
        """Bytes of the log, pending lines included; fewer than `length` only where it ends. After `close`, too."""
        ...

    def load(self) -> LoadedLog:
        """Read and parse everything."""
        ...

    def append(self, lines: Sequence[bytes]) -> None:
        """Write whole lines, each with its newline, in one write: all of them or none.

        A write that fails leaves no fragment behind: the lines are kept in memory (`pending`) and go out
        in front of the next append's.

        Raises:
            SessionReadOnlyError: the log was opened read-only, or is closed.
            SessionLockedError: the lock is no longer this writer's.
            StaleLeafError: the file is not as this writer left it.
        """
        ...

    def sync(self) -> None:
        """Return when everything appended so far is on the disk. May block: call it from a thread.

        Raises:
            SessionWriteError: the disk refused, or lines are still pending.
        """
        ...

    def close(self) -> None:
        """Write what is pending, sync, give up the lock. Safe to call twice.

        Raises:
            SessionWriteError: lines are pending and could still not be written.
        """
        ...
