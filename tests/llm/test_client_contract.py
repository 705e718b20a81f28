"""What every client keeps, whatever it speaks: the same script gives the same events, messages and errors."""

from __future__ import annotations

import logging
import re
import traceback
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from agent_session import ModelClient, ToolDefinition
from agent_session.errors import (
    ContextOverflowError,
    MissingCredentialsError,
    ModelError,
    ModelRequestError,
    RateLimitError,
)
from agent_session.llm.client import Finish, StreamEvent, TextDelta, ThinkingDelta, ToolCallDelta, UsageReport
from agent_session.llm.handover import hand_over
from agent_session.llm.payload import encode
from agent_session.testing import FakeProvider, Step, calls, cut, fail, hang, reply, stop, stream_error
from session_store.messages import (
    AssistantMessage,
    ImageContent,
    TextContent,
    ThinkingContent,
    ToolCall,
    ToolResultMessage,
    Usage,
    UserMessage,
    as_content,
)
from tests.llm.clients import KEY, SECONDS, SPEAKERS, Speaker, asked, refused

TOOLS = (
    ToolDefinition(name="read", description="Read a file.", parameters={"type": "object", "properties": {"path": {}}}),
)
TOO_LONG = "prompt is too long: 213462 tokens > 200000 maximum"


# litellm looks for certificates on the event loop, and uses what its libraries have deprecated: its own affairs.
LITELLM = [pytest.mark.allow_blocking, pytest.mark.filterwarnings("ignore")]
MARKED = [
    pytest.param(speaker, id=speaker.name, marks=LITELLM if "litellm" in speaker.name else []) for speaker in SPEAKERS
]


@pytest.fixture(params=MARKED)
def speaker(request: pytest.FixtureRequest) -> Speaker:
    speaker: Speaker = request.param
    return speaker


@asynccontextmanager
async def connected(speaker: Speaker, *steps: Step, **options: Any) -> AsyncIterator[tuple[FakeProvider, ModelClient]]:
    async with FakeProvider(steps, **options) as provider:
        client = speaker.connect(provider.base_url, KEY)
        yield provider, client
        await client.aclose()


async def events_of(client: ModelClient, speaker: Speaker, **fields: Any) -> list[StreamEvent]:
    with anyio.fail_after(SECONDS):
        async with client.stream(client.prepare(speaker.request(**fields))) as events:
            return [event async for event in events]


# Mutation: in one of the streams, give the whole text at once or a second final event.
async def test_text_comes_in_pieces_and_the_final_event_once_at_the_end(speaker: Speaker) -> None:
    async with connected(speaker, reply("Hello there, you", chunks=4)) as (_, client):
        events = await events_of(client, speaker)
    texts = [event for event in events if isinstance(event, TextDelta)]
    assert [event.text for event in texts] == ["Hell", "o th", "ere,", " you"]
    assert len({event.index for event in texts}) == 1
    assert [event.stop_reason for event in events if isinstance(event, Finish)] == ["stop"]
    assert isinstance(events[-1], Finish)


# Mutation: add what was cached to the input once more.
async def test_usage_comes_in_parts_that_can_be_added(speaker: Speaker) -> None:
    async with connected(speaker, reply("a", usage=(5, 90, 3, 7))) as (_, client):
        message = await asked(client, speaker.request())
    assert message.usage == Usage(input=5, cache_read=90, cache_write=3, output=7)


# Mutation: take zeros, or what a library counted itself, for a measurement.
@pytest.mark.parametrize("usage", [None, (0, 0, 0, 0)])
async def test_usage_that_nobody_reported_is_not_a_measurement(
    speaker: Speaker, usage: tuple[int, int, int, int] | None
) -> None:
    async with connected(speaker, reply("an answer of some words", usage=usage)) as (_, client):
        message = await asked(client, speaker.request())
    assert message.usage.estimated
    assert not message.usage.is_reported


