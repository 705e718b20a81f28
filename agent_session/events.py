"""Notifications: what a session tells, with nothing to answer.

Every event is a frozen, keyword-only dataclass; `name` is what `on("…")` takes. Handlers of these are
shielded from cancellation and have a time limit; subscribers get each event once, when it is final.
Sizes are tokens, times are seconds, unless a field says otherwise. The decisions are in `hooks`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from agent_session.compaction.types import CompactionOutcome, CompactionReason
from agent_session.llm.client import StreamEvent
from session_store.entries import BranchSummaryEntry, Entry
from session_store.messages import AssistantMessage, Content, Message, ToolResultMessage
from session_store.showing import Brief

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Event(Brief):
    """Root of all events. `schema_version` rises when a field changes its meaning."""

    name: ClassVar[str] = ""
    schema_version: int = SCHEMA_VERSION


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SessionStart(Event):
    """The session is open and nothing was asked of a model yet."""

    name: ClassVar[str] = "session_start"
    reason: Literal["startup", "resume", "new", "fork", "load"]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SessionShutdown(Event):
    """The session closes after the handlers of this have ended or run out of time."""

    name: ClassVar[str] = "session_shutdown"
    reason: Literal["close", "replaced", "unload"]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class AgentStart(Event):
    """A run begins; also again after an overflow was compacted away (`is_retry`)."""

    name: ClassVar[str] = "agent_start"
    is_retry: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class AgentEnd(Event):
    """A run ended; `messages` are what it recorded. With `will_retry` another `agent_start` follows."""

    name: ClassVar[str] = "agent_end"
    messages: tuple[Message, ...]
    will_retry: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class AgentSettled(Event):
    """Nothing of the prompt runs any more: no retry, no compaction, no queue. The last event of a prompt."""

    name: ClassVar[str] = "agent_settled"
    aborted: bool


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class TurnStart(Event):
    """One model call with its tools begins; `turn_index` counts from 0 in a run."""

    name: ClassVar[str] = "turn_start"
    turn_index: int


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class TurnEnd(Event):
    """The answer and all its tool results are recorded; of an aborted turn, what there was of them (`message` None:
    nothing).
    """

    name: ClassVar[str] = "turn_end"
    turn_index: int
    message: AssistantMessage | None
    tool_results: tuple[ToolResultMessage, ...]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class MessageStart(Event):
    """An answer begins to stream."""

    name: ClassVar[str] = "message_start"
    turn_index: int


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class MessageUpdate(Event):
    """A piece of an answer, as it streamed."""

    name: ClassVar[str] = "message_update"
    delta: StreamEvent


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class MessageDiscarded(Event):
    """What streamed since `message_start` does not count: it failed, and a retry may stream anew."""

    name: ClassVar[str] = "message_discarded"
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ToolExecutionStart(Event):
    """A tool begins to run, with the arguments as decided and validated."""

    name: ClassVar[str] = "tool_execution_start"
    call_id: str
    tool_name: str
    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ToolExecutionUpdate(Event):
    """What a tool reported while it runs."""

    name: ClassVar[str] = "tool_execution_update"
    call_id: str
    tool_name: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ToolExecutionEnd(Event):
    """A tool has ended; its result is recorded next. `details` are the tool's own, for programs and people."""

    name: ClassVar[str] = "tool_execution_end"
    call_id: str
    tool_name: str
    content: tuple[Content, ...]
    is_error: bool
    duration: float
    details: Any = None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class CompactionStart(Event):
    """The decision to compact stands; the summary is made now."""

    name: ClassVar[str] = "compaction_start"
    reason: CompactionReason
    tokens_before: int
    threshold: int
    messages: int
    will_retry: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class CompactionProgress(Event):
    """`phase`: summarizing, storing; `chunk` of `chunks`, `seconds` since the start."""

    name: ClassVar[str] = "compaction_progress"
    phase: str
    chunk: int
    chunks: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class CompactionEnd(Event):
    """Exactly one for every `before_compact`, whatever happened. `outcome.entry` is the stored entry.

    `aborted` is true for the statuses aborted and vetoed.
    """

    name: ClassVar[str] = "compaction_end"
    reason: CompactionReason
    outcome: CompactionOutcome
    aborted: bool
    will_retry: bool
    from_hook: bool


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SessionTree(Event):
    """The leaf moved to another place in the tree."""

    name: ClassVar[str] = "session_tree"
    new_leaf_id: str | None
    old_leaf_id: str | None
    summary_entry: BranchSummaryEntry | None = None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SessionFork(Event):
    """A new session was made from this one at `entry_id`."""

    name: ClassVar[str] = "session_fork"
    entry_id: str | None
    path: str | None
    session_id: str


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SessionSwitch(Event):
    """A host put another session in place of this one."""

    name: ClassVar[str] = "session_switch"
    session_id: str


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class RetryStart(Event):
    """A transient failure; the next attempt comes after `delay` seconds."""

    name: ClassVar[str] = "retry_start"
    attempt: int
    max_retries: int
    delay: float
    error: str


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class RetryEnd(Event):
    """The retries are over: with a good answer, or given up after `attempt` of them."""

    name: ClassVar[str] = "retry_end"
    success: bool
    attempt: int
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ModelSelect(Event):
    """Another model answers from now on; ids are `provider/name`."""

    name: ClassVar[str] = "model_select"
    model: str
    previous: str | None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ThinkingLevelSelect(Event):
    """The model thinks at another level from now on."""

    name: ClassVar[str] = "thinking_level_select"
    thinking_level: str
    previous: str


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class QueueUpdate(Event):
    """Texts that wait, in order of delivery."""

    name: ClassVar[str] = "queue_update"
    steering: tuple[str, ...]
    follow_up: tuple[str, ...]
    next_turn: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class EntryAppended(Event):
    """The entry is in the log."""

    name: ClassVar[str] = "entry_appended"
    entry: Entry


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ExtensionFailed(Event):
    """A handler raised, overran its time or answered wrongly; the default path went on."""

    name: ClassVar[str] = "extension_failed"
    owner: str
    event: str
    why: str
    error: BaseException | None = None
    traceback: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Warning(Event):  # noqa: A001 - the event's name is fixed by the specification
    """Something a person should know; nothing stopped."""

    name: ClassVar[str] = "warning"
    text: str


NOTIFICATIONS: dict[str, type[Event]] = {
    cls.name: cls
    for cls in (
        SessionStart,
        SessionShutdown,
        AgentStart,
        AgentEnd,
        AgentSettled,
        TurnStart,
        TurnEnd,
        MessageStart,
        MessageUpdate,
        MessageDiscarded,
        ToolExecutionStart,
        ToolExecutionUpdate,
        ToolExecutionEnd,
        CompactionStart,
        CompactionProgress,
        CompactionEnd,
        SessionTree,
        SessionFork,
        SessionSwitch,
        RetryStart,
        RetryEnd,
        ModelSelect,
        ThinkingLevelSelect,
        QueueUpdate,
        EntryAppended,
        ExtensionFailed,
        Warning,
    )
}
