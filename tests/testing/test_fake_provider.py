"""The fake provider, seen from the wire."""

import asyncio
import socket
import struct
import sys
from typing import Any

import anyio
import anyio.lowlevel
import httpx
import orjson
import pytest

from agent_session.testing import FakeProvider, call, cut, fail, hang, hold, reply
from agent_session.testing.chat_wire import answer_events
from agent_session.testing.recording import RecordedRequest

ASK = {"model": "scripted", "messages": [{"role": "user", "content": "hi"}], "stream": True}


async def post(provider: FakeProvider, payload: object = ASK, path: str = "/chat/completions") -> httpx.Response:
    async with httpx.AsyncClient(timeout=60) as http:
        return await http.post(provider.base_url + path, content=orjson.dumps(payload))


async def test_an_answer_is_a_chat_completions_stream() -> None:
    payload = {**ASK, "stream_options": {"include_usage": True}}
    async with FakeProvider([reply("hello", usage=(5, 90, 5, 7))]) as provider:
        response = await post(provider, payload)
    assert response.headers["content-type"] == "text/event-stream"
    *events, last = [line.removeprefix("data: ") for line in response.text.split("\n\n") if line]
    assert last == "[DONE]"
    text, finish, usage = [orjson.loads(event) for event in events]
    assert text["choices"][0]["delta"] == {"content": "hello"}
    assert finish["choices"][0]["finish_reason"] == "stop"
    assert usage["choices"] == []
    assert usage["usage"]["prompt_tokens"] == 100
    assert usage["usage"]["prompt_tokens_details"]["cached_tokens"] == 90


# Mutation: send usage always.
async def test_usage_is_sent_only_to_those_who_ask() -> None:
    async with FakeProvider([reply("hello", usage=(5, 0, 0, 7))]) as provider:
        assert "usage" not in (await post(provider)).text


async def test_what_came_in_is_recorded_with_bytes_and_headers() -> None:
    async with FakeProvider([reply("a")]) as provider:
        await post(provider)
    (request,) = provider.requests
    assert orjson.loads(request.raw) == request.payload == ASK
    assert request.headers["content-length"] == str(len(request.raw))
    assert request.is_answered


async def test_an_error_status_has_openais_error_object_and_the_headers_of_the_step() -> None:
    async with FakeProvider(
        [fail(429, "slow down", code="rate_limit_exceeded", headers={"Retry-After": "7"})]
    ) as provider:
        response = await post(provider)
    assert response.status_code == 429
    assert response.headers["retry-after"] == "7"
    assert response.json()["error"] == {
        "message": "slow down",
        "type": "invalid_request_error",
        "param": None,
        "code": "rate_limit_exceeded",
    }


# Mutation: forget the window.
async def test_a_request_above_the_window_is_refused_and_takes_no_step() -> None:
    large = {**ASK, "messages": [{"role": "user", "content": "x" * 404}]}
    async with FakeProvider([reply("a")], context_window=100) as provider:
        refused = await post(provider, large)
        answered = await post(provider)
    assert refused.status_code == 400
    assert refused.json()["error"]["code"] == "context_length_exceeded"
    assert answered.status_code == 200


