"""The lines of the log.

Line 1 of a file is the `SessionHeader`; every other line is an entry with an `id` and a `parent_id`,
so that the entries form a tree. `timestamp` is ISO-8601 in UTC with milliseconds and `Z`; order comes
from the position in the file, never from timestamps. Unknown fields are kept in `extra`, unknown types
as `UnknownEntry`. `type` is the type's name in the file.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

from typing_extensions import override

from session_store.messages import Content, Json, Message, SystemMessage, Usage, text_of
from session_store.showing import Shown, one_line, quoted

CURRENT_VERSION = 3


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SessionHeader(Shown):
    """The first line of a file. `cwd` is where the session works, `parent_session` the file it was made from."""

    id: str
    timestamp: str
    cwd: str
    version: int = CURRENT_VERSION
    parent_session: str | None = None
    extra: Json | None = None

    @override
    def _line(self) -> str:
        return f"{self.id}, version {self.version}, {self.cwd}"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class MessageEntry(Shown):
    """A message, as it was recorded."""

    type: ClassVar = "message"
    id: str
    parent_id: str | None
    timestamp: str
    message: Message
    extra: Json | None = None

    @override
    def _line(self) -> str:
        return f"{self.id} {self.message!r}"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class CompactionEntry(Shown):
    """Old history became `summary`; what is kept verbatim starts at `first_kept_entry_id`.

    `reason` (threshold, overflow, manual), `method` (model, handler, digest, shrink), `model`,
    `tokens_after`, `duration_ms`, `instructions` and `checkpoint` are this library's own and are absent
    in other programs' files.
    """

    type: ClassVar = "compaction"
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

    @property
    def is_undo(self) -> bool:
        """Whether it takes an earlier compaction back, which `details["undoes"]` names."""
        return isinstance(self.details, dict) and "undoes" in self.details

    @override
    def _line(self) -> str:
        how = ", ".join(part for part in (self.reason, self.method) if part)
        after = f" -> {self.tokens_after:,}" if self.tokens_after is not None else ""
        return f"{self.id}{f' ({how})' if how else ''}: {self.tokens_before:,}{after} tokens, {quoted(self.summary)}"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ContextEditEntry(Shown):
    """Changes how an earlier entry shows in the context, never the entry.

    `replacement` None omits it; else it is the new content. `batch` names the compaction entry that was
    written in the same write; without that entry the edit is ignored on load.
    """

    type: ClassVar = "context_edit"
    id: str
    parent_id: str | None
    timestamp: str
    target_id: str
    replacement: tuple[Content, ...] | None
    batch: str | None = None
    extra: Json | None = None

    @override
    def _line(self) -> str:
        return f"{self.id}: {self.target_id} {'omitted' if self.replacement is None else 'replaced'}"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class BranchSummaryEntry(Shown):
    """The branch that ended in `from_id` was left; `summary` stands for it on this one."""

    type: ClassVar = "branch_summary"
    id: str
    parent_id: str | None
    timestamp: str
    from_id: str | None
    summary: str
    details: Any = None
    usage: Usage | None = None
    from_hook: bool = False
    extra: Json | None = None

    @override
    def _line(self) -> str:
        return f"{self.id}: {quoted(self.summary)}"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class CustomMessageEntry(Shown):
    """A message of an extension: the model sees it as the user's, a person only where `display` is true."""

    type: ClassVar = "custom_message"
    id: str
    parent_id: str | None
    timestamp: str
    custom_type: str
    content: tuple[Content, ...]
    display: bool = True
    details: Any = None
    extra: Json | None = None

    @override
    def _line(self) -> str:
        return f"{self.id} {self.custom_type}: {quoted(text_of(self.content))}"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class CustomEntry(Shown):
    """State of an extension; no model sees it."""

    type: ClassVar = "custom"
    id: str
    parent_id: str | None
    timestamp: str
    custom_type: str
    data: Any = None
    extra: Json | None = None

    @override
    def _line(self) -> str:
        return f"{self.id} {self.custom_type}: {one_line(repr(self.data))}"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ModelChangeEntry(Shown):
    """From here on another model answers: `provider/model_id`."""

    type: ClassVar = "model_change"
    id: str
    parent_id: str | None
    timestamp: str
    provider: str
    model_id: str
    extra: Json | None = None

    @override
    def _line(self) -> str:
        return f"{self.id}: {self.provider}/{self.model_id}"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ThinkingLevelChangeEntry(Shown):
    """From here on the model thinks at another level: off, minimal, low, medium, high, xhigh, max."""

    type: ClassVar = "thinking_level_change"
    id: str
    parent_id: str | None
    timestamp: str
    thinking_level: str
    extra: Json | None = None

    @override
    def _line(self) -> str:
        return f"{self.id}: {self.thinking_level}"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class LabelEntry(Shown):
    """`label` None clears the target's label."""

    type: ClassVar = "label"
    id: str
    parent_id: str | None
    timestamp: str
    target_id: str
    label: str | None = None
    extra: Json | None = None

    @override
    def _line(self) -> str:
        return f"{self.id}: {self.target_id} {'unlabelled' if self.label is None else quoted(self.label)}"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SessionInfoEntry(Shown):
    """The session's name; the last one in the file counts, whatever its branch."""

    type: ClassVar = "session_info"
    id: str
    parent_id: str | None
    timestamp: str
    name: str
    extra: Json | None = None

    @override
    def _line(self) -> str:
        return f"{self.id}: {quoted(self.name)}"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class UsageEntry(Shown):
    """Tokens spent outside of an answer, such as by a compaction that was vetoed."""

    type: ClassVar = "usage"
    id: str
    parent_id: str | None
    timestamp: str
    kind: str
    provider: str
    model: str
    usage: Usage
    extra: Json | None = None

    @override
    def _line(self) -> str:
        return f"{self.id} {self.kind}, {self.provider}/{self.model}: {self.usage!r}"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class UnknownEntry(Shown):
    """An entry of a type this version does not know: kept, passed through, in no context.

    `raw` holds the fields besides `type`, `id`, `parentId` and `timestamp`.
    """

    id: str
    parent_id: str | None
    timestamp: str
    type: str
    raw: Json

    @override
    def _line(self) -> str:
        return f"{self.id} of type {one_line(self.type)}"


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