async def test_calls_come_in_pieces_and_arrive_whole(speaker: Speaker) -> None:
    batch: list[tuple[str, dict[str, Any]]] = [("bash", {"command": "ls -l"}), ("read", {"path": "größe.txt"})]
    async with connected(speaker, calls(batch, text="I look", usage=(9, 0, 0, 4))) as (_, client):
        events = await events_of(client, speaker, tools=TOOLS)
        pieces = [event for event in events if isinstance(event, ToolCallDelta) and event.arguments]
    assert len(pieces) == 4
    async with connected(speaker, calls(batch, text="I look", usage=(9, 0, 0, 4))) as (_, client):
        message = await asked(client, speaker.request(tools=TOOLS))
    assert message.text == "I look"
    assert [(call.name, call.arguments) for call in message.tool_calls] == batch
    assert [call.id for call in message.tool_calls] == ["call_1", "call_2"]
    assert message.stop_reason == "toolUse"


async def test_a_call_with_broken_arguments_keeps_their_text(speaker: Speaker) -> None:
    async with connected(speaker, calls([("read", '{"path": "a')])) as (_, client):
        message = await asked(client, speaker.request(tools=TOOLS))
    (call,) = message.tool_calls
    assert call.arguments == {}
    assert call.extra == {"rawArguments": '{"path": "a'}


async def test_thinking_comes_before_the_text_in_a_block_of_its_own(speaker: Speaker) -> None:
    step = reply("So it is", thinking="Let me see")
    async with connected(speaker, step) as (_, client):
        events = await events_of(client, speaker, thinking_level="low")
    thoughts = [event for event in events if isinstance(event, ThinkingDelta)]
    assert "".join(event.thinking for event in thoughts) == "Let me see"
    assert {event.index for event in thoughts} == {0}
    assert {event.index for event in events if isinstance(event, TextDelta)} == {1}


@pytest.mark.parametrize(("reason", "expected"), [("length", "length"), ("content_filter", "refusal")])
async def test_why_an_answer_ended_is_said_in_the_logs_words(speaker: Speaker, reason: str, expected: str) -> None:
    async with connected(speaker, stop(reason, text="x")) as (_, client):
        assert (await asked(client, speaker.request())).stop_reason == expected


def conversation(speaker: Speaker, answer: AssistantMessage) -> tuple[Any, ...]:
    """A prompt, this answer with two calls, their results, and a remark behind them."""
    first, second = answer.tool_calls
    return (
        UserMessage(content=(TextContent("look"), ImageContent("aGk=", "image/png"))),
        answer,
        ToolResultMessage(tool_call_id=first.id, tool_name="read", content=as_content("a file")),
        ToolResultMessage(
            tool_call_id=second.id,
            tool_name="read",
            content=(TextContent("no such file"), ImageContent("aGk=", "image/png")),
            is_error=True,
        ),
        UserMessage(content=as_content("and now?")),
    )


# Mutation: leave a result out, or change an id on the way back only.
async def test_a_conversation_goes_back_in_the_order_the_provider_wants(speaker: Speaker) -> None:
    batch: list[tuple[str, dict[str, Any]]] = [("read", {"path": "a"}), ("read", {"path": "b"})]
    steps = (calls(batch, text="I look", thinking="hm"), reply("done"))
    async with connected(speaker, *steps) as (provider, client):
        answer = await asked(client, speaker.request(thinking_level="low", tools=TOOLS))
        messages = conversation(speaker, answer)
        again = await asked(client, speaker.request(messages=messages, thinking_level="low", tools=TOOLS))
    assert again.text == "done"
    assert provider.requests[1].last_user_text.endswith("and now?")
    roles = [message["role"] for message in provider.requests[1].messages]
    assert roles[:4] == ["user", "assistant", "tool", "tool"]
    assert set(roles[4:]) == {"user"}


# Mutation: in `hand_over` send the calls of other providers with the ids they came with.
async def test_another_providers_conversation_goes_through(speaker: Speaker) -> None:
    answer = AssistantMessage(
        content=(
            ThinkingContent("hm", "another provider's signature"),
            ToolCall("call|with;signs" * 9, "read", {"path": "a"}),
            ToolCall("fc_2", "read", {"path": "b"}),
        ),
        api="other",
        provider="other",
        model="other",
    )
    async with connected(speaker, reply("done")) as (provider, client):
        messages = hand_over(conversation(speaker, answer), model=speaker.model, api=client.api)
        assert (await asked(client, speaker.request(messages=messages, tools=TOOLS))).text == "done"
    assert b"another provider's signature" not in provider.requests[0].raw


