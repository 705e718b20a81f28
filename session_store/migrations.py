"""Old versions of the format, upcast while they are read; the file keeps its bytes.

Version 1 is a linear list without ids, 2 is the tree, 3 renamed a role. An upcaster takes a parsed line and
gives the line as the next version would have it, without touching the one it was given.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from session_store.entries import CURRENT_VERSION
from session_store.errors import UnsupportedVersionError
from session_store.messages import Json

FIRST_TREE_VERSION = 2

# Header fields of version 1 that mean nothing any more.
RETIRED_HEADER_FIELDS = frozenset({"provider", "modelId", "thinkingLevel", "branchedFrom"})


def version_of(header: Json, path: Path | None = None) -> int:
    """The version a header names: 1 where it is absent.

    Raises:
        UnsupportedVersionError: it is newer than this library, or no whole number.
    """
    version: Any = header.get("version")
    if version is None:
        return 1
    if isinstance(version, bool) or not isinstance(version, (int, float)) or version % 1 != 0:
        raise UnsupportedVersionError(path, version, CURRENT_VERSION)
    if version > CURRENT_VERSION:
        raise UnsupportedVersionError(path, int(version), CURRENT_VERSION)
    return max(1, int(version))


def numbered_id(number: int) -> str:
    """The id of a version-1 entry: its 0-based number among the parsable lines (the header is 0)."""
    return f"{number:08x}"


def upcast(data: Json, *, version: int, number: int, parent_id: str | None) -> Json:
    """A parsed line of `version` as the current version would have it.

    `number` and `parent_id` matter to version 1 only: the line's own number, and the id of the entry before it.
    """
    if version < FIRST_TREE_VERSION:
        data = _give_id(data, number=number, parent_id=parent_id)
    if version < CURRENT_VERSION:
        data = _rename_hook_message(data)
    return data


def _give_id(data: Json, *, number: int, parent_id: str | None) -> Json:
    data = {**data, "id": numbered_id(number), "parentId": parent_id}
    if data.get("type") == "compaction":
        index = data.pop("firstKeptEntryIndex", None)
        data["firstKeptEntryId"] = numbered_id(index) if _is_earlier_entry(index, number) else None
    return data


def _is_earlier_entry(index: Any, number: int) -> bool:
    return isinstance(index, int) and not isinstance(index, bool) and 0 < index < number


def _rename_hook_message(data: Json) -> Json:
    message = data.get("message")
    if data.get("type") == "message" and isinstance(message, dict) and message.get("role") == "hookMessage":
        return {**data, "message": {**message, "role": "custom"}}
    return data