async def test_calls_without_results_are_refused() -> None:
    messages = [{"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "function": {"name": "ls"}}]}]
    async with FakeProvider() as provider:
        response = await post(provider, {**ASK, "messages": messages})
    assert response.status_code == 400
    assert "c1" in response.json()["error"]["message"]


@pytest.mark.parametrize(("payload", "path", "status"), [(ASK, "/nowhere", 404), ([], "/chat/completions", 400)])
async def test_what_is_no_request_is_refused(payload: object, path: str, status: int) -> None:
    async with FakeProvider() as provider:
        assert (await post(provider, payload, path)).status_code == status
    assert provider.requests == []


# Mutation: end the body properly in both cases.
async def test_a_cut_ends_the_body_and_a_drop_the_connection() -> None:
    async with FakeProvider([cut(after=2, text="abcd"), cut(after=2, drop=True)]) as provider:
        text = (await post(provider)).text
        with pytest.raises(httpx.RemoteProtocolError):
            await post(provider)
    assert "ab" in text
    assert "[DONE]" not in text
    assert 'finish_reason":"' not in text


# Mutation: do not watch the connection while a step is held.
async def test_a_client_that_leaves_is_noticed_also_while_a_step_is_held() -> None:
    async with FakeProvider([hold(reply("late")), hang()]) as provider:
        with anyio.fail_after(5):
            for number in (1, 2):
                async with anyio.create_task_group() as group:
                    group.start_soon(post, provider)
                    request = await provider.arrived(number)
                    group.cancel_scope.cancel()
                await request.disconnected.wait()
    assert not any(request.is_answered for request in provider.requests)


# Mutation: swallow the fault.
async def test_an_unexpected_request_is_refused_and_fails_the_test_at_its_end() -> None:
    with pytest.raises(AssertionError, match="unexpected request"):
        async with FakeProvider() as provider:
            assert (await post(provider)).status_code == 400


async def test_a_step_that_fails_itself_fails_the_test_at_its_end() -> None:
    def broken(_: object) -> None:
        raise KeyError("mistake in the test")

    with pytest.raises(AssertionError, match="mistake in the test"):
        async with FakeProvider([broken]) as provider:  # type: ignore[list-item]
            await post(provider)


async def test_steps_that_are_left_fail_the_test() -> None:
    with pytest.raises(AssertionError, match="unused"):
        async with FakeProvider([reply("a")]):
            pass


# Mutation: wait at the end for connections that hang.
async def test_leaving_the_block_ends_answers_that_hang() -> None:
    errors: list[httpx.TransportError] = []
    with anyio.fail_after(5):
        async with anyio.create_task_group() as group, FakeProvider([hang(after=1)]) as provider:

            async def ask() -> None:
                with pytest.raises(httpx.TransportError) as caught:
                    await post(provider)
                errors.append(caught.value)

            group.start_soon(ask)
            await provider.arrived(1)
    assert len(errors) == 1


async def test_another_process_is_served() -> None:
    program = (
        "import sys, urllib.request\n"
        "request = urllib.request.Request(sys.argv[1] + '/chat/completions', data=sys.stdin.buffer.read())\n"
        "print(urllib.request.urlopen(request, timeout=5).read().decode())\n"
    )
    async with FakeProvider([reply("from here")]) as provider:
        with anyio.fail_after(20):
            done = await anyio.run_process([sys.executable, "-c", program, provider.base_url], input=orjson.dumps(ASK))
    assert b"from here" in done.stdout


def test_calls_are_numbered_from_zero_on_the_wire_whatever_came_before() -> None:
    first = next(answer_events(call("ls", path="."), RecordedRequest(number=1, payload={}, raw=b""), iter(["c1"])))
    chunk = orjson.loads(first.removeprefix(b"data: "))
    (piece,) = chunk["choices"][0]["delta"]["tool_calls"]
    assert (piece["index"], piece["id"], piece["function"]["name"]) == (0, "c1", "ls")


# Mutation: in `_Incoming.wait_for_more` let the `ConnectionError` out.
async def test_a_client_that_resets_its_connection_is_one_that_left() -> None:
    unhandled: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: unhandled.append(context))
    async with FakeProvider([hang()]) as provider:
        client = socket.socket()
        client.setblocking(False)
        body = orjson.dumps(ASK)
        await asyncio.get_running_loop().sock_connect(client, ("127.0.0.1", provider._server.port))
        head = b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(body)
        await asyncio.get_running_loop().sock_sendall(client, head + body)
        with anyio.fail_after(5):
            request = await provider.arrived(1)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.close()
            await request.disconnected.wait()
            while provider._server._connections:
                await anyio.lowlevel.checkpoint()
    assert unhandled == []
