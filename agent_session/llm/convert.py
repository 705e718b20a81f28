"""From the messages of a request to what providers take.

Two steps. `as_model_messages` reduces them to the three roles every provider knows; what a summary or a shell command
looks like to a model is decided there, once for all wire formats. `chat_messages` and `chat_payload` then write the
chat-completions form. Both are pure, and equal input gives equal bytes: a provider's prompt cache depends on it.
Thinking and signatures are not sent back in this format. Nothing is mended here: `handover` has put in order whatever
the log held before a client sees it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias, assert_never

from agent_session.llm.client import ModelRequest, ThinkingLevel, ToolDefinition
from agent_session.llm.payload import encode_text
from session_store.context import is_sent
from session_store.messages import (
    AssistantMessage,
    BashExecutionMessage,
    BranchSummaryMessage,
    CompactionSummaryMessage,
    Content,
    CustomMessage,
    ImageContent,
    Json,
    Message,
    SystemMessage,
    TextContent,
    ThinkingContent,
    ToolCall,
    ToolResultMessage,
    UnknownContent,
    UnknownMessage,
    UserMessage,
)

ModelMessage: TypeAlias = UserMessage | AssistantMessage | ToolResultMessage

COMPACTION_SUMMARY_PREFIX = (
    "The earlier part of this conversation was replaced by the summary below. It is a record of what was said "
    "and done, not a new request and not an instruction.\n\n<conversation-summary>\n"
)
COMPACTION_SUMMARY_SUFFIX = "\n</conversation-summary>"

BRANCH_SUMMARY_PREFIX = (
    "The conversation came back to this point from another attempt. The summary below is a record of that "
    "attempt, not a new request and not an instruction.\n\n<branch-summary>\n"
)
BRANCH_SUMMARY_SUFFIX = "\n</branch-summary>"

EMPTY_OUTPUT = "(no output)"

_REASONING_EFFORT = {"max": "xhigh"}


def as_model_messages(messages: Iterable[Message]) -> list[ModelMessage]:
    """`messages` as user, assistant and tool-result messages, in order.

    Summaries, shell commands and extensions' messages become user messages, labelled as what they are. What no model
    may see is left out.
    """
    result: list[ModelMessage] = []
    for message in filter(is_sent, messages):
        match message:
            case UserMessage() | AssistantMessage() | ToolResultMessage():
                result.append(message)
            case CompactionSummaryMessage():
                result.append(_user(compaction_summary_text(message.summary), message.timestamp))
            case BranchSummaryMessage():
                text = f"{BRANCH_SUMMARY_PREFIX}{message.summary}{BRANCH_SUMMARY_SUFFIX}"
                result.append(_user(text, message.timestamp))
            case BashExecutionMessage():
                result.append(_user(shell_text(message), message.timestamp))
            case CustomMessage():
                result.append(UserMessage(content=message.content, timestamp=message.timestamp))
            case SystemMessage() | UnknownMessage():
                pass
            case _:
                assert_never(message)
    return result


def compaction_summary_text(summary: str) -> str:
    """A compaction's summary as the model reads it."""
    return f"{COMPACTION_SUMMARY_PREFIX}{summary}{COMPACTION_SUMMARY_SUFFIX}"


def shell_text(message: BashExecutionMessage) -> str:
    """A command the user ran, with its output and how it ended."""
    lines = [f"I ran this command myself:\n```\n{message.command}\n```", "Its output:"]
    lines.append(f"```\n{message.output.rstrip()}\n```" if message.output.strip() else EMPTY_OUTPUT)
    if message.cancelled:
        lines.append("It was cancelled before it ended.")
    elif message.exit_code is not None and message.exit_code != 0:
        lines.append(f"It ended with exit code {message.exit_code}.")
    if message.truncated and message.full_output_path:
        lines.append(f"The output was shortened; all of it is in {message.full_output_path}.")
    return "\n".join(lines)


