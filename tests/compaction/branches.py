"""Branches of a log, built entry by entry, for the tests of compaction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from agent_session.compaction.prepare import prepare_compaction
from agent_session.compaction.text_tokens import estimate_text_tokens
from agent_session.compaction.tokens import TokenLedger
from agent_session.compaction.trigger import budget_for
from agent_session.compaction.types import Budget, CompactionPreparation, Skip
from agent_session.models import Model
from agent_session.settings import CompactionSettings
from session_store.context import build_context
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
    UNREPORTED,
    AssistantMessage,
    BashExecutionMessage,
    CompactionSummaryMessage,
    Content,
    Message,
    TextContent,
    ToolCall,
    ToolResultMessage,
    Usage,
    UserMessage,
)
from session_store.projection import Projection, build_projection

TIME = "2026-01-02T03:04:05.000Z"


@dataclass(slots=True)
class Branch:
    """A path that grows at its end. Each method appends one entry and returns its id."""

    path: list[Entry] = field(default_factory=list)

    def next(self) -> dict[str, Any]:
        parent = self.path[-1].id if self.path else None
        return {"id": f"e{len(self.path)}", "parent_id": parent, "timestamp": TIME}

    def add(self, entry: Entry) -> str:
        self.path.append(entry)
        return entry.id

    def message(self, message: Message) -> str:
        return self.add(MessageEntry(**self.next(), message=message))

    def user(self, text: str) -> str:
        return self.message(UserMessage(content=(TextContent(text),)))

    def answer(
        self,
        text: str = "",
        *calls: str,
        tool: str = "read",
        stop_reason: str = "stop",
        usage: Usage = UNREPORTED,
        **arguments: object,
    ) -> str:
        blocks: list[Content] = [TextContent(text)] if text else []
        blocks += [ToolCall(call, tool, dict(arguments)) for call in calls]
        return self.message(
            AssistantMessage(
                content=tuple(blocks), stop_reason=stop_reason, usage=usage, provider="openai", model="scripted"
            )
        )

    def result(self, call: str, text: str = "done", *, is_error: bool = False) -> str:
        return self.message(
            ToolResultMessage(tool_call_id=call, tool_name="read", content=(TextContent(text),), is_error=is_error)
        )

    def shell(self, output: str, *, exclude: bool = False) -> str:
        return self.message(BashExecutionMessage(command="ls", output=output, exclude_from_context=exclude))

    def custom_message(self, text: str) -> str:
        return self.add(CustomMessageEntry(**self.next(), custom_type="note", content=(TextContent(text),)))

    def branch_summary(self, text: str) -> str:
        return self.add(BranchSummaryEntry(**self.next(), from_id=None, summary=text))

    def invisible(self) -> str:
        return self.add(CustomEntry(**self.next(), custom_type="state", data={}))

    def edit(self, target: str, text: str | None) -> str:
        replacement = None if text is None else (TextContent(text),)
        return self.add(ContextEditEntry(**self.next(), target_id=target, replacement=replacement))

    def compaction(self, boundary: str | None, summary: str = "what happened", details: object = None) -> str:
        entry = CompactionEntry(**self.next(), summary=summary, first_kept_entry_id=boundary, details=details)
        return self.add(entry)

    @property
    def projection(self) -> Projection:
        return build_projection(self.path)

    @property
    def context(self) -> list[Message]:
        return [item.message for item in build_context(self.projection)]

    @property
    def conversation(self) -> list[Message]:
        """The context without the summary at its front."""
        context = build_context(self.projection)
        return [item.message for item in context if not isinstance(item.entry, CompactionEntry)]


def budget(keep: int, *, limit: int = 1_000_000) -> Budget:
    """A budget that keeps `keep` tokens."""
    model = Model("openai/scripted", context_window=limit)
    return budget_for(model, CompactionSettings(keep_recent_tokens=keep), "off", overhead=0)


def prepared(branch: Branch, keep: int, **options: Any) -> CompactionPreparation | Skip:
    return prepare_compaction(
        branch.projection,
        budget=budget(keep),
        tokens_before=1_000,
        ledger=TokenLedger(),
        locate=lambda entry_id, text: f"a side file for {entry_id}",
        **options,
    )


def plan_for(branch: Branch, keep: int, **options: Any) -> CompactionPreparation:
    plan = prepared(branch, keep, **options)
    assert isinstance(plan, CompactionPreparation), plan
    return plan


def texts(messages: Sequence[Message]) -> list[str]:
    """What each message says: its text, or its calls' ids."""
    said: list[str] = []
    for message in messages:
        match message:
            case AssistantMessage() if message.tool_calls:
                said.append("+".join(call.id for call in message.tool_calls))
            case BashExecutionMessage(output=text) | CompactionSummaryMessage(summary=text):
                said.append(text)
            case _:
                said.append(getattr(message, "text", ""))
    return said


def words(name: str, tokens: int) -> str:
    """A text that begins with `name` and is estimated at exactly `tokens`, where the name itself is not more."""
    left = max(0, tokens - estimate_text_tokens(f"{name} "))
    # Two words that are two tokens, nothing over.
    return f"{name} " + "ww www " * (left // 2) + "ww " * (left % 2)
