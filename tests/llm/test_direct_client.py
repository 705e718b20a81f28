"""What the clients share that speak to providers directly: addresses, keys, bytes as servers send them, connections."""

from __future__ import annotations

from typing import Any

import anyio
import httpx
import orjson
import pytest

from agent_session import AnthropicClient, Model, OpenAICompatibleClient
from agent_session.errors import ContextOverflowError, MissingCredentialsError
from agent_session.testing import FakeProvider, hang, reply
from agent_session.testing.http_server import Exchange
from tests.llm.clients import KEY, SPEAKERS, Speaker, asked, refused, served, streaming

DIRECT = {"chat": OpenAICompatibleClient, "messages": AnthropicClient}

TEXT = "größer 漢字 🙂"


def chat_chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
    return b"data: " + orjson.dumps({"choices": [{"delta": delta, "finish_reason": finish}]}) + b"\n\n"


def messages_event(data: dict[str, Any]) -> bytes:
    return f"event: {data['type']}\ndata: ".encode() + orjson.dumps(data) + b"\n\n"


# An answer up to its finish reason, what ends the stream behind it, and the same answer in one body.
ANSWERS: dict[str, tuple[bytes, bytes, dict[str, Any]]] = {
    "chat": (
        chat_chunk({"content": TEXT}) + chat_chunk({}, "stop"),
        b"data: [DONE]\n\n",
        {"choices": [{"message": {"content": TEXT}, "finish_reason": "stop"}], "usage": {"completion_tokens": 7}},
    ),
    "messages": (
        messages_event({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": TEXT}})
        + messages_event({"type": "message_delta", "delta": {"stop_reason": "end_turn"}}),
        messages_event({"type": "message_stop"}),
        {"content": [{"type": "text", "text": TEXT}], "stop_reason": "end_turn", "usage": {"output_tokens": 7}},
    ),
}


@pytest.fixture(params=list(DIRECT))
def speaker(request: pytest.FixtureRequest) -> Speaker:
    return next(speaker for speaker in SPEAKERS if speaker.name == request.param)


async def text_from(speaker: Speaker, *pieces: bytes, content_type: str = "text/event-stream") -> str:
    async with served(streaming(*pieces, content_type=content_type)) as address:
        client = speaker.connect(address, KEY)
        try:
            return (await asked(client, speaker.request())).text
        finally:
            await client.aclose()


# Where, and with which key ---------------------------------------------------------------------------


# Mutation: send the request without a key.
async def test_a_known_service_is_not_asked_without_a_key(speaker: Speaker) -> None:
    error = await refused(speaker.connect(None, None), speaker.request())
    assert isinstance(error, MissingCredentialsError)
    assert f"{speaker.model.provider.upper()}_API_KEY" in str(error)


# Mutation: name another client's class.
async def test_an_unknown_provider_without_an_address_names_the_variable_and_the_client(speaker: Speaker) -> None:
    client = speaker.connect(None, None)
    with pytest.raises(MissingCredentialsError, match="ELSEWHERE_BASE_URL") as caught:
        await asked(client, speaker.request(model=Model("elsewhere/model")))
    assert f"{type(client).__name__}(base_url=" in str(caught.value)


async def test_a_server_that_needs_no_key_gets_none(speaker: Speaker) -> None:
    async with FakeProvider([reply("a")]) as provider:
        client = speaker.connect(provider.base_url, None)
        await asked(client, speaker.request())
        await client.aclose()
    assert {"authorization", "x-api-key"}.isdisjoint(provider.requests[0].headers)


async def test_an_address_that_is_none_is_not_retried(speaker: Speaker) -> None:
    client = speaker.connect("nowhere", KEY)
    assert (await refused(client, speaker.request())).kind == "bad_request"
    await client.aclose()


# Bytes -----------------------------------------------------------------------------------------------


# Mutation: decode chunks as text before the events are cut out.
async def test_bytes_split_anywhere_give_the_same_answer(speaker: Speaker) -> None:
    body, end, _ = ANSWERS[speaker.name]
    stream = (body + end).replace(b"\n", b"\r\n")
    assert await text_from(speaker, *(stream[at : at + 1] for at in range(len(stream)))) == TEXT


# Mutation: require what ends the stream beside the finish reason, or raise whatever happens after that.
@pytest.mark.parametrize("drops", [False, True])
async def test_an_answer_is_whole_with_its_finish_reason_whatever_follows(speaker: Speaker, drops: bool) -> None:
    async def handle(exchange: Exchange) -> None:
        await exchange.begin({"content-type": "text/event-stream"})
        await exchange.write(ANSWERS[speaker.name][0].rstrip(b"\n"))
        if drops:
            await exchange.write(b"\n\n")
            exchange.drop()
        else:
            await exchange.end()

    async with served(handle) as address:
        client = speaker.connect(address, KEY)
        assert (await asked(client, speaker.request())).text == TEXT
        await client.aclose()


# Mutation: go by the content type.
@pytest.mark.parametrize("content_type", ["application/json", "text/event-stream", "text/plain"])
async def test_a_server_that_does_not_stream_is_understood(speaker: Speaker, content_type: str) -> None:
    body = orjson.dumps(ANSWERS[speaker.name][2])
    assert await text_from(speaker, b"  \n", body[:9], body[9:], content_type=content_type) == TEXT


async def test_a_stream_that_calls_itself_json_is_understood(speaker: Speaker) -> None:
    body, end, _ = ANSWERS[speaker.name]
    assert await text_from(speaker, b": waiting\n\n", body, end, content_type="application/json") == TEXT


# Mutation: look for errors in streams only, or in objects only.
@pytest.mark.parametrize(
    "body",
    [
        {"error": {"message": "prompt is too long: 9000 tokens > 8192 maximum"}},
        [{"error": {"code": 400, "message": "prompt is too long: 9000 tokens > 8192 maximum"}}],
        {"object": "error", "message": "prompt is too long: 9000 tokens > 8192 maximum"},
        {"choices": None, "base_resp": {"status_code": 1039, "status_msg": "9000 tokens > 8192: context too long"}},
    ],
    ids=["error", "list", "object", "base_resp"],
)
async def test_an_error_in_the_place_of_an_answer_is_raised_though_the_status_is_200(
    speaker: Speaker, body: Any
) -> None:
    async with served(streaming(orjson.dumps(body), content_type="text/event-stream")) as address:
        client = speaker.connect(address, KEY)
        error = await refused(client, speaker.request())
        await client.aclose()
    assert isinstance(error, ContextOverflowError)
    assert (error.limit, error.requested) == (8192, 9000)


@pytest.mark.parametrize(
    "body", [b"{}", b"[]", b"no json", b"", b"{broken", b'data: {"choi\n\n', b"<html>hello</html>"]
)
async def test_what_is_no_answer_is_a_stream_that_broke(speaker: Speaker, body: bytes) -> None:
    async with served(streaming(body)) as address:
        client = speaker.connect(address, KEY)
        assert (await refused(client, speaker.request())).kind == "stream_cut"
        await client.aclose()


# Mutation: read the whole of an error body.
async def test_an_endless_error_body_is_read_only_at_its_start(speaker: Speaker) -> None:
    async def handle(exchange: Exchange) -> None:
        exchange._head(500, {"transfer-encoding": "chunked"})
        while True:
            await exchange.write(b"x" * 10_000)

    async with served(handle) as address:
        client = speaker.connect(address, KEY)
        assert (await refused(client, speaker.request())).kind == "server"
        await client.aclose()


# Connections -----------------------------------------------------------------------------------------


# Mutation: do not read to the end after what ends the stream.
async def test_answers_one_after_the_other_share_a_connection(speaker: Speaker) -> None:
    ports: list[int] = []

    async def handle(exchange: Exchange) -> None:
        ports.append(exchange.writer.get_extra_info("peername")[1])
        body, end, _ = ANSWERS[speaker.name]
        await streaming(body, end)(exchange)

    async with served(handle) as address:
        client = speaker.connect(address, KEY)
        for _ in range(3):
            await asked(client, speaker.request())
        await client.aclose()
    assert len(ports) == 3
    assert len(set(ports)) == 1


# Mutation: leave the format's final event out of `final_types`.
async def test_a_server_that_lingers_after_the_answer_is_not_waited_for(speaker: Speaker) -> None:
    async def handle(exchange: Exchange) -> None:
        await exchange.begin({"content-type": "text/event-stream"})
        body, end, _ = ANSWERS[speaker.name]
        await exchange.write(body + end)
        await anyio.sleep_forever()

    async with served(handle) as address:
        client = speaker.connect(address, KEY)
        with anyio.fail_after(5):
            assert (await asked(client, speaker.request())).text == TEXT
        await client.aclose()


# Mutation: close the generators only.
async def test_a_block_that_is_left_before_the_first_event_closes_its_connection(speaker: Speaker) -> None:
    async with FakeProvider([hang(after=1)]) as provider:
        client = speaker.connect(provider.base_url, KEY)
        with anyio.fail_after(5):
            async with client.stream(client.prepare(speaker.request())):
                pass
            await provider.requests[0].disconnected.wait()
        await client.aclose()


async def test_a_given_http_client_is_used_and_left_open(speaker: Speaker) -> None:
    async with FakeProvider([reply("a")]) as provider, httpx.AsyncClient(headers={"x-own": "1"}) as http:
        client = DIRECT[speaker.name](provider.base_url, KEY, http_client=http)
        await asked(client, speaker.request())
        await client.aclose()
        assert not http.is_closed
    assert provider.requests[0].headers["x-own"] == "1"


async def test_a_closed_client_opens_new_connections_when_it_is_used_again(speaker: Speaker) -> None:
    async with FakeProvider([reply("a"), reply("b")]) as provider:
        client = speaker.connect(provider.base_url, KEY)
        await asked(client, speaker.request())
        await client.aclose()
        assert (await asked(client, speaker.request())).text == "b"
        await client.aclose()
