"""The chat-completions client over real HTTP on 127.0.0.1."""

import logging
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager

import anyio
import httpx
import orjson
import pytest

from agent_session.errors import (
    ContextOverflowError,
    MissingCredentialsError,
    ModelError,
    ModelRequestError,
    RateLimitError,
)
from agent_session.llm.builder import MessageBuilder
from agent_session.llm.client import Finish, ModelClient, ModelRequest, PreparedRequest, StreamEvent, TextDelta
from agent_session.llm.openai_compatible import OpenAICompatibleClient
from agent_session.models import Model
from agent_session.testing import (
    FakeProvider,
    Step,
    calls,
    cut,
    fail,
    hang,
    reply,
    stop,
    stream_error,
)
from agent_session.testing.http_server import Exchange, HttpServer
from session_store.messages import AssistantMessage, Usage, UserMessage, as_content

MODEL = Model("openai/scripted")
KEY = "sk-of-the-test-1234"


def request_for(text: str = "hi", *, model: Model = MODEL, **fields: object) -> ModelRequest:
    return ModelRequest(model=model, messages=(UserMessage(content=as_content(text)),), **fields)  # type: ignore[arg-type]


async def asked(client: ModelClient, request: ModelRequest | None = None) -> AssistantMessage:
    request = request or request_for()
    builder = MessageBuilder(request, client.api)
    with anyio.fail_after(5):
        async with client.stream(client.prepare(request)) as events:
            async for event in events:
                builder.add(event)
    assert builder.finish is not None
    return builder.message()


async def refused(client: ModelClient, request: ModelRequest | None = None) -> ModelError:
    with pytest.raises(ModelError) as caught:
        await asked(client, request)
    return caught.value


@asynccontextmanager
async def server_of(handler: Callable[[Exchange], Awaitable[None]]):
    """A server that answers with bytes, and a client for it."""
    server = HttpServer(handler)
    await server.start()
    client = OpenAICompatibleClient(f"http://127.0.0.1:{server.port}/v1")
    try:
        yield client
    finally:
        with anyio.move_on_after(2, shield=True):
            await client.aclose()
            await server.stop()


def streaming(*pieces: bytes, content_type: str = "text/event-stream") -> Callable[[Exchange], Awaitable[None]]:
    async def handle(exchange: Exchange) -> None:
        await exchange.begin({"content-type": content_type})
        for piece in pieces:
            await exchange.write(piece)
        await exchange.end()

    return handle


def chunk(text: str = "", *, finish: str | None = None) -> bytes:
    return b"data: " + orjson.dumps({"choices": [{"delta": {"content": text}, "finish_reason": finish}]}) + b"\n\n"


async def test_text_streams_and_its_usage_arrives_in_disjoint_parts() -> None:
    async with FakeProvider([reply("Hello there", thinking="hm", chunks=4, usage=(5, 90, 3, 7))]) as provider:
        request = request_for()
        seen: list[StreamEvent] = []
        with anyio.fail_after(5):
            async with provider.client.stream(provider.client.prepare(request)) as events:
                seen.extend([event async for event in events])
    assert len([event for event in seen if isinstance(event, TextDelta)]) == 4
    assert [event for event in seen if isinstance(event, Finish)] == [seen[-1]]
    builder = MessageBuilder(request, "openai-completions")
    for event in seen:
        builder.add(event)
    message = builder.message()
    assert message.text == "Hello there"
    assert message.usage == Usage(input=5, cache_read=90, cache_write=3, output=7)
    assert message.stop_reason == "stop"
    assert message.response_id == "chatcmpl-1"


async def test_tool_calls_come_in_pieces_and_arrive_whole() -> None:
    batch = [("bash", {"command": "ls -l"}), ("read", {"path": "größe.txt"})]
    async with FakeProvider([calls(batch, text="I look")]) as provider:
        message = await asked(provider.client)
    assert message.text == "I look"
    assert [(call.name, call.arguments) for call in message.tool_calls] == batch
    assert message.stop_reason == "toolUse"


