"""The fake provider's other format: Anthropic's messages, seen from the wire."""

from __future__ import annotations

from typing import Any

import httpx
import orjson
import pytest

from agent_session.testing import FakeProvider, Step, calls, cut, fail, reply, stop, stream_error
from agent_session.testing.messages_wire import as_chat, signature_of

ASK: dict[str, Any] = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}], "stream": True}
VERSION = {"anthropic-version": "2023-06-01"}


async def post(provider: FakeProvider, headers: dict[str, str] = VERSION, **changes: Any) -> httpx.Response:
    payload = {name: value for name, value in {**ASK, **changes}.items() if value is not None}
    async with httpx.AsyncClient(timeout=60) as http:
        return await http.post(
            f"{provider.base_url}/messages?beta=true", content=orjson.dumps(payload), headers=headers
        )


def events_in(text: str) -> list[dict[str, Any]]:
    """The data of each event; its name must be the type inside."""
    events: list[dict[str, Any]] = []
    for lines in text.strip().split("\n\n"):
        name, data = lines.split("\n")
        events.append(orjson.loads(data.removeprefix("data: ")))
        assert name == f"event: {events[-1]['type']}"
    return events


async def played(step: Step) -> list[dict[str, Any]]:
    async with FakeProvider([step]) as provider:
        return events_in((await post(provider)).text)


async def test_an_answer_is_a_messages_stream() -> None:
    start, ping, *events = await played(reply("hello", thinking="hm", chunks=2, usage=(5, 90, 3, 7)))
    assert start["message"]["usage"] == {
        "input_tokens": 5,
        "cache_read_input_tokens": 90,
        "cache_creation_input_tokens": 3,
        "output_tokens": 1,
    }
    assert ping["type"] == "ping"
    assert [(event["type"], event.get("index")) for event in events] == [
        ("content_block_start", 0),
        ("content_block_delta", 0),
        ("content_block_delta", 0),
        ("content_block_stop", 0),
        ("content_block_start", 1),
        ("content_block_delta", 1),
        ("content_block_delta", 1),
        ("content_block_stop", 1),
        ("message_delta", None),
        ("message_stop", None),
    ]
    assert events[2]["delta"] == {"type": "signature_delta", "signature": signature_of("hm")}
    assert events[-2]["delta"]["stop_reason"] == "end_turn"
    assert events[-2]["usage"] == {"output_tokens": 7}


async def test_arguments_come_in_pieces_of_their_text() -> None:
    events = await played(calls([("read", {"path": "a"})]))
    (opening,) = [event for event in events if event["type"] == "content_block_start"]
    pieces = [event["delta"]["partial_json"] for event in events if event["type"] == "content_block_delta"]
    assert opening["content_block"] == {"type": "tool_use", "id": "call_1", "name": "read", "input": {}}
    assert len(pieces) == 2
    assert orjson.loads("".join(pieces)) == {"path": "a"}
    assert events[-2]["delta"]["stop_reason"] == "tool_use"


async def test_a_reason_that_has_no_other_word_goes_out_as_it_is() -> None:
    events = await played(stop("model_context_window_exceeded", text="x"))
    assert events[-2]["delta"]["stop_reason"] == "model_context_window_exceeded"


# Mutation: close the block, or end the message, of an answer that is cut.
async def test_a_cut_answer_ends_inside_its_block() -> None:
    events = await played(cut(after=2))
    assert [event["type"] for event in events[-2:]] == ["content_block_delta"] * 2


async def test_an_error_inside_the_stream_is_an_event_of_that_name() -> None:
    events = await played(stream_error({"type": "error", "error": {"type": "overloaded_error"}}, text="a"))
    assert events[-1] == {"type": "error", "error": {"type": "overloaded_error"}}


@pytest.mark.parametrize(
    ("step", "sort"),
    [
        (fail(400, "no"), "invalid_request_error"),
        (fail(413, "no"), "request_too_large"),
        (fail(529, "no"), "overloaded_error"),
        (fail(500, "no"), "api_error"),
        (fail(400, "no", code="billing_error"), "billing_error"),
    ],
)
async def test_an_error_status_has_anthropics_error_object(step: Step, sort: str) -> None:
    async with FakeProvider([step]) as provider:
        response = await post(provider)
    assert response.json() == {"type": "error", "error": {"type": sort, "message": "no"}}


