"""Decisions: events a handler may answer, the answers, and how an answer is folded into the event.

The whole semantics: handlers are called in order; each sees the event as folded so far (a copy); None or an empty dict
is no opinion; `fold` checks an answer and returns the event with it, or raises `InvalidAnswer`; once `is_settled`
nobody else is asked. `extending.runner` is that loop. Everything of the contract can be had from here: the answers
live in `answers`, the root in `decision`, those of a compaction in `compaction_hooks`, the notifications in `events`.
"""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Protocol, Self, TypeVar

from typing_extensions import override

from agent_session.answers import (
    Amend as Amend,
)
from agent_session.answers import (
    Block as Block,
)
from agent_session.answers import (
    ChangedArguments as ChangedArguments,
)
from agent_session.answers import (
    ChangedInput as ChangedInput,
)
from agent_session.answers import (
    ChangedResult as ChangedResult,
)
from agent_session.answers import (
    Handled as Handled,
)
from agent_session.answers import (
    ReplacedMessages as ReplacedMessages,
)
from agent_session.answers import (
    ReplacedRequest as ReplacedRequest,
)
from agent_session.answers import (
    RunChanges as RunChanges,
)
from agent_session.answers import (
    Summarize as Summarize,
)
from agent_session.answers import (
    TreeSummary as TreeSummary,
)
from agent_session.answers import (
    Veto as Veto,
)
from agent_session.compaction_hooks import BeforeCompact as BeforeCompact
from agent_session.compaction_hooks import CompactionScope as CompactionScope
from agent_session.compaction_hooks import CompactionServices as CompactionServices
from agent_session.compaction_hooks import SessionCompact as SessionCompact
from agent_session.decision import Decision as Decision
from agent_session.decision import InvalidAnswer as InvalidAnswer
from agent_session.decision import checked_summary
from agent_session.events import NOTIFICATIONS, Event
from agent_session.events import CompactionEnd as CompactionEnd
from agent_session.events import CompactionProgress as CompactionProgress
from agent_session.events import CompactionStart as CompactionStart
from session_store.entries import Entry
from session_store.messages import Content, ImageContent, Message


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Input(Decision):
    """A prompt arrives. `source`: prompt, steer, follow_up, extension."""

    name: ClassVar[str] = "input"
    answers: ClassVar[tuple[type, ...]] = (ChangedInput, Handled)
    text: str
    images: tuple[ImageContent, ...] = ()
    source: str = "prompt"
    handled: Handled | None = None

    @property
    @override
    def is_settled(self) -> bool:
        return self.handled is not None

    @override
    def _folded(self, answer: Any, owner: str) -> Self:
        if isinstance(answer, Handled):
            return replace(self, handled=answer, decided_by=owner)
        return replace(
            self,
            text=self.text if answer.text is None else answer.text,
            images=self.images if answer.images is None else tuple(answer.images),
            decided_by=owner,
        )


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class BeforeAgentStart(Decision):
    """Before a run: its first message and system prompt."""

    name: ClassVar[str] = "before_agent_start"
    answers: ClassVar[tuple[type, ...]] = (RunChanges,)
    prompt: Message | None
    system_prompt: str
    messages: tuple[Message, ...] = ()

    @override
    def _folded(self, answer: Any, owner: str) -> Self:
        return replace(
            self,
            messages=self.messages + tuple(answer.messages),
            system_prompt=self.system_prompt if answer.system_prompt is None else answer.system_prompt,
            decided_by=owner,
        )


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Context(Decision):
    """Before each request: the messages it will send."""

    name: ClassVar[str] = "context"
    answers: ClassVar[tuple[type, ...]] = (ReplacedMessages,)
    messages: tuple[Message, ...]

    @override
    def _folded(self, answer: Any, owner: str) -> Self:
        return replace(self, messages=tuple(answer.messages), decided_by=owner)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class BeforeRequest(Decision):
    """The request is built; `payload` is the provider's own shape, without credentials."""

    name: ClassVar[str] = "before_request"
    answers: ClassVar[tuple[type, ...]] = (ReplacedRequest,)
    model: str
    payload: dict[str, Any]
    headers: dict[str, str]

    @override
    def _folded(self, answer: Any, owner: str) -> Self:
        return replace(
            self,
            payload=self.payload if answer.payload is None else answer.payload,
            headers=self.headers if answer.headers is None else answer.headers,
            decided_by=owner,
        )


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class MessageEnd(Decision):
    """Before a message is recorded; the answer is the message that takes its place, of the same role.

    Subscribers get it after the append, with the stored `entry`.
    """

    name: ClassVar[str] = "message_end"
    message: Message
    entry: Entry | None = None

    @override
    def fold(self, answer: object, owner: str) -> Self:
        if type(answer) is not type(self.message):
            raise InvalidAnswer(
                f"answered {type(answer).__name__}; message_end takes a {type(self.message).__name__} or None"
            )
        return replace(self, message=answer, decided_by=owner)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ToolCallEvent(Decision):
    """Before a tool runs, its arguments validated. A handler that fails blocks the call."""

    name: ClassVar[str] = "tool_call"
    answers: ClassVar[tuple[type, ...]] = (Block, ChangedArguments)
    failure_blocks: ClassVar[bool] = True
    call_id: str
    tool_name: str
    arguments: dict[str, Any]
    block: Block | None = None

    @property
    @override
    def is_settled(self) -> bool:
        return self.block is not None

    @override
    def _folded(self, answer: Any, owner: str) -> Self:
        if isinstance(answer, Block):
            return replace(self, block=answer, decided_by=owner)
        return replace(self, arguments=answer.arguments, decided_by=owner)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ToolResultEvent(Decision):
    """Before a tool's result is recorded. Subscribers get it after the append, with the stored `entry`."""

    name: ClassVar[str] = "tool_result"
    answers: ClassVar[tuple[type, ...]] = (ChangedResult,)
    call_id: str
    tool_name: str
    arguments: dict[str, Any]
    content: tuple[Content, ...]
    details: Any = None
    is_error: bool = False
    entry: Entry | None = None

    @override
    def _folded(self, answer: Any, owner: str) -> Self:
        return replace(
            self,
            content=self.content if answer.content is None else tuple(answer.content),
            details=self.details if answer.details is None else answer.details,
            is_error=self.is_error if answer.is_error is None else answer.is_error,
            decided_by=owner,
        )


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class BeforeTree(Decision):
    """Before the leaf moves. `summarize`: the branch that is left is to be summarised."""

    name: ClassVar[str] = "before_tree"
    answers: ClassVar[tuple[type, ...]] = (Veto, TreeSummary)
    target_id: str
    old_leaf_id: str | None
    summarize: bool
    entries: tuple[Entry, ...] = ()
    veto: Veto | None = None
    summary: str | None = None
    label: str | None = None

    @property
    @override
    def is_settled(self) -> bool:
        return self.veto is not None

    @override
    def _folded(self, answer: Any, owner: str) -> Self:
        if isinstance(answer, Veto):
            return replace(self, veto=answer, decided_by=owner)
        if answer.summary is not None:
            checked_summary(answer.summary)
        return self._replacing(
            "summary",
            owner,
            self.summary is not None and answer.summary is not None,
            summary=self.summary if answer.summary is None else answer.summary,
            label=self.label if answer.label is None else answer.label,
        )


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class _Vetoable(Decision):
    answers: ClassVar[tuple[type, ...]] = (Veto,)
    veto: Veto | None = None

    @property
    @override
    def is_settled(self) -> bool:
        return self.veto is not None

    @override
    def _folded(self, answer: Any, owner: str) -> Self:
        return replace(self, veto=answer, decided_by=owner)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class BeforeFork(_Vetoable):
    """Before a new session is made from this one, up to `entry_id`."""

    name: ClassVar[str] = "before_fork"
    entry_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class BeforeSwitch(_Vetoable):
    """Before a host puts another session in place of this one."""

    name: ClassVar[str] = "before_switch"
    session_id: str | None
    reason: Literal["new", "switch", "fork"] = "switch"


DECISIONS: dict[str, type[Decision]] = {
    cls.name: cls
    for cls in (
        Input,
        BeforeAgentStart,
        Context,
        BeforeRequest,
        MessageEnd,
        ToolCallEvent,
        ToolResultEvent,
        BeforeCompact,
        SessionCompact,
        BeforeTree,
        BeforeFork,
        BeforeSwitch,
    )
}

EVENTS: dict[str, type[Event]] = {**DECISIONS, **NOTIFICATIONS}

D = TypeVar("D", bound=Decision)


class Hooks(Protocol):
    """What the runtime asks of the machinery of extensions; `extending.runner.HookRunner` is it."""

    def has(self, event: type[Event]) -> bool:
        """Whether anybody handles it: lets a caller skip building an event nobody wants."""
        ...

    async def decide(self, event: D) -> D:
        """The event as folded by its handlers. A handler's failure is reported, never raised."""
        ...

    async def notify(self, event: Event) -> None:
        """Call the handlers of a notification; shielded, each with its time limit, never raises."""
        ...

    async def attend(self, work: Awaitable[object], *, name: str, seconds: float) -> None:
        """Wait for what somebody returned who is no handler: shielded as `notify` is. Raises what it raises."""
        ...
