"""What the file system refuses is an error of the store, which says what, where, and what to do."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from session_store import (
    SessionLockedError,
    SessionManager,
    SessionNotFoundError,
    SessionWriteError,
    StaleLeafError,
    TextContent,
    UserMessage,
)

MESSAGE = UserMessage(content=(TextContent("hello"),), timestamp=1)


@contextmanager
def without_permission(path: Path) -> Iterator[None]:
    """The path, closed to this user; a superuser becomes somebody else meanwhile, whom permissions bind."""
    mode, is_root = path.stat().st_mode, os.geteuid() == 0
    path.chmod(0o555 if path.is_dir() else 0)
    try:
        if is_root:
            os.seteuid(65534)
        yield
    finally:
        if is_root:
            os.seteuid(0)
        path.chmod(mode)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that everybody can get to."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


def session_in(folder: Path) -> Path:
    with SessionManager.create(folder, session_dir=folder) as manager:
        manager.append_message(MESSAGE)
        assert manager.path is not None
        path = folder / "session.jsonl"
        manager.path.rename(path)
    path.chmod(0o644)
    return path


def test_a_folder_that_takes_no_lock_is_refused_with_the_way_to_read(folder: Path) -> None:
    # Mutation: in `WriterLock._acquire` let the `OSError` of the open out.
    path = session_in(folder)
    with without_permission(folder):
        with pytest.raises(SessionWriteError, match=r"lock.*read_only=True"):
            SessionManager.open(path)
        with SessionManager.open(path, read_only=True) as manager:
            assert len(manager) == 1


def test_a_folder_that_takes_no_session_is_refused_by_its_name(folder: Path) -> None:
    # Mutation: in `JsonlLog.create` let the `OSError` of the folder out.
    with without_permission(folder), pytest.raises(SessionWriteError, match=str(folder)):
        SessionManager.create("/project", session_dir=folder)


def test_a_file_that_may_not_be_read_is_refused_by_its_name(folder: Path) -> None:
    # Mutation: in `JsonlLog.open` let the `PermissionError` out.
    path = session_in(folder)
    with without_permission(path), pytest.raises(SessionNotFoundError, match="cannot be read"):
        SessionManager.open(path, read_only=True)


def test_a_folder_that_may_not_be_read_hides_no_other(folder: Path) -> None:
    # Mutation: in `catalog._files_in` let the `PermissionError` out.
    session_in(folder)
    closed = folder / "--closed--"
    closed.mkdir(mode=0o700)
    closed.chmod(0)
    is_root = os.geteuid() == 0
    try:
        if is_root:
            os.seteuid(65534)
        assert [info.path.name for info in SessionManager.list_all(session_dir=folder)] == ["session.jsonl"]
    finally:
        if is_root:
            os.seteuid(0)
        closed.chmod(0o700)


def test_a_working_directory_too_deep_for_a_name_has_sessions_of_its_own(tmp_path: Path) -> None:
    # Mutation: in `folder_for` do not cut the name, or cut it without a hash.
    deep = "/".join(["", *["日本語"] * 40])
    with SessionManager.create(deep, session_dir=tmp_path) as manager:
        path = manager.path
    SessionManager.create(f"{deep}/other", session_dir=tmp_path).close()
    assert [info.path for info in SessionManager.list(deep, session_dir=tmp_path)] == [path]
    with SessionManager.continue_recent(deep, session_dir=tmp_path) as again:
        assert (again.path, again.cwd) == (path, deep)


def test_a_file_or_lock_that_was_removed_is_said_to_be_gone(tmp_path: Path) -> None:
    # Mutation: in `StaleLeafError` speak of another program whatever was found; in `SessionLockedError` of somebody.
    manager = SessionManager.create(tmp_path, session_dir=tmp_path)
    assert manager.path is not None
    manager.path.unlink()
    with pytest.raises(StaleLeafError, match="gone"):
        manager.append_message(MESSAGE)
    manager.path.with_name(manager.path.name + ".lock").unlink()
    with pytest.raises(SessionLockedError, match="lock file was removed"):
        manager.append_message(MESSAGE)
    manager.close()
