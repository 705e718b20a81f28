"""How many tokens a message or a request takes where no provider has said so.

The rule it keeps: one estimate, used for the trigger, for the cut point and for the bound of a summary's input, so
that the three never disagree; and an unchanged message is counted once. Everything that is sent again counts.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import orjson

from agent_session.compaction.text_tokens import estimate_text_tokens
from agent_session.llm.client import ToolDefinition
from session_store.messages import (
    AssistantMessage,
    BashExecutionMessage,
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

IMAGE_TOKENS = 1_200
"""What an image takes, whatever its size: providers scale it, and its base64 is never what they count."""

MESSAGE_TOKENS = 4
"""Role and framing of one message."""

CALL_TOKENS = 8
"""Framing of one tool call or one tool definition."""

LABEL_TOKENS = 50
"""The words around a summary or a shell command that say what it is."""


def estimate_message_tokens(message: Message) -> int:
    """What a message takes in a request, its framing included; 0 for one that is never sent.

    Thinking text and opaque signatures count: they are sent again with each request. An answer weighs at least the
    output tokens that its provider reported, whatever can be seen of them.
    """
    match message:
        case UserMessage() | ToolResultMessage() | CustomMessage():
            return MESSAGE_TOKENS + _content_tokens(message.content)
        case AssistantMessage(usage=usage):
            estimate = MESSAGE_TOKENS + _content_tokens(message.content)
            return max(estimate, usage.output) if usage.is_reported else estimate
        case BashExecutionMessage():
            if message.exclude_from_context:
                return 0
            return LABEL_TOKENS + estimate_text_tokens(message.command) + estimate_text_tokens(message.output)
        case BranchSummaryMessage(summary=summary) | CompactionSummaryMessage(summary=summary):
            return LABEL_TOKENS + estimate_text_tokens(summary)
        case _:
            return 0


def estimate_fixed_request_tokens(system_prompt: str, tools: Iterable[ToolDefinition] = ()) -> int:
    """What rides on every request: the system prompt and the JSON of the tool definitions."""
    tokens = MESSAGE_TOKENS + estimate_text_tokens(system_prompt) if system_prompt else 0
    for tool in tools:
        tokens += CALL_TOKENS + estimate_text_tokens(tool.name) + estimate_text_tokens(tool.description)
        tokens += estimate_text_tokens(_as_json(tool.parameters))
    return tokens


class TokenLedger:
    """Estimates by message, so that an unchanged message is counted once for as long as it is in the context.

    Messages are told apart by identity: they are frozen, and the projection hands out the same objects again.
    """

    __slots__ = ("_counted",)

    def __init__(self) -> None:
        # The message is held beside its count, so that its id cannot become another's.
        self._counted: dict[int, tuple[Message, int]] = {}

    def __len__(self) -> int:
        return len(self._counted)

    def count(self, message: Message) -> int:
        """`estimate_message_tokens(message)`."""
        known = self._counted.get(id(message))
        if known is None:
            known = (message, estimate_message_tokens(message))
            self._counted[id(message)] = known
        return known[1]

    def total(self, messages: Iterable[Message]) -> int:
        return sum(map(self.count, messages))

    def forget_all_but(self, messages: Sequence[Message]) -> None:
        """Let go of what left the context, once that is more than half: memory follows the context, not the session."""
        if len(self._counted) > 2 * len(messages) + 64:
            current = {id(message) for message in messages}
            self._counted = {key: known for key, known in self._counted.items() if key in current}


def _content_tokens(content: Sequence[Content]) -> int:
    tokens = 0
    for block in content:
        match block:
            case TextContent(text=text, text_signature=signature):
                tokens += estimate_text_tokens(text)
            case ThinkingContent(thinking=text, thinking_signature=signature):
                tokens += estimate_text_tokens(text)
            case ToolCall(name=name, arguments=arguments, thought_signature=signature):
                tokens += CALL_TOKENS + estimate_text_tokens(name) + estimate_text_tokens(_as_json(arguments))
            case ImageContent():
                tokens += IMAGE_TOKENS
                continue
            case _:  # an unknown block is kept in the log and sent to nobody
                continue
        if signature:
            tokens += estimate_text_tokens(signature)
    return tokens


def _as_json(value: Any) -> str:
    try:
        return orjson.dumps(value).decode()
    except TypeError:  # a lone surrogate, an integer beyond 64 bits, a mapping that is no dict
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_as_dict)


def _as_dict(value: Any) -> Any:
    try:
        return dict(value)
    except (TypeError, ValueError):
        return str(value)