# Mutation: put the key into the payload, or leave the header out.
async def test_the_key_goes_into_a_header_and_nowhere_else(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="agent_session")
    async with FakeProvider([reply("a"), reply("b")]) as provider:
        client = OpenAICompatibleClient(provider.base_url, KEY)
        await asked(client)
        await asked(client, request_for(api_key="sk-of-this-request"))
        await client.aclose()
    first, second = provider.requests
    assert first.headers["authorization"] == f"Bearer {KEY}"
    assert second.headers["authorization"] == "Bearer sk-of-this-request"
    assert KEY.encode() not in first.raw
    assert KEY not in repr(client) + repr(request_for(api_key=KEY)) + repr(client.prepare(request_for(api_key=KEY)))
    assert KEY not in caplog.text


# Mutation: read the environment once, when the module is imported.
async def test_address_and_key_are_found_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    async with FakeProvider([reply("a")]) as provider:
        monkeypatch.setenv("MY_HOST_BASE_URL", provider.base_url + "/")
        monkeypatch.setenv("MY_HOST_API_KEY", KEY)
        client = OpenAICompatibleClient()
        message = await asked(client, request_for(model=Model("my-host/some/model")))
        await client.aclose()
    assert (message.provider, message.model) == ("my-host", "some/model")
    assert provider.requests[0].payload["model"] == "some/model"
    assert provider.requests[0].headers["authorization"] == f"Bearer {KEY}"


# Mutation: send the request without a key.
async def test_openai_itself_is_not_asked_without_a_key() -> None:
    error = await refused(OpenAICompatibleClient())
    assert isinstance(error, MissingCredentialsError)
    assert "OPENAI_API_KEY" in str(error)


async def test_an_unknown_provider_without_an_address_names_the_variable() -> None:
    error = await refused(OpenAICompatibleClient(), request_for(model=Model("elsewhere/model")))
    assert isinstance(error, MissingCredentialsError)
    assert "ELSEWHERE_BASE_URL" in str(error)


async def test_a_server_that_needs_no_key_gets_none() -> None:
    async with FakeProvider([reply("a")]) as provider:
        client = OpenAICompatibleClient(provider.base_url)
        await asked(client)
        await client.aclose()
    assert "authorization" not in provider.requests[0].headers


# Mutation: use one name for every host.
def test_openai_gets_its_own_name_for_the_output_limit() -> None:
    request = request_for(max_output_tokens=9)
    assert OpenAICompatibleClient(api_key=KEY).prepare(request).payload["max_completion_tokens"] == 9
    assert (
        OpenAICompatibleClient("https://x.openai.azure.com/v1").prepare(request).payload["max_completion_tokens"] == 9
    )
    assert OpenAICompatibleClient("https://notopenai.com/v1").prepare(request).payload["max_tokens"] == 9


async def test_a_replaced_payload_and_headers_are_what_is_sent() -> None:
    async with FakeProvider([reply("a")]) as provider:
        prepared = provider.client.prepare(request_for())
        changed = PreparedRequest(
            request=prepared.request, payload={**prepared.payload, "seed": 7}, headers={"X-Trace": "t1"}
        )
        with anyio.fail_after(5):
            async with provider.client.stream(changed) as events:
                assert [event async for event in events]
    assert provider.requests[0].payload["seed"] == 7
    assert provider.requests[0].headers["x-trace"] == "t1"


# Mutation: raise the refusal of the option; or do not remember it.
async def test_a_server_that_refuses_the_usage_option_is_asked_without_it_from_then_on() -> None:
    refusal = fail(400, "Unrecognized request argument supplied: stream_options")
    async with FakeProvider([refusal, reply("a", usage=(9, 0, 0, 1)), reply("b")]) as provider:
        first = await asked(provider.client)
        second = await asked(provider.client)
    assert (first.text, second.text) == ("a", "b")
    assert first.usage.estimated
    assert ["stream_options" in request.payload for request in provider.requests] == [True, False, False]


