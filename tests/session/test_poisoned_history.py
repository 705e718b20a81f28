"""Histories that providers refuse: whatever is in the log, the next request is in order, and the log stays as it is.

The fake provider refuses what a real one of its format refuses (`testing.request_rules`, `testing.messages_rules`).
"""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from agent_session import (
    AgentSession,
    CompactionSummaryMessage,
    Finish,
    Model,
    ModelRequestError,
    Settings,
    TextDelta,
    ToolCallDelta,
    ToolResult,
    UserMessage,
    Warning,
    tool,
)
from agent_session.hooks import ReplacedMessages
from agent_session.llm.client import PreparedRequest, StreamEvent
from agent_session.llm.handover import BEGINNING, CONTINUE
from agent_session.llm.litellm_payload import litellm_payload
from agent_session.testing import FakeProvider, Step, always, calls, fail, reply
from session_store import (
    AssistantMessage,
    Content,
    ImageContent,
    SessionManager,
    TextContent,
    ThinkingContent,
    ToolCall,
    ToolResultMessage,
)
from session_store.entries import CompactionEntry
from tests.pictures import png
from tests.session.scene import SUMMARY, fill, filled, scene, texts, words

CLAUDE = Model("anthropic/claude-sonnet-4-5", context_window=200_000, max_output_tokens=8_000)
GPT = Model("openai/scripted", context_window=200_000)


@tool
def look(at: str) -> str:
    """Look at something."""
    return words(40, f"seen {at}")


def said(text: str) -> UserMessage:
    return UserMessage(content=(TextContent(text),))


def answered(*content: Content, model: Model = GPT, api: str = "openai-completions") -> AssistantMessage:
    return AssistantMessage(content=content, api=api, provider=model.provider, model=model.name, stop_reason="stop")


def seen(call_id: str, text: str = "seen") -> ToolResultMessage:
    return ToolResultMessage(tool_call_id=call_id, tool_name="look", content=(TextContent(text),))


@asynccontextmanager
async def session_on(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    model: Model,
    steps: Sequence[Step],
    *messages: Any,
    summaries: Sequence[Step] = (always(reply(SUMMARY)),),
    **options: Any,
) -> AsyncIterator[tuple[AgentSession, FakeProvider]]:
    """A session over a log that holds `messages`, on a provider that speaks to every model in its own format."""
    manager = SessionManager.create(tmp_path, session_dir=tmp_path / "sessions")
    for message in messages:
        manager.append_message(message)
    async with FakeProvider(steps, summaries=summaries) as provider:
        for name in ("OPENAI", "ANTHROPIC"):
            monkeypatch.setenv(f"{name}_BASE_URL", provider.base_url)
            monkeypatch.setenv(f"{name}_API_KEY", "scripted-key")
        arguments: dict[str, Any] = {
            "tools": [look],
            "settings": Settings().merged({"retry": {"max_retries": 0}}),
            "system_prompt": "Answer.",
        }
        async with AgentSession(model, session_manager=manager, cwd=tmp_path, **{**arguments, **options}) as session:
            yield session, provider


def blocks(provider: FakeProvider, kind: str, number: int = -1) -> list[dict[str, Any]]:
    """Of the messages of a request in Anthropic's format, the blocks of one type."""
    messages = provider.requests[number].payload["messages"]
    return [block for message in messages for block in message["content"] if block["type"] == kind]


# Calls and results ----------------------------------------------------------------------------------


async def test_a_result_without_its_call_is_dropped_from_requests_with_one_warning(tmp_path: Path) -> None:
    # Mutation: in `ContextMeter.context` build the context without telling of repairs; in `_Pairing` send orphans.
    manager = SessionManager.create(tmp_path, session_dir=tmp_path / "sessions")
    for message in (said("go"), seen("gone"), answered(TextContent("hm"))):
        manager.append_message(message)
    async with scene(tmp_path, [reply("one"), reply("two")], manager=manager) as stage:
        for prompt in ("and?", "and now?"):
            await stage.session.prompt(prompt)
        assert [message["role"] for message in stage.chat_requests[0].messages] == [
            "system",
            "user",
            "assistant",
            "user",
        ]
        assert len([event for event in stage.of(Warning) if "gone" in event.text]) == 1
        assert len(stage.lines("message")) == 7


