"""What is asked of a model: its limits, its key, its patience, and what becomes of a client that misbehaves."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from agent_session import (
    AgentSession,
    ContextCannotFitError,
    Model,
    ModelRequestError,
    Settings,
    TextDelta,
    Tool,
    ToolResult,
    Warning,
)
from agent_session.llm.client import Finish, PreparedRequest, StreamEvent
from agent_session.testing import ScriptedModel, always, fail, reply
from session_store import AssistantMessage, SessionManager
from tests.session.scene import scene, texts, words

SMALL = Model("scripted/model", context_window=2_000, max_output_tokens=1_500)


def opened(model: ScriptedModel, tmp_path: Path, **options: Any) -> AgentSession:
    manager = SessionManager.in_memory(tmp_path)
    arguments: dict[str, Any] = {"tools": [], "system_prompt": "Answer.", **options}
    return AgentSession(SMALL, session_manager=manager, client=model, cwd=tmp_path, **arguments)


async def test_the_output_that_is_asked_for_is_what_is_left_of_the_window(tmp_path: Path) -> None:
    # Mutation: in `build_request` ask for the model's own most.
    async with ScriptedModel([reply("one"), reply("two")]) as model, opened(model, tmp_path) as session:
        await session.prompt("short")
        await session.prompt(words(1_000))
        most = [recorded.request.max_output_tokens for recorded in model.requests if recorded.request is not None]
        assert most[0] == SMALL.max_output_tokens
        assert most[1] is not None
        assert most[1] + session.context_usage().tokens <= 2_000


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_key_is_resolved_anew_for_each_request(tmp_path: Path, is_async: bool) -> None:
    # Mutation: in `ModelState.api_key` remember the first; in `build_request` leave it out.
    keys = iter(["first", "second"])

    async def later() -> str:
        return next(keys)

    given: Callable[[], str | Awaitable[str]] = later if is_async else lambda: next(keys)
    async with ScriptedModel([reply("one"), reply("two")]) as model, opened(model, tmp_path, api_key=given) as session:
        await session.prompt("go")
        await session.prompt("go on")
        assert [recorded.request.api_key for recorded in model.requests if recorded.request] == ["first", "second"]


async def test_the_patience_with_a_silent_stream_is_the_setting(tmp_path: Path) -> None:
    # Mutation: in `build_request` leave `silence_seconds` out; in `Summarizer._call` take the session's.
    settings = Settings().merged({"retry": {"silence_seconds": 7.0}, "compaction": {"summary_silence_seconds": 3.0}})
    steps = [reply(words(100)) for _ in range(3)]
    model = ScriptedModel(steps, summaries=[always(reply("## Goal\nGo on."))])
    async with model, opened(model, tmp_path, settings=settings) as session:
        for _ in range(3):
            await session.prompt(words(100))
        assert (await session.compact()).status == "applied"
        patience = [recorded.request.silence_seconds for recorded in model.requests if recorded.request]
        assert patience[:3] == [7.0, 7.0, 7.0]
        assert set(patience[3:]) == {3.0}


async def test_a_system_prompt_and_tools_that_leave_no_room_are_said_before_the_request(tmp_path: Path) -> None:
    # Mutation: in `Run._check` do not raise; in `budget_for` leave `is_overhead_too_large` False.
    async def execute(arguments: Any, context: Any) -> ToolResult:
        return ToolResult("done")

    large = Tool("large", words(1_500), {"type": "object", "properties": {}}, execute)
    async with scene(tmp_path, [reply("now it fits")], tools=[large]) as stage:
        with pytest.raises(ContextCannotFitError, match="leave no room") as caught:
            await stage.session.prompt("go")
        assert caught.value.limit == 1_000
        assert "tool definitions" in str(caught.value.largest_items)
        assert stage.provider.requests == []
        assert stage.outcomes == []
        stage.check_whole()
        stage.session.set_active_tools([])
        assert str(await stage.session.prompt("and now?")) == "now it fits"


async def test_a_reserve_that_leaves_no_room_is_set_aside_with_one_warning(tmp_path: Path) -> None:
    # Mutation: in `Run._check` leave the budget's warning out, or tell it at each check.
    async with scene(tmp_path, [reply("one"), reply("two")], reserve=5_000) as stage:
        await stage.session.prompt("go")
        await stage.session.prompt("go on")
        (warning,) = stage.of(Warning)
        assert "reserve" in warning.text
        assert stage.session.context_usage().threshold == 750


async def test_a_limit_that_an_error_named_only_ever_falls_and_belongs_to_its_model(tmp_path: Path) -> None:
    # Mutation: in `ModelState.learn_limit` take the last one; in `select` keep it.
    def refusal(limit: int) -> Any:
        return fail(
            400, f"This model's maximum context length is {limit} tokens. However, you requested {limit + 200} tokens."
        )

    steps = [
        *(reply(words(60)) for _ in range(3)),
        *(refusal(900), reply(words(60)), reply(words(60)), refusal(5_000), reply(words(60))),
    ]
    async with scene(tmp_path, steps, window=8_000) as stage:
        for _ in range(3):
            await stage.session.prompt(words(60))
        await stage.session.prompt(words(60))
        assert stage.session.context_usage().threshold == 800
        await stage.session.prompt(words(60))
        await stage.session.prompt(words(60))
        assert stage.session.context_usage().threshold == 800
        await stage.session.set_model(Model("openai/other", context_window=8_000))
        assert stage.session.context_usage().threshold == 7_500


# Clients of somebody else's ---------------------------------------------------------------------


class OwnClient:
    """A client that plays events, or raises."""

    api = "own"

    def __init__(self, *events: StreamEvent, error: Exception | None = None) -> None:
        self._events = events
        self._error = error

    def prepare(self, request: Any) -> PreparedRequest:
        return PreparedRequest(request=request, payload={})

    @asynccontextmanager
    async def stream(self, prepared: PreparedRequest) -> AsyncIterator[AsyncIterator[StreamEvent]]:
        async def play() -> AsyncIterator[StreamEvent]:
            for event in self._events:
                await anyio.lowlevel.checkpoint()
                yield event
            if self._error is not None:
                raise self._error

        yield play()

    async def aclose(self) -> None:
        pass


async def test_a_client_that_raises_what_it_should_not_is_a_failed_attempt_in_the_log(tmp_path: Path) -> None:
    # Mutation: in `ask_model` let such an exception through.
    client: Any = OwnClient(TextDelta(0, "half"), error=KeyError("tokens"))
    async with opened(client, tmp_path) as session:
        with pytest.raises(ModelRequestError, match="KeyError") as caught:
            await session.prompt("go")
        assert isinstance(caught.value.__cause__, KeyError)
        assert caught.value.message is not None
        assert caught.value.message.stop_reason == "error"
        assert session.is_idle
        assert texts(session.messages) == ["go"]


async def test_a_stream_without_its_final_event_is_no_answer(tmp_path: Path) -> None:
    # Mutation: in `ask_model` take the end of the stream for the end of the answer.
    client: Any = OwnClient(TextDelta(0, "half"))
    async with opened(client, tmp_path, settings=Settings().merged({"retry": {"max_retries": 0}})) as session:
        with pytest.raises(ModelRequestError) as caught:
            await session.prompt("go")
        assert caught.value.kind == "stream_cut"
        assert texts(session.messages) == ["go"]


async def test_an_answer_says_which_wire_format_and_model_it_came_by(tmp_path: Path) -> None:
    # Mutation: in `ask_model` build the message without the client's `api`.
    client: Any = OwnClient(TextDelta(0, "whole"), Finish("stop", "stop"))
    async with opened(client, tmp_path) as session:
        message = await session.prompt("go")
        assert isinstance(message, AssistantMessage)
        assert (message.api, message.provider, message.model) == ("own", "scripted", "model")
