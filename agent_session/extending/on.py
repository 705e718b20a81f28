"""`on`: how handlers are registered, with every event's answers known to a type checker.

Rule: one implementation for the API of an extension and for the session itself. `on("before_compact")` and
`on(BeforeCompact)` are the same; with a handler it is registered at once, without one the result decorates
handlers. There is one overload for each event of `hooks.EVENTS`, and a test compares the two.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias, TypeVar, overload

from typing_extensions import override

from agent_session.compaction.types import CompactionResult
from agent_session.events import (
    AgentEnd,
    AgentSettled,
    AgentStart,
    CompactionEnd,
    CompactionProgress,
    CompactionStart,
    EntryAppended,
    Event,
    ExtensionFailed,
    MessageDiscarded,
    MessageStart,
    MessageUpdate,
    ModelSelect,
    QueueUpdate,
    RetryEnd,
    RetryStart,
    SessionFork,
    SessionShutdown,
    SessionStart,
    SessionSwitch,
    SessionTree,
    ThinkingLevelSelect,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolExecutionUpdate,
    TurnEnd,
    TurnStart,
    Warning,
)
from agent_session.extending.registry import DEFAULT_TIMEOUT, HandlerRegistry, Owner, Unsubscribe, event_name
from agent_session.extending.registry import TimeLimit as Limit
from agent_session.extending.subscription import E, Handler, Subscription
from agent_session.hooks import (
    Amend,
    BeforeAgentStart,
    BeforeCompact,
    BeforeFork,
    BeforeRequest,
    BeforeSwitch,
    BeforeTree,
    Block,
    ChangedArguments,
    ChangedInput,
    ChangedResult,
    Context,
    Handled,
    Input,
    MessageEnd,
    ReplacedMessages,
    ReplacedRequest,
    RunChanges,
    SessionCompact,
    Summarize,
    ToolCallEvent,
    ToolResultEvent,
    TreeSummary,
    Veto,
)
from agent_session.raising import at_the_call
from session_store.messages import Message

InputAnswer: TypeAlias = ChangedInput | Handled
ToolCallAnswer: TypeAlias = Block | ChangedArguments
BeforeCompactAnswer: TypeAlias = Veto | CompactionResult | Summarize
SessionCompactAnswer: TypeAlias = Veto | Amend
BeforeTreeAnswer: TypeAlias = Veto | TreeSummary

N = TypeVar(
    "N",
    AgentEnd,
    AgentSettled,
    AgentStart,
    CompactionEnd,
    CompactionProgress,
    CompactionStart,
    EntryAppended,
    ExtensionFailed,
    MessageDiscarded,
    MessageStart,
    MessageUpdate,
    ModelSelect,
    QueueUpdate,
    RetryEnd,
    RetryStart,
    SessionFork,
    SessionShutdown,
    SessionStart,
    SessionSwitch,
    SessionTree,
    ThinkingLevelSelect,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolExecutionUpdate,
    TurnEnd,
    TurnStart,
    Warning,
)
"""Any notification. Constrained, not bound to `Event`: a decision's class has its own overload, with answers."""

Watch: TypeAlias = Handler[E, None] | None
"""A handler of a notification: there is nothing to answer."""


