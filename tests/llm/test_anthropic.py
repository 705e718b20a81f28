"""Anthropic's messages: what is sent, what is read, and the client over real HTTP on 127.0.0.1."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from agent_session import AnthropicClient, Model, ModelRequest, ToolDefinition
from agent_session.llm.anthropic_payload import messages_payload
from agent_session.llm.anthropic_stream import MessagesStream
from agent_session.llm.builder import MessageBuilder
from agent_session.llm.payload import encode
from agent_session.testing import FakeProvider, calls, fail, reply
from agent_session.testing.messages_wire import signature_of
from session_store.messages import (
    AssistantMessage,
    BashExecutionMessage,
    CompactionSummaryMessage,
    ImageContent,
    Message,
    TextContent,
    ThinkingContent,
    ToolCall,
    ToolResultMessage,
    Usage,
    UserMessage,
    as_content,
)
from tests.llm.clients import KEY, asked, refused, served, streaming

MODEL = Model("anthropic/claude-sonnet-4-5")
READ = ToolDefinition(name="read", description="Read.", parameters={"type": "object"})
BASH = ToolDefinition(name="bash", description="Run.", parameters={"type": "object"})
EPHEMERAL = {"type": "ephemeral"}


def user(text: str = "hi") -> UserMessage:
    return UserMessage(content=as_content(text))


def assistant(*content: Any, model: Model = MODEL, api: str = "anthropic-messages") -> AssistantMessage:
    return AssistantMessage(content=content, api=api, provider=model.provider, model=model.name)


def result(call_id: str, *content: Any, is_error: bool = False) -> ToolResultMessage:
    blocks = content or as_content("a result")
    return ToolResultMessage(tool_call_id=call_id, tool_name="read", content=tuple(blocks), is_error=is_error)


def payload_of(*messages: Message, model: Model = MODEL, **fields: Any) -> dict[str, Any]:
    return messages_payload(ModelRequest(model=model, messages=messages or (user(),), **fields))


def blocks_of(*messages: Message, **fields: Any) -> list[tuple[str, list[Any]]]:
    """Each message's role and blocks, the marks for the cache left out."""
    payload = payload_of(*messages, **fields)
    return [
        (message["role"], [{k: v for k, v in block.items() if k != "cache_control"} for block in message["content"]])
        for message in payload["messages"]
    ]


def marked(payload: dict[str, Any]) -> list[str]:
    """Which blocks end what is cached, in the order in which the provider reads them."""
    blocks = [("tools", block) for block in payload.get("tools", ())]
    blocks += [("system", block) for block in payload.get("system", ())]
    blocks += [
        (f"messages[{n}]", block) for n, message in enumerate(payload["messages"]) for block in message["content"]
    ]
    return [place for place, block in blocks if "cache_control" in block]


# What is sent --------------------------------------------------------------------------------------


def test_the_limit_of_the_answer_is_always_sent() -> None:
    # Mutation: leave `max_tokens` out where the request has none.
    assert payload_of()["max_tokens"] == 8_192
    assert payload_of(model=Model(MODEL.id, max_output_tokens=64_000))["max_tokens"] == 64_000
    assert payload_of(max_output_tokens=77)["max_tokens"] == 77


def test_equal_requests_are_equal_bytes_and_a_longer_one_begins_with_the_same_blocks() -> None:
    messages = (
        user(),
        assistant(TextContent("a"), ToolCall("toolu_1", "read", {"path": "x", "n": 1})),
        result("toolu_1"),
    )
    assert encode(payload_of(*messages, tools=[READ])) == encode(payload_of(*messages, tools=[READ]))
    assert blocks_of(*messages, assistant(TextContent("b")), user("c"))[:3] == blocks_of(*messages)


def test_user_messages_in_a_row_become_one_with_the_results_first() -> None:
    # Mutation: write one message for each.
    call_a, call_b = ToolCall("toolu_a", "read", {}), ToolCall("toolu_b", "read", {})
    converted = blocks_of(
        user(), assistant(call_a, call_b), result("toolu_a"), result("toolu_b"), user("stop"), user("now")
    )
    assert [role for role, _ in converted] == ["user", "assistant", "user"]
    assert [block["type"] for block in converted[2][1]] == ["tool_result", "tool_result", "text", "text"]


def test_summaries_and_shell_commands_go_as_the_users() -> None:
    converted = blocks_of(
        CompactionSummaryMessage(summary="We did X."), BashExecutionMessage(command="ls", output="a.py")
    )
    assert [role for role, _ in converted] == ["user"]
    assert "We did X." in converted[0][1][0]["text"]
    assert "a.py" in converted[0][1][1]["text"]


