"""What the provider of a storm takes and how it counts: strict about the form of a request, with a count of its own.

The rule it keeps: tokens are counted piece by piece, as a tokenizer splits text, times the session's hidden factor; and
no text is further from the runtime's own estimate than `LEAST` and `MOST` times, which is how far off it may be.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from agent_session.compaction.text_tokens import estimate_text_tokens
from agent_session.llm.client import ModelRequest, ToolDefinition
from agent_session.llm.convert import (
    BRANCH_SUMMARY_PREFIX,
    BRANCH_SUMMARY_SUFFIX,
    COMPACTION_SUMMARY_PREFIX,
    COMPACTION_SUMMARY_SUFFIX,
)
from agent_session.testing import chat_fault, messages_fault
from scripts.bench.storm.plans import Plan, Wire
from session_store.messages import (
    AssistantMessage,
    BranchSummaryMessage,
    CompactionSummaryMessage,
    Content,
    CustomMessage,
    ImageContent,
    Message,
    TextContent,
    ThinkingContent,
    ToolCall,
    ToolResultMessage,
    UserMessage,
)

_PIECE = re.compile(r"\s?[A-Za-z]{1,7}|\d{1,3}|[^\sA-Za-z\d]|\s{2,}")
_PIECES_SCALE: Final = 1.15
_SAMPLE_CHARS = 5_000

LEAST: Final = 0.6
MOST: Final = 1.7

_IMAGE_TOKENS = 1_100
_FRAME_TOKENS = 4


class Tally:
    """Counts what a request takes; each message once, for as long as the session runs."""

    def __init__(self, plan: Plan) -> None:
        self._factor = plan.factor
        self._wire: Wire = plan.wire
        self._counted: dict[int, tuple[Message, float]] = {}
        self._fixed: dict[int, tuple[object, float]] = {}

    def request(self, request: ModelRequest) -> int:
        """Tokens of the whole input."""
        return self.front(request, len(request.messages))

    def front(self, request: ModelRequest, count: int) -> int:
        """Tokens of system prompt, tools and the first `count` messages."""
        return round(self._beside(request) + sum(map(self.message, request.messages[:count])))

    def text(self, text: str) -> int:
        """Tokens of an answer's text."""
        return round(self._pieces(text))

    def _pieces(self, text: str) -> float:
        ours = estimate_text_tokens(text)
        return min(MOST * ours, max(LEAST * ours, pieces(text) * self._factor))

    def _beside(self, request: ModelRequest) -> float:
        return self._once(request.system_prompt, self._pieces) + self._once(request.tools, self._tools)

    def _tools(self, tools: Sequence[ToolDefinition]) -> float:
        return sum(
            self._pieces(json.dumps([tool.name, tool.description, tool.parameters], default=dict)) for tool in tools
        )

    def _once(self, value: Any, count: Any) -> float:
        known = self._fixed.get(id(value))
        if known is None:
            known = self._fixed[id(value)] = (value, count(value))
        return known[1]

    def message(self, message: Message) -> float:
        """Tokens of one message."""
        known = self._counted.get(id(message))
        if known is None:
            known = self._counted[id(message)] = (message, self._count(message))
        return known[1]

    def _count(self, message: Message) -> float:
        match message:
            case UserMessage() | ToolResultMessage() | CustomMessage() | AssistantMessage():
                return _FRAME_TOKENS + sum(map(self._block, message.content))
            case CompactionSummaryMessage(summary=summary):
                return _FRAME_TOKENS + self._pieces(f"{COMPACTION_SUMMARY_PREFIX}{summary}{COMPACTION_SUMMARY_SUFFIX}")
            case BranchSummaryMessage(summary=summary):
                return _FRAME_TOKENS + self._pieces(f"{BRANCH_SUMMARY_PREFIX}{summary}{BRANCH_SUMMARY_SUFFIX}")
            case _:
                return 0

    def _block(self, block: Content) -> float:
        match block:
            case TextContent(text=text):
                return self._pieces(text)
            case ToolCall(name=name, arguments=arguments):
                return _FRAME_TOKENS + self._pieces(name) + self._pieces(json.dumps(arguments))
            case ThinkingContent(thinking=thinking, thinking_signature=signature) if self._wire == "messages":
                return self._pieces(thinking) + self._pieces(signature or "")
            case ImageContent():
                return _IMAGE_TOKENS
            case _:
                return 0


def pieces(text: str) -> float:
    """Tokens of a text before the session's factor; of a long one its head and tail are counted, for the whole."""
    if len(text) <= 4 * _SAMPLE_CHARS:
        return len(_PIECE.findall(text)) * _PIECES_SCALE
    sample = len(_PIECE.findall(text, 0, _SAMPLE_CHARS)) + len(_PIECE.findall(text, len(text) - _SAMPLE_CHARS))
    return sample * _PIECES_SCALE * len(text) / (2 * _SAMPLE_CHARS)


def fault_of(payload: Mapping[str, Any], wire: Wire, signatures: set[str]) -> str | None:
    """Why the strictest providers refuse a request of this form, in words; None for one in order.

    `signatures` are those that were given out for thinking: no other is taken back.
    """
    if wire == "messages":
        return messages_fault(payload, is_signed=lambda _, signature: signature in signatures)
    if (fault := chat_fault(payload)) is not None:
        return fault
    if any(message.get("tool_calls") for message in payload["messages"]) and not payload.get("tools"):
        return "tools must be declared where the conversation calls them"
    limit = payload.get("max_tokens", payload.get("max_completion_tokens"))
    return None if limit is None or limit >= 1 else f"max_tokens must be above 0, not {limit}"
