"""Where a compaction may begin to keep: the check made at every append, for handlers too.

Pure. The rule it keeps: what is kept starts at something that can open a conversation, forward of the last
boundary, and no call is parted from any of its results, those to come included.
"""

from __future__ import annotations

from collections import Counter

from session_store.context import dangling_calls
from session_store.entries import MessageEntry
from session_store.errors import InvalidBoundaryError
from session_store.messages import AssistantMessage, CompactionSummaryMessage, ToolResultMessage
from session_store.projection import Projection


def check_boundary(projection: Projection, first_kept_entry_id: str | None) -> None:
    """Return where a compaction appended at the projection's leaf may keep from that entry on.

    None keeps nothing, and is always possible. Otherwise the entry must be on the branch, after the previous
    boundary, no tool result, and not between a call and one of its results. A call of the last batch that
    has no result yet counts as going on to the end of the branch. An entry that no model can see may be a
    boundary like any other. An undo does not come here: it needs an ancestor only.

    Raises:
        InvalidBoundaryError: it may not; the error says which of the rules it breaks.
    """
    if first_kept_entry_id is None:
        return
    entries = projection.entries
    position = next((i for i in range(len(entries) - 1, -1, -1) if entries[i].id == first_kept_entry_id), None)
    if position is None:
        raise InvalidBoundaryError(first_kept_entry_id, "it is not on this branch after the previous boundary")
    previous = projection.compaction.first_kept_entry_id if projection.compaction is not None else None
    if first_kept_entry_id == previous:
        raise InvalidBoundaryError(first_kept_entry_id, "it is the previous boundary: a compaction must move forward")
    entry = entries[position]
    if isinstance(entry, MessageEntry) and isinstance(entry.message, (ToolResultMessage, CompactionSummaryMessage)):
        role = "a tool result" if isinstance(entry.message, ToolResultMessage) else "a summary"
        raise InvalidBoundaryError(first_kept_entry_id, f"it is {role}, which cannot open what is kept")
    call_id = _call_across(projection, {before.id for before in entries[:position]})
    if call_id is not None:
        raise InvalidBoundaryError(
            first_kept_entry_id, f"it stands between the call {call_id!r} and the result of that call"
        )


def _call_across(projection: Projection, cut_away: set[str]) -> str | None:
    """A call among the entries `cut_away` whose result is not among them, or is still to come."""
    unanswered: Counter[str] = Counter()
    for item in projection.messages:
        message = item.message
        if isinstance(message, AssistantMessage):
            calls = Counter(call.id for call in message.tool_calls)
            # An id that is used again belongs to the later answer; one answer may use it more than once.
            for call_id, count in calls.items():
                unanswered[call_id] = count if item.entry.id in cut_away else 0
        elif isinstance(message, ToolResultMessage) and unanswered[message.tool_call_id]:
            if item.entry.id not in cut_away:
                return message.tool_call_id
            unanswered[message.tool_call_id] -= 1
    return next((call.id for call in dangling_calls(projection) if unanswered[call.id]), None)