# Mutation: send again after any 400.
async def test_any_other_bad_request_is_not_sent_again() -> None:
    async with FakeProvider([fail(400, "no such tool")]) as provider:
        assert (await refused(provider.client)).kind == "bad_request"
    assert len(provider.requests) == 1


# Mutation: report zeros as a measurement.
@pytest.mark.parametrize("usage", [None, (0, 0, 0, 0)])
async def test_absent_and_zero_usage_are_the_same(usage: tuple[int, int, int, int] | None) -> None:
    async with FakeProvider([reply("a", usage=usage)]) as provider:
        message = await asked(provider.client)
    assert message.usage.estimated
    assert message.usage.total_tokens == 0


@pytest.mark.parametrize(
    ("step", "error_class", "kind"),
    [
        (fail(400, "prompt is too long: 9 tokens > 5 maximum"), ContextOverflowError, "overflow"),
        (fail(413, "Request Entity Too Large"), ContextOverflowError, "overflow_bytes"),
        (fail(429, "slow down", code="rate_limit_exceeded"), RateLimitError, "rate"),
        (fail(401, "Incorrect API key"), MissingCredentialsError, "auth"),
        (fail(503, body="<html>down</html>"), ModelRequestError, "server"),
        (fail(500), ModelRequestError, "server"),
    ],
)
async def test_a_refusal_is_raised_as_what_it_is(step: Step, error_class: type[ModelError], kind: str) -> None:
    async with FakeProvider([step]) as provider:
        error = await refused(provider.client)
    assert type(error) is error_class
    assert error.kind == kind


async def test_the_time_to_come_back_is_read_from_the_header() -> None:
    async with FakeProvider([fail(429, "later", headers={"Retry-After": "100000"})]) as provider:
        error = await refused(provider.client)
    assert error.retry_at is not None
    assert error.retry_at > 1_700_000_000


# Mutation: hand `secret` to `read_refusal` nowhere.
async def test_a_key_that_the_server_repeats_is_not_in_the_error() -> None:
    async with FakeProvider([fail(401, f"bad key {KEY}"), stream_error({"error": {"message": KEY}})]) as provider:
        client = OpenAICompatibleClient(provider.base_url, KEY)
        for _ in range(2):
            error = await refused(client)
            assert KEY not in f"{error} {error.body}"
        await client.aclose()


# Mutation: read the whole of an error body.
async def test_an_endless_error_body_is_read_only_at_its_start() -> None:
    async def handle(exchange: Exchange) -> None:
        exchange._head(500, {"transfer-encoding": "chunked"})
        while True:
            await exchange.write(b"x" * 10_000)

    async with server_of(handle) as client:
        assert (await refused(client)).kind == "server"


@pytest.mark.parametrize(
    ("event", "kind"),
    [
        (b'data: {"error": {"message": "prompt is too long: 9 tokens > 5 maximum"}}\n\n', "overflow"),
        (b'event: error\ndata: {"message": "Overloaded", "type": "overloaded_error"}\n\n', "server"),
        (b"event: error\ndata: it broke\n\n", "server"),
        (b'data: {"object": "error", "message": "Input exceeds the context length of 8 tokens."}\n\n', "overflow"),
        (b'data: {"error": {"code": 429, "message": "slow down"}}\n\n', "rate"),
        (b'data: {"choices": [{"delta": {}, "finish_reason": "error"}]}\n\ndata: [DONE]\n\n', "server"),
    ],
)
# Mutation: look at `error` only before the first delta, or take such an event for an empty chunk.
async def test_an_error_inside_a_stream_is_raised_after_what_came_before(event: bytes, kind: str) -> None:
    async with server_of(streaming(chunk("so far"), event)) as client:
        texts: list[str] = []
        with anyio.fail_after(5), pytest.raises(ModelError) as caught:  # noqa: PT012 - it is raised while iterating
            async with client.stream(client.prepare(request_for())) as events:
                async for seen in events:
                    assert isinstance(seen, TextDelta)
                    texts.append(seen.text)
    assert texts == ["so far"]
    assert caught.value.kind == kind


