"""Messages made of what streamed."""

import pytest

from agent_session.llm.builder import RAW_ARGUMENTS, MessageBuilder, parsed_arguments
from agent_session.llm.client import (
    Finish,
    ModelRequest,
    ResponseId,
    StreamEvent,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    UsageReport,
)
from agent_session.models import Model, ModelCost
from session_store.messages import (
    UNREPORTED,
    AssistantMessage,
    TextContent,
    ThinkingContent,
    ToolCall,
    Usage,
)

MODEL = Model("openai/gpt-x", cost=ModelCost(input=2, output=10))


def built(*events: StreamEvent, model: Model = MODEL) -> AssistantMessage:
    builder = MessageBuilder(ModelRequest(model=model, messages=(), thinking_level="high"), "some-api", timestamp=5)
    for event in events:
        builder.add(event)
    return builder.message()


def test_a_whole_answer_has_its_blocks_in_order_and_all_its_facts() -> None:
    message = built(
        ResponseId("r1"),
        ThinkingDelta(0, "hm"),
        ThinkingDelta(0, "m", signature="sig"),
        TextDelta(1, "Hel"),
        TextDelta(1, "lo"),
        ToolCallDelta(2, id="c1", name="bash", arguments='{"comm'),
        ToolCallDelta(2, arguments='and":"ls"}'),
        UsageReport(Usage(input=1_000_000, output=100_000)),
        Finish("toolUse", "tool_calls"),
    )
    assert message.content == (
        ThinkingContent("hmm", "sig"),
        TextContent("Hello"),
        ToolCall("c1", "bash", {"command": "ls"}),
    )
    assert (message.api, message.provider, message.model) == ("some-api", "openai", "gpt-x")
    assert (message.stop_reason, message.response_id, message.thinking_level) == ("toolUse", "r1", "high")
    assert message.timestamp == 5
    assert message.usage.cost is not None
    assert message.usage.cost.total == 3.0


# Mutation: order the blocks by arrival.
def test_blocks_are_ordered_by_their_index() -> None:
    assert built(TextDelta(1, "second"), ThinkingDelta(0, "first")).content == (
        ThinkingContent("first"),
        TextContent("second"),
    )


# Mutation: add up reports.
def test_the_last_usage_counts() -> None:
    assert built(UsageReport(Usage(input=5, output=1)), UsageReport(Usage(input=5, output=9))).usage.output == 9


# Mutation: price what was not reported.
def test_usage_that_was_not_reported_is_marked_so_and_has_no_cost() -> None:
    assert built(TextDelta(0, "x")).usage == UNREPORTED
    assert built(UsageReport(Usage(output=3, estimated=True))).usage.cost is None


@pytest.mark.parametrize("text", ['{"a":', "[1]", '"x"', "null", "{'a': 1}", '{"a": NaN}', "[" * 100_000])
# Mutation: let the JSON error through, or leave the text out of `extra`.
def test_arguments_that_are_no_object_are_kept_as_text_beside_an_empty_object(text: str) -> None:
    (call,) = built(ToolCallDelta(0, "c", "bash", text)).tool_calls
    assert call.arguments == {}
    assert call.extra == {RAW_ARGUMENTS: text}


@pytest.mark.parametrize("text", ["", "  \n", "{}"])
def test_no_arguments_are_an_empty_object(text: str) -> None:
    assert parsed_arguments(text) == ({}, None)


# Mutation: leave out the second, lenient decoding.
def test_raw_line_breaks_and_lone_surrogates_in_arguments_are_understood() -> None:
    assert parsed_arguments('{"text": "a\nb"}') == ({"text": "a\nb"}, None)
    assert parsed_arguments('{"text": "\\ud83d"}') == ({"text": "\ufffd"}, None)


# Mutation: join the pieces without joining surrogates.
def test_a_character_in_two_halves_is_one_and_a_lone_half_is_replaced() -> None:
    assert built(TextDelta(0, "\ud83d"), TextDelta(0, "\ude42")).text == "🙂"
    assert built(TextDelta(0, "a\ud83db")).text == "a\ufffdb"


# Mutation: keep empty blocks.
def test_empty_blocks_are_left_out() -> None:
    message = built(TextDelta(0, ""), ThinkingDelta(1, ""), TextDelta(2, "x"))
    assert message.content == (TextContent("x"),)


def test_a_signature_without_thinking_is_kept() -> None:
    assert built(ThinkingDelta(0, signature="opaque", redacted=True)).content == (ThinkingContent("", "opaque", True),)


# Mutation: keep a repeated or missing id as it came.
def test_every_call_has_an_id_of_its_own() -> None:
    message = built(
        ToolCallDelta(0, "c", "a", "{}"),
        ToolCallDelta(1, "c", "b", "{}"),
        ToolCallDelta(2, None, "d", "{}"),
        ToolCallDelta(3, "", "e", "{}"),
    )
    ids = [call.id for call in message.tool_calls]
    assert ids[0] == "c"
    assert len(set(ids)) == 4
    assert all(ids)


# Mutation: make a new id each time a message is asked for.
def test_a_partial_message_and_the_whole_one_agree_on_ids() -> None:
    builder = MessageBuilder(ModelRequest(model=MODEL, messages=()), "api")
    builder.add(ToolCallDelta(0, None, "bash", '{"a"'))
    partial = builder.message("aborted", "stopped")
    builder.add(ToolCallDelta(0, None, None, ":1}"))
    builder.add(Finish("toolUse", "tool_calls"))
    whole = builder.message()
    assert (partial.stop_reason, partial.error_message) == ("aborted", "stopped")
    assert partial.tool_calls[0].id == whole.tool_calls[0].id
    assert whole.tool_calls[0].arguments == {"a": 1}


def test_an_id_that_comes_late_is_taken() -> None:
    (call,) = built(ToolCallDelta(0, None, "bash", "{"), ToolCallDelta(0, "late", None, "}")).tool_calls
    assert call.id == "late"
