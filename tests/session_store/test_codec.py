from __future__ import annotations

import datetime as dt
import json
import re
import uuid
from dataclasses import dataclass
from enum import Enum
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from session_store import codec
from session_store.entries import (
    CompactionEntry,
    ContextEditEntry,
    CustomEntry,
    CustomMessageEntry,
    Entry,
    MessageEntry,
    SessionHeader,
    UnknownEntry,
)
from session_store.messages import (
    UNREPORTED,
    AssistantMessage,
    Cost,
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

ENTRY_TYPES = (
    "message",
    "compaction",
    "context_edit",
    "branch_summary",
    "custom_message",
    "custom",
    "model_change",
    "thinking_level_change",
    "label",
    "session_info",
    "usage",
    "from_the_future",
)
ROLES = (
    "user",
    "assistant",
    "toolResult",
    "bashExecution",
    "custom",
    "system",
    "branchSummary",
    "compactionSummary",
    "from_the_future",
)
BLOCKS = ("text", "image", "thinking", "toolCall", "from_the_future")
FIELDS = re.findall(
    r"\w+",
    "api arguments batch cacheRead cacheWrite cancelled checkpoint command content cost customType cwd data details "
    "display durationMs errorMessage estimated excludeFromContext exitCode firstKeptEntryId fromHook fromId "
    "fullOutputPath id input instructions isError kind label message method mimeType model modelId name namespace "
    "output parentId parentSession provider reason redacted replacement responseId sections stopReason summary "
    "systemMessage targetId text textSignature thinking thinkingLevel thinkingSignature thoughtSignature timestamp "
    "tokensAfter tokensBefore toolCallId toolName toolsAdded toolsRemoved total totalTokens truncated usage version "
    "somethingNew",
)

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(min_value=-(2**63), max_value=2**64 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=8),
)
anything = st.recursive(
    scalars,
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.sampled_from(FIELDS), children, max_size=4),
    max_leaves=8,
)