async def test_a_call_that_waits_for_an_approval_is_answered_before_anything_is_summarised(tmp_path: Path) -> None:
    # Mutation: in `Run._until_stopped` deliver what steers before the results; in `SessionCore.compact` do not wait.
    asked, approved = anyio.Event(), anyio.Event()

    @tool
    async def deploy() -> str:
        """Ask a person, then deploy."""
        asked.set()
        await approved.wait()
        return "deployed"

    steps = [*filled(), calls([("deploy", {})]), reply("done")]
    async with scene(tmp_path, steps, window=8_000, keep=80, tools=[deploy]) as stage:
        await fill(stage)
        with anyio.fail_after(5):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(stage.session.prompt, "deploy it")
                await asked.wait()
                for number in range(10):
                    stage.session.steer(f"later {number}")

                async def compact() -> None:
                    assert (await stage.session.compact(interrupt=False)).status == "applied"

                tasks.start_soon(compact)
                await anyio.wait_all_tasks_blocked()
                assert stage.compactions == []
                approved.set()
        context = texts(stage.session.messages)
        assert "later 9" in "\n".join(context)
        roles = [line["message"]["role"] for line in stage.lines("message")][-13:]
        assert roles == ["assistant", "toolResult", *["user"] * 10, "assistant"]
        assert len(stage.compactions) == 1
        summarised = stage.summary_requests[-1].last_user_text
        assert "deployed" in summarised + "\n".join(context)


async def test_a_compaction_that_does_not_wait_ends_the_waiting_call_and_the_next_request_is_in_order(
    tmp_path: Path,
) -> None:
    # Mutation: in `Run.execute` leave `answer_open_calls` out; in `find_cut` allow a cut behind the last batch.
    asked = anyio.Event()

    @tool
    async def deploy() -> str:
        """Ask a person, then deploy."""
        asked.set()
        await anyio.sleep_forever()
        return "deployed"

    steps = [*filled(), calls([("deploy", {})]), reply("fine")]
    async with scene(tmp_path, steps, window=8_000, keep=80, tools=[deploy]) as stage:
        await fill(stage)
        with anyio.fail_after(5):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(stage.session.prompt, "deploy it")
                await asked.wait()
                assert (await stage.session.compact()).status == "applied"
            assert str(await stage.session.prompt("what now?")) == "fine"
        results = [message for message in stage.session.messages if isinstance(message, ToolResultMessage)]
        assert [result.is_error for result in results] == [True]


# Odd starts and ends --------------------------------------------------------------------------------

BATCH = (ToolCall("call_1", "look", {"at": "a"}), ToolCall("call_1", "look", {"at": "b"}))
ODD: dict[str, list[Any]] = {
    "begins with an answer": [answered(TextContent("Hello.")), said("hm"), answered(TextContent("So."))],
    "two answers in a row": [said("go"), answered(TextContent("One.")), answered(TextContent("Two."))],
    "only answers that say nothing": [answered(TextContent(" ")), answered(ThinkingContent("hm"))],
    "empty and blank messages": [said(""), UserMessage(content=()), answered(TextContent(""), TextContent("x"))],
    "an id twice": [said("go"), answered(*BATCH), seen("call_1"), seen("call_1"), answered(BATCH[0]), seen("call_1")],
    "an unanswered call": [said("go"), answered(*BATCH), said("never mind")],
    "a call without id or name": [said("go"), answered(ToolCall("", "", {})), seen("")],
    "a result of nothing": [said("go"), answered(BATCH[0]), seen("call_1", "")],
    "a result that comes late": [said("go"), answered(BATCH[0]), said("wait"), seen("call_1")],
    "a result that comes twice": [said("go"), answered(BATCH[0]), seen("call_1"), seen("call_1")],
}


@pytest.mark.parametrize("model", [GPT, CLAUDE], ids=lambda model: model.provider)
@pytest.mark.parametrize("name", ODD)
async def test_an_odd_history_is_taken_by_every_provider(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: Model, name: str
) -> None:
    # Mutation: in `request_building.prepare` hand the messages on as they are.
    async with session_on(tmp_path, monkeypatch, model, [reply("fine"), reply("again")], *ODD[name]) as (session, _):
        before = session.path.read_bytes() if session.path is not None else b""
        assert str(await session.prompt("and now?")) == "fine"
        assert str(await session.prompt("and then?")) == "again"
        assert session.path is not None
        assert session.path.read_bytes().startswith(before)


