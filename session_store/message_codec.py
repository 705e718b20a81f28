"""Messages, blocks and usage, to JSON objects and back.

`decode_*` never raises, whatever is in the object; `decode(encode(x)) == x` for everything that `decode`
returns. `usage` on the wire is always a whole object of numbers, because other readers add them up.
"""

from __future__ import annotations

from typing import Any, Final

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
    Json,
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
from session_store.wire import (
    Field,
    Shape,
    any_json,
    as_optional_integer,
    as_optional_text,
    as_text,
    flag,
    integer,
    json_object,
    optional_flag,
    optional_integer,
    optional_text,
    text,
)

# Blocks ---------------------------------------------------------------------------------------------------------------

_TEXT: Final = Shape(
    TextContent,
    text("text"),
    optional_text("text_signature", "textSignature"),
    tag=("type", "text"),
)
_IMAGE: Final = Shape(
    ImageContent,
    text("data"),
    text("mime_type", "mimeType"),
    tag=("type", "image"),
)
_THINKING: Final = Shape(
    ThinkingContent,
    text("thinking"),
    optional_text("thinking_signature", "thinkingSignature"),
    optional_flag("redacted"),
    tag=("type", "thinking"),
)
_TOOL_CALL: Final = Shape(
    ToolCall,
    text("id"),
    text("name"),
    Field(name="arguments", key="arguments", plain=dict, read=lambda value: {}),
    optional_text("thought_signature", "thoughtSignature"),
    optional_text("namespace"),
    tag=("type", "toolCall"),
)
_BLOCKS: Final[dict[Any, Shape[Any]]] = {
    "text": _TEXT,
    "image": _IMAGE,
    "thinking": _THINKING,
    "toolCall": _TOOL_CALL,
}
_BLOCKS_BY_CLASS: Final[dict[type, Shape[Any]]] = {shape.cls: shape for shape in _BLOCKS.values()}


def decode_content(value: Any) -> tuple[Content, ...]:
    """Blocks of a `content` field: a list, a string (one text block), one block, or nothing."""
    if isinstance(value, list):
        return tuple([_decode_block(item) for item in value if isinstance(item, (dict, str))])
    if isinstance(value, (dict, str)):
        return (_decode_block(value),)
    return ()


def encode_content(content: tuple[Content, ...]) -> list[Json]:
    return [
        block.raw if isinstance(block, UnknownContent) else _BLOCKS_BY_CLASS[type(block)].encode(block)
        for block in content
    ]


def _decode_block(value: Json | str) -> Content:
    if isinstance(value, str):
        return TextContent(value)
    kind = as_text(value.get("type"))
    shape = _BLOCKS.get(kind)
    block: Content = UnknownContent(kind, value) if shape is None else shape.decode(value)
    return block


# Usage ----------------------------------------------------------------------------------------------------------------


def _as_dollars(value: Any) -> float:
    return float(value) if type(value) is float or type(value) is int else 0.0


_COST: Final = Shape(
    Cost,
    Field(name="input", key="input", plain=float, read=_as_dollars),
    Field(name="output", key="output", plain=float, read=_as_dollars),
    Field(name="cache_read", key="cacheRead", plain=float, read=_as_dollars),
    Field(name="cache_write", key="cacheWrite", plain=float, read=_as_dollars),
    Field(name="total", key="total", plain=float, read=_as_dollars),
)
_UNKNOWN_PRICE: Final = Cost()


def _decode_cost(value: Any) -> Cost | None:
    cost = _COST.decode(value) if isinstance(value, dict) else None
    return None if cost == _UNKNOWN_PRICE else cost


_USAGE: Final = Shape(
    Usage,
    integer("input"),
    integer("output"),
    integer("cache_read", "cacheRead"),
    integer("cache_write", "cacheWrite"),
    Field(name="reported_total", key="totalTokens", plain=int, read=as_optional_integer),
    Field(name="cost", key="cost", read=_decode_cost, write=_COST.encode),
    optional_flag("estimated"),
)


def decode_usage(data: Json) -> Usage:
    """Absent or wrong numbers are 0; a total of 0, or equal to the sum of its parts, is no total of its own."""
    usage = _USAGE.decode(data)
    total = usage.reported_total
    if total is not None and total in (0, usage.input + usage.output + usage.cache_read + usage.cache_write):
        object.__setattr__(usage, "reported_total", None)  # frozen, but nobody else has seen it yet
    return usage