def test_a_blank_system_prompt_is_not_sent() -> None:
    # Mutation: send every system prompt.
    assert "system" not in payload_of(system_prompt="  \n")


IMAGE = ImageContent("aGk=", "image/png")
SENT_IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}


def test_images_lie_where_they_belong() -> None:
    # Mutation: send the images of a result behind it always, or never.
    ((_, blocks),) = blocks_of(UserMessage(content=(TextContent("see"), IMAGE)))
    assert blocks[1] == SENT_IMAGE
    ((_, blocks),) = blocks_of(result("toolu_1", TextContent("a picture"), IMAGE))
    assert blocks[0]["content"] == [{"type": "text", "text": "a picture"}, SENT_IMAGE]


def test_a_failed_result_holds_only_text_and_its_images_follow_the_batch() -> None:
    # Mutation: treat failed results like the others.
    ((_, blocks),) = blocks_of(result("toolu_1", TextContent("failed"), IMAGE, is_error=True), result("toolu_2"))
    assert [block["type"] for block in blocks] == ["tool_result", "tool_result", "image"]
    assert blocks[0] == {
        "type": "tool_result",
        "tool_use_id": "toolu_1",
        "content": [{"type": "text", "text": "failed"}],
        "is_error": True,
    }


THOUGHT = ThinkingContent("Let me see", "sig+/=")
REDACTED = ThinkingContent("", "opaque", redacted=True)


def test_signed_thinking_goes_back_as_it_came() -> None:
    # Mutation: drop redacted blocks; strip the signature; send what nobody signed.
    answer = assistant(THOUGHT, REDACTED, TextContent("So"))
    (_, (_, blocks)) = blocks_of(user(), answer, thinking_level="low")
    assert blocks[:2] == [
        {"type": "thinking", "thinking": "Let me see", "signature": "sig+/="},
        {"type": "redacted_thinking", "data": "opaque"},
    ]
    unsigned = assistant(ThinkingContent("never signed"), TextContent("So"))
    (_, (_, blocks)) = blocks_of(user(), unsigned, thinking_level="low")
    assert blocks == [{"type": "text", "text": "So"}]


@pytest.mark.parametrize(
    ("fields", "is_sent"),
    [
        ({"thinking_level": "off"}, False),
        ({"thinking_level": "high", "max_output_tokens": 1_000}, False),
        ({"thinking_level": "high"}, True),
        ({"thinking_level": "off", "model": Model("anthropic/claude-opus-4-6")}, False),
        ({"thinking_level": "off", "model": Model("anthropic/claude-opus-5")}, True),
    ],
    ids=["off", "no room for it", "on", "off where it may be", "off where it never is"],
)
def test_a_request_that_asks_for_no_thinking_has_none_in_it(fields: dict[str, Any], is_sent: bool) -> None:
    # Mutation: send it whatever the request asks for.
    call = ToolCall("toolu_1", "read", {})
    (_, (_, blocks), _) = blocks_of(user(), assistant(THOUGHT, call), result("toolu_1"), **fields)
    assert [block["type"] for block in blocks] == [*(["thinking"] if is_sent else []), "tool_use"]


def test_tools_may_be_declared_and_forbidden() -> None:
    payload = payload_of(tools=[READ], tool_choice="none")
    assert payload["tools"][0]["input_schema"] == {"type": "object"}
    assert payload["tool_choice"] == {"type": "none"}


# The provider's cache -------------------------------------------------------------------------------


def test_the_stable_beginning_and_the_last_two_messages_of_the_user_are_marked() -> None:
    # Mutation: mark the last message only, or each.
    turns = [message for number in range(3) for message in (user(f"u{number}"), assistant(TextContent("a")))]
    payload = payload_of(*turns, user("last"), system_prompt="Be short.", tools=[READ, BASH])
    assert marked(payload) == ["system", "messages[4]", "messages[6]"]
    assert payload["messages"][6]["content"][-1]["cache_control"] == EPHEMERAL


def test_without_a_system_prompt_the_last_tool_is_marked() -> None:
    payload = payload_of(tools=[READ, BASH])
    assert marked(payload) == ["tools", "messages[0]"]
    assert "cache_control" not in payload["tools"][0]


def test_what_was_marked_last_is_marked_in_the_next_request_too() -> None:
    # Mutation: mark the last message of the user only: a batch of more than twenty results would miss the cache.
    call = ToolCall("toolu_1", "read", {})
    first = payload_of(user(), tools=[READ])
    second = payload_of(user(), assistant(call), result("toolu_1"), tools=[READ])
    assert set(marked(first)) <= set(marked(second))


