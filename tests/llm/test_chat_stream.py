"""Chunks as servers send them, made into events."""

from typing import Any

import pytest

from agent_session.llm.builder import MessageBuilder
from agent_session.llm.chat_stream import ChatStream
from agent_session.llm.client import ModelRequest, UsageReport
from agent_session.models import Model
from session_store.messages import AssistantMessage, TextContent, ThinkingContent


def delta(finish: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"id": "r1", "choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}


def piece(arguments: Any = None, *, index: int | None = None, id: str | None = None, name: str | None = None) -> Any:  # noqa: A002
    fields: dict[str, Any] = {"function": {"arguments": arguments}}
    if name is not None:
        fields["function"]["name"] = name
    if index is not None:
        fields["index"] = index
    if id is not None:
        fields["id"] = id
    return fields


def message_of(*chunks: dict[str, Any]) -> AssistantMessage:
    stream = ChatStream()
    builder = MessageBuilder(ModelRequest(model=Model("any/model"), messages=()), "api")
    for chunk in chunks:
        for event in stream.events(chunk):
            builder.add(event)
    builder.add(stream.finish())
    return builder.message()


def calls_of(*batches: list[Any]) -> list[tuple[str, dict[str, Any]]]:
    message = message_of(*(delta(tool_calls=batch) for batch in batches))
    return [(call.name, call.arguments) for call in message.tool_calls]


def test_pieces_of_two_calls_are_sorted_by_their_index() -> None:
    assert calls_of(
        [piece('{"a"', index=0, id="x", name="one")],
        [piece('{"b"', index=1, id="y", name="two"), piece(":1}", index=0)],
        [piece(":2}", index=1)],
    ) == [("one", {"a": 1}), ("two", {"b": 2})]


# Mutation: never begin another call under a known index.
def test_calls_that_share_an_index_are_told_apart_by_their_ids() -> None:
    assert calls_of(
        [piece('{"a":1}', index=0, id="x", name="one")],
        [piece('{"b":2}', index=0, id="y", name="two")],
        [piece('{"c":3}', index=0, id="z", name="two")],
    ) == [("one", {"a": 1}), ("two", {"b": 2}), ("two", {"c": 3})]


def test_calls_that_share_an_index_without_ids_are_told_apart_once_the_arguments_are_whole() -> None:
    assert calls_of(
        [piece('{"a":', index=0, name="one")],
        [piece("1}", index=0)],
        [piece('{"b":2}', index=0, name="one")],
    ) == [("one", {"a": 1}), ("one", {"b": 2})]


# Mutation: put pieces without an index under index 0.
def test_pieces_without_an_index_belong_to_the_call_before() -> None:
    assert calls_of(
        [piece('{"a"', id="x", name="one")],
        [piece(":1}")],
        [piece('{"b":2}', id="y", name="two")],
    ) == [("one", {"a": 1}), ("two", {"b": 2})]


# Mutation: begin another call whenever an id or a name comes.
def test_a_server_that_repeats_id_and_name_makes_one_call() -> None:
    assert calls_of(
        [piece('{"a"', index=0, id="x", name="one")],
        [piece(":1}", index=0, id="x", name="one")],
    ) == [("one", {"a": 1})]
    assert calls_of([piece('{"a"', index=0, name="one")], [piece(":1}", index=0, name="one")]) == [("one", {"a": 1})]


# Mutation: forget an id that comes after the first piece.
def test_an_id_that_comes_late_is_the_calls_id() -> None:
    message = message_of(
        delta(tool_calls=[piece("{", index=0, name="one")]),
        delta(tool_calls=[piece("}", index=0, id="late")]),
    )
    assert [(call.id, call.arguments) for call in message.tool_calls] == [("late", {})]


def test_arguments_given_as_an_object_are_taken() -> None:
    assert calls_of([piece({"a": 1}, index=0, id="x", name="one")]) == [("one", {"a": 1})]


def test_the_old_single_function_call_is_a_call() -> None:
    message = message_of(
        delta(function_call={"name": "one", "arguments": '{"a"'}),
        delta("function_call", function_call={"arguments": ":1}"}),
    )
    assert [(call.name, call.arguments) for call in message.tool_calls] == [("one", {"a": 1})]
    assert message.stop_reason == "toolUse"


# Mutation: know only one of the two names.
@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_reasoning_is_thinking_under_either_name(name: str) -> None:
    message = message_of(delta(**{name: "h"}), delta(**{name: "m"}), delta(content="so"))
    assert message.content == (ThinkingContent("hm"), TextContent("so"))


def test_thinking_after_text_is_a_block_of_its_own() -> None:
    message = message_of(delta(reasoning="a"), delta(content="b"), delta(reasoning="c"), delta(content="d"))
    assert message.content == (ThinkingContent("a"), TextContent("b"), ThinkingContent("c"), TextContent("d"))


def test_content_in_parts_is_taken_apart() -> None:
    parts = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "h"}, {"type": "text", "text": "m"}]},
        {"type": "text", "text": "so"},
        {"type": "reference", "ids": [1]},
    ]
    assert message_of(delta(content=parts)).content == (ThinkingContent("hm"), TextContent("so"))