@pytest.mark.parametrize("model", [GPT, CLAUDE], ids=lambda model: model.provider)
async def test_what_a_handler_made_of_the_context_is_put_in_order_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: Model
) -> None:
    # Mutation: in `prepare` put the context in order before the handlers see it.
    def setup(api: Any) -> None:
        @api.on("context")
        def only_the_calls(event: Any) -> ReplacedMessages:
            return ReplacedMessages(
                messages=tuple(message for message in event.messages if isinstance(message, AssistantMessage))
            )

    steps = [calls([("look", {"at": "a"})], text="I look."), reply("fine")]
    async with session_on(tmp_path, monkeypatch, model, steps, extensions=[setup]) as (session, provider):
        assert str(await session.prompt("go")) == "fine"
    assert provider.requests[0].last_user_text == CONTINUE
    first, second = [message for message in provider.requests[1].messages if message["role"] != "system"][:2]
    assert (first["role"], second["role"]) == ("user", "assistant")
    assert BEGINNING in provider.requests[1].text


async def test_answers_that_failed_are_in_the_log_and_in_no_request(tmp_path: Path) -> None:
    # Mutation: in `is_sent` send answers that failed.
    steps: list[Step] = [*[fail(500, "broken")] * 5, reply("fine")]
    async with scene(tmp_path, steps, retry={"max_retries": 0}) as stage:
        for number in range(5):
            with pytest.raises(ModelRequestError):
                await stage.session.prompt(f"try {number}")
        assert str(await stage.session.prompt("try again")) == "fine"
        assert [message["role"] for message in stage.chat_requests[-1].messages] == ["system", *["user"] * 6]
        assert len([line for line in stage.lines("message") if line["message"]["role"] == "assistant"]) == 6


# Thinking and signatures ---------------------------------------------------------------------------


async def test_signed_thinking_goes_back_unchanged_before_and_after_a_compaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Mutation: in `messages_payload` leave thinking out; in `hand_over` treat own answers like others.
    steps = [
        reply(words(60, "first"), thinking="begin"),
        calls([("look", {"at": "a"})], thinking="where to look"),
        reply("looked", thinking="seen it"),
        calls([("look", {"at": "b"})], thinking="once more"),
        reply("done", thinking="all seen"),
    ]
    options: dict[str, Any] = {"thinking_level": "low"}
    async with session_on(tmp_path, monkeypatch, CLAUDE, steps, **options) as (session, provider):
        await session.prompt(words(60, "go"))
        await session.prompt("look")
        assert [block["thinking"] for block in blocks(provider, "thinking")] == ["begin", "where to look"]
        assert (await session.compact(keep_recent_tokens=60)).status == "applied"
        assert str(await session.prompt("look again")) == "done"
        kept = [block["thinking"] for block in blocks(provider, "thinking")]
        assert kept[-2:] == ["seen it", "once more"]
        assert "begin" not in kept


async def test_an_answer_whose_call_was_never_answered_keeps_its_thinking_and_gets_a_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Mutation: in `_Pairing` drop calls without a result instead.
    steps = [reply("begun", thinking="first thought"), reply("fine")]
    options: dict[str, Any] = {"thinking_level": "low"}
    async with session_on(tmp_path, monkeypatch, CLAUDE, steps, **options) as (session, provider):
        await session.prompt("go")
        thought = session.messages[-1]
        assert isinstance(thought, AssistantMessage)
        call = ToolCall("toolu_1", "look", {"at": "a"})
        session.session_manager.append_message(answered(*thought.content, call, model=CLAUDE, api=thought.api))
        session.session_manager.append_message(said("never mind"))
        assert str(await session.prompt("and now?")) == "fine"
        assert [block["thinking"] for block in blocks(provider, "thinking")] == ["first thought"] * 2
        assert [block["tool_use_id"] for block in blocks(provider, "tool_result")] == ["toolu_1"]


