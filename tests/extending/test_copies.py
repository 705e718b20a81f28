"""Copies share nothing that can be changed, and copy nothing that cannot."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

from agent_session.compaction.types import CompactionOutcome
from agent_session.errors import SessionBusyError
from agent_session.events import CompactionEnd
from agent_session.extending.copies import detached
from session_store.entries import CustomEntry
from session_store.messages import AssistantMessage, TextContent, ToolCall, ToolResultMessage, UserMessage
from tests.extending.fake_session import before_compact


def mutables_in(value: Any) -> Iterator[Any]:
    if isinstance(value, (dict, list)):
        yield value
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ():
        yield from mutables_in(item)
    if is_dataclass(value):
        for field in fields(value):
            yield from mutables_in(getattr(value, field.name))


def test_a_copy_is_equal_and_shares_no_dict_or_list():
    values = [
        AssistantMessage(content=(TextContent("a"), ToolCall("c", "t", {"a": [{"b": 1}]}, extra={"x": []}))),
        ToolResultMessage(tool_call_id="c", tool_name="t", content=(), details={"lines": [1]}),
        CustomEntry(id="1", parent_id=None, timestamp="", custom_type="x", data=[[[]]]),
        before_compact(),
    ]
    for value in values:
        copy = detached(value)
        assert copy == value
        originals = {id(item) for item in mutables_in(value)}
        # Mutation: return a tuple or a frozen value as it is -> they share.
        assert originals
        assert not originals & {id(item) for item in mutables_in(copy)}


def test_what_has_nothing_to_change_in_it_is_not_copied():
    message = UserMessage(content=(TextContent("a long text"),))
    history = (message, AssistantMessage(content=(ToolCall("c", "t", {}),)))

    # Mutation: always build anew -> a history is copied for each handler, text by text.
    assert detached(message) is message
    assert detached(history)[0] is message
    assert detached(history) is not history


def test_exceptions_and_what_cannot_be_copied_are_shared():
    error = SessionBusyError("run", "wait")
    plain = ValueError("copied without its traceback")
    lock = threading.Lock()
    outcome = CompactionOutcome(status="failed", reason="manual", error=error)
    event = CompactionEnd(reason="manual", outcome=outcome, aborted=False, will_retry=False, from_hook=False)

    # Mutation: `copy.deepcopy` everything -> TypeError for both.
    assert detached(event).outcome.error is error
    assert detached({"lock": lock})["lock"] is lock
    # Mutation: copy those exceptions that can be copied -> one without its traceback.
    assert detached([plain])[0] is plain