async def test_a_request_above_the_window_is_refused_and_takes_no_step() -> None:
    large = [{"role": "user", "content": [{"type": "text", "text": "x" * 404}]}]
    async with FakeProvider([reply("a")], context_window=100) as provider:
        refused = await post(provider, messages=large)
        assert (await post(provider)).status_code == 200
    assert refused.json()["error"]["message"] == "prompt is too long: 101 tokens > 100 maximum"


CALL = {"type": "tool_use", "id": "t1", "name": "ls", "input": {}}
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}


def turn(*blocks: dict[str, Any], role: str = "assistant") -> list[dict[str, Any]]:
    return [{"role": "user", "content": "hi"}, {"role": role, "content": list(blocks)}]


# Mutation: take any of these requests.
@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"headers": {}}, "anthropic-version"),
        ({"max_tokens": None}, "max_tokens"),
        ({"thinking": {"type": "enabled", "budget_tokens": 2_000}, "max_tokens": 2_000}, "budget_tokens"),
        ({"thinking": {"type": "enabled", "budget_tokens": 500}, "max_tokens": 2_000}, "budget_tokens"),
        ({"messages": [{"role": "assistant", "content": "a"}]}, "user role"),
        ({"messages": turn({"type": "text", "text": " "})}, "non-whitespace"),
        ({"messages": turn({"type": "thinking", "thinking": "hm", "signature": "made up"})}, "signature"),
        ({"messages": turn(CALL)}, "t1"),
        ({"messages": turn({"type": "tool_result", "tool_use_id": "t1"}, role="user")}, "t1"),
        (
            {
                "messages": [
                    *turn(CALL),
                    {
                        "role": "user",
                        "content": [{"type": "tool_result", "tool_use_id": "t1", "is_error": True, "content": [IMAGE]}],
                    },
                ]
            },
            "is_error",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_what_the_service_refuses_is_refused(changes: dict[str, Any], said: str) -> None:
    async with FakeProvider() as provider:
        response = await post(provider, **changes)
    assert response.status_code == 400
    assert said in response.json()["error"]["message"]


async def test_a_request_is_read_like_one_in_the_other_format() -> None:
    content = [
        *turn(
            {"type": "thinking", "thinking": "hm", "signature": signature_of("hm")},
            {"type": "text", "text": "I look"},
            CALL,
        ),
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "a.py"}, IMAGE]},
                {"type": "text", "text": "and now?"},
            ],
        },
    ]
    system = [{"type": "text", "text": "Be short."}]
    tools = [{"name": "ls", "description": "List.", "input_schema": {"type": "object"}}]
    async with FakeProvider([reply("a")]) as provider:
        thinking = {"thinking": {"type": "adaptive"}}
        await post(provider, messages=content, system=system, tools=tools, tool_choice={"type": "none"}, **thinking)
    (request,) = provider.requests
    assert (request.system, request.last_user_text) == ("Be short.", "and now?")
    assert [message["role"] for message in request.messages] == ["system", "user", "assistant", "tool", "user"]
    assert request.messages[2]["tool_calls"][0]["function"] == {"name": "ls", "arguments": "{}"}
    assert request.as_chat["tools"][0]["function"]["parameters"] == {"type": "object"}
    assert request.as_chat["tool_choice"] == "none"
    assert request.tokens > 1_200  # the image
    assert orjson.loads(request.raw) == request.payload


def test_a_request_without_anything_becomes_one_without_anything() -> None:
    assert as_chat({}) == {"model": None, "messages": []}


# Serving from a thread ------------------------------------------------------------------------------


def test_a_program_without_an_event_loop_is_served() -> None:
    with FakeProvider([reply("a"), reply("b")]).serving() as provider, httpx.Client() as http:
        answers = [http.post(f"{provider.base_url}/chat/completions", json=ASK).text for _ in range(2)]
    assert '"a"' in answers[0]
    assert '"b"' in answers[1]
    assert len(provider.requests) == 2


# Mutation: leave the script unchecked at the end.
def test_a_script_that_was_not_used_up_fails_there_too() -> None:
    with pytest.raises(AssertionError, match="unused"), FakeProvider([reply("a")]).serving():
        pass