@at_the_call
class On:
    """`on` of one owner.

    `timeout` limits a handler's own time in seconds: it stands still while the handler waits for the runtime
    (`event.summarize`) or a person (`ctx.confirm`, `ctx.ask`). None is no limit, the default is
    `Settings.hook_timeout`.

    Raises:
        ExtensionError: there is no such event, the handler cannot be called with one, or the owner has ended.
    """

    def __init__(self, registry: HandlerRegistry, owner: Owner) -> None:
        self._registry = registry
        self._owner = owner

    @override
    def __repr__(self) -> str:
        return "<on: on(event, handler), or @on(event) above a handler; events are in agent_session.hooks>"

    @overload
    def __call__(
        self,
        event: Literal["input"] | type[Input],
        handler: Handler[Input, InputAnswer] | None = None,
        /,
        *,
        timeout: Limit = ...,
    ) -> Subscription[Input, InputAnswer]: ...
    @overload
    def __call__(
        self,
        event: Literal["before_agent_start"] | type[BeforeAgentStart],
        handler: Handler[BeforeAgentStart, RunChanges] | None = None,
        /,
        *,
        timeout: Limit = ...,
    ) -> Subscription[BeforeAgentStart, RunChanges]: ...
    @overload
    def __call__(
        self,
        event: Literal["context"] | type[Context],
        handler: Handler[Context, ReplacedMessages] | None = None,
        /,
        *,
        timeout: Limit = ...,
    ) -> Subscription[Context, ReplacedMessages]: ...
    @overload
    def __call__(
        self,
        event: Literal["before_request"] | type[BeforeRequest],
        handler: Handler[BeforeRequest, ReplacedRequest] | None = None,
        /,
        *,
        timeout: Limit = ...,
    ) -> Subscription[BeforeRequest, ReplacedRequest]: ...
    @overload
    def __call__(
        self,
        event: Literal["message_end"] | type[MessageEnd],
        handler: Handler[MessageEnd, Message] | None = None,
        /,
        *,
        timeout: Limit = ...,
    ) -> Subscription[MessageEnd, Message]: ...
    @overload
    def __call__(
        self,
        event: Literal["tool_call"] | type[ToolCallEvent],
        handler: Handler[ToolCallEvent, ToolCallAnswer] | None = None,
        /,
        *,
        timeout: Limit = ...,
    ) -> Subscription[ToolCallEvent, ToolCallAnswer]: ...
    @overload
    def __call__(
        self,
        event: Literal["tool_result"] | type[ToolResultEvent],
        handler: Handler[ToolResultEvent, ChangedResult] | None = None,
        /,
        *,
        timeout: Limit = ...,
    ) -> Subscription[ToolResultEvent, ChangedResult]: ...
    @overload
    def __call__(
        self,
        event: Literal["before_compact"] | type[BeforeCompact],
        handler: Handler[BeforeCompact, BeforeCompactAnswer] | None = None,
        /,
        *,
        timeout: Limit = ...,
    ) -> Subscription[BeforeCompact, BeforeCompactAnswer]: ...
    @overload
    def __call__(
        self,
        event: Literal["session_compact"] | type[SessionCompact],
        handler: Handler[SessionCompact, SessionCompactAnswer] | None = None,
        /,
        *,
        timeout: Limit = ...,
    ) -> Subscription[SessionCompact, SessionCompactAnswer]: ...
    @overload
    def __call__(
        self,
        event: Literal["before_tree"] | type[BeforeTree],
        handler: Handler[BeforeTree, BeforeTreeAnswer] | None = None,
        /,
        *,
        timeout: Limit = ...,
    ) -> Subscription[BeforeTree, BeforeTreeAnswer]: ...
    @overload
    def __call__(
        self,
        event: Literal["before_fork"] | type[BeforeFork],
        handler: Handler[BeforeFork, Veto] | None = None,
        /,
        *,
        timeout: Limit = ...,
    ) -> Subscription[BeforeFork, Veto]: ...
    @overload
    def __call__(
        self,
        event: Literal["before_switch"] | type[BeforeSwitch],
        handler: Handler[BeforeSwitch, Veto] | None = None,
        /,
        *,
        timeout: Limit = ...,
    ) -> Subscription[BeforeSwitch, Veto]: ...
    @overload
    def __call__(
        self, event: Literal["session_start"], handler: Watch[SessionStart] = None, /, *, timeout: Limit = ...
    ) -> Subscription[SessionStart, None]: ...
    @overload
    def __call__(
        self, event: Literal["session_shutdown"], handler: Watch[SessionShutdown] = None, /, *, timeout: Limit = ...
    ) -> Subscription[SessionShutdown, None]: ...
    @overload
    def __call__(
        self, event: Literal["agent_start"], handler: Watch[AgentStart] = None, /, *, timeout: Limit = ...
    ) -> Subscription[AgentStart, None]: ...
    @overload
    def __call__(
        self, event: Literal["agent_end"], handler: Watch[AgentEnd] = None, /, *, timeout: Limit = ...
    ) -> Subscription[AgentEnd, None]: ...
    @overload
    def __call__(
        self, event: Literal["agent_settled"], handler: Watch[AgentSettled] = None, /, *, timeout: Limit = ...
    ) -> Subscription[AgentSettled, None]: ...
    @overload
    def __call__(
        self, event: Literal["turn_start"], handler: Watch[TurnStart] = None, /, *, timeout: Limit = ...
    ) -> Subscription[TurnStart, None]: ...
    @overload
    def __call__(
        self, event: Literal["turn_end"], handler: Watch[TurnEnd] = None, /, *, timeout: Limit = ...
    ) -> Subscription[TurnEnd, None]: ...
    @overload
    def __call__(
        self, event: Literal["message_start"], handler: Watch[MessageStart] = None, /, *, timeout: Limit = ...
    ) -> Subscription[MessageStart, None]: ...
    @overload
    def __call__(
        self, event: Literal["message_update"], handler: Watch[MessageUpdate] = None, /, *, timeout: Limit = ...
    ) -> Subscription[MessageUpdate, None]: ...
    @overload
    def __call__(
        self, event: Literal["message_discarded"], handler: Watch[MessageDiscarded] = None, /, *, timeout: Limit = ...
    ) -> Subscription[MessageDiscarded, None]: ...
    @overload
    def __call__(
        self,
        event: Literal["tool_execution_start"],
        handler: Watch[ToolExecutionStart] = None,
        /,
        *,
        timeout: Limit = ...,
    ) -> Subscription[ToolExecutionStart, None]: ...
    @overload
    def __call__(
        self,
        event: Literal["tool_execution_update"],
        handler: Watch[ToolExecutionUpdate] = None,
        /,
        *,
        timeout: Limit = ...,
    ) -> Subscription[ToolExecutionUpdate, None]: ...
    @overload
    def __call__(
        self, event: Literal["tool_execution_end"], handler: Watch[ToolExecutionEnd] = None, /, *, timeout: Limit = ...
    ) -> Subscription[ToolExecutionEnd, None]: ...
    @overload
    def __call__(
        self, event: Literal["compaction_start"], handler: Watch[CompactionStart] = None, /, *, timeout: Limit = ...
    ) -> Subscription[CompactionStart, None]: ...
    @overload
    def __call__(
        self,
        event: Literal["compaction_progress"],
        handler: Watch[CompactionProgress] = None,
        /,
        *,
        timeout: Limit = ...,
    ) -> Subscription[CompactionProgress, None]: ...
    @overload
    def __call__(
        self, event: Literal["compaction_end"], handler: Watch[CompactionEnd] = None, /, *, timeout: Limit = ...
    ) -> Subscription[CompactionEnd, None]: ...
    @overload
    def __call__(
        self, event: Literal["session_tree"], handler: Watch[SessionTree] = None, /, *, timeout: Limit = ...
    ) -> Subscription[SessionTree, None]: ...
    @overload
    def __call__(
        self, event: Literal["session_fork"], handler: Watch[SessionFork] = None, /, *, timeout: Limit = ...
    ) -> Subscription[SessionFork, None]: ...
    @overload
    def __call__(
        self, event: Literal["session_switch"], handler: Watch[SessionSwitch] = None, /, *, timeout: Limit = ...
    ) -> Subscription[SessionSwitch, None]: ...
    @overload
    def __call__(
        self, event: Literal["retry_start"], handler: Watch[RetryStart] = None, /, *, timeout: Limit = ...
    ) -> Subscription[RetryStart, None]: ...
    @overload
    def __call__(
        self, event: Literal["retry_end"], handler: Watch[RetryEnd] = None, /, *, timeout: Limit = ...
    ) -> Subscription[RetryEnd, None]: ...
    @overload
    def __call__(
        self, event: Literal["model_select"], handler: Watch[ModelSelect] = None, /, *, timeout: Limit = ...
    ) -> Subscription[ModelSelect, None]: ...
    @overload
    def __call__(
        self,
        event: Literal["thinking_level_select"],
        handler: Watch[ThinkingLevelSelect] = None,
        /,
        *,
        timeout: Limit = ...,
    ) -> Subscription[ThinkingLevelSelect, None]: ...
    @overload
    def __call__(
        self, event: Literal["queue_update"], handler: Watch[QueueUpdate] = None, /, *, timeout: Limit = ...
    ) -> Subscription[QueueUpdate, None]: ...
    @overload
    def __call__(
        self, event: Literal["entry_appended"], handler: Watch[EntryAppended] = None, /, *, timeout: Limit = ...
    ) -> Subscription[EntryAppended, None]: ...
    @overload
    def __call__(
        self, event: Literal["extension_failed"], handler: Watch[ExtensionFailed] = None, /, *, timeout: Limit = ...
    ) -> Subscription[ExtensionFailed, None]: ...
    @overload
    def __call__(
        self, event: Literal["warning"], handler: Watch[Warning] = None, /, *, timeout: Limit = ...
    ) -> Subscription[Warning, None]: ...
    @overload
    def __call__(
        self, event: type[N], handler: Watch[N] = None, /, *, timeout: Limit = ...
    ) -> Subscription[N, None]: ...
    def __call__(
        self,
        event: str | type[Event],
        handler: Callable[..., Any] | None = None,
        /,
        *,
        timeout: Limit = DEFAULT_TIMEOUT,
    ) -> Subscription[Any, Any]:
        name = event_name(event, self._owner.name)

        def add(handler: Callable[..., Any]) -> Unsubscribe:
            self._owner.tenure.check()
            return self._registry.add(name, handler, self._owner, timeout)

        subscription: Subscription[Any, Any] = Subscription(name, add)
        if handler is not None:
            subscription(handler)
        return subscription