async def test_another_models_thinking_signatures_and_ids_are_in_none_of_its_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Mutation: in `is_own` compare the provider alone.
    steps = [
        calls([("look", {"at": "a"})], thinking="the first model's"),
        reply("looked", thinking="its second thought"),
        reply("from another"),
        reply("from a third", thinking="the third's own"),
        reply("back"),
    ]
    options: dict[str, Any] = {"thinking_level": "low"}
    long_id = "toolu|" + "x" * 80
    history = [said("before"), answered(ToolCall(long_id, "look", {"at": "z"}), model=CLAUDE), seen(long_id)]
    async with session_on(tmp_path, monkeypatch, CLAUDE, steps, *history, **options) as (session, provider):
        await session.prompt("look")
        before = session.path.read_bytes() if session.path is not None else b""
        await session.set_model(GPT)
        assert str(await session.prompt("and you?")) == "from another"
        await session.set_model(Model("anthropic/claude-opus-4-5", context_window=200_000))
        assert str(await session.prompt("and you?")) == "from a third"
        for number in (2, 3):
            assert b"signed-" not in provider.requests[number].raw
            assert b"thought" not in provider.requests[number].raw
            assert long_id.encode() not in provider.requests[number].raw
        await session.set_model(CLAUDE)
        assert str(await session.prompt("and you?")) == "back"
        # The log was never touched: the first model gets its own back.
        assert [block["thinking"] for block in blocks(provider, "thinking")] == [
            "the first model's",
            "its second thought",
        ]
        assert session.path is not None
        assert session.path.read_bytes().startswith(before)


