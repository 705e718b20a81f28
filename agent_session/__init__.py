"""An agent runtime: sessions that run, compact themselves, survive and resume.

The one face for programs. Names are loaded on first use, so that importing the package costs next to nothing; `__all__`
is what there is, and `__init__.pyi` says the same to type checkers (a test compares the two).
"""

from __future__ import annotations

import importlib
from typing import Any

_NAMES: dict[str, str] = {
    "agent_session.session": "AgentSession",
    "agent_session.sync": "SyncSession",
    "agent_session.sync_handles": "SyncEventStream SyncLoadedExtension SyncRunHandle",
    "agent_session.run_handle": "RunHandle",
    "agent_session.models": "Model ModelCost",
    "agent_session.meter": "ContextUsage",
    "agent_session.stats": "SessionStats",
    "agent_session.history": "RecordedMessage SearchHit",
    "agent_session.dispatch": "EventStream",
    "agent_session.settings": (
        "Settings CompactionSettings CompactionOverride RetrySettings DEFAULT_COMPACTION_SETTINGS "
        "REASONING_COMPACTION_RESERVE_TOKENS REASONING_KEEP_RECENT_TOKENS NON_REASONING_KEEP_RECENT_TOKENS"
    ),
    "agent_session.llm.client": (
        "ModelClient ModelRequest PreparedRequest ToolDefinition ThinkingLevel TextDelta ThinkingDelta "
        "ToolCallDelta UsageReport ResponseId Finish"
    ),
    "agent_session.llm.anthropic": "AnthropicClient",
    "agent_session.llm.litellm_client": "LiteLLMClient",
    "agent_session.llm.openai_compatible": "OpenAICompatibleClient",
    "agent_session.tools.types": "Tool ToolContext ToolResult",
    "agent_session.tools.decorator": "tool",
    "agent_session.compaction.types": "CompactionOutcome CompactionResult FileOps KEEP_NOTHING",
    "agent_session.compaction.text_tokens": "estimate_chars_as_tokens",
    "agent_session.compaction.tokens": "estimate_message_tokens estimate_fixed_request_tokens",
    "agent_session.extending.api": "ExtensionAPI",
    "agent_session.extending.context": "ExtensionContext",
    "agent_session.extending.extension_set": "LoadedExtension",
    "agent_session.extending.loader": "load_shipped",
    "agent_session.errors": (
        "AgentSessionError SessionBusyError SessionClosedError ToolError SettingsError MissingModelError "
        "ModelError MissingCredentialsError RateLimitError ContextOverflowError "
        "ModelRequestError CompactionError SummarizationError ContextCannotFitError ExtensionError "
        "ExtensionLoadError"
    ),
    "agent_session.hooks": (
        "Input BeforeAgentStart Context BeforeRequest MessageEnd ToolCallEvent ToolResultEvent BeforeCompact "
        "SessionCompact BeforeTree BeforeFork BeforeSwitch Veto Block Summarize Amend ChangedInput Handled "
        "RunChanges ReplacedMessages ReplacedRequest ChangedArguments ChangedResult TreeSummary InvalidAnswer"
    ),
    "agent_session.events": (
        "Event SessionStart SessionShutdown AgentStart AgentEnd AgentSettled TurnStart TurnEnd MessageStart "
        "MessageUpdate MessageDiscarded ToolExecutionStart ToolExecutionUpdate ToolExecutionEnd CompactionStart "
        "CompactionProgress CompactionEnd SessionTree SessionFork SessionSwitch RetryStart RetryEnd ModelSelect "
        "ThinkingLevelSelect QueueUpdate EntryAppended ExtensionFailed Warning"
    ),
    "session_store": (
        "SessionManager SessionStoreError SessionNotFoundError UnsupportedVersionError EntryNotFoundError "
        "DuplicateEntryError StaleLeafError InvalidBoundaryError SessionLockedError SessionReadOnlyError "
        "SessionWriteError AssistantMessage UserMessage ToolResultMessage BashExecutionMessage CustomMessage "
        "SystemMessage BranchSummaryMessage CompactionSummaryMessage TextContent ImageContent ThinkingContent "
        "ToolCall Usage Cost"
    ),
}
_MODULES = ("events", "hooks", "testing")
_WHERE = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = sorted([*_WHERE, *_MODULES])  # noqa: PLE0605 - it is a list of strings, made of the table above


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        value = getattr(importlib.import_module(_WHERE[name]), name)
    elif name in _MODULES:
        value = importlib.import_module(f"{__name__}.{name}")
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