def test_a_question_of_its_own_pays_for_no_cache() -> None:
    # Mutation: mark every request.
    assert marked(payload_of(user("summarise this"), system_prompt="You summarise.")) == []


def test_marking_changes_nothing_that_others_hold() -> None:
    schema: dict[str, Any] = {"type": "object"}
    arguments: dict[str, Any] = {"path": "x"}
    tool = ToolDefinition(name="read", description="Read.", parameters=schema)
    payload_of(user(), assistant(ToolCall("toolu_1", "read", arguments)), result("toolu_1"), tools=[tool])
    assert (schema, arguments) == ({"type": "object"}, {"path": "x"})


# Thinking ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "level", "max_tokens", "expected"),
    [
        ("claude-sonnet-4-5", "off", 32_000, {}),
        ("claude-sonnet-4-5", "minimal", 32_000, {"thinking": {"type": "enabled", "budget_tokens": 1_024}}),
        ("claude-sonnet-4-5-20250929", "high", 32_000, {"thinking": {"type": "enabled", "budget_tokens": 16_384}}),
        ("claude-sonnet-4-20250514", "max", 64_000, {"thinking": {"type": "enabled", "budget_tokens": 48_000}}),
        ("claude-3-7-sonnet-20250219", "low", 32_000, {"thinking": {"type": "enabled", "budget_tokens": 2_048}}),
        ("claude-sonnet-4-5", "high", 4_000, {"thinking": {"type": "enabled", "budget_tokens": 3_000}}),
        ("claude-sonnet-4-5", "high", 1_000, {}),
        ("kimi-k2", "low", 32_000, {"thinking": {"type": "enabled", "budget_tokens": 2_048}}),
        ("claude-opus-4-6", "off", 32_000, {}),
        ("claude-opus-4-6", "minimal", 32_000, {"effort": "low"}),
        ("claude-opus-4.6", "xhigh", 32_000, {"effort": "high"}),
        ("claude-sonnet-4-6", "max", 1_000, {"effort": "max"}),
        ("claude-opus-4-7-20260416", "xhigh", 32_000, {"effort": "xhigh"}),
        ("claude-opus-5", "off", 32_000, {"output_config": {"effort": "low"}}),
        ("claude-fable-5-1", "medium", 32_000, {"effort": "medium"}),
        ("claude-mythos-preview", "high", 32_000, {"effort": "high"}),
    ],
)
def test_a_model_is_asked_to_think_in_its_own_way(
    name: str, level: Any, max_tokens: int, expected: dict[str, Any]
) -> None:
    # Mutation: a budget for every model; a budget as large as the limit; nothing said to models that always think.
    payload = payload_of(model=Model(f"anthropic/{name}"), thinking_level=level, max_output_tokens=max_tokens)
    if "effort" in expected:
        expected = {"thinking": {"type": "adaptive", "display": "summarized"}, "output_config": expected}
    assert {key: payload[key] for key in ("thinking", "output_config") if key in payload} == expected


def test_a_model_that_cannot_think_is_not_asked_to() -> None:
    payload = payload_of(model=Model(MODEL.id, reasoning=False), thinking_level="high", max_output_tokens=32_000)
    assert "thinking" not in payload


CALL_A, CALL_B = ToolCall("toolu_a", "read", {}), ToolCall("toolu_b", "read", {})


@pytest.mark.parametrize(
    ("messages", "thinks"),
    [
        ((user(), assistant(CALL_A), result("toolu_a")), False),
        ((user(), assistant(THOUGHT, CALL_A), result("toolu_a")), True),
        ((user(), assistant(THOUGHT, CALL_A), result("toolu_a"), assistant(CALL_B), result("toolu_b")), True),
        ((user(), assistant(CALL_A), result("toolu_a"), assistant(THOUGHT, CALL_B), result("toolu_b")), False),
        ((user(), assistant(CALL_A), result("toolu_a"), assistant(TextContent("done")), user("next")), True),
    ],
    ids=["begun without", "begun with", "only at its beginning", "only later", "a new turn"],
)
def test_a_turn_that_began_without_thinking_goes_on_without(messages: tuple[Message, ...], thinks: bool) -> None:
    # Mutation: ask in every request; look at the last answer only.
    payload = payload_of(*messages, thinking_level="low", max_output_tokens=32_000)
    assert ("thinking" in payload) is thinks


# What is read --------------------------------------------------------------------------------------