async def test_what_the_summariser_thought_is_neither_in_the_log_nor_in_the_context(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Mutation: store the summariser's answer instead of its text.
    steps = [*filled(), reply("fine")]
    summaries = [always(reply(SUMMARY, thinking="opaque reasoning"))]
    async with session_on(tmp_path, monkeypatch, CLAUDE, steps, summaries=summaries) as (session, provider):
        for number in range(3):
            await session.prompt(words(60, f"question {number}"))
        assert (await session.compact(keep_recent_tokens=60)).status == "applied"
        await session.prompt("and now?")
        assert session.path is not None
        assert b"opaque reasoning" not in session.path.read_bytes()
        assert b"opaque reasoning" not in provider.requests[-1].raw
        assert b"signed-" not in session.path.read_bytes()


class DemandsSignatures:
    """A client of a provider that gives each call a signature and refuses the call without it, as Gemini does."""

    api = "litellm"

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []

    def prepare(self, request: Any) -> PreparedRequest:
        return PreparedRequest(request=request, payload=litellm_payload(request))

    @asynccontextmanager
    async def stream(self, prepared: PreparedRequest) -> AsyncIterator[AsyncIterator[StreamEvent]]:
        self.requests.append(prepared.payload)
        messages = prepared.payload["messages"]
        for call in (call for message in messages for call in message.get("tool_calls", ())):
            if call.get("provider_specific_fields") != {"thought_signature": "c2lnbmVk+/="}:
                raise ModelRequestError("function call is missing a thought_signature", kind="pairing")
        events: list[StreamEvent] = [TextDelta(0, SUMMARY), Finish("stop", "stop")]
        if messages[-1]["role"] == "user" and messages[-1]["content"] == "look":
            call = ToolCallDelta(0, "call_1", "look", '{"at": "a"}', thought_signature="c2lnbmVk+/=")
            events = [call, Finish("toolUse", "tool_calls")]

        async def play() -> AsyncIterator[StreamEvent]:
            for event in events:
                await anyio.lowlevel.checkpoint()
                yield event

        yield play()

    async def aclose(self) -> None:
        pass


async def test_the_signature_of_a_call_survives_a_reload_and_is_not_needed_for_a_summary(tmp_path: Path) -> None:
    # Mutation: leave `thoughtSignature` out of the log; send tool blocks to the summariser.
    model = Model("gemini/gemini-3-pro", context_window=8_000)
    manager = SessionManager.create(tmp_path, session_dir=tmp_path / "sessions")
    path = manager.path
    assert path is not None
    client: Any = DemandsSignatures()
    options: dict[str, Any] = {"client": client, "tools": [look], "cwd": tmp_path, "system_prompt": "Answer."}
    async with AgentSession(model, session_manager=manager, **options) as session:
        await session.prompt("look")
    async with AgentSession(model, session_manager=SessionManager.open(path), **options) as session:
        assert str(await session.prompt("and now?")) == SUMMARY
        assert (await session.compact(keep_recent_tokens=1)).status == "applied"
        assert all("tool_calls" not in message for message in client.requests[-1]["messages"])
        assert str(await session.prompt("go on")) == SUMMARY


# Tools that are not declared ------------------------------------------------------------------------


async def test_calls_of_the_past_go_as_text_where_no_tool_is_declared_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Mutation: in `prepare` do not say whether tools are declared.
    steps = [calls([("look", {"at": "a"})], text="I look."), reply("seen"), reply("fine")]
    async with session_on(tmp_path, monkeypatch, CLAUDE, steps) as (session, provider):
        await session.prompt("look")
        session.set_active_tools([])
        assert str(await session.prompt("and now?")) == "fine"
        assert "tools" not in provider.requests[-1].payload
        assert blocks(provider, "tool_use") == blocks(provider, "tool_result") == []
        assert "seen a" in provider.requests[-1].text


async def test_the_summariser_of_a_strict_provider_gets_no_tool_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Mutation: give the summariser the messages as they are.
    steps = [calls([("look", {"at": name}) for name in "abc"], text="I look."), reply(words(60, "seen"))]
    async with session_on(tmp_path, monkeypatch, CLAUDE, steps) as (session, provider):
        await session.prompt(words(60, "look"))
        assert (await session.compact(keep_recent_tokens=1)).status == "applied"
        (summary,) = [request for request in provider.requests if request.is_summary]
        assert "tools" not in summary.payload
        assert {block["type"] for block in summary.payload["messages"][0]["content"]} == {"text"}
        assert "seen b" in summary.text


# Boundaries and branches ----------------------------------------------------------------------------


async def test_a_boundary_on_another_branch_brings_nothing_back(tmp_path: Path) -> None:
    # Mutation: in `Projection._read` keep all of the path where the boundary is not on it.
    manager = SessionManager.create(tmp_path, session_dir=tmp_path / "sessions")
    root = manager.append_message(said("root"))
    foreign = manager.append_message(said("on another branch"))
    manager.branch(root.id)
    for number in range(5):
        manager.append_message(said(f"old {number}"))
    last = manager.append_message(answered(TextContent("old answer")))
    line = manager.append_compaction("what was", last.id, 10)
    path = manager.path
    assert path is not None
    manager.close()
    whole = path.read_text()
    assert whole.count(f'"firstKeptEntryId":"{last.id}"') == 1
    path.write_text(whole.replace(f'"firstKeptEntryId":"{last.id}"', f'"firstKeptEntryId":"{foreign.id}"'))
    async with scene(tmp_path, [reply("fine")], manager=SessionManager.open(path)) as stage:
        assert str(await stage.session.prompt("go on")) == "fine"
        assert stage.compactions[0].id == line.id
        shown = stage.chat_requests[0].text
        assert "what was" in shown
        assert "old" not in shown
        assert "another branch" not in shown


async def test_a_branch_that_leaves_between_two_compactions_has_the_first_summary_whole(tmp_path: Path) -> None:
    # Mutation: in `Projection._read` take the newest compaction of the file instead of that of the path.
    steps = [reply(words(60, f"answer {number}")) for number in range(7)]

    def summary(request: Any) -> Any:
        return reply(f"## Goal\nThe {'second' if stage.compactions else 'first'} summary.")

    async with scene(tmp_path, steps, summaries=[summary] * 4, window=8_000, keep=100) as stage:
        for number in range(3):
            await stage.session.prompt(words(60, f"question {number}"))
        await stage.session.compact()
        await stage.session.prompt(words(60, "between"))
        between = stage.lines("message")[-1]["id"]
        for number in range(2):
            await stage.session.prompt(words(60, f"later {number}"))
        await stage.session.compact()
        assert "The second summary." in texts(stage.session.messages)[0]
        await stage.session.navigate_tree(between)
        await stage.session.prompt("from between")
        first, *rest = stage.session.messages
        assert isinstance(first, CompactionSummaryMessage)
        assert "The first summary." in first.summary
        assert "between" in "\n".join(texts(rest))
        assert "later" not in stage.chat_requests[-1].text


async def test_a_compaction_that_kept_nothing_leaves_a_context_that_every_provider_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Mutation: in `as_model_messages` send a summary as an answer.
    history = [said("go"), answered(ToolCall("call_1", "look", {"at": "a"})), seen("call_1")]
    async with session_on(tmp_path, monkeypatch, CLAUDE, [reply("fine")], *history) as (session, provider):
        session.session_manager.append_compaction("Nothing is left but this.", None, 10)
        assert [type(message) for message in session.messages] == [CompactionSummaryMessage]
        assert str(await session.prompt("and now?")) == "fine"
        assert [message["role"] for message in provider.requests[-1].payload["messages"]] == ["user"]
        assert "Nothing is left but this." in provider.requests[-1].text


# Text and images -----------------------------------------------------------------------------------


@pytest.mark.parametrize("model", [GPT, CLAUDE], ids=lambda model: model.provider)
async def test_half_a_surrogate_pair_in_a_result_harms_no_request_no_reload_and_no_compaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: Model
) -> None:
    # Mutation: in `dump_line` or in `encode_value` let surrogates pass.
    @tool
    def broken() -> str:
        """Give back half of a pair."""
        return "ok \ud83d"

    def setup(api: Any) -> None:
        @api.on("context")
        def spoil(event: Any) -> ReplacedMessages:
            return ReplacedMessages(messages=(*event.messages, said("half \udc00")))

    steps = [calls([("broken", {})]), *(reply(words(60, f"answer {number}")) for number in range(3)), reply("fine")]
    options: dict[str, Any] = {"tools": [broken], "system_prompt": "Answer \ud83d.", "extensions": [setup]}
    async with session_on(tmp_path, monkeypatch, model, steps, **options) as (session, provider):
        for number in range(3):
            await session.prompt(words(60, f"question {number}"))
        assert "ok \ufffd" in provider.requests[1].text
        assert (await session.compact(keep_recent_tokens=1)).status == "applied"
        assert str(await session.prompt("and now?")) == "fine"
        assert session.path is not None
        path = session.path
    assert "Answer \ufffd." in provider.requests[-1].system
    assert "half \ufffd" in provider.requests[-1].text
    assert "ok \ufffd" in path.read_text()
    with SessionManager.open(path, read_only=True) as manager:
        assert not manager.damage