def objects(key: str, kinds: tuple[str, ...], fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Objects of a known kind, their fields present, absent or of the wrong type."""
    return st.builds(
        lambda kind, rest: {**rest, key: kind},
        st.sampled_from(kinds),
        st.dictionaries(st.sampled_from(FIELDS), fields, max_size=12),
    )


blocks = objects("type", BLOCKS, anything)
contents = st.one_of(anything, st.lists(blocks | anything, max_size=3))
messages = objects("role", ROLES, anything | contents)
lines = st.builds(
    lambda data, message, content: {**data, **({"message": message} if message is not None else {}), **content},
    objects("type", ENTRY_TYPES, anything | messages),
    st.none() | messages | anything,
    st.fixed_dictionaries({}, optional={"content": contents, "systemMessage": messages, "replacement": anything}),
)


def entry_of(line: dict[str, Any]) -> Entry:
    return codec.decode_entry(line)


def written(entry: Entry) -> dict[str, Any]:
    data = codec.parse_line(codec.encode_entry(entry))
    assert data is not None
    return data


def message_entry(message: dict[str, Any], **fields: Any) -> MessageEntry:
    entry = entry_of({"type": "message", "id": "1", "parentId": None, "timestamp": "t", "message": message, **fields})
    assert isinstance(entry, MessageEntry)
    return entry


# Mutation: drop `extra` in `Shape.encode`, or read `totalTokens` without comparing it with the sum.
@given(lines)
def test_what_was_decoded_is_the_same_after_it_was_written_and_read(line: dict[str, Any]):
    entry = entry_of(line)
    again = entry_of(written(entry))
    assert again == entry
    assert codec.encode_entry(again) == codec.encode_entry(entry)


@settings(max_examples=25)
@given(lines)
def test_decoding_changes_nothing_in_what_it_is_given(line: dict[str, Any]):
    before = orjson.dumps(line)
    entry_of(line)
    assert orjson.dumps(line) == before


# Mutation: write `extra` before the four, or leave a null parent out.
@settings(max_examples=25)
@given(lines)
def test_every_line_begins_with_the_four_keys_and_is_one_line(line: dict[str, Any]):
    raw = codec.encode_entry(entry_of(line))
    assert list(orjson.loads(raw))[:4] == ["type", "id", "parentId", "timestamp"]
    assert raw.endswith(b"\n")
    assert raw.count(b"\n") == 1


# Mutation: leave one key out of `_known`'s complement, such as by `extra = None`.
@given(st.sampled_from(ENTRY_TYPES), st.dictionaries(st.text(min_size=9, max_size=12), anything, max_size=4))
def test_unknown_fields_of_entries_come_out_as_they_went_in(kind: str, unknown: dict[str, Any]):
    line = {"type": kind, "id": "1", "parentId": "0", "timestamp": "t", **unknown}
    unknown = {key: value for key, value in unknown.items() if key not in FIELDS}
    assert unknown.items() <= written(entry_of(line)).items()


@pytest.mark.parametrize("role", ROLES)
def test_unknown_fields_of_messages_blocks_usage_and_cost_are_kept(role: str):
    message = {
        "role": role,
        "content": [{"type": kind, "newInBlock": {"a": [1]}} for kind in BLOCKS],
        "usage": {"input": 1, "newInUsage": "x", "cost": {"total": 0.5, "newInCost": None}},
        "newInMessage": [True],
    }
    out = written(message_entry(message))["message"]
    assert out["newInMessage"] == [True]
    if role in ("user", "assistant", "toolResult", "custom", "system"):
        assert [block["newInBlock"] for block in out["content"]] == [{"a": [1]}] * len(BLOCKS)
    if role in ("assistant", "toolResult"):
        assert out["usage"]["newInUsage"] == "x"
        assert out["usage"]["cost"]["newInCost"] is None


# Mutation: strip or normalise text in `as_optional_text`.
@given(st.text(max_size=50))
def test_opaque_signatures_are_kept_byte_for_byte(signature: str):
    content = [
        {"type": "thinking", "thinking": "", "thinkingSignature": signature},
        {"type": "text", "text": "t", "textSignature": signature},
        {"type": "toolCall", "id": "c", "name": "n", "arguments": {}, "thoughtSignature": signature},
    ]
    entry = message_entry({"role": "assistant", "content": content})
    assert written(entry)["message"]["content"] == content


def test_a_session_of_every_type_is_written_in_the_names_of_the_wire():
    entry = CompactionEntry(
        id="c",
        parent_id="p",
        timestamp="t",
        summary="s",
        first_kept_entry_id="k",
        tokens_before=7,
        details={"readFiles": []},
        usage=Usage(1, 2, 3, 4, Cost(0.5, 0.25, 0.0, 0.0, 0.75)),
        from_hook=True,
        system_message=SystemMessage(content=(), tools_removed=("x",)),
        reason="manual",
        method="model",
        model="provider/name",
        tokens_after=3,
        duration_ms=9,
        instructions="i",
        checkpoint={"entries": 3},
    )
    assert written(entry) == {
        "type": "compaction",
        "id": "c",
        "parentId": "p",
        "timestamp": "t",
        "summary": "s",
        "firstKeptEntryId": "k",
        "tokensBefore": 7,
        "details": {"readFiles": []},
        "usage": {
            "input": 1,
            "output": 2,
            "cacheRead": 3,
            "cacheWrite": 4,
            "totalTokens": 10,
            "cost": {"input": 0.5, "output": 0.25, "cacheRead": 0.0, "cacheWrite": 0.0, "total": 0.75},
        },
        "fromHook": True,
        "systemMessage": {"role": "system", "content": [], "toolsRemoved": ["x"], "timestamp": 0},
        "reason": "manual",
        "method": "model",
        "model": "provider/name",
        "tokensAfter": 3,
        "durationMs": 9,
        "instructions": "i",
        "checkpoint": {"entries": 3},
    }


# Mutation: write `cost` as null, or `estimated` never.
def test_usage_that_nobody_reported_is_a_whole_object_of_zeros_marked_estimated():
    entry = message_entry({"role": "assistant", "content": None})
    assert isinstance(entry.message, AssistantMessage)
    assert entry.message.usage == UNREPORTED
    assert written(entry)["message"]["usage"] == {
        "input": 0,
        "output": 0,
        "cacheRead": 0,
        "cacheWrite": 0,
        "totalTokens": 0,
        "cost": {"input": 0.0, "output": 0.0, "cacheRead": 0.0, "cacheWrite": 0.0, "total": 0.0},
        "estimated": True,
    }


@pytest.mark.parametrize(
    ("wire", "usage"),
    [
        ({}, Usage()),
        ({"input": None, "output": "3", "cost": None}, Usage()),
        ({"input": 5.0, "output": 2}, Usage(5, 2)),
        ({"input": 5, "output": 2, "totalTokens": 7}, Usage(5, 2)),
        ({"input": 5, "output": 2, "totalTokens": 0}, Usage(5, 2)),
        ({"input": 5, "output": 2, "totalTokens": 900}, Usage(5, 2, reported_total=900)),
        ({"cost": {"input": 0, "total": 0}}, Usage()),
        ({"cost": {"input": 1, "total": 1}}, Usage(cost=Cost(input=1.0, total=1.0))),
    ],
)
def test_usage_is_read_whatever_its_numbers_are(wire: dict[str, Any], usage: Usage):
    assert codec.decode_usage(wire) == usage


@pytest.mark.parametrize(
    ("content", "blocks"),
    [
        (None, ()),
        ("", (TextContent(""),)),
        ("text", (TextContent("text"),)),
        (["a", {"type": "text", "text": "b"}, 3, None], (TextContent("a"), TextContent("b"))),
        ({"type": "text", "text": "alone"}, (TextContent("alone"),)),
        ([{"type": "text"}], (TextContent(""),)),
        ([{"type": "thinking", "thinking": 3, "redacted": 1}], (ThinkingContent(""),)),
        ([{"type": "toolCall", "arguments": "{}"}], (ToolCall("", "", {}),)),
        ([{"type": "video", "url": "u"}], (UnknownContent("video", {"type": "video", "url": "u"}),)),
        ([{"url": "u"}], (UnknownContent("", {"url": "u"}),)),
        (17, ()),
    ],
)
def test_content_of_every_form_is_read(content: Any, blocks: tuple[Any, ...]):
    entry = message_entry({"role": "user", "content": content})
    assert entry.message == UserMessage(content=blocks)


def test_wrong_types_give_defaults_and_never_an_error():
    wrong: dict[str, Any] = {field: [[{"a": 1}]] for field in FIELDS}
    for role in ROLES:
        message_entry({**wrong, "role": role})
    for kind in ENTRY_TYPES:
        entry_of({**wrong, "type": kind, "id": "1"})
    result = message_entry({"role": "toolResult", "toolCallId": 3, "isError": "yes", "content": {}}).message
    assert isinstance(result, ToolResultMessage)
    assert (result.tool_call_id, result.is_error) == ("", False)


def test_unknown_roles_and_messages_that_are_none_are_kept_whole():
    raw = {"role": "narrator", "content": "once", "timestamp": 1}
    assert message_entry(raw).message == UnknownMessage(role="narrator", raw=raw)
    assert written(message_entry(raw))["message"] == raw
    assert entry_of({"type": "message", "id": "1", "message": 5}) == MessageEntry(
        id="1", parent_id=None, timestamp="", message=UnknownMessage(role="", raw={})
    )


@pytest.mark.parametrize(
    ("replacement", "content"),
    [
        (None, None),
        ("bare", (TextContent("bare"),)),
        ({"content": "text"}, (TextContent("text"),)),
        ({"content": [{"type": "text", "text": "a"}]}, (TextContent("a"),)),
        ({}, ()),
    ],
)
def test_a_replacement_is_read_in_every_form_and_written_as_an_object(replacement: Any, content: Any):
    entry = entry_of({"type": "context_edit", "id": "1", "targetId": "0", "replacement": replacement})
    assert isinstance(entry, ContextEditEntry)
    assert entry.replacement == content
    out = written(entry)["replacement"]
    # Mutation: write the text alone; other readers of the format stop at a bare string.
    assert out is None or isinstance(out["content"], list)


def test_a_header_keeps_what_it_does_not_know_and_defaults_to_version_one():
    data = {"type": "session", "id": "i", "timestamp": "t", "cwd": "/", "provider": "p"}
    assert codec.decode_header(data) == SessionHeader(
        id="i", timestamp="t", cwd="/", version=1, extra={"provider": "p"}
    )
    header = SessionHeader(id="i", timestamp="t", cwd="/w", parent_session="/old.jsonl")
    raw = codec.encode_header(header)
    assert raw == (b'{"type":"session","version":3,"id":"i","timestamp":"t","cwd":"/w","parentSession":"/old.jsonl"}\n')
    assert codec.decode_header(orjson.loads(raw)) == header


# What JSON cannot hold ------------------------------------------------------------------------------------------------


def custom(data: Any) -> CustomEntry:
    return CustomEntry(id="1", parent_id=None, timestamp="t", custom_type="c", data=data)


# Mutation: encode with "surrogatepass", or replace each half of a pair on its own.
@pytest.mark.parametrize(
    ("text", "readable"),
    [
        ("ok \ud83d", "ok \ufffd"),
        ("\ude00 ok", "\ufffd ok"),
        ("\ud83d\ude00", "\U0001f600"),
        ("\ud83d\ud83d\ude00", "\ufffd\U0001f600"),
        ("\udc80", "\ufffd"),
    ],
)
def test_lone_surrogates_are_replaced_on_the_way_out_and_on_the_way_in(text: str, readable: str):
    out = written(custom({"key " + text: [text]}))["data"]
    assert out == {"key " + readable: [readable]}
    as_others_write_it = json.dumps({"type": "custom", "data": text}).encode()
    assert codec.parse_line(as_others_write_it) == {"type": "custom", "data": readable}


@pytest.mark.parametrize(
    "character", ["\u2028", "\u2029", "\x85", "\r", "\x00", "\x1f", "\x7f", "\ufeff", "\U0010ffff"]
)
def test_every_other_character_comes_back_in_one_line(character: str):
    raw = codec.encode_entry(custom(f"a{character}b"))
    assert raw.count(b"\n") == 1
    assert codec.parse_line(raw + b"\r") == {**written(custom(f"a{character}b"))}
    assert written(custom(f"a{character}b"))["data"] == f"a{character}b"


class Colour(Enum):
    RED = "red"


@dataclass
class Point:
    x: int = 1


@pytest.mark.parametrize(
    ("value", "out"),
    [
        (float("nan"), None),
        (float("inf"), None),
        ([float("-inf"), 1], [None, 1]),
        (2**64 - 1, 2**64 - 1),
        (2**64, float(2**64)),
        (-(2**70), -float(2**70)),
        (10**400, None),
        ((1, 2), [1, 2]),
        ({2: "a", None: "b", True: "c"}, {"2": "a", "null": "b", "true": "c"}),
        ([Colour.RED, 2**64], ["red", float(2**64)]),
        ([uuid.UUID(int=1), 2**64], ["00000000-0000-0000-0000-000000000001", float(2**64)]),
    ],
)
def test_numbers_and_keys_that_json_has_no_room_for_become_what_readers_make_of_them(value: Any, out: Any):
    assert written(custom(value)).get("data") == out


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"a": [1, {"b": {3}}]}, r"data\.a\[1\]\.b: set"),
        (b"bytes", "data: bytes"),
        ([Point()], r"data\[0\]: Point"),
        ({"when": dt.datetime(2025, 1, 1, tzinfo=dt.UTC)}, r"data\.when: datetime"),
        ({"a": {(1, 2): 3}}, r"data\.a: a key of type tuple"),
    ],
)
def test_what_can_never_be_json_is_refused_with_its_path(value: Any, path: str):
    with pytest.raises(TypeError, match=path):
        codec.encode_entry(custom(value))


def test_a_value_that_contains_itself_is_refused():
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(TypeError, match="contains itself"):
        codec.encode_entry(custom(loop))


def test_nesting_deeper_than_the_fast_encoder_goes_is_written_and_read():
    deep: Any = "core"
    for _ in range(400):
        deep = [deep]
    assert written(custom(deep))["data"] == deep


@pytest.mark.parametrize(
    ("raw", "data"),
    [
        (b'{"type":"custom","data":NaN}', {"type": "custom", "data": None}),
        (b'{"type":"custom","data":-Infinity}', {"type": "custom", "data": None}),
        (b'{"type":"custom","data":1e999}', {"type": "custom", "data": None}),
        (b'{"type":"custom","data":"\xff"}', {"type": "custom", "data": "\ufffd"}),
        (b'\xef\xbb\xbf{"type":"custom"}', {"type": "custom"}),
        (b"[1]", None),
        (b"5", None),
        (b"\x00\x00\x00", None),
        (b'{"type":"message","id":"1"', None),
        (b"", None),
        (b"[" * 100_000, None),
    ],
)
def test_a_line_is_damaged_only_when_it_is_no_object(raw: bytes, data: dict[str, Any] | None):
    assert codec.parse_line(raw) == data


def test_unknown_entries_hold_what_is_not_one_of_the_four():
    line = {"type": "later", "payload": {"x": 1}, "id": "1", "parentId": "0", "timestamp": "t"}
    assert entry_of(line) == UnknownEntry(id="1", parent_id="0", timestamp="t", type="later", raw={"payload": {"x": 1}})
    assert orjson.loads(codec.encode_entry(entry_of(line))) == line


def test_heads_of_lines_may_come_in_any_order():
    line = {"type": "custom_message", "customType": "c", "content": "x", "display": False, "id": "1", "parentId": None}
    assert entry_of(line) == CustomMessageEntry(
        id="1", parent_id=None, timestamp="", custom_type="c", content=(TextContent("x"),), display=False
    )