async def test_half_a_surrogate_pair_leaves_as_the_replacement_character(speaker: Speaker) -> None:
    # Mutation: in `litellm_payload` leave `readable` out; in `encode_value` let surrogates pass.
    async with connected(speaker, reply("done")) as (provider, client):
        request = speaker.request("half \ud83d of it", system_prompt="System \udc00.")
        assert (await asked(client, request)).text == "done"
    assert "half \ufffd of it" in provider.requests[0].text
    assert "System \ufffd." in provider.requests[0].text


async def test_equal_requests_are_equal_bytes(speaker: Speaker) -> None:
    client = speaker.connect("http://127.0.0.1:1", KEY)
    payloads = [client.prepare(speaker.request(system_prompt="Be short.", tools=TOOLS)).payload for _ in range(2)]
    assert encode(payloads[0]) == encode(payloads[1])
    assert KEY.encode() not in encode(payloads[0])


async def test_tools_may_be_declared_and_forbidden(speaker: Speaker) -> None:
    async with connected(speaker, reply("a")) as (provider, client):
        await asked(client, speaker.request(tools=TOOLS, tool_choice="none"))
    assert provider.requests[0].as_chat["tool_choice"] == "none"
    assert [tool["function"]["name"] for tool in provider.requests[0].as_chat["tools"]] == ["read"]


OVERFLOWS: dict[str, Step] = {
    "in a 400": fail(400, TOO_LONG),
    "as another type": fail(400, TOO_LONG, code="api_error"),
    "wrapped by a gateway": fail(
        400, body={"error": {"message": "Provider returned error", "metadata": {"raw": f'{{"message": "{TOO_LONG}"}}'}}}
    ),
    "as a 500": fail(500, TOO_LONG),
    "as plain text": fail(400, body=TOO_LONG),
    "as a page": fail(502, body=f"<html><body><h1>Bad Gateway</h1><p>{TOO_LONG}</p></body></html>"),
    "in other words": fail(400, "Sorry: 213,462 tokens is more than this model can digest (200,000)."),
    "inside the stream": stream_error({"type": "error", "error": {"type": "api_error", "message": TOO_LONG}}),
    "late in the stream": stream_error({"type": "error", "error": {"message": TOO_LONG}}, text="so far"),
}


# Mutation: look for an overflow only in answers with status 400, or in the class that a library raises.
@pytest.mark.parametrize("disguise", OVERFLOWS)
async def test_an_overflow_is_known_in_each_of_its_disguises(speaker: Speaker, disguise: str) -> None:
    async with connected(speaker, OVERFLOWS[disguise]) as (_, client):
        error = await refused(client, speaker.request())
    assert isinstance(error, ContextOverflowError)
    assert (error.limit, error.requested) == (200_000, 213_462)


# Mutation: in one of the clients, classify with its own patterns only.
@pytest.mark.parametrize(
    "step",
    [
        fail(400, "das war zu viel"),
        fail(500, "das war zu viel"),
        stream_error({"type": "error", "error": {"type": "api_error", "message": "das war zu viel"}}),
    ],
    ids=["400", "500", "stream"],
)
async def test_what_the_request_knows_of_overflows_is_taken_for_one(speaker: Speaker, step: Step) -> None:
    async with connected(speaker, step, step) as (_, client):
        assert (await refused(client, speaker.request())).kind != "overflow"
        error = await refused(client, speaker.request(overflow_patterns=(re.compile("zu viel"),)))
    assert error.kind == "overflow"


