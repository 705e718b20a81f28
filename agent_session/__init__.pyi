# What `__init__.py` gives on first use, for type checkers. A test compares the two.
# fmt: off
# ruff: noqa: I001
from agent_session import events as events, hooks as hooks, testing as testing
from agent_session.compaction.text_tokens import estimate_chars_as_tokens as estimate_chars_as_tokens
from agent_session.compaction.tokens import (
    estimate_fixed_request_tokens as estimate_fixed_request_tokens,
    estimate_message_tokens as estimate_message_tokens,
)
from agent_session.compaction.types import (
    CompactionOutcome as CompactionOutcome, CompactionResult as CompactionResult, FileOps as FileOps,
    KEEP_NOTHING as KEEP_NOTHING,
)
from agent_session.dispatch import EventStream as EventStream
from agent_session.errors import (
    AgentSessionError as AgentSessionError, CompactionError as CompactionError,
    ContextCannotFitError as ContextCannotFitError, ContextOverflowError as ContextOverflowError,
    ExtensionError as ExtensionError, ExtensionLoadError as ExtensionLoadError,
    MissingCredentialsError as MissingCredentialsError,
    MissingModelError as MissingModelError, ModelError as ModelError, ModelRequestError as ModelRequestError,
    RateLimitError as RateLimitError, SessionBusyError as SessionBusyError, SessionClosedError as SessionClosedError,
    SettingsError as SettingsError, SummarizationError as SummarizationError, ToolError as ToolError,
)
from agent_session.events import (
    AgentEnd as AgentEnd, AgentSettled as AgentSettled, AgentStart as AgentStart, CompactionEnd as CompactionEnd,
    CompactionProgress as CompactionProgress, CompactionStart as CompactionStart, EntryAppended as EntryAppended,
    Event as Event, ExtensionFailed as ExtensionFailed, MessageDiscarded as MessageDiscarded,
    MessageStart as MessageStart, MessageUpdate as MessageUpdate, ModelSelect as ModelSelect,
    QueueUpdate as QueueUpdate, RetryEnd as RetryEnd, RetryStart as RetryStart, SessionFork as SessionFork,
    SessionShutdown as SessionShutdown, SessionStart as SessionStart, SessionSwitch as SessionSwitch,
    SessionTree as SessionTree, ThinkingLevelSelect as ThinkingLevelSelect, ToolExecutionEnd as ToolExecutionEnd,
    ToolExecutionStart as ToolExecutionStart, ToolExecutionUpdate as ToolExecutionUpdate, TurnEnd as TurnEnd,
    TurnStart as TurnStart, Warning as Warning,
)
from agent_session.extending.api import ExtensionAPI as ExtensionAPI
from agent_session.extending.context import ExtensionContext as ExtensionContext
from agent_session.extending.extension_set import LoadedExtension as LoadedExtension
from agent_session.extending.loader import load_shipped as load_shipped
from agent_session.history import RecordedMessage as RecordedMessage, SearchHit as SearchHit
from agent_session.hooks import (
    Amend as Amend, BeforeAgentStart as BeforeAgentStart, BeforeCompact as BeforeCompact, BeforeFork as BeforeFork,
    BeforeRequest as BeforeRequest, BeforeSwitch as BeforeSwitch, BeforeTree as BeforeTree, Block as Block,
    ChangedArguments as ChangedArguments, ChangedInput as ChangedInput, ChangedResult as ChangedResult,
    Context as Context, Handled as Handled, Input as Input, InvalidAnswer as InvalidAnswer, MessageEnd as MessageEnd,
    ReplacedMessages as ReplacedMessages, ReplacedRequest as ReplacedRequest, RunChanges as RunChanges,
    SessionCompact as SessionCompact, Summarize as Summarize, ToolCallEvent as ToolCallEvent,
    ToolResultEvent as ToolResultEvent, TreeSummary as TreeSummary, Veto as Veto,
)
from agent_session.llm.anthropic import AnthropicClient as AnthropicClient
from agent_session.llm.client import (
    Finish as Finish, ModelClient as ModelClient, ModelRequest as ModelRequest, PreparedRequest as PreparedRequest,
    ResponseId as ResponseId, TextDelta as TextDelta, ThinkingDelta as ThinkingDelta, ThinkingLevel as ThinkingLevel,
    ToolCallDelta as ToolCallDelta, ToolDefinition as ToolDefinition, UsageReport as UsageReport,
)
from agent_session.llm.litellm_client import LiteLLMClient as LiteLLMClient
from agent_session.llm.openai_compatible import OpenAICompatibleClient as OpenAICompatibleClient
from agent_session.meter import ContextUsage as ContextUsage
from agent_session.models import Model as Model, ModelCost as ModelCost
from agent_session.run_handle import RunHandle as RunHandle
from agent_session.session import AgentSession as AgentSession
from agent_session.settings import (
    CompactionOverride as CompactionOverride, CompactionSettings as CompactionSettings,
    DEFAULT_COMPACTION_SETTINGS as DEFAULT_COMPACTION_SETTINGS,
    NON_REASONING_KEEP_RECENT_TOKENS as NON_REASONING_KEEP_RECENT_TOKENS,
    REASONING_COMPACTION_RESERVE_TOKENS as REASONING_COMPACTION_RESERVE_TOKENS,
    REASONING_KEEP_RECENT_TOKENS as REASONING_KEEP_RECENT_TOKENS, RetrySettings as RetrySettings,
    Settings as Settings,
)
from agent_session.stats import SessionStats as SessionStats
from agent_session.sync import SyncSession as SyncSession
from agent_session.sync_handles import (
    SyncEventStream as SyncEventStream, SyncLoadedExtension as SyncLoadedExtension, SyncRunHandle as SyncRunHandle,
)
from agent_session.tools.decorator import tool as tool
from agent_session.tools.types import Tool as Tool, ToolContext as ToolContext, ToolResult as ToolResult
from session_store import (
    AssistantMessage as AssistantMessage, BashExecutionMessage as BashExecutionMessage,
    BranchSummaryMessage as BranchSummaryMessage, CompactionSummaryMessage as CompactionSummaryMessage, Cost as Cost,
    CustomMessage as CustomMessage, DuplicateEntryError as DuplicateEntryError,
    EntryNotFoundError as EntryNotFoundError, ImageContent as ImageContent,
    InvalidBoundaryError as InvalidBoundaryError, SessionLockedError as SessionLockedError,
    SessionManager as SessionManager, SessionNotFoundError as SessionNotFoundError,
    SessionReadOnlyError as SessionReadOnlyError, SessionStoreError as SessionStoreError,
    SessionWriteError as SessionWriteError, StaleLeafError as StaleLeafError, SystemMessage as SystemMessage,
    TextContent as TextContent, ThinkingContent as ThinkingContent, ToolCall as ToolCall,
    ToolResultMessage as ToolResultMessage, UnsupportedVersionError as UnsupportedVersionError, Usage as Usage,
    UserMessage as UserMessage,
)

__all__: list[str]  # noqa: PYI035 - made of a table
