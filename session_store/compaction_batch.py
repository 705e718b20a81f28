"""The entries that one compaction writes: its context edits, then itself. Pure.

The rule it keeps: the batch fits the branch as it is at the append, whatever it was prepared on, and carries
all that a reader needs of what it cuts away.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from session_store.boundary import check_boundary
from session_store.checkpoint import make_checkpoint
from session_store.entries import CompactionEntry, ContextEditEntry, Entry
from session_store.errors import InvalidBoundaryError
from session_store.ids import new_id, now_iso
from session_store.messages import Content, SystemMessage
from session_store.reading import SessionReader
from session_store.system_replay import replay_system_messages


def compaction_batch(
    session: SessionReader,
    entry: CompactionEntry,
    edits: Sequence[tuple[str, tuple[Content, ...] | None]],
    *,
    active_tools: Sequence[str] | None,
) -> list[Entry]:
    """The edits, chained on the leaf and naming the compaction, and the compaction on the last of them.

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
    checkpoint = make_checkpoint(session, active_tools=active_tools, entries_before=len(session) + len(batch))
    system_message = entry.system_message
    # What an undo replays is of the branch without the compaction that it takes back.
    if system_message is None and not entry.is_undo:
        system_message = replay_system_messages(
            item.message for item in session.projection.messages if isinstance(item.message, SystemMessage)
        )
    batch.append(replace(entry, parent_id=parent_id, checkpoint=checkpoint, system_message=system_message))
    return batch


def _check(session: SessionReader, entry: CompactionEntry) -> None:
    boundary = entry.first_kept_entry_id
    if not entry.is_undo:
        check_boundary(session.projection, boundary)
    elif boundary is not None and all(step.id != boundary for step in session.get_branch()):
        raise InvalidBoundaryError(boundary, "it is not on this branch")