@pytest.mark.parametrize(
    ("step", "error_class", "kind"),
    [
        (fail(413, "Request exceeds the maximum size"), ContextOverflowError, "overflow_bytes"),
        (fail(429, "slow down"), RateLimitError, "rate"),
        (fail(429, "tokens per minute: Limit 8000, Requested 20449"), RateLimitError, "request_exceeds_rate_budget"),
        (fail(401, "invalid x-api-key"), MissingCredentialsError, "auth"),
        (fail(403, "not allowed"), MissingCredentialsError, "auth"),
        (fail(400, "tools.0: wrong"), ModelRequestError, "bad_request"),
        (
            fail(400, "max_tokens: 9 > 5, the maximum allowed number of output tokens"),
            ModelRequestError,
            "output_setting",
        ),
        (fail(503, body="<html>down</html>"), ModelRequestError, "server"),
        (fail(529, "Overloaded"), ModelRequestError, "server"),
        (fail(500), ModelRequestError, "server"),
        (
            stream_error({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}),
            ModelRequestError,
            "server",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
async def test_a_refusal_is_raised_as_what_it_is(
    speaker: Speaker, step: Step, error_class: type[ModelError], kind: str
) -> None:
    async with connected(speaker, step) as (provider, client):
        error = await refused(client, speaker.request())
    assert (type(error), error.kind) == (error_class, kind)
    assert len(provider.requests) == 1  # nobody but the session tries again


async def test_the_time_to_come_back_is_read_from_the_header(speaker: Speaker) -> None:
    async with connected(speaker, fail(429, "later", headers={"Retry-After": "100000"})) as (_, client):
        error = await refused(client, speaker.request())
    assert error.retry_at is not None
    assert error.retry_at > 1_700_000_000


# Mutation: take a stream that ends before it began for an answer.
async def test_a_stream_without_anything_in_it_is_an_error(speaker: Speaker) -> None:
    async with connected(speaker, cut(after=0)) as (_, client):
        assert (await refused(client, speaker.request())).kind == "stream_cut"


# Mutation: keep the word that a library put in the place of the provider's.
async def test_a_full_window_is_said_in_the_providers_own_word(speaker: Speaker) -> None:
    if speaker.name == "litellm-messages":
        pytest.skip("litellm says `length`, and nothing shows what the provider said")
    async with connected(speaker, stop("model_context_window_exceeded", text="x")) as (_, client):
        *_, last = await events_of(client, speaker)
    assert last == Finish("length", "model_context_window_exceeded")


# Mutation: end a stream without a final event as a plain stop.
@pytest.mark.parametrize("step", [cut(after=3), cut(after=2, drop=True)], ids=["cut", "drop"])
async def test_a_stream_that_breaks_off_is_an_error_and_its_beginning_is_given(speaker: Speaker, step: Step) -> None:
    texts: list[str] = []
    async with connected(speaker, step) as (_, client):
        with anyio.fail_after(SECONDS), pytest.raises(ModelError) as caught:  # noqa: PT012 - it is raised while iterating
            async with client.stream(client.prepare(speaker.request())) as events:
                async for event in events:
                    if isinstance(event, TextDelta):
                        texts.append(event.text)
    assert "".join(texts) == "An answer that is cut off here"
    assert caught.value.kind == "stream_cut"


# Mutation: no limit for the wait for a chunk, or none for that for the headers.
@pytest.mark.parametrize("after", [0, 2])
async def test_silence_is_an_error_and_its_connection_is_closed(speaker: Speaker, after: int) -> None:
    async with connected(speaker, reply("warm"), hang(after=after)) as (provider, client):
        await asked(client, speaker.request())
        with anyio.fail_after(5):
            error = await refused(client, speaker.request(silence_seconds=0.5))
            await provider.requests[1].disconnected.wait()
    assert error.kind == "silence"


# Mutation: limit the total time in place of the silence.
async def test_a_slow_stream_lives_longer_than_the_limit_of_silence(speaker: Speaker) -> None:
    async with connected(speaker, reply("warm"), reply("x" * 12, chunks=12, pace=0.08)) as (_, client):
        await asked(client, speaker.request())
        assert (await asked(client, speaker.request(silence_seconds=0.6))).text == "x" * 12


# Mutation: leave the response open when the block is left.
@pytest.mark.parametrize("after", [0, 1])
async def test_a_cancelled_request_closes_its_connection(speaker: Speaker, after: int) -> None:
    async with connected(speaker, hang(after=after)) as (provider, client):
        began = anyio.Event()

        async def ask() -> None:
            async with client.stream(client.prepare(speaker.request())) as events:
                async for event in events:
                    if isinstance(event, TextDelta):
                        began.set()

        with anyio.fail_after(SECONDS):
            async with anyio.create_task_group() as group:
                group.start_soon(ask)
                await (began.wait() if after else provider.arrived(1))
                group.cancel_scope.cancel()
            await provider.requests[0].disconnected.wait()


# Mutation: the same.
async def test_a_block_that_is_left_early_closes_its_connection(speaker: Speaker) -> None:
    async with connected(speaker, hang(after=1)) as (provider, client):
        with anyio.fail_after(SECONDS):
            async with client.stream(client.prepare(speaker.request())) as events:
                await anext(events)
            await provider.requests[0].disconnected.wait()


async def test_nobody_at_the_address_is_a_network_error(speaker: Speaker) -> None:
    async with FakeProvider() as provider:
        address = provider.base_url
    client = speaker.connect(address, KEY)
    error = await refused(client, speaker.request())
    await client.aclose()
    assert error.kind == "network"
    assert address in str(error) or "litellm" in speaker.name  # which does not say where it asked


def all_that_is_said(error: BaseException) -> str:
    """The error, and whatever hangs on it, as a report of it would show them."""
    told = [f"{error} {error!r} {vars(error)}", *traceback.format_exception(error)]
    for below in (error.__cause__, error.__context__):
        if below is not None:
            told.append(all_that_is_said(below))
    return "\n".join(told)


# Mutation: raise the error from inside the handler of a library's own, or do not take the key out of the body.
async def test_a_key_that_the_provider_repeats_is_in_no_error_and_no_log(
    speaker: Speaker, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG, logger="agent_session")
    repeated = {"type": "error", "error": {"message": f"bad key {KEY}", "type": "api_error"}}
    steps = (fail(401, f"bad key {KEY}"), fail(500, f"bad key {KEY}"), stream_error(repeated))
    async with connected(speaker, *steps) as (_, client):
        for _ in steps:
            error = await refused(client, speaker.request())
            assert "bad key" in str(error)
            assert KEY not in all_that_is_said(error)
    assert KEY not in repr(client) + repr(speaker.request(api_key=KEY))
    assert KEY not in caplog.text
    assert "".join(capfd.readouterr()) == ""


# Mutation: keep the first key.
async def test_each_request_may_bring_a_key_of_its_own(speaker: Speaker) -> None:
    async with connected(speaker, reply("a"), reply("b")) as (provider, client):
        await asked(client, speaker.request())
        await asked(client, speaker.request(api_key="sk-of-this-request"))
    sent = [request.headers.get("x-api-key") or request.headers["authorization"] for request in provider.requests]
    assert [key.removeprefix("Bearer ") for key in sent] == [KEY, "sk-of-this-request"]
    assert all(KEY.encode() not in request.raw for request in provider.requests)


async def test_headers_of_the_prepared_request_are_sent(speaker: Speaker) -> None:
    async with connected(speaker, reply("a")) as (provider, client):
        prepared = client.prepare(speaker.request())
        prepared.headers["X-Trace"] = "t1"
        with anyio.fail_after(SECONDS):
            async with client.stream(prepared) as events:
                assert [event async for event in events]
    assert provider.requests[0].headers["x-trace"] == "t1"


async def test_several_requests_may_be_under_way_at_once(speaker: Speaker) -> None:
    texts: set[str] = set()
    steps = [reply(f"answer {number}", chunks=5, pace=0.01) for number in range(6)]
    async with connected(speaker, *steps) as (_, client):

        async def ask() -> None:
            texts.add((await asked(client, speaker.request())).text)

        async with anyio.create_task_group() as group:
            for _ in range(6):
                group.start_soon(ask)
    assert texts == {f"answer {number}" for number in range(6)}


async def test_usage_is_the_last_word_that_was_said_of_it(speaker: Speaker) -> None:
    async with connected(speaker, reply("a", usage=(5, 0, 0, 7))) as (_, client):
        events = await events_of(client, speaker)
    assert [event.usage.output for event in events if isinstance(event, UsageReport)][-1] == 7
