"""The chat-completions client over real HTTP on 127.0.0.1."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio
import orjson
import pytest

from agent_session.errors import ModelError
from agent_session.llm.client import Finish, ModelRequest, PreparedRequest, TextDelta
from agent_session.llm.openai_compatible import OpenAICompatibleClient
from agent_session.models import Model
from agent_session.testing import FakeProvider, fail, reply, stop
from agent_session.testing.http_server import Exchange
from session_store.messages import UserMessage, as_content
from tests.llm.clients import KEY, asked, refused, served, streaming

MODEL = Model("openai/scripted")


def request_for(text: str = "hi", *, model: Model = MODEL, **fields: object) -> ModelRequest:
    return ModelRequest(model=model, messages=(UserMessage(content=as_content(text)),), **fields)  # type: ignore[arg-type]


@asynccontextmanager
async def client_of(handler: Callable[[Exchange], Awaitable[None]]) -> AsyncIterator[OpenAICompatibleClient]:
    """A client for a server that answers with bytes."""
    async with served(handler) as address:
        client = OpenAICompatibleClient(address)
        yield client
        await client.aclose()


def chunk(text: str = "", *, finish: str | None = None) -> bytes:
    return b"data: " + orjson.dumps({"choices": [{"delta": {"content": text}, "finish_reason": finish}]}) + b"\n\n"


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
        first = await asked(provider.client, request_for())
        second = await asked(provider.client, request_for())
    assert (first.text, second.text) == ("a", "b")
    assert first.usage.estimated
    assert ["stream_options" in request.payload for request in provider.requests] == [True, False, False]


# Mutation: send again after any 400.
async def test_any_other_bad_request_is_not_sent_again() -> None:
    async with FakeProvider([fail(400, "no such tool")]) as provider:
        assert (await refused(provider.client, request_for())).kind == "bad_request"
    assert len(provider.requests) == 1


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
    async with client_of(streaming(chunk("so far"), event)) as client:
        texts: list[str] = []
        with anyio.fail_after(5), pytest.raises(ModelError) as caught:  # noqa: PT012 - it is raised while iterating
            async with client.stream(client.prepare(request_for())) as events:
                async for seen in events:
                    assert isinstance(seen, TextDelta)
                    texts.append(seen.text)
    assert texts == ["so far"]
    assert caught.value.kind == kind


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
    async with client_of(streaming(*pieces)) as client:
        assert (await asked(client, request_for())).text == "all"


# Mutation: keep the log's word in the place of the provider's.
async def test_the_providers_own_finish_reason_is_kept() -> None:
    async with (
        FakeProvider([stop("foo", text="x")]) as provider,
        provider.client.stream(provider.client.prepare(request_for())) as events,
    ):
        with anyio.fail_after(5):
            *_, last = [event async for event in events]
    assert last == Finish("stop", "foo")


async def test_a_lone_surrogate_in_a_message_is_sent_as_the_replacement_character() -> None:
    async with FakeProvider([reply("ok")]) as provider:
        await asked(provider.client, request_for("a\ud83db"))
    assert provider.requests[0].last_user_text == "a\ufffdb"