def test_a_refusal_is_text() -> None:
    assert message_of(delta(refusal="I will not")).text == "I will not"


def test_a_whole_message_instead_of_deltas_is_taken() -> None:
    message = message_of(
        {
            "id": "r9",
            "choices": [{"message": {"role": "assistant", "content": "all"}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 3, "completion_tokens": 1},
        }
    )
    assert (message.text, message.response_id, message.usage.total_tokens) == ("all", "r9", 4)


# Mutation: look for usage only where there are choices.
def test_usage_is_found_in_a_chunk_without_choices_and_in_a_choice() -> None:
    report = {"prompt_tokens": 3, "completion_tokens": 1}
    for chunk in ({"choices": [], "usage": report}, {"choices": [{"delta": {}, "usage": report}]}):
        (event,) = ChatStream().events(chunk)
        assert isinstance(event, UsageReport)
        assert event.usage.total_tokens == 4


@pytest.mark.parametrize(
    "chunk",
    [
        {},
        {"choices": None},
        {"choices": [None]},
        {"choices": [{"delta": None}]},
        {"choices": [{"delta": {"content": None, "tool_calls": None, "reasoning": 5}}], "usage": None, "id": 7},
        {"choices": [{"delta": {"tool_calls": [None, 3]}}]},
    ],
)
def test_fields_that_are_null_or_of_another_type_say_nothing(chunk: dict[str, Any]) -> None:
    assert list(ChatStream().events(chunk)) == []


# Mutation: begin with an empty reason in place of None.
def test_the_finish_reason_is_none_until_it_came() -> None:
    unfinished, finished = ChatStream(), ChatStream()
    list(unfinished.events(delta(content="x")))
    list(finished.events(delta("length", content="x")))
    assert unfinished.finish_reason is None
    assert finished.finish_reason == "length"
    assert finished.finish().stop_reason == "length"


# Mutation: leave the block open behind its signature, or give what was redacted the index of the block before.
def test_thinking_keeps_the_signature_that_comes_beside_it_and_each_block_its_own() -> None:
    message = message_of(
        delta(reasoning_content="hm", thinking_blocks=[{"type": "thinking", "thinking": "hm"}]),
        delta(thinking_blocks=[{"type": "thinking", "thinking": "", "signature": "first"}]),
        delta(thinking_blocks=[{"type": "redacted_thinking", "data": "opaque"}]),
        delta(reasoning_content="ah", thinking_blocks=[{"type": "thinking", "signature": "second"}]),
        delta("stop", content="So", thinking_blocks=[None, {}]),
    )
    assert message.content == (
        ThinkingContent("hm", "first"),
        ThinkingContent("", "opaque", redacted=True),
        ThinkingContent("ah", "second"),
        TextContent("So"),
    )


@pytest.mark.parametrize("place", ["beside", "inside"])
def test_a_signature_of_the_thought_before_a_call_is_the_calls(place: str) -> None:
    call = piece("{}", index=0, id="x", name="one")
    (call if place == "beside" else call["function"])["provider_specific_fields"] = {"thought_signature": "sig"}
    assert message_of(delta("tool_calls", tool_calls=[call])).tool_calls[0].thought_signature == "sig"
