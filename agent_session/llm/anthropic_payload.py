"""From a request to the payload of Anthropic's messages. Pure; equal requests give equal bytes.

User messages that follow each other become one, with the results of a batch of calls first, as the format wants it.
Signed thinking goes back unchanged, where the request asks for thinking: without, it is refused. The end of what stays
the same from request to request is marked for the provider's cache: the system prompt with the tools before it, and the
last two user messages, since the earlier of them was the last one when the request before was cached. Nothing else is
mended here: `handover` has put in order whatever the log held before a client sees it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, assert_never

from agent_session.llm.anthropic_thinking import thinking_fields
from agent_session.llm.client import ModelRequest
from agent_session.llm.convert import as_model_messages
from session_store.messages import (
    AssistantMessage,
    Content,
    ImageContent,
    Json,
    TextContent,
    ThinkingContent,
    ToolCall,
    ToolResultMessage,
    UnknownContent,
    UserMessage,
)

API: Final = "anthropic-messages"
"""The wire format's name, as it is logged."""

_CACHED_USER_MESSAGES = 2
_THINKING_TYPES = ("thinking", "redacted_thinking")


def messages_payload(request: ModelRequest) -> dict[str, Any]:
    """The whole payload, streaming. This format demands a limit of the answer: the request's, else the model's."""
    max_tokens = request.max_output_tokens or request.model.output_limit
    messages = anthropic_messages(request)
    payload: dict[str, Any] = {"model": request.model.name, "max_tokens": max_tokens}
    if request.system_prompt.strip():
        payload["system"] = [{"type": "text", "text": request.system_prompt}]
    if request.tools:
        payload["tools"] = [
            {"name": tool.name, "description": tool.description, "input_schema": dict(tool.parameters)}
            for tool in request.tools
        ]
        if request.tool_choice == "none":
            payload["tool_choice"] = {"type": "none"}
    asked = thinking_fields(
        request.model, request.thinking_level, max_tokens, is_mid_turn_without=_is_mid_turn_without_thinking(messages)
    )
    payload["messages"] = messages if asked else [_without_thinking(message) for message in messages]
    payload |= asked
    payload["stream"] = True
    if request.tools or len(messages) > 1:  # a question of its own, such as for a summary, is not asked a second time
        _mark_for_cache(payload)
    return payload


def anthropic_messages(request: ModelRequest) -> list[dict[str, Any]]:
    """The request's messages as blocks, user and assistant in turns."""
    result: list[dict[str, Any]] = []
    after_results: list[Json] = []  # images that may not lie inside a failed result
    for message in as_model_messages(request.messages):
        if after_results and not isinstance(message, ToolResultMessage):
            _add(result, "user", after_results)
            after_results = []
        match message:
            case UserMessage():
                _add(result, "user", _user_blocks(message.content))
            case AssistantMessage():
                _add(result, "assistant", _assistant_blocks(message))
            case ToolResultMessage():
                block, images = _result_block(message)
                _add(result, "user", [block])
                after_results.extend(images)
            case _:
                assert_never(message)
    if after_results:
        _add(result, "user", after_results)
    return result


def _add(messages: list[dict[str, Any]], role: str, blocks: list[Json]) -> None:
    if role == "user" and messages and messages[-1]["role"] == "user":
        messages[-1]["content"].extend(blocks)
    else:
        messages.append({"role": role, "content": blocks})


def _user_blocks(content: Sequence[Content]) -> list[Json]:
    blocks: list[Json] = []
    for block in content:
        match block:
            case TextContent(text=text):
                blocks.append(_text(text))
            case ImageContent():
                blocks.append(_image(block))
            case ThinkingContent() | ToolCall() | UnknownContent():
                pass
            case _:
                assert_never(block)
    return blocks


def _assistant_blocks(message: AssistantMessage) -> list[Json]:
    blocks: list[Json] = []
    for block in message.content:
        match block:
            case TextContent(text=text):
                blocks.append(_text(text))
            case ThinkingContent(thinking=thinking, thinking_signature=signature, redacted=redacted):
                if not signature:
                    continue
                if redacted:
                    blocks.append({"type": "redacted_thinking", "data": signature})
                else:
                    blocks.append({"type": "thinking", "thinking": thinking, "signature": signature})
            case ToolCall():
                blocks.append({"type": "tool_use", "id": block.id, "name": block.name, "input": block.arguments})
            case ImageContent() | UnknownContent():
                pass
            case _:
                assert_never(block)
    return blocks


def _result_block(message: ToolResultMessage) -> tuple[Json, list[Json]]:
    """The result, and what has to follow it outside: a failed one may hold nothing but text."""
    inside = [_text(block.text) for block in message.content if isinstance(block, TextContent)]
    images = [_image(block) for block in message.content if isinstance(block, ImageContent)]
    result: Json = {"type": "tool_result", "tool_use_id": message.tool_call_id, "content": inside}
    if message.is_error:
        return result | {"content": inside or [_text("(its images follow)")], "is_error": True}, images
    return result | {"content": inside + images}, []


def _text(text: str) -> Json:
    return {"type": "text", "text": text}


def _image(block: ImageContent) -> Json:
    return {"type": "image", "source": {"type": "base64", "media_type": block.mime_type, "data": block.data}}


def _is_mid_turn_without_thinking(messages: Sequence[dict[str, Any]]) -> bool:
    """Whether the request goes on with a turn that began without thinking, as after a change of model.

    A turn is the answers up to the last message of the user's own; its calls' results are part of it.
    """
    first: dict[str, Any] | None = None
    for message in reversed(messages):
        if message["role"] == "assistant":
            first = message
        elif message["content"][0]["type"] != "tool_result":
            break
    return first is not None and first["content"][0]["type"] not in _THINKING_TYPES


def _without_thinking(message: dict[str, Any]) -> dict[str, Any]:
    return message | {"content": [block for block in message["content"] if block["type"] not in _THINKING_TYPES]}


def _mark_for_cache(payload: dict[str, Any]) -> None:
    """At most three marks, of the four that there may be."""
    user_messages = [message for message in payload["messages"] if message["role"] == "user"]
    ends = [message["content"][-1] for message in user_messages[-_CACHED_USER_MESSAGES:]]
    if before := payload.get("system") or payload.get("tools"):
        ends.append(before[-1])
    for block in ends:
        block["cache_control"] = {"type": "ephemeral"}
