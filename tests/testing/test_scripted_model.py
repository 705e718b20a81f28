"""The scripted model: a client like any other, only that it is told what to say."""

from dataclasses import replace

import anyio
import pytest

from agent_session.compaction.prompts import SUMMARY_SYSTEM_PROMPT, prefix_prompt
from agent_session.errors import ContextOverflowError, ModelError
from agent_session.llm.builder import MessageBuilder
from agent_session.llm.client import ModelClient, ModelRequest, ToolDefinition
from agent_session.testing import ScriptedModel, Step, call, cut, fail, hang, hold, reply, stop, stream_error
from session_store.messages import AssistantMessage, Message, ToolCall, UserMessage, as_content


def request_for(model: ScriptedModel, *messages: Message, silence_seconds: float = 300.0) -> ModelRequest:
    messages = messages or (UserMessage(content=as_content("hi")),)
    return ModelRequest(model=model.model, messages=messages, silence_seconds=silence_seconds)


async def asked(model: ScriptedModel, request: ModelRequest | None = None) -> AssistantMessage:
    client: ModelClient = model
    request = request or request_for(model)
    builder = MessageBuilder(request, client.api)
    with anyio.fail_after(5):
        async with client.stream(client.prepare(request)) as events:
            async for event in events:
                builder.add(event)
    assert builder.finish is not None
    return builder.message()


async def test_it_answers_from_its_script_and_records_what_it_was_asked() -> None:
    async with ScriptedModel([reply("hello", thinking="hm", usage=(1, 2, 3, 4)), call("bash", command="ls")]) as model:
        first = await asked(model)
        second = await asked(model)
    assert (first.text, first.usage.total_tokens) == ("hello", 10)
    assert [(made.name, made.arguments) for made in second.tool_calls] == [("bash", {"command": "ls"})]
    assert second.stop_reason == "toolUse"
    assert [request.last_user_text for request in model.requests] == ["hi", "hi"]
    assert model.requests[0].request is not None
    assert not model.requests[0].disconnected.is_set()


# Mutation: refuse nothing.
async def test_a_request_larger_than_its_window_is_refused_as_a_provider_refuses_it() -> None:
    async with ScriptedModel([reply("fits")], context_window=100) as model:
        with pytest.raises(ContextOverflowError) as caught:
            await asked(model, request_for(model, UserMessage(content=as_content("x" * 404))))
        await asked(model, request_for(model, UserMessage(content=as_content("x" * 400))))
    assert (caught.value.limit, caught.value.requested) == (100, 101)
    assert model.model.context_window == 100


# Mutation: take calls without results.
async def test_calls_without_results_are_refused_as_a_provider_refuses_them() -> None:
    async with ScriptedModel() as model:
        with pytest.raises(ModelError) as caught:
            await asked(model, request_for(model, AssistantMessage(content=(ToolCall("c", "ls", {}),))))
    assert caught.value.kind == "pairing"


@pytest.mark.parametrize(
    ("step", "kind"),
    [
        (fail(503, "down"), "server"),
        (fail(429, "slow", headers={"Retry-After": "9"}), "rate"),
        (fail(400, body={"error": {"message": "x", "raw": '{"message": "prompt is too long"}'}}), "overflow"),
        (cut(after=2), "stream_cut"),
        (cut(after=0, drop=True), "stream_cut"),
        (stream_error({"error": {"message": "prompt is too long"}}), "overflow"),
        (stop("length"), None),
    ],
)
async def test_a_failure_is_raised_as_a_real_client_raises_it(step: Step, kind: str | None) -> None:
    async with ScriptedModel([step]) as model:
        if kind is None:
            assert (await asked(model)).stop_reason == "length"
            return
        with pytest.raises(ModelError) as caught:
            await asked(model)
    assert caught.value.kind == kind


async def test_silence_ends_at_the_requests_own_limit() -> None:
    async with ScriptedModel([hang(after=1)]) as model:
        with pytest.raises(ModelError) as caught:
            await asked(model, request_for(model, silence_seconds=0.01))
    assert caught.value.kind == "silence"


# Mutation: know the summariser by its system prompt only, or only by its instruction; or by it in any message.
async def test_the_summarisers_requests_are_answered_from_their_own_list() -> None:
    tool = ToolDefinition(name="ls", description="List", parameters={"type": "object"})
    async with ScriptedModel([reply("answer")], summaries=[reply("first"), reply("second")]) as model:
        plain = request_for(model)
        live = replace(plain, tools=(tool,))
        instruction = UserMessage(content=as_content(prefix_prompt(kept_from="")))
        texts = [
            (await asked(model, replace(plain, system_prompt=SUMMARY_SYSTEM_PROMPT))).text,
            (await asked(model, replace(live, messages=(*live.messages, instruction)))).text,
            (await asked(model, replace(live, messages=(instruction, *live.messages)))).text,
        ]
    assert texts == ["first", "second", "answer"]
    assert [request.is_summary for request in model.requests] == [True, True, False]


# Mutation: never set `disconnected`.
async def test_a_cancelled_request_is_seen_as_a_client_that_left() -> None:
    held = hold(reply("late"))
    async with ScriptedModel([held]) as model:
        with anyio.fail_after(5):
            async with anyio.create_task_group() as group:
                group.start_soon(asked, model)
                await held.started.wait()
                group.cancel_scope.cancel()
    assert model.requests[0].disconnected.is_set()


# Mutation: check nothing when the block ends.
async def test_a_script_that_was_not_used_up_fails_the_test() -> None:
    with pytest.raises(AssertionError, match="unused"):
        async with ScriptedModel([reply("one")]):
            pass


# Mutation: check also then.
async def test_an_error_of_the_test_is_not_hidden_behind_the_script() -> None:
    with pytest.raises(ValueError, match="mine"):
        async with ScriptedModel([reply("one")]):
            raise ValueError("mine")


async def test_an_unexpected_request_fails_where_it_is_made() -> None:
    model = ScriptedModel()
    with pytest.raises(AssertionError, match="unexpected request"):
        await asked(model)
    with pytest.raises(AssertionError, match="unexpected request"):
        model.assert_done()
