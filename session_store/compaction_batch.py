"""The entries that one compaction writes: its context edits, then itself. Pure.

The rule it keeps: the batch fits the branch as it is at the append, whatever it was prepared on, and carries
all that a reader needs of what it cuts away.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from session_store.boundary import check_boundary
from session_store.checkpoint import Checkpoint
from session_store.codec import encode_entry
from session_store.entries import CompactionEntry, ContextEditEntry, Entry
from session_store.errors import InvalidBoundaryError
from session_store.ids import new_id, now_iso
from session_store.messages import Content, SystemMessage
from session_store.reading import LEAF_CUSTOM_TYPE, SessionReader
from session_store.system_replay import replay_system_messages


def compaction_batch(
    session: SessionReader,
    entry: CompactionEntry,
    edits: Sequence[tuple[str, tuple[Content, ...] | None]],
    *,
    active_tools: Sequence[str] | None,
    bytes_before: int | None,
) -> list[Entry]:
    """The edits, chained on the leaf and naming the compaction, and the compaction on the last of them.

    `bytes_before` is how many bytes of lines the log has, None where that will not be so when the batch is written.

    Raises:
        InvalidBoundaryError: the boundary does not fit the branch as it is now.
    """
    _check(session, entry)
    batch: list[Entry] = []
    parent_id = session.leaf_id
    for target_id, replacement in edits:
        edit = ContextEditEntry(
            id=new_id(),
            parent_id=parent_id,
            timestamp=now_iso(),
            target_id=target_id,
            replacement=replacement,
            batch=entry.id,
        )
        batch.append(edit)
        parent_id = edit.id
    if bytes_before is not None:
        bytes_before += sum(len(encode_entry(edit)) for edit in batch)
    checkpoint = _checkpoint_of(
        session, active_tools=active_tools, entries_before=len(session) + len(batch), bytes_before=bytes_before
    )
    system_message = entry.system_message
    # What an undo replays is of the branch without the compaction that it takes back.
    if system_message is None and not entry.is_undo:
        system_message = replay_system_messages(
            item.message for item in session.projection.messages if isinstance(item.message, SystemMessage)
        )
    batch.append(replace(entry, parent_id=parent_id, checkpoint=checkpoint.to_json(), system_message=system_message))
    return batch


def _checkpoint_of(
    session: SessionReader, *, active_tools: Sequence[str] | None, entries_before: int, bytes_before: int | None
) -> Checkpoint:
    projection = session.projection
    return Checkpoint(
        provider=projection.provider,
        model_id=projection.model_id,
        thinking_level=projection.thinking_level,
        name=session.name,
        active_tools=tuple(active_tools) if active_tools is not None else None,
        totals=session.totals,
        entries=entries_before,
        bytes=bytes_before,
        custom={kind: state for kind, state in session.newest_custom().items() if kind != LEAF_CUSTOM_TYPE},
    )


def _check(session: SessionReader, entry: CompactionEntry) -> None:
    boundary = entry.first_kept_entry_id
    if not entry.is_undo:
        check_boundary(session.projection, boundary)
    elif boundary is not None and not session.is_on_branch(boundary):
        raise InvalidBoundaryError(boundary, "it is not on this branch")