def encode_usage(usage: Usage) -> Json:
    """A whole object of numbers; `cost` None is zeros."""
    data = _USAGE.encode(usage)
    data["totalTokens"] = usage.total_tokens
    if usage.cost is None:
        data["cost"] = _COST.encode(_UNKNOWN_PRICE)
    return data


def decode_optional_usage(value: Any) -> Usage | None:
    return decode_usage(value) if isinstance(value, dict) else None


def _decode_answer_usage(value: Any) -> Usage:
    return decode_usage(value) if isinstance(value, dict) else UNREPORTED


# Messages -------------------------------------------------------------------------------------------------------------

_CONTENT: Final = Field(name="content", key="content", read=decode_content, write=encode_content)
_TIMESTAMP: Final = integer("timestamp")
_DETAILS: Final = any_json("details")


def _as_tools(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, list) else ()


def _tools_or_none(tools: tuple[Any, ...]) -> list[Any] | None:
    return list(tools) or None


_ROLES: Final[dict[Any, Shape[Any]]] = {
    "user": Shape(UserMessage, _CONTENT, _TIMESTAMP, tag=("role", "user")),
    "assistant": Shape(
        AssistantMessage,
        _CONTENT,
        text("api"),
        text("provider"),
        text("model"),
        Field(name="usage", key="usage", read=_decode_answer_usage, write=encode_usage),
        Field(name="stop_reason", key="stopReason", plain=str, read=lambda value: "stop"),
        optional_text("error_message", "errorMessage"),
        optional_text("response_id", "responseId"),
        optional_text("thinking_level", "thinkingLevel"),
        _TIMESTAMP,
        tag=("role", "assistant"),
    ),
    "toolResult": Shape(
        ToolResultMessage,
        text("tool_call_id", "toolCallId"),
        text("tool_name", "toolName"),
        _CONTENT,
        flag("is_error", "isError"),
        _DETAILS,
        Field(name="usage", key="usage", read=decode_optional_usage, write=encode_usage, optional=True),
        _TIMESTAMP,
        tag=("role", "toolResult"),
    ),
    "bashExecution": Shape(
        BashExecutionMessage,
        text("command"),
        text("output"),
        optional_integer("exit_code", "exitCode"),
        flag("cancelled"),
        flag("truncated"),
        optional_text("full_output_path", "fullOutputPath"),
        optional_flag("exclude_from_context", "excludeFromContext"),
        _TIMESTAMP,
        tag=("role", "bashExecution"),
    ),
    "custom": Shape(
        CustomMessage,
        text("custom_type", "customType"),
        _CONTENT,
        Field(name="display", key="display", plain=bool, read=lambda value: value is not False),
        _DETAILS,
        _TIMESTAMP,
        tag=("role", "custom"),
    ),
    "system": Shape(
        SystemMessage,
        _CONTENT,
        json_object("sections"),
        Field(
            name="tools_added",
            key="toolsAdded",
            read=_as_tools,
            write=_tools_or_none,
            optional=True,
        ),
        Field(
            name="tools_removed",
            key="toolsRemoved",
            read=_as_tools,
            write=_tools_or_none,
            optional=True,
        ),
        _TIMESTAMP,
        tag=("role", "system"),
    ),
    "branchSummary": Shape(
        BranchSummaryMessage,
        text("summary"),
        Field(name="from_id", key="fromId", plain=str, read=as_optional_text),
        _TIMESTAMP,
        tag=("role", "branchSummary"),
    ),
    "compactionSummary": Shape(
        CompactionSummaryMessage,
        text("summary"),
        integer("tokens_before", "tokensBefore"),
        _TIMESTAMP,
        tag=("role", "compactionSummary"),
    ),
}
_ROLES_BY_CLASS: Final[dict[type, Shape[Any]]] = {shape.cls: shape for shape in _ROLES.values()}


def decode_message(value: Any) -> Message:
    """A message; what is no object is an unknown message without a role."""
    if not isinstance(value, dict):
        return UnknownMessage(role="", raw={})
    role = as_text(value.get("role"))
    shape = _ROLES.get(role)
    message: Message = UnknownMessage(role=role, raw=value) if shape is None else shape.decode(value)
    return message


def encode_message(message: Message) -> Json:
    return message.raw if isinstance(message, UnknownMessage) else _ROLES_BY_CLASS[type(message)].encode(message)


def decode_optional_system_message(value: Any) -> SystemMessage | None:
    """The replay a compaction carries; any other role is none."""
    message = decode_message(value)
    return message if isinstance(message, SystemMessage) else None
