"""What a compaction entry carries so that a reader need not read what stands before it.

Other programs ignore it. Everything in it can be recomputed from the log; it is never the only place.
"""

from __future__ import annotations

from collections.abc import Sequence

from session_store.json_lines import dump_line
from session_store.messages import Json
from session_store.reading import LEAF_CUSTOM_TYPE, SessionReader

CUSTOM_DATA_LIMIT_BYTES = 4096


def make_checkpoint(session: SessionReader, *, active_tools: Sequence[str] | None, entries_before: int) -> Json:
    """The checkpoint of the session's current branch.

    `entries_before` is how many entries stand before the compaction in the file. `custom` has the newest data of
    each type on the branch, up to 4 KiB; `customOffsets` has id and offset (bytes) of the entries of larger
    ones. An offset is a hint: in a fork other lines may stand there, so that a reader compares the id.
    """
    projection = session.projection
    checkpoint: Json = {
        "provider": projection.provider,
        "modelId": projection.model_id,
        "thinkingLevel": projection.thinking_level,
        "name": session.name,
        "activeTools": list(active_tools) if active_tools is not None else None,
        "totals": {model: spent.to_json() for model, spent in session.totals.by_model.items()},
        "totalsByKind": {kind: spent.to_json() for kind, spent in session.totals.by_kind.items()},
        "entries": entries_before,
        "custom": {},
    }
    for custom_type, entry in session.newest_custom().items():
        if custom_type == LEAF_CUSTOM_TYPE:
            continue
        if len(dump_line({"data": entry.data})) <= CUSTOM_DATA_LIMIT_BYTES:
            checkpoint["custom"][custom_type] = entry.data
        else:
            where = {"entryId": entry.id, "offset": session.offset_of(entry.id)}
            checkpoint.setdefault("customOffsets", {})[custom_type] = where
    return checkpoint
