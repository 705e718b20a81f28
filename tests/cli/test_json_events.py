"""Every event has a JSON line, and the documents list what is printed."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest

from agent_session.cli.json_events import event_line, is_told, json_line
from agent_session.compaction.types import CompactionOutcome
from agent_session.errors import ModelRequestError
from agent_session.events import NOTIFICATIONS, CompactionEnd, Event, ExtensionFailed, MessageUpdate, ToolExecutionEnd
from agent_session.hooks import BeforeCompact, Context, MessageEnd
from agent_session.llm.client import ToolCallDelta
from session_store.messages import ImageContent, TextContent, ToolCall, UserMessage

ROOT = Path(__file__).parent.parent.parent


def as_json(event: Event) -> dict[str, Any]:
    line = event_line(event)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    found = json.loads(line)
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("cls", NOTIFICATIONS.values(), ids=list(NOTIFICATIONS))
def test_every_notification_is_told_with_all_its_fields(cls: type[Event]) -> None:
    # Mutation: leave one kind of event out of `is_told`, or a field out of the line.
    fields = [field.name for field in dataclasses.fields(cls) if field.name != "schema_version"]
    values: dict[str, Any] = dict.fromkeys(fields)
    event = cls(**values)
    assert is_told(event)
    assert as_json(event) == {"event": cls.name, "schema_version": 1, **dict.fromkeys(fields)}


def test_questions_to_extensions_are_not_told_but_messages_are() -> None:
    # Mutation: tell every event: each request would print the whole context.
    assert is_told(MessageEnd(message=UserMessage(content=(TextContent("hi"),), timestamp=1)))
    assert not is_told(Context(messages=()))
    assert not is_told(BeforeCompact.__new__(BeforeCompact))


def test_values_have_a_type_and_blocks_the_keys_of_the_file() -> None:
    # Mutation: print Python's repr of a value.
    assert as_json(MessageUpdate(delta=ToolCallDelta(0, id="c1", name="read")))["delta"] == {
        "type": "tool_call_delta", "index": 0, "id": "c1", "name": "read", "arguments": "", "thought_signature": None,
    }  # fmt: skip
    content = (
        TextContent("ok"),
        ImageContent(data="aGk=", mime_type="image/png"),
        ToolCall(id="1", name="x", arguments={}),
    )
    told = as_json(ToolExecutionEnd(call_id="c1", tool_name="read", content=content, is_error=False, duration=0.5))
    assert [block["type"] for block in told["content"]] == ["text", "image", "toolCall"]
    assert told["content"][1]["mimeType"] == "image/png"


def test_errors_are_a_type_and_a_message_without_credentials() -> None:
    # Mutation: leave `redact` out.
    error = ModelRequestError("refused: the key sk-abcdefghijklmnop is wrong")
    outcome = CompactionOutcome(status="failed", reason="manual", error=error)
    told = as_json(CompactionEnd(reason="manual", outcome=outcome, aborted=False, will_retry=False, from_hook=False))
    assert told["outcome"]["error"] == {
        "type": "ModelRequestError",
        "message": "refused: the key [redacted] is wrong",
    }


def test_what_json_cannot_hold_does_not_stop_the_line() -> None:
    # Mutation: dump without replacing halves of surrogate pairs.
    failed = ExtensionFailed(owner="x", event="input", why="half \ud83d of a pair", error=None)
    assert as_json(failed)["why"] == "half � of a pair"
    assert json.loads(json_line({"n": float("nan"), "path": Path("a"), "what": {1: object}}))["n"] is None


def test_the_document_names_only_events_that_there_are_and_the_ones_of_a_plain_run() -> None:
    # Mutation: rename an event, or leave one out of the table.
    text = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
    section = text.partition("## Events as JSON")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`.+?) \|", section, re.MULTILINE)
    listed = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert listed <= {*NOTIFICATIONS, "message_end"}
    of_a_run = ("agent_", "turn_", "message_", "tool_", "compaction_", "retry_")
    assert {name for name in NOTIFICATIONS if name.startswith(of_a_run)} | {"message_end"} <= listed