def read(*events: dict[str, Any]) -> tuple[AssistantMessage, MessagesStream]:
    stream = MessagesStream()
    builder = MessageBuilder(ModelRequest(model=MODEL, messages=(user(),)), "anthropic-messages", timestamp=0)
    for data in events:
        for event in stream.events(data):
            builder.add(event)
    builder.add(stream.finish())
    return builder.message(), stream


def block(index: int, opening: dict[str, Any], *deltas: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"type": "content_block_start", "index": index, "content_block": opening},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def end(reason: str, **counts: int) -> dict[str, Any]:
    return {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": counts}


def test_thinking_keeps_its_signature_and_what_was_redacted_its_data() -> None:
    # Mutation: read `signature_delta` as text, or drop redacted blocks.
    message, _ = read(
        *block(
            0,
            {"type": "thinking", "thinking": "", "signature": ""},
            {"type": "thinking_delta", "thinking": "Let me "},
            {"type": "thinking_delta", "thinking": "see"},
            {"type": "signature_delta", "signature": "sig+/="},
        ),
        *block(1, {"type": "redacted_thinking", "data": "opaque"}),
        *block(2, {"type": "thinking", "thinking": ""}, {"type": "signature_delta", "signature": "only this"}),
        *block(3, {"type": "text", "text": ""}, {"type": "text_delta", "text": "So"}),
        end("end_turn"),
    )
    assert message.content == (THOUGHT, REDACTED, ThinkingContent("", "only this"), TextContent("So"))


def test_a_call_streams_its_arguments_or_has_them_at_once() -> None:
    # Mutation: give both; or only what streams.
    message, _ = read(
        *block(
            0,
            {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {}},
            {"type": "input_json_delta", "partial_json": ""},
            {"type": "input_json_delta", "partial_json": '{"path"'},
            {"type": "input_json_delta", "partial_json": ': "a"}'},
        ),
        *block(1, {"type": "tool_use", "id": "toolu_2", "name": "read", "input": {"path": "b"}}),
        *block(
            2,
            {"type": "tool_use", "id": "toolu_3", "name": "read", "input": {"path": "c"}},
            {"type": "input_json_delta", "partial_json": '{"path": "c"}'},
        ),
        end("tool_use"),
    )
    assert [(call.id, call.arguments) for call in message.tool_calls] == [
        ("toolu_1", {"path": "a"}),
        ("toolu_2", {"path": "b"}),
        ("toolu_3", {"path": "c"}),
    ]
    assert message.stop_reason == "toolUse"


def start(**counts: int | None) -> dict[str, Any]:
    return {"type": "message_start", "message": {"id": "msg_1", "usage": counts}}


@pytest.mark.parametrize(
    ("events", "usage"),
    [
        (
            [
                start(input_tokens=5, cache_read_input_tokens=90, cache_creation_input_tokens=3, output_tokens=1),
                end("end_turn", output_tokens=7),
            ],
            Usage(input=5, cache_read=90, cache_write=3, output=7),
        ),
        ([start(input_tokens=5, output_tokens=1)], Usage(input=5, output=1)),
        (
            [start(input_tokens=0, output_tokens=0), end("end_turn", input_tokens=9, output_tokens=7)],
            Usage(input=9, output=7),
        ),
        (
            [start(input_tokens=9, output_tokens=1), end("end_turn", input_tokens=0, output_tokens=7)],
            Usage(input=9, output=7),
        ),
        (
            [start(input_tokens=9, cache_read_input_tokens=None), end("end_turn", output_tokens=7)],
            Usage(input=9, output=7),
        ),
        ([start(input_tokens=0, output_tokens=0), end("end_turn", output_tokens=0)], Usage(estimated=True)),
    ],
    ids=["usual", "cut off", "late", "zeros at the end", "null", "nothing"],
)
def test_the_counts_of_the_last_events_complete_those_of_the_first(events: list[dict[str, Any]], usage: Usage) -> None:
    # Mutation: take the last report alone; add the reports; let zeros win.
    assert read(*events)[0].usage == usage


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("pause_turn", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("refusal", "refusal"),
        ("something_new", "stop"),
    ],
)
def test_why_an_answer_ended_is_said_in_the_logs_words(reason: str, expected: str) -> None:
    message, stream = read(end(reason))
    assert message.stop_reason == expected
    assert stream.finish().raw == reason


