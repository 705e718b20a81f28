"""Short ways to write down branches: entries without parents, and `chain`, which hangs each on the one before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from session_store.context import ProjectedMessage, Projection
from session_store.entries import (
    BranchSummaryEntry,
    CompactionEntry,
    ContextEditEntry,
    CustomEntry,
    CustomMessageEntry,
    Entry,
    MessageEntry,
)
from session_store.messages import (
    AssistantMessage,
    BashExecutionMessage,
    Content,
    Message,
    SystemMessage,
    TextContent,
    ToolCall,
    ToolResultMessage,
    UserMessage,
    as_content,
)

TIMESTAMP = "2025-06-01T12:00:00.000Z"
TIMESTAMP_MS = 1748779200000


def chain(*entries: Entry) -> list[Entry]:
    """The entries as one path, the first a root."""
    path: list[Entry] = []
    for entry in entries:
        path.append(replace(entry, parent_id=path[-1].id if path else None))
    return path


def message(entry_id: str, value: Message) -> MessageEntry:
    return MessageEntry(id=entry_id, parent_id=None, timestamp=TIMESTAMP, message=value)


def user(entry_id: str, text: str = "") -> MessageEntry:
    return message(entry_id, UserMessage(content=as_content(text or entry_id)))


def answer(entry_id: str, *calls: str, text: str | None = None, stop_reason: str = "stop") -> MessageEntry:
    """An answer whose text is its id unless given, with calls of a tool named `read`."""
    content: list[Content] = [TextContent(entry_id if text is None else text)] if text != "" else []
    content += [ToolCall(call, "read", {"path": call}) for call in calls]
    return message(
        entry_id,
        AssistantMessage(content=tuple(content), provider="acme", model="large", stop_reason=stop_reason),
    )


def result(entry_id: str, call_id: str, text: str | None = None) -> MessageEntry:
    return message(
        entry_id, ToolResultMessage(tool_call_id=call_id, tool_name="read", content=as_content(text or entry_id))
    )


def shell(entry_id: str, *, excluded: bool = False) -> MessageEntry:
    return message(entry_id, BashExecutionMessage(command="ls", output=entry_id, exclude_from_context=excluded))


def system(entry_id: str, text: str = "", **fields: Any) -> MessageEntry:
    return message(entry_id, SystemMessage(content=as_content(text or entry_id), **fields))


def custom(entry_id: str, custom_type: str = "state", data: Any = None) -> CustomEntry:
    return CustomEntry(id=entry_id, parent_id=None, timestamp=TIMESTAMP, custom_type=custom_type, data=data)


def custom_message(entry_id: str) -> CustomMessageEntry:
    return CustomMessageEntry(
        id=entry_id, parent_id=None, timestamp=TIMESTAMP, custom_type="note", content=as_content(entry_id)
    )


def branch_summary(entry_id: str, summary: str) -> BranchSummaryEntry:
    return BranchSummaryEntry(id=entry_id, parent_id=None, timestamp=TIMESTAMP, from_id="gone", summary=summary)


def compaction(entry_id: str, first_kept: str | None, summary: str | None = None, **fields: Any) -> CompactionEntry:
    return CompactionEntry(
        id=entry_id,
        parent_id=None,
        timestamp=TIMESTAMP,
        summary=f"summary {entry_id}" if summary is None else summary,
        first_kept_entry_id=first_kept,
        **fields,
    )


def edit(entry_id: str, target_id: str, replacement: str | None) -> ContextEditEntry:
    return ContextEditEntry(
        id=entry_id,
        parent_id=None,
        timestamp=TIMESTAMP,
        target_id=target_id,
        replacement=None if replacement is None else as_content(replacement),
    )


def shown_ids(shown: Projection | Sequence[ProjectedMessage]) -> list[str]:
    """The ids of the entries behind the messages, in order."""
    messages = shown.messages if isinstance(shown, Projection) else shown
    return [item.entry.id for item in messages]
