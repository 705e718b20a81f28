"""`SessionManager`: a session by its place, that is opened, created, continued, forked or listed.

Owns the ways to get at a log. What a session can be asked is in `reading`, how something is put into it in
`writing`. The rule it keeps: a session that was opened for writing is locked until it is closed, and getting
at one session never changes another.
"""

from __future__ import annotations

import re
from pathlib import Path
from types import TracebackType
from typing import Self, TypeAlias

from typing_extensions import override

from session_store import catalog
from session_store.catalog import SessionInfo
from session_store.codec import encode_entry
from session_store.entries import SessionHeader
from session_store.forking import path_lines
from session_store.ids import new_id, now_iso
from session_store.jsonl_log import JsonlLog
from session_store.locations import default_session_dir, file_name, folder_for
from session_store.memory_log import MemoryLog
from session_store.writing import SessionWriter

# `list` is a verb of the class below.
SessionInfos: TypeAlias = list[SessionInfo]

_SESSION_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class SessionManager(SessionWriter):
    """One session: the only writer of its log, the owner of its tree and leaf. Plain functions throughout.

    A context manager that closes it. The default folder of all sessions is `~/.agent-session/sessions`, or
    what `AGENT_SESSION_DIR` names; `session_dir` takes its place wherever it is given.
    """

    @classmethod
    def create(
        cls, cwd: str | Path = ".", *, session_dir: str | Path | None = None, session_id: str | None = None
    ) -> Self:
        """A new session for that working directory, its file on the disk at once.

        Raises:
            ValueError: `session_id` is not made of letters, digits, dots, dashes and underscores.
        """
        if session_id is not None and not _SESSION_ID.fullmatch(session_id):
            raise ValueError(f"session id {session_id!r}: letters, digits, dots, dashes and underscores only")
        header = _new_header(_absolute(cwd), session_id=session_id)
        return cls(JsonlLog.create(_path_of(header, _root(session_dir)), header))

    @classmethod
    def open(cls, path: str | Path, *, read_only: bool = False) -> Self:
        """The session in that file. One opened read-only is never refused for a lock, and refuses every append.

        Raises:
            SessionNotFoundError: there is no such file, or it is no session.
            SessionLockedError: another writer owns it.
            UnsupportedVersionError: it was written by a newer release.
        """
        return cls(JsonlLog.open(Path(path), read_only=read_only))

    @classmethod
    def continue_recent(cls, cwd: str | Path = ".", *, session_dir: str | Path | None = None) -> Self:
        """The newest session of that working directory, else a new one.

        Raises:
            SessionLockedError: another writer owns the newest.
        """
        recent = catalog.most_recent(folder_for(_absolute(cwd), _root(session_dir)))
        return cls.open(recent) if recent is not None else cls.create(cwd, session_dir=session_dir)

    @classmethod
    def in_memory(cls, cwd: str | Path = ".") -> Self:
        """A new session without a file; it ends with the process."""
        return cls(MemoryLog(_new_header(_absolute(cwd))))

    @classmethod
    def fork_from(
        cls,
        source: str | Path | SessionWriter,
        *,
        entry_id: str | None = None,
        cwd: str | Path | None = None,
        session_dir: str | Path | None = None,
    ) -> Self:
        """A new session with the lines of another one, byte for byte, under a header of its own.

        With `entry_id` only the path to that entry, and the labels on it. The source is only read, and may be
        open elsewhere. The fork goes to the folder of all sessions that the source is in, else to the default
        one; a session in memory is forked in memory. `session_dir` overrules both.

        Raises:
            SessionNotFoundError: there is no such file.
            EntryNotFoundError: the source has no such entry.
        """
        if not isinstance(source, SessionWriter):
            with cls.open(source, read_only=True) as opened:
                return cls.fork_from(opened, entry_id=entry_id, cwd=cwd, session_dir=session_dir)
        header = _new_header(
            _absolute(cwd) if cwd is not None else source.cwd,
            parent_session=str(source.path) if source.path is not None else source.session_id,
        )
        lines = map(encode_entry, source) if entry_id is None else path_lines(source, entry_id)
        if source.path is None and session_dir is None:
            return cls(MemoryLog(header, lines))
        path = _path_of(header, _root_of(source) if session_dir is None else _root(session_dir))
        if entry_id is None and source.path is not None and not source.pending:
            catalog.fork_file(source.path, path, header)
        else:
            catalog.write_session(path, header, lines)
        return cls.open(path)

    @classmethod
    def list(cls, cwd: str | Path = ".", *, session_dir: str | Path | None = None) -> SessionInfos:
        """What head and tail of each session of that working directory say, newest first."""
        return catalog.list_sessions(folder_for(_absolute(cwd), _root(session_dir)))

    @classmethod
    def list_all(cls, *, session_dir: str | Path | None = None) -> SessionInfos:
        """The same for the sessions of all working directories."""
        return catalog.list_all(_root(session_dir))

    @classmethod
    def find(cls, id_or_path: str | Path, *, session_dir: str | Path | None = None) -> Path:
        """The file of a session, given its id or the file itself.

        Raises:
            SessionNotFoundError: there is none.
        """
        return catalog.find(str(id_or_path), _root(session_dir))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @override
    def __repr__(self) -> str:
        return f"<SessionManager {self.session_id} {self.path or 'in memory'}, {len(self)} entries>"


def _new_header(cwd: str, *, session_id: str | None = None, parent_session: str | None = None) -> SessionHeader:
    return SessionHeader(id=session_id or new_id(), timestamp=now_iso(), cwd=cwd, parent_session=parent_session)


def _absolute(cwd: str | Path) -> str:
    return str(Path(cwd).expanduser().absolute())


def _root(session_dir: str | Path | None) -> Path:
    return Path(session_dir).expanduser() if session_dir is not None else default_session_dir()


def _root_of(session: SessionWriter) -> Path:
    folder = session.path.parent if session.path is not None else None
    if folder is not None and folder == folder_for(session.cwd, folder.parent):
        return folder.parent
    return default_session_dir()


def _path_of(header: SessionHeader, root: Path) -> Path:
    return folder_for(header.cwd, root) / file_name(header)
