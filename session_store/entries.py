"""The lines of the log.

Line 1 of a file is the `SessionHeader`; every other line is an entry with an `id` and a `parent_id`,
so that the entries form a tree. `timestamp` is ISO-8601 in UTC with milliseconds and `Z`; order comes
from the position in the file, never from timestamps. Unknown fields are kept in `extra`, unknown types
as `UnknownEntry`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from session_store.messages import Content, Json, Message, SystemMessage, Usage

CURRENT_VERSION = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionHeader:
    """The first line of a file. `cwd` is where the session works, `parent_session` the file it was made from."""

    id: str
    timestamp: str
    cwd: str
    version: int = CURRENT_VERSION
    parent_session: str | None = None
    extra: Json | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageEntry:
    """A message, as it was recorded."""

    id: str
    parent_id: str | None
    timestamp: str
    message: Message
    extra: Json | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionEntry:
    """Old history became `summary`; what is kept verbatim starts at `first_kept_entry_id`.

    `reason` (threshold, overflow, manual), `method` (model, handler, digest, shrink), `model`,
    `tokens_after`, `duration_ms`, `instructions` and `checkpoint` are this library's own and are absent
    in other programs' files.
    """

    id: str
    parent_id: str | None
    timestamp: str
    summary: str
    first_kept_entry_id: str | None
    tokens_before: int = 0
    details: Any = None
    usage: Usage | None = None
    from_hook: bool = False
    system_message: SystemMessage | None = None
    reason: str | None = None
    method: str | None = None
    model: str | None = None
    tokens_after: int | None = None
    duration_ms: int | None = None
    instructions: str | None = None
    checkpoint: Json | None = None
    extra: Json | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextEditEntry:
    """Changes how an earlier entry shows in the context, never the entry.

    `replacement` None omits it; else it is the new content. `batch` names the compaction entry that was
    written in the same write; without that entry the edit is ignored on load.
    """

    id: str
    parent_id: str | None
    timestamp: str
    target_id: str
    replacement: tuple[Content, ...] | None
    batch: str | None = None
    extra: Json | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchSummaryEntry:
    """The branch that ended in `from_id` was left; `summary` stands for it on this one."""

    id: str
    parent_id: str | None
    timestamp: str
    from_id: str | None
    summary: str
    details: Any = None
    usage: Usage | None = None
    from_hook: bool = False
    extra: Json | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomMessageEntry:
    """A message of an extension: the model sees it as the user's, a person only where `display` is true."""

    id: str
    parent_id: str | None
    timestamp: str
    custom_type: str
    content: tuple[Content, ...]
    display: bool = True
    details: Any = None
    extra: Json | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomEntry:
    """State of an extension; no model sees it."""

    id: str
    parent_id: str | None
    timestamp: str
    custom_type: str
    data: Any = None
    extra: Json | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelChangeEntry:
    """From here on another model answers: `provider/model_id`."""

    id: str
    parent_id: str | None
    timestamp: str
    provider: str
    model_id: str
    extra: Json | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ThinkingLevelChangeEntry:
    """From here on the model thinks at another level: off, minimal, low, medium, high, xhigh, max."""

    id: str
    parent_id: str | None
    timestamp: str
    thinking_level: str
    extra: Json | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelEntry:
    """`label` None clears the target's label."""

    id: str
    parent_id: str | None
    timestamp: str
    target_id: str
    label: str | None = None
    extra: Json | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionInfoEntry:
    """The session's name; the last one in the file counts, whatever its branch."""

    id: str
    parent_id: str | None
    timestamp: str
    name: str
    extra: Json | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageEntry:
    """Tokens spent outside of an answer, such as by a compaction that was vetoed."""

    id: str
    parent_id: str | None
    timestamp: str
    kind: str
    provider: str
    model: str
    usage: Usage
    extra: Json | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownEntry:
    """An entry of a type this version does not know: kept, passed through, in no context.

    `raw` holds the fields besides `type`, `id`, `parentId` and `timestamp`.
    """

    id: str
    parent_id: str | None
    timestamp: str
    type: str
    raw: Json


Entry: TypeAlias = (
    MessageEntry
    | CompactionEntry
    | ContextEditEntry
    | BranchSummaryEntry
    | CustomMessageEntry
    | CustomEntry
    | ModelChangeEntry
    | ThinkingLevelChangeEntry
    | LabelEntry
    | SessionInfoEntry
    | UsageEntry
    | UnknownEntry
)