def test_what_nobody_knows_is_passed_over() -> None:
    message, _ = read(
        {"type": "ping"},
        {"type": "something_new", "index": None},
        *block(
            0, {"type": "server_tool_use", "id": "x", "input": {"q": 1}}, {"type": "citations_delta", "citation": {}}
        ),
        *block(1, {"type": "text", "text": "a"}),
        {"type": "message_delta"},
        {"type": "message_stop"},
    )
    assert message.content == (TextContent("a"),)
    assert message.stop_reason == "stop"


# Over HTTP -----------------------------------------------------------------------------------------


def event(data: dict[str, Any]) -> bytes:
    return f"event: {data['type']}\ndata: ".encode() + orjson.dumps(data) + b"\n\n"


WHOLE = [start(input_tokens=5), *block(0, {"type": "text", "text": "größer 🙂"}), end("end_turn", output_tokens=7)]


async def asked_at(address: str) -> AssistantMessage:
    client = AnthropicClient(address)
    try:
        return await asked(client, ModelRequest(model=MODEL, messages=(user(),)))
    finally:
        await client.aclose()


async def test_a_server_that_does_not_stream_is_understood() -> None:
    answer = {
        "id": "msg_1",
        "type": "message",
        "content": [
            {"type": "text", "text": "at once"},
            {"type": "tool_use", "id": "t1", "name": "ls", "input": {"a": 1}},
        ],
        "stop_reason": "tool_use",
        "usage": {"input_tokens": 3, "output_tokens": 2},
    }
    async with served(streaming(orjson.dumps(answer), content_type="application/json")) as address:
        message = await asked_at(address)
    assert (message.text, message.usage, message.stop_reason) == ("at once", Usage(input=3, output=2), "toolUse")
    assert message.tool_calls == (ToolCall("t1", "ls", {"a": 1}),)


@pytest.mark.parametrize("body", [b"{}", b"[]", b"no json", b'{"content": "text"}'])
async def test_an_answer_that_is_no_message_is_a_stream_that_broke(body: bytes) -> None:
    async with served(streaming(body, content_type="application/json")) as address:
        client = AnthropicClient(address)
        assert (await refused(client, ModelRequest(model=MODEL, messages=(user(),)))).kind == "stream_cut"
        await client.aclose()


# Mutation: read the environment once, when the module is imported.
@pytest.mark.parametrize("suffix", ["", "/", "/v1", "/v1/"])
async def test_address_and_key_are_found_in_the_environment(monkeypatch: pytest.MonkeyPatch, suffix: str) -> None:
    async with FakeProvider([reply("a")]) as provider:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", provider.base_url.removesuffix("/v1") + suffix)
        monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
        client = AnthropicClient()
        message = await asked(client, ModelRequest(model=MODEL, messages=(user(),)))
        await client.aclose()
    assert (message.api, message.provider, message.model) == ("anthropic-messages", "anthropic", "claude-sonnet-4-5")
    (request,) = provider.requests
    assert request.headers["x-api-key"] == KEY
    assert request.headers["anthropic-version"] == "2023-06-01"
    assert KEY.encode() not in request.raw


# Mutation: send the signature of the thinking back changed, or not at all.
async def test_a_turn_with_thinking_and_a_call_is_taken_back_by_the_provider() -> None:
    batch: list[tuple[str, dict[str, Any]]] = [("read", {"path": "a"})]
    async with FakeProvider([calls(batch, thinking="Let me see"), reply("done")]) as provider:
        client = AnthropicClient(provider.base_url, KEY)
        fields: dict[str, Any] = {"model": MODEL, "tools": (READ,), "thinking_level": "low"}
        answer = await asked(client, ModelRequest(messages=(user(),), **fields))
        assert answer.content[0] == ThinkingContent("Let me see", signature_of("Let me see"))
        messages = (user(), answer, result(answer.tool_calls[0].id))
        again = await asked(client, ModelRequest(messages=messages, **fields))
        await client.aclose()
    assert again.text == "done"
    assert provider.requests[1].payload["messages"][1]["content"][0]["type"] == "thinking"
    assert provider.requests[1].payload["thinking"]["type"] == "enabled"


async def test_an_empty_refusal_means_overflow_where_the_request_was_about_that_large() -> None:
    # Mutation: never say that a request was near the limit.
    model = Model(MODEL.id, context_window=1_000)
    async with FakeProvider([fail(400, body=""), fail(400, body="")]) as provider:
        client = AnthropicClient(provider.base_url, KEY)
        large = await refused(client, ModelRequest(model=model, messages=(user("x" * 4_000),)))
        small = await refused(client, ModelRequest(model=model, messages=(user("x"),)))
        await client.aclose()
    assert (large.kind, small.kind) == ("overflow", "bad_request")
