"""Every client beside every format it speaks, for tests of what they have in common."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import anyio
import pytest

from agent_session import AnthropicClient, LiteLLMClient, Model, ModelClient, ModelRequest, OpenAICompatibleClient
from agent_session.errors import ModelError
from agent_session.llm.builder import MessageBuilder
from agent_session.testing.http_server import Exchange, HttpServer
from session_store.messages import AssistantMessage, UserMessage, as_content

KEY = "sk-of-the-test-1234567890"

# The first request of all imports litellm, on a machine that may be busy.
SECONDS = 60


@dataclass(frozen=True, kw_only=True)
class Speaker:
    """A client and a model that it asks in one format. `connect(base_url, key)` makes the client."""

    name: str
    model: Model
    connect: Callable[[str | None, str | None], ModelClient]

    def request(self, text: str = "hi", **fields: object) -> ModelRequest:
        messages = (UserMessage(content=as_content(text)),)
        return ModelRequest(**{"model": self.model, "messages": messages, "max_output_tokens": 4_096, **fields})  # type: ignore[arg-type]


SPEAKERS = [
    Speaker(name="chat", model=Model("openai/scripted"), connect=OpenAICompatibleClient),
    Speaker(name="messages", model=Model("anthropic/claude-sonnet-4-5"), connect=AnthropicClient),
    Speaker(name="litellm-chat", model=Model("openai/scripted"), connect=LiteLLMClient),
    Speaker(name="litellm-messages", model=Model("anthropic/claude-sonnet-4-5"), connect=LiteLLMClient),
]


async def asked(client: ModelClient, request: ModelRequest) -> AssistantMessage:
    """The answer to one request, as a message."""
    builder = MessageBuilder(request, client.api)
    with anyio.fail_after(SECONDS):
        async with client.stream(client.prepare(request)) as events:
            async for event in events:
                builder.add(event)
    assert builder.finish is not None
    return builder.message()


async def refused(client: ModelClient, request: ModelRequest) -> ModelError:
    """The error that a request ended with."""
    with pytest.raises(ModelError) as caught:
        await asked(client, request)
    return caught.value


@asynccontextmanager
async def served(handler: Callable[[Exchange], Awaitable[None]]) -> AsyncIterator[str]:
    """The address of a server that answers with bytes."""
    server = HttpServer(handler)
    await server.start()
    try:
        yield f"http://127.0.0.1:{server.port}/v1"
    finally:
        with anyio.move_on_after(2, shield=True):
            await server.stop()


def streaming(*pieces: bytes, content_type: str = "text/event-stream") -> Callable[[Exchange], Awaitable[None]]:
    """A handler that sends these pieces and ends."""

    async def handle(exchange: Exchange) -> None:
        await exchange.begin({"content-type": content_type})
        for piece in pieces:
            await exchange.write(piece)
        await exchange.end()

    return handle
