"""What takes the newest compaction of a branch back. Pure.

The rule it keeps: nothing leaves the log, and afterwards the branch shows what it would show had that compaction never
been written, entries after it included. Another compaction does it, one that opens the window of the compaction before
the one taken back; where there was none, all of the branch. What the projection cannot be told in that one entry is
told in edits before it and a system message after it, in the same write:

- edits that came with the compaction taken back are overruled by what their targets showed without them;
- where nothing is summarised any more, the new entry's own summary is omitted. An edit may stand before its target, so
  that a write that is cut short leaves an edit without its compaction, which counts for nothing;
- such an entry shows no replay of system messages either: one message after it does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from session_store.entries import CompactionEntry, ContextEditEntry, CustomMessageEntry, Entry, MessageEntry
from session_store.ids import new_id, now_iso
from session_store.messages import (
    AssistantMessage,
    Content,
    CustomMessage,
    SystemMessage,
    ToolResultMessage,
    UserMessage,
)
from session_store.projection import Projection, build_projection
from session_store.reading import SessionReader
from session_store.system_replay import replay_system_messages

NOTHING_SUMMARISED = "(A compaction was undone here: the conversation before it stands in full.)"
"""The text of an undo that no context shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Undo:
    """The compaction `entry` that takes back `undone`, and what goes with it.

    `projection` is what the branch shows afterwards, but for `entry` itself, so that its size can be measured before
    anything is written. `edits` are (target, replacement) as `append_compaction_entry` takes them.
    """

    undone: CompactionEntry
    projection: Projection
    entry: CompactionEntry
    edits: tuple[tuple[str, tuple[Content, ...] | None], ...]
    system_message: MessageEntry | None


def plan_undo(session: SessionReader) -> Undo | None:
    """What would take back the newest compaction on the branch of the leaf; None where there is none.

    An undo is a compaction: undoing it brings back what it took away.
    """
    path = session.get_branch()
    undone = next((entry for entry in reversed(path) if isinstance(entry, CompactionEntry)), None)
    if undone is None:
        return None
    without = [entry for entry in path if entry is not undone and _batch_of(entry) != undone.id]
    projection = build_projection(without)
    before = projection.compaction
    shows_summary = any(item.entry is before for item in projection.messages)
    entry_id = new_id()
    system = replay_system_messages(
        item.message for item in projection.messages if isinstance(item.message, SystemMessage)
    )
    details = before.details if before is not None and isinstance(before.details, dict) else {}
    boundary = path[0].id if before is None else _boundary_of(before, projection)
    edits = _overruling(path, boundary, undone, projection)
    return Undo(
        undone=undone,
        projection=projection,
        entry=CompactionEntry(
            id=entry_id,
            parent_id=session.leaf_id,
            timestamp=now_iso(),
            summary=NOTHING_SUMMARISED if before is None else before.summary,
            first_kept_entry_id=boundary,
            details={**details, "undoes": undone.id},
            from_hook=before is not None and before.from_hook,
            system_message=system,
            reason="manual",
        ),
        edits=(*edits, *(() if shows_summary else ((entry_id, None),))),
        system_message=None if shows_summary or system is None else _told_again(system, entry_id),
    )


def _batch_of(entry: Entry) -> str | None:
    """The compaction that an entry was written with."""
    if isinstance(entry, ContextEditEntry):
        return entry.batch
    return (entry.extra or {}).get("batch") if isinstance(entry, MessageEntry) else None


def _boundary_of(compaction: CompactionEntry, projection: Projection) -> str:
    """The entry from which a compaction at the leaf keeps what this one kept, and all that came after it."""
    boundary = compaction.first_kept_entry_id
    if boundary is None or projection.unresolved_boundary is not None:
        # It kept nothing. As a boundary an older compaction says nothing itself.
        return compaction.id
    return boundary


def _overruling(
    path: Sequence[Entry], boundary: str, undone: CompactionEntry, wanted: Projection
) -> list[tuple[str, tuple[Content, ...] | None]]:
    """Edits for what the edits of `undone` would still change in the window from `boundary` on."""
    start = next(place for place, entry in enumerate(path) if entry.id == boundary)
    window = {entry.id: entry for entry in path[start:]}
    last = {entry.target_id: entry for entry in window.values() if isinstance(entry, ContextEditEntry)}
    earlier = {entry.target_id: entry for entry in wanted.entries if isinstance(entry, ContextEditEntry)}
    overruling: list[tuple[str, tuple[Content, ...] | None]] = []
    for target_id, edit in last.items():
        target = window.get(target_id)
        if edit.batch != undone.id or target is None or isinstance(target, CompactionEntry):
            continue
        previous = earlier.get(target_id)
        overruling.append((target_id, _recorded_content(target) if previous is None else previous.replacement))
    return overruling


def _recorded_content(entry: Entry) -> tuple[Content, ...]:
    """The content that an edit must give an entry to show it as it was recorded."""
    if isinstance(entry, CustomMessageEntry):
        return entry.content
    if isinstance(entry, MessageEntry) and isinstance(
        entry.message, UserMessage | AssistantMessage | ToolResultMessage | CustomMessage
    ):
        return entry.message.content
    return ()  # of everything else an edit changes only whether it shows


def _told_again(system: SystemMessage, compaction_id: str) -> MessageEntry:
    # It goes with its compaction: undoing that takes it back, too.
    return MessageEntry(
        id=new_id(),
        parent_id=compaction_id,
        timestamp=now_iso(),
        message=system,
        extra={"batch": compaction_id},
    )
