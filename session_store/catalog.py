"""The sessions there are: listed, found and forked without being loaded.

A row is made of the head and the tail of a file, so that a list costs the number of the sessions and not
their size. A damaged file is a row that says so: nothing in one session may hide the others.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from session_store.codec import encode_entry, encode_header
from session_store.durable_files import make_private_folder, write_whole_file
from session_store.entries import SessionHeader
from session_store.errors import SessionNotFoundError, SessionStoreError, SessionWriteError
from session_store.json_lines import is_json_value
from session_store.list_index import ListIndex
from session_store.loading import find_header, load_lines
from session_store.locations import SESSION_SUFFIX, default_session_dir, file_name, folder_for, id_in_name
from session_store.migrations import FIRST_TREE_VERSION
from session_store.session_info import SessionInfo, describe
from session_store.torn_tail import find_tail

__all__ = [
    "SessionInfo",
    "default_session_dir",
    "file_name",
    "find",
    "folder_for",
    "fork_file",
    "list_all",
    "list_sessions",
    "most_recent",
    "write_session",
]

_COPY_BYTES = 1 << 20


def list_sessions(folder: Path) -> list[SessionInfo]:
    """The sessions in one folder, the last modified first; none where there is no folder."""
    return sorted(map(describe, _files_in(folder)), key=lambda info: info.modified, reverse=True)


def list_all(root: Path) -> list[SessionInfo]:
    """The sessions in the root and in the folders of all working directories, the last modified first."""
    index = ListIndex(root)
    rows = sorted(map(index.row, _files_under(root)), key=lambda info: info.modified, reverse=True)
    index.save()
    return rows


def most_recent(folder: Path) -> Path | None:
    """The file in the folder that was modified last and can be opened as a session."""
    for path in sorted(_files_in(folder), key=_modified, reverse=True):
        try:
            with path.open("rb") as lines:
                find_header(lines, path)
        except (OSError, SessionStoreError):
            continue
        return path
    return None


def find(id_or_path: str, root: Path) -> Path:
    """The file of a session: its path, its id, or a beginning of its id that only one session has.

    Raises:
        SessionNotFoundError: there is none, or there is more than one.
    """
    path = Path(id_or_path).expanduser()
    if path.is_file():
        return path
    if not id_or_path or os.sep in id_or_path or id_or_path.endswith(SESSION_SUFFIX):
        raise SessionNotFoundError(id_or_path)
    by_id = {id_in_name(path): path for path in _files_under(root)}
    if id_or_path in by_id:
        return by_id[id_or_path]
    beginning = [path for session_id, path in by_id.items() if session_id.startswith(id_or_path)]
    renamed = [info.path for info in list_all(root) if info.id == id_or_path] if not beginning else []
    found = beginning or renamed
    if len(found) != 1:
        why = f"{len(found)} ids begin so" if found else None
        raise SessionNotFoundError(id_or_path, where=root, why=why)
    return found[0]


def fork_file(source: Path, target: Path, header: SessionHeader, entries: Iterable[bytes] | None = None) -> None:
    """A new session: every line of `source` byte for byte under a new header, or only the given lines.

    The source is only read, and may be open elsewhere; a line that is not whole stays behind. The lines of a
    version-1 file are upcast. The new header names the version of the lines under it.

    Raises:
        FileExistsError: there is a file at `target`.
        SessionNotFoundError: `source` is no session.
        UnsupportedVersionError: a newer release wrote it.
        SessionWriteError: the disk refused; nothing is left.
    """
    if entries is not None:
        write_session(target, header, entries)
        return
    try:
        with source.open("rb") as lines:
            found = find_header(lines, source)
    except FileNotFoundError:
        raise SessionNotFoundError(str(source)) from None
    except OSError as error:
        raise SessionNotFoundError(str(source), why=f"it cannot be read ({error.strerror})") from error
    if found.version < FIRST_TREE_VERSION:
        with source.open("rb") as lines:
            loaded = load_lines(lines, found.header, version=found.version)
        write_session(target, header, map(encode_entry, loaded.entries))
    else:
        write_session(target, replace(header, version=found.version), _whole_lines(source, found.end))


def write_session(target: Path, header: SessionHeader, lines: Iterable[bytes]) -> None:
    """A new file that appears when it is whole: a header, and chunks of whole lines.

    Raises:
        FileExistsError: there is a file at `target`.
        SessionWriteError: the disk refused; nothing is left.
    """
    if target.exists():
        raise FileExistsError(f"{target}: there is a file of that name")
    try:
        make_private_folder(target.parent)
        write_whole_file(target, (chunk for part in ((encode_header(header),), lines) for chunk in part))
    except OSError as error:
        raise SessionWriteError(target, f"could not be written ({error.strerror})") from error


def _whole_lines(path: Path, start: int) -> Iterator[bytes]:
    """The bytes from `start` to the last line that is whole, in chunks of bounded size."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        end = find_tail(file.fileno(), size)
        file.seek(start)
        while start < end:
            chunk = file.read(min(_COPY_BYTES, end - start))
            start += len(chunk)
            yield chunk
        tail = file.read(size - end)
        if tail and is_json_value(tail):
            yield tail + b"\n"


def _files_under(root: Path) -> Iterator[Path]:
    yield from _files_in(root)
    try:
        folders = [entry.path for entry in os.scandir(root) if entry.is_dir()]
    except (FileNotFoundError, NotADirectoryError):
        return
    for folder in folders:
        yield from _files_in(Path(folder))


def _files_in(folder: Path) -> list[Path]:
    try:
        return [
            Path(entry.path) for entry in os.scandir(folder) if entry.name.endswith(SESSION_SUFFIX) and entry.is_file()
        ]
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return []  # one folder that may not be read must not hide the others


def _modified(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
