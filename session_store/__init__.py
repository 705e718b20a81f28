"""The session log: messages, entries, the tree they form, and what a model sees of it.

Synchronous throughout. `SessionManager` opens and writes a session; `Projection` is what the log says about
one branch, `build_context` what a request sends of that. The log's bytes are behind the `EntryLog` protocol.
"""

from __future__ import annotations

from session_store.blobs import BlobStore
from session_store.boundary import check_boundary
from session_store.catalog import SessionInfo
from session_store.context import (
    ContextRepair,
    ProjectedMessage,
    Projection,
    build_context,
    build_projection,
    dangling_calls,
    is_sent,
    pairs_ok,
    synthetic_result,
)
from session_store.entries import (
    CURRENT_VERSION,
    BranchSummaryEntry,
    CompactionEntry,
    ContextEditEntry,
    CustomEntry,
    CustomMessageEntry,
    Entry,
    LabelEntry,
    MessageEntry,
    ModelChangeEntry,
    SessionHeader,
    SessionInfoEntry,
    ThinkingLevelChangeEntry,
    UnknownEntry,
    UsageEntry,
)
from session_store.errors import (
    DuplicateEntryError,
    EntryNotFoundError,
    InvalidBoundaryError,
    SessionLockedError,
    SessionNotFoundError,
    SessionReadOnlyError,
    SessionStoreError,
    SessionWriteError,
    StaleLeafError,
    UnsupportedVersionError,
)
from session_store.forest import TreeNode
from session_store.jsonl_log import JsonlLog
from session_store.log import DamageRecord, DamageReport, EntryLog, LoadedLog
from session_store.manager import SessionManager
from session_store.memory_log import MemoryLog
from session_store.messages import (
    UNREPORTED,
    AssistantMessage,
    BashExecutionMessage,
    BranchSummaryMessage,
    CompactionSummaryMessage,
    Content,
    Cost,
    CustomMessage,
    ImageContent,
    Message,
    SystemMessage,
    TextContent,
    ThinkingContent,
    ToolCall,
    ToolResultMessage,
    UnknownContent,
    UnknownMessage,
    Usage,
    UserMessage,
)
from session_store.reading import LEAF_CUSTOM_TYPE
from session_store.system_replay import replay_system_messages
from session_store.totals import UsageSum, UsageTotals
from session_store.tree import EntryTree

__all__ = [
    "CURRENT_VERSION",
    "LEAF_CUSTOM_TYPE",
    "UNREPORTED",
    "AssistantMessage",
    "BashExecutionMessage",
    "BlobStore",
    "BranchSummaryEntry",
    "BranchSummaryMessage",
    "CompactionEntry",
    "CompactionSummaryMessage",
    "Content",
    "ContextEditEntry",
    "ContextRepair",
    "Cost",
    "CustomEntry",
    "CustomMessage",
    "CustomMessageEntry",
    "DamageRecord",
    "DamageReport",
    "DuplicateEntryError",
    "Entry",
    "EntryLog",
    "EntryNotFoundError",
    "EntryTree",
    "ImageContent",
    "InvalidBoundaryError",
    "JsonlLog",
    "LabelEntry",
    "LoadedLog",
    "MemoryLog",
    "Message",
    "MessageEntry",
    "ModelChangeEntry",
    "ProjectedMessage",
    "Projection",
    "SessionHeader",
    "SessionInfo",
    "SessionInfoEntry",
    "SessionLockedError",
    "SessionManager",
    "SessionNotFoundError",
    "SessionReadOnlyError",
    "SessionStoreError",
    "SessionWriteError",
    "StaleLeafError",
    "SystemMessage",
    "TextContent",
    "ThinkingContent",
    "ThinkingLevelChangeEntry",
    "ToolCall",
    "ToolResultMessage",
    "TreeNode",
    "UnknownContent",
    "UnknownEntry",
    "UnknownMessage",
    "UnsupportedVersionError",
    "Usage",
    "UsageEntry",
    "UsageSum",
    "UsageTotals",
    "UserMessage",
    "build_context",
    "build_projection",
    "check_boundary",
    "dangling_calls",
    "is_sent",
    "pairs_ok",
    "replay_system_messages",
    "synthetic_result",
]