async def test_an_image_that_a_tool_gives_is_looked_at_before_it_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Mutation: in `judged` send every image.
    @tool
    def screenshot(width: int) -> ToolResult:
        """A picture of that width."""
        data = base64.b64encode(png(width, 9)).decode()
        return ToolResult((TextContent("a picture"), ImageContent(data, "image/jpeg")))

    steps = [
        calls([("screenshot", {"width": 9_000}), ("screenshot", {"width": 900})]),
        reply("one of them"),
        reply("x"),
    ]
    async with session_on(tmp_path, monkeypatch, CLAUDE, steps, tools=[screenshot]) as (session, provider):
        assert str(await session.prompt("what is there?")) == "one of them"
        first, second = [block["content"] for block in blocks(provider, "tool_result")]
        assert [block["type"] for block in first] == ["text", "text"]
        assert [block["type"] for block in second] == ["text", "image"]
        assert second[1]["source"]["media_type"] == "image/png"
        # What was recorded is whole: another model may take it.
        await session.set_model(GPT)
        await session.prompt("and now?")
        assert provider.requests[-1].raw.count(b"data:image/png") == 2


async def test_the_compactions_of_a_poisoned_session_are_in_order_too(tmp_path: Path) -> None:
    # Mutation: in `prepare_compaction` take the projection instead of the context.
    history = [message for messages in ODD.values() for message in messages]
    manager = SessionManager.create(tmp_path, session_dir=tmp_path / "sessions")
    for message in history:
        manager.append_message(message)
    async with scene(tmp_path, [reply("fine")], manager=manager, window=8_000, tools=[look]) as stage:
        assert (await stage.session.compact(keep_recent_tokens=30)).status == "applied"
        assert str(await stage.session.prompt("and now?")) == "fine"
        assert [type(entry) for entry in stage.compactions] == [CompactionEntry]