# Mutation: end a stream without a final event as a plain stop.
@pytest.mark.parametrize("step", [cut(after=3), cut(after=0), cut(after=2, drop=True)])
async def test_a_stream_that_breaks_off_is_an_error_and_its_beginning_is_given(step: Step) -> None:
    async with FakeProvider([step]) as provider:
        assert (await refused(provider.client)).kind == "stream_cut"


async def test_an_event_that_is_no_json_is_a_stream_that_broke() -> None:
    async with server_of(streaming(chunk("a"), b'data: {"choi\n\n')) as client:
        assert (await refused(client)).kind == "stream_cut"


# Mutation: require `[DONE]`, or a finish reason beside it.
@pytest.mark.parametrize(
    "pieces",
    [
        [chunk("all"), chunk(finish="stop")],
        [chunk("all"), b"data: [DONE]\n\n"],
        [chunk("all"), chunk(finish="stop"), b"data: [DONE]\n\n"],
        [chunk("all"), chunk(finish="stop").rstrip(b"\n")],
    ],
)
async def test_either_final_event_is_enough(pieces: list[bytes]) -> None:
    async with server_of(streaming(*pieces)) as client:
        assert (await asked(client)).text == "all"


# Mutation: raise whatever happens after the finish reason.
async def test_a_connection_that_breaks_after_the_answer_was_whole_costs_nothing() -> None:
    async def handle(exchange: Exchange) -> None:
        await exchange.begin({"content-type": "text/event-stream"})
        await exchange.write(chunk("all", finish="stop"))
        exchange.drop()

    async with server_of(handle) as client:
        assert (await asked(client)).text == "all"


