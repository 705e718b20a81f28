"""Entries and headers, to lines and back: the one parse path, for files and for memory alike.

Every entry is written with exactly `type`, `id`, `parentId`, `timestamp` in front, so that ids and parents can
be read from the heads of lines, damaged ones too. What this version does not know comes out as it went in.
"""

from __future__ import annotations

from typing import Any, Final

from session_store.entries import (
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
from session_store.json_lines import dump_line, parse_line
from session_store.message_codec import (
    decode_content,
    decode_message,
    decode_optional_system_message,
    decode_optional_usage,
    decode_usage,
    encode_content,
    encode_message,
    encode_usage,
)
from session_store.messages import Content, Json, Usage
from session_store.wire import (
    Field,
    Shape,
    any_json,
    as_integer,
    as_optional_text,
    as_text,
    integer,
    json_object,
    optional_flag,
    optional_integer,
    optional_text,
    text,
)

__all__ = [
    "decode_content",
    "decode_entry",
    "decode_header",
    "decode_message",
    "decode_usage",
    "encode_content",
    "encode_entry",
    "encode_header",
    "encode_message",
    "encode_usage",
    "parse_line",
]

_LEAD: Final = (
    text("id"),
    Field(name="parent_id", key="parentId", plain=str, read=as_optional_text),
    text("timestamp"),
)
_LEAD_KEYS: Final = frozenset({"type", *(field.key for field in _LEAD)})
_DETAILS: Final = any_json("details")
_FROM_HOOK: Final = optional_flag("from_hook", "fromHook")
_OPTIONAL_USAGE: Final = Field(name="usage", key="usage", read=decode_optional_usage, write=encode_usage, optional=True)


def _decode_replacement(value: Any) -> tuple[Content, ...] | None:
    """Null omits the target. Otherwise an object with `content`; a bare string or list is that content."""
    if value is None:
        return None
    return decode_content(value.get("content") if isinstance(value, dict) else value)


def _decode_entry_usage(value: Any) -> Usage:
    return decode_usage(value if isinstance(value, dict) else {})


_ENTRIES: Final[dict[Any, Shape[Any]]] = {
    MessageEntry.type: Shape(
        MessageEntry,
        *_LEAD,
        Field(name="message", key="message", read=decode_message, write=encode_message),
        tag=("type", MessageEntry.type),
    ),
    CompactionEntry.type: Shape(
        CompactionEntry,
        *_LEAD,
        text("summary"),
        Field(name="first_kept_entry_id", key="firstKeptEntryId", plain=str, read=as_optional_text),
        integer("tokens_before", "tokensBefore"),
        _DETAILS,
        _OPTIONAL_USAGE,
        _FROM_HOOK,
        Field(
            name="system_message",
            key="systemMessage",
            read=decode_optional_system_message,
            write=encode_message,
            optional=True,
        ),
        optional_text("reason"),
        optional_text("method"),
        optional_text("model"),
        optional_integer("tokens_after", "tokensAfter"),
        optional_integer("duration_ms", "durationMs"),
        optional_text("instructions"),
        json_object("checkpoint"),
        tag=("type", CompactionEntry.type),
    ),
    ContextEditEntry.type: Shape(
        ContextEditEntry,
        *_LEAD,
        text("target_id", "targetId"),
        Field(
            name="replacement",
            key="replacement",
            read=_decode_replacement,
            write=lambda content: {"content": encode_content(content)},
        ),
        optional_text("batch"),
        tag=("type", ContextEditEntry.type),
    ),
    BranchSummaryEntry.type: Shape(
        BranchSummaryEntry,
        *_LEAD,
        Field(name="from_id", key="fromId", plain=str, read=as_optional_text),
        text("summary"),
        _DETAILS,
        _OPTIONAL_USAGE,
        _FROM_HOOK,
        tag=("type", BranchSummaryEntry.type),
    ),
    CustomMessageEntry.type: Shape(
        CustomMessageEntry,
        *_LEAD,
        text("custom_type", "customType"),
        Field(name="content", key="content", read=decode_content, write=encode_content),
        Field(name="display", key="display", plain=bool, read=lambda value: value is not False),
        _DETAILS,
        tag=("type", CustomMessageEntry.type),
    ),
    CustomEntry.type: Shape(
        CustomEntry,
        *_LEAD,
        text("custom_type", "customType"),
        any_json("data"),
        tag=("type", CustomEntry.type),
    ),
    ModelChangeEntry.type: Shape(
        ModelChangeEntry,
        *_LEAD,
        text("provider"),
        text("model_id", "modelId"),
        tag=("type", ModelChangeEntry.type),
    ),
    ThinkingLevelChangeEntry.type: Shape(
        ThinkingLevelChangeEntry,
        *_LEAD,
        text("thinking_level", "thinkingLevel"),
        tag=("type", ThinkingLevelChangeEntry.type),
    ),
    LabelEntry.type: Shape(
        LabelEntry,
        *_LEAD,
        text("target_id", "targetId"),
        optional_text("label"),
        tag=("type", LabelEntry.type),
    ),
    SessionInfoEntry.type: Shape(
        SessionInfoEntry,
        *_LEAD,
        text("name"),
        tag=("type", SessionInfoEntry.type),
    ),
    UsageEntry.type: Shape(
        UsageEntry,
        *_LEAD,
        text("kind"),
        text("provider"),
        text("model"),
        Field(name="usage", key="usage", read=_decode_entry_usage, write=encode_usage),
        tag=("type", UsageEntry.type),
    ),
}
_ENTRIES_BY_CLASS: Final[dict[type, Shape[Any]]] = {shape.cls: shape for shape in _ENTRIES.values()}


def decode_entry(data: Json) -> Entry:
    """An entry of the current version, from a parsed line. Never raises: what is missing gets its default."""
    kind = as_text(data.get("type"))
    shape = _ENTRIES.get(kind)
    if shape is not None:
        entry: Entry = shape.decode(data)
        return entry
    return UnknownEntry(
        id=as_text(data.get("id")),
        parent_id=as_optional_text(data.get("parentId")),
        timestamp=as_text(data.get("timestamp")),
        type=kind,
        raw={key: value for key, value in data.items() if key not in _LEAD_KEYS},
    )


def encode_entry(entry: Entry) -> bytes:
    """One line, its newline included.

    Raises:
        TypeError: something in the entry can never be JSON; the text begins with its path.
    """
    if isinstance(entry, UnknownEntry):
        lead = {"type": entry.type, "id": entry.id, "parentId": entry.parent_id, "timestamp": entry.timestamp}
        return dump_line({**lead, **entry.raw})
    return dump_line(_ENTRIES_BY_CLASS[type(entry)].encode(entry))


_HEADER: Final = Shape(
    SessionHeader,
    Field(name="version", key="version", read=lambda value: as_integer(value) or 1),
    text("id"),
    text("timestamp"),
    text("cwd"),
    optional_text("parent_session", "parentSession"),
    tag=("type", "session"),
)


def decode_header(data: Json) -> SessionHeader:
    """The header as the file has it; an absent version is 1."""
    return _HEADER.decode(data)


def encode_header(header: SessionHeader) -> bytes:
    """One line, its newline included."""
    return dump_line(_HEADER.encode(header))