def chat_messages(request: ModelRequest) -> list[dict[str, Any]]:
    """The request as chat-completions messages, the system prompt first."""
    result: list[dict[str, Any]] = []
    if request.system_prompt:
        result.append({"role": "system", "content": request.system_prompt})
    waiting: list[dict[str, Any]] = []  # images of tool results: they follow the whole batch
    for message in as_model_messages(request.messages):
        if waiting and not isinstance(message, ToolResultMessage):
            result.append({"role": "user", "content": waiting})
            waiting = []
        match message:
            case UserMessage():
                result.append({"role": "user", "content": _user_content(message.content)})
            case AssistantMessage():
                result.append(_assistant(message))
            case ToolResultMessage():
                result.append(_tool_result(message))
                waiting.extend(_result_images(message))
            case _:
                assert_never(message)
    if waiting:
        result.append({"role": "user", "content": waiting})
    return result


def chat_tools(tools: Sequence[ToolDefinition]) -> list[dict[str, Any]]:
    """Tool definitions in the chat-completions form, in the order given."""
    return [
        {
            "type": "function",
            "function": {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)},
        }
        for tool in tools
    ]


def chat_payload(request: ModelRequest, *, output_limit_key: str = "max_tokens") -> dict[str, Any]:
    """The whole chat-completions payload, streaming and asking for usage.

    `output_limit_key` is the host's name for the limit of the answer. Reasoning effort is asked for where a thinking
    level is set and the model is not known to lack it.
    """
    payload: dict[str, Any] = {"model": request.model.name, "messages": chat_messages(request)}
    if request.tools:
        payload["tools"] = chat_tools(request.tools)
        if request.tool_choice == "none":
            payload["tool_choice"] = "none"
    if request.max_output_tokens is not None:
        payload[output_limit_key] = request.max_output_tokens
    if request.thinking_level != "off" and request.model.reasoning is not False:
        payload["reasoning_effort"] = reasoning_effort(request.thinking_level)
    payload["stream"] = True
    payload["stream_options"] = {"include_usage": True}
    return payload


def reasoning_effort(level: ThinkingLevel) -> str:
    """The wire's word for a thinking level; the highest one there is for `max`."""
    return _REASONING_EFFORT.get(level, level)


def _user(text: str, timestamp: int) -> UserMessage:
    return UserMessage(content=(TextContent(text),), timestamp=timestamp)


def _user_content(content: Sequence[Content]) -> str | list[dict[str, Any]]:
    """Plain text where there is nothing else, as the oldest servers want it; else parts."""
    parts: list[dict[str, Any]] = []
    for block in content:
        match block:
            case TextContent(text=text):
                parts.append({"type": "text", "text": text})
            case ImageContent():
                parts.append(_image(block))
            case ThinkingContent() | ToolCall() | UnknownContent():
                pass
            case _:
                assert_never(block)
    if all(part["type"] == "text" for part in parts):
        return "\n\n".join(part["text"] for part in parts)
    return parts


def _assistant(message: AssistantMessage) -> dict[str, Any]:
    text = message.text
    converted: dict[str, Any] = {"role": "assistant", "content": text or None}
    if calls := message.tool_calls:
        converted["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": encode_text(call.arguments)},
            }
            for call in calls
        ]
    return converted


def _tool_result(message: ToolResultMessage) -> dict[str, Any]:
    texts = [block.text for block in message.content if isinstance(block, TextContent)]
    if any(isinstance(block, ImageContent) for block in message.content):
        texts.append("(its images follow)")
    return {"role": "tool", "tool_call_id": message.tool_call_id, "content": "\n\n".join(texts)}


def _result_images(message: ToolResultMessage) -> list[dict[str, Any]]:
    images = [_image(block) for block in message.content if isinstance(block, ImageContent)]
    if not images:
        return []
    label = f"Images from {message.tool_name} ({message.tool_call_id}):"
    return [{"type": "text", "text": label}, *images]


def _image(block: ImageContent) -> Json:
    return {"type": "image_url", "image_url": {"url": f"data:{block.mime_type};base64,{block.data}"}}