async def test_a_server_that_does_not_stream_is_understood() -> None:
    answer = {
        "id": "r1",
        "choices": [{"message": {"content": "at once"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2},
    }
    async with server_of(streaming(orjson.dumps(answer), content_type="application/json")) as client:
        message = await asked(client)
    assert (message.text, message.usage.total_tokens) == ("at once", 5)


# Mutation: decode chunks as text before the events are cut out.
async def test_bytes_split_anywhere_give_the_same_answer() -> None:
    stream = chunk("größer 漢字 🙂", finish="stop").replace(b"\n", b"\r\n") + b"data: [DONE]\r\n\r\n"
    async with server_of(streaming(*(stream[at : at + 1] for at in range(len(stream))))) as client:
        assert (await asked(client)).text == "größer 漢字 🙂"


@pytest.mark.parametrize(
    ("reason", "expected"),
    [("foo", "stop"), ("model_context_window_exceeded", "length"), ("content_filter", "refusal")],
)
async def test_the_providers_own_finish_reason_is_kept(reason: str, expected: str) -> None:
    async with FakeProvider([stop(reason, text="x")]) as provider:
        request = request_for()
        with anyio.fail_after(5):
            async with provider.client.stream(provider.client.prepare(request)) as events:
                *_, last = [event async for event in events]
    assert last == Finish(expected, reason)


# Mutation: limit the total time in place of the silence.
async def test_a_slow_stream_lives_longer_than_the_limit_of_silence() -> None:
    async with FakeProvider([reply("x" * 12, chunks=12, pace=0.05)]) as provider:
        assert (await asked(provider.client, request_for(silence_seconds=0.3))).text == "x" * 12


# Mutation: no read timeout.
@pytest.mark.parametrize("after", [0, 2])
async def test_silence_is_an_error_before_and_in_the_middle_of_an_answer(after: int) -> None:
    async with FakeProvider([hang(after=after)]) as provider:
        error = await refused(provider.client, request_for(silence_seconds=0.1))
        with anyio.fail_after(5):
            await provider.requests[0].disconnected.wait()
    assert error.kind == "silence"


# Mutation: leave the response open when the block is left.
async def test_a_cancelled_request_closes_its_connection() -> None:
    async with FakeProvider([hang(after=1)]) as provider:
        began = anyio.Event()

        async def ask() -> None:
            async with provider.client.stream(provider.client.prepare(request_for())) as events:
                async for _ in events:
                    began.set()

        with anyio.fail_after(5):
            async with anyio.create_task_group() as group:
                group.start_soon(ask)
                await began.wait()
                group.cancel_scope.cancel()
            await provider.requests[0].disconnected.wait()


# Mutation: the same.
async def test_a_block_that_is_left_early_closes_its_connection() -> None:
    async with FakeProvider([hang(after=1)]) as provider:
        with anyio.fail_after(5):
            async with provider.client.stream(provider.client.prepare(request_for())) as events:
                await anext(events)
            await provider.requests[0].disconnected.wait()


# Mutation: close the generators only.
async def test_a_block_that_is_left_before_the_first_event_closes_its_connection() -> None:
    async with FakeProvider([hang(after=1)]) as provider:
        with anyio.fail_after(5):
            async with provider.client.stream(provider.client.prepare(request_for())):
                pass
            await provider.requests[0].disconnected.wait()


# Mutation: do not read to the end after `[DONE]`.
async def test_answers_one_after_the_other_share_a_connection() -> None:
    ports: list[int] = []

    async def handle(exchange: Exchange) -> None:
        ports.append(exchange.writer.get_extra_info("peername")[1])
        await streaming(chunk("a", finish="stop"), b"data: [DONE]\n\n")(exchange)

    async with server_of(handle) as client:
        for _ in range(3):
            await asked(client)
    assert len(ports) == 3
    assert len(set(ports)) == 1


async def test_a_server_that_lingers_after_the_answer_is_not_waited_for() -> None:
    async def handle(exchange: Exchange) -> None:
        await exchange.begin({"content-type": "text/event-stream"})
        await exchange.write(chunk("a", finish="stop") + b"data: [DONE]\n\n")
        await anyio.sleep_forever()

    async with server_of(handle) as client:
        assert (await asked(client)).text == "a"


async def test_nobody_at_the_address_is_a_network_error_that_names_it() -> None:
    async with FakeProvider() as provider:
        address = provider.base_url
    client = OpenAICompatibleClient(address)
    error = await refused(client)
    await client.aclose()
    assert error.kind == "network"
    assert address in str(error)


async def test_an_address_that_is_none_is_not_retried() -> None:
    client = OpenAICompatibleClient("nowhere")
    assert (await refused(client)).kind == "bad_request"
    await client.aclose()


async def test_a_given_http_client_is_used_and_left_open() -> None:
    async with FakeProvider([reply("a")]) as provider, httpx.AsyncClient(headers={"x-own": "1"}) as http:
        client = OpenAICompatibleClient(provider.base_url, http_client=http)
        await asked(client)
        await client.aclose()
        assert not http.is_closed
    assert provider.requests[0].headers["x-own"] == "1"


async def test_a_closed_client_opens_new_connections_when_it_is_used_again() -> None:
    async with FakeProvider([reply("a"), reply("b")]) as provider:
        client = OpenAICompatibleClient(provider.base_url)
        await asked(client)
        await client.aclose()
        assert (await asked(client)).text == "b"
        await client.aclose()


async def test_several_requests_may_be_under_way_at_once() -> None:
    texts: set[str] = set()
    async with FakeProvider([reply(f"answer {number}", chunks=5, pace=0.01) for number in range(8)]) as provider:

        async def ask() -> None:
            texts.add((await asked(provider.client)).text)

        async with anyio.create_task_group() as group:
            for _ in range(8):
                group.start_soon(ask)
    assert texts == {f"answer {number}" for number in range(8)}


async def test_a_lone_surrogate_in_a_message_is_sent_as_the_replacement_character() -> None:
    async with FakeProvider([reply("ok")]) as provider:
        await asked(provider.client, request_for("a\ud83db"))
    assert provider.requests[0].last_user_text == "a\ufffdb"
