"""What lists have found out about the files under one root, kept for the next list.

The rule it keeps: a row is taken from here only for a file of the very size and time that it was made of, so that the
index may be deleted, damaged or out of date, and a list says the same. It is written for a list that is worth it, and
never has to be.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any, Final

import orjson

from session_store.durable_files import write_whole_file
from session_store.session_info import SessionInfo, describe

INDEX_NAME: Final = ".sessions-index.json"
LEAST_SESSIONS: Final = 64
"""Fewer are listed without an index at once."""

_FORMAT: Final = 1
_TEXTS: Final = ("id", "cwd", "created", "first_message")
_OPTIONAL_TEXTS: Final = ("name", "damaged")


class ListIndex:
    """For one list of the sessions under `root`: `row` for each of them, then `save`."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._known = _read(root / INDEX_NAME)
        self._rows: dict[str, list[Any]] = {}
        self._is_stale = False

    def row(self, path: Path) -> SessionInfo:
        """The row of one file, as `describe` makes it. Never raises."""
        try:
            found = os.stat(path)  # noqa: PTH116 - for each of thousands of files; `Path.stat` costs as much again
        except OSError:
            return describe(path)
        key = os.path.relpath(path, self._root) if path.parent == self._root else f"{path.parent.name}/{path.name}"
        mark = [found.st_size, found.st_ctime_ns, found.st_ino]  # no program can set this time
        known = self._known.get(key)
        if known is not None and known[0] == mark:
            self._rows[key] = known
            return SessionInfo(path=path, modified=found.st_mtime, size=found.st_size, **known[1])
        info = describe(path)
        self._is_stale = True
        if (info.size, info.modified) == (found.st_size, found.st_mtime):  # else it changed meanwhile
            facts = {name: getattr(info, name) for name in (*_TEXTS, *_OPTIONAL_TEXTS, "message_count")}
            self._rows[key] = [mark, facts]
        return info

    def save(self) -> None:
        """Keep the rows, where one is new or gone and there are enough. What cannot be kept is found out again."""
        if len(self._rows) < LEAST_SESSIONS or not (self._is_stale or len(self._rows) < len(self._known)):
            return
        with contextlib.suppress(OSError):
            write_whole_file(self._root / INDEX_NAME, (orjson.dumps({"format": _FORMAT, "sessions": self._rows}),))


def _read(path: Path) -> dict[str, list[Any]]:
    """The rows by their place under the root; none where the file is not as it is written here."""
    try:
        data = orjson.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    if not isinstance(data, dict) or data.get("format") != _FORMAT or not isinstance(data.get("sessions"), dict):
        return {}
    return {key: row for key, row in data["sessions"].items() if _is_row(row)}


def _is_row(row: Any) -> bool:
    if not (isinstance(row, list) and len(row) == 2 and isinstance(row[1], dict)):
        return False
    facts = row[1]
    count = facts.get("message_count")
    return (
        len(facts) == len(_TEXTS) + len(_OPTIONAL_TEXTS) + 1
        and all(isinstance(facts.get(name), str) for name in _TEXTS)
        and all(name in facts and isinstance(facts[name], str | None) for name in _OPTIONAL_TEXTS)
        and "message_count" in facts
        and (count is None or type(count) is int)
    )
