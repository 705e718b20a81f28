"""One prompt as its caller sees it: its events, its text, its ways out, and what is logged of it."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import anyio
import pytest

from agent_session import (
    AgentSession,
    AgentSettled,
    Block,
    ChangedArguments,
    ChangedInput,
    ChangedResult,
    Handled,
    MessageUpdate,
    MissingModelError,
    ModelRequestError,
    ReplacedMessages,
    ReplacedRequest,
    RunChanges,
    SessionClosedError,
    Settings,
    SettingsError,
    TextContent,
    TextDelta,
    ToolError,
    UserMessage,
    Warning,
    tool,
)
from agent_session.testing import call, calls, collect, cut, fail, hang, hold, reply, stop
from session_store import SessionManager
from tests.session.scene import results, scene, texts, words


@tool
def look(at: str) -> str:
    """Look at something."""
    return f"seen {at}"


async def test_a_run_is_a_block_of_events_with_its_text_and_its_result(tmp_path: Path) -> None:
    # Mutation: in `RunHandle._drive` leave the closing of the stream out: the loop would never end.
    async with scene(tmp_path, [reply("one two three", chunks=3), reply("next")]) as stage:
        with anyio.fail_after(5):
            async with stage.session.run("go") as run:
                seen = [event async for event in run]
                assert run.text == "one two three"
                message = await run.result()
                assert str(message) == "one two three"
        assert isinstance(seen[-1], AgentSettled)
        deltas = [event.delta for event in seen if isinstance(event, MessageUpdate)]
        assert "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)) == "one two three"
        assert str(await stage.session.prompt("again")) == "next"


async def test_leaving_the_block_of_a_run_early_ends_the_run(tmp_path: Path) -> None:
    # Mutation: in `open_handle` leave the abort out.
    async with scene(tmp_path, [hang(after=1, text="half"), reply("fine")]) as stage:
        with anyio.fail_after(5):
            async with stage.session.run("go") as run:
                async for event in run:
                    if isinstance(event, MessageUpdate):
                        break
            assert stage.session.is_idle
        assert stage.lines("message")[-1]["message"]["stopReason"] == "aborted"
        assert str(await stage.session.prompt("next")) == "fine"


async def test_the_error_of_a_run_comes_out_of_its_result(tmp_path: Path) -> None:
    # Mutation: in `RunHandle._drive` forget the error.
    steps = [fail(400, "temperature exceeds maximum of 2")]
    async with scene(tmp_path, steps) as stage, stage.session.run("go") as run:
        with pytest.raises(ModelRequestError):
            await run.result()


async def test_text_is_handed_on_as_it_streams(tmp_path: Path) -> None:
    # Mutation: in `SessionCore.hold_run` leave the listener where it is when the run is over.
    pieces: list[str] = []
    async with scene(tmp_path, [reply("one two three", chunks=3), reply("unheard")]) as stage:
        await stage.session.prompt("go", on_text=pieces.append)
        await stage.session.prompt("again")
        assert len(pieces) == 3
        assert "".join(pieces) == "one two three"


async def test_an_aborted_answer_is_kept_returned_and_not_sent_again(tmp_path: Path) -> None:
    # Mutation: in `turn.ask_model` leave the partial out of the log.
    async with scene(tmp_path, [hang(after=1, text="half an answer"), reply("fine")]) as stage:
        returned: list[Any] = []

        async def ask() -> None:
            returned.append(await stage.session.prompt("go"))

        with anyio.fail_after(5):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(ask)
                while not stage.of(MessageUpdate):
                    await anyio.lowlevel.checkpoint()
                await stage.session.abort()
        stored = stage.lines("message")[-1]["message"]
        assert (stored["stopReason"], stored["content"][0]["text"]) == ("aborted", "half an answer")
        assert returned[0] is not None
        assert returned[0].stop_reason == "aborted"
        await stage.session.prompt("next")
        assert "half an answer" not in str(stage.chat_requests[-1].payload)


async def test_a_stream_that_is_cut_is_told_as_discarded_before_the_retry_speaks(tmp_path: Path) -> None:
    # Mutation: in `Run._ask_until_answered` leave `MessageDiscarded` out; in `openai_compatible._finish` take a stream
    # without its end for an answer.
    async with scene(tmp_path, [cut(after=2, text="one two"), reply("whole")]) as stage:
        with collect(stage.session) as events:
            assert str(await stage.session.prompt("go")) == "whole"
        told = [
            name for name in events.names if name in ("message_start", "message_discarded", "retry_start", "retry_end")
        ]
        assert told == ["message_start", "message_discarded", "retry_start", "message_start", "retry_end"]
        reasons = [line["message"].get("stopReason") for line in stage.lines("message")]
        assert reasons == [None, "error", "stop"]


async def test_an_unknown_finish_reason_ends_the_turn(tmp_path: Path) -> None:
    # Mutation: in `ask_model` leave the warning out; in `stop_reason_for` take it for an error.
    async with scene(tmp_path, [stop("foo", text="all I say")]) as stage:
        assert str(await stage.session.prompt("go")) == "all I say"
        assert len(stage.provider.requests) == 1
        assert ["'foo'" in event.text for event in stage.of(Warning)] == [True]
        assert stage.lines("message")[-1]["message"]["stopReason"] == "stop"


async def test_tools_run_side_by_side_and_their_results_are_in_the_order_of_the_calls(tmp_path: Path) -> None:
    # Mutation: in `run_calls` await one after the other: the first would wait for the second for ever. In
    # `_Pairing` keep the order of the log.
    second_ran = anyio.Event()

    @tool
    async def first() -> str:
        """Wait for the second."""
        await second_ran.wait()
        return "first"

    @tool
    async def second() -> str:
        """Free the first."""
        second_ran.set()
        return "second"

    async with scene(tmp_path, [calls([("first", {}), ("second", {})]), reply("ok")], tools=[first, second]) as stage:
        with anyio.fail_after(5):
            await stage.session.prompt("go")
        assert [message.text for message in results(stage.session.messages)] == ["first", "second"]
        logged = [line["message"] for line in stage.lines("message")]
        assert [message["toolName"] for message in logged if message["role"] == "toolResult"] == ["second", "first"]


async def test_what_is_wrong_with_a_call_is_told_to_the_model_and_the_run_goes_on(tmp_path: Path) -> None:
    # Mutation: in `tool_execution._execute` let a tool's exception through.
    @tool
    def broken() -> str:
        """Break."""
        raise RuntimeError("broken on purpose")

    @tool
    def unwilling() -> str:
        """Refuse."""
        raise ToolError("not today")

    batch = calls([("broken", {}), ("unwilling", {}), ("look", {}), ("nowhere", {}), ("look", '{"at": ')])
    async with scene(tmp_path, [batch, reply("ok")], tools=[look, broken, unwilling]) as stage:
        assert str(await stage.session.prompt("go")) == "ok"
        told = results(stage.session.messages)
        assert all(message.is_error for message in told)
        for message, part in zip(told, ["broken on purpose", "not today", "at", "nowhere", "JSON"], strict=True):
            assert part in message.text


async def test_a_call_that_was_cut_off_by_the_output_limit_never_runs(tmp_path: Path) -> None:
    # Mutation: in `tool_execution._prepare` leave the case of "length" out.
    ran: list[str] = []

    @tool
    def touch(name: str) -> str:
        """Touch."""
        ran.append(name)
        return name

    # What came looks complete; nobody knows whether it is.
    half = stop("length", calls=[("touch", {"name": "x"})])
    async with scene(tmp_path, [half, reply("ok")], tools=[touch]) as stage:
        await stage.session.prompt("go")
        assert ran == []
        assert "cut off" in results(stage.session.messages)[0].text
    reopened = SessionManager.open(stage.path, read_only=True)
    assert results(reopened.build_messages())[0].is_error
    reopened.close()


async def test_handlers_may_change_what_goes_in_and_what_comes_out(tmp_path: Path) -> None:
    # Mutation: ignore any one of the answers in `prompting`, `turn` or `tool_execution`.
    def changing(api: Any) -> None:
        api.on("input", lambda event: ChangedInput(text=event.text.upper()))
        api.on("before_agent_start", lambda event: RunChanges(system_prompt=event.system_prompt + " Briefly."))
        api.on("tool_call", lambda event: ChangedArguments({"at": "elsewhere"}))
        api.on("tool_result", lambda event: ChangedResult(content=(TextContent(event.content[0].text + "!"),)))
        api.on("before_request", lambda event: ReplacedRequest(payload={**event.payload, "seed": 7}))

    async with scene(tmp_path, [call("look", at="here"), reply("ok")], tools=[look], extensions=[changing]) as stage:
        await stage.session.prompt("go")
        assert texts(stage.session.messages) == ["GO", "", "seen elsewhere!", "ok"]
        for request in stage.provider.requests:
            assert request.payload["seed"] == 7
            assert request.payload["messages"][0]["content"].endswith("Briefly.")


async def test_messages_replaced_for_one_request_are_not_in_the_log(tmp_path: Path) -> None:
    # Mutation: in `build_request` do not take the answer.
    def hiding(api: Any) -> None:
        other = UserMessage(content=(TextContent("something else"),))
        api.on("context", lambda event: ReplacedMessages((other,)))

    async with scene(tmp_path, [reply("ok")], extensions=[hiding]) as stage:
        await stage.session.prompt("go")
        assert "something else" in str(stage.provider.requests[0].payload)
        assert texts(stage.session.messages) == ["go", "ok"]


async def test_a_handled_input_starts_no_run_and_a_blocked_call_does_not_run(tmp_path: Path) -> None:
    # Mutation: in `open_run` go on after `handled`; in `_prepare` ignore `block`.
    def guarding(api: Any) -> None:
        api.on("input", lambda event: Handled() if event.text == "/help" else None)
        api.on("tool_call", lambda event: Block("not allowed"))

    async with scene(tmp_path, [call("look", at="x"), reply("ok")], tools=[look], extensions=[guarding]) as stage:
        assert await stage.session.prompt("/help") is None
        assert stage.provider.requests == []
        await stage.session.prompt("go")
        assert "not allowed" in results(stage.session.messages)[0].text


async def test_a_tool_call_handler_that_fails_blocks_the_call(tmp_path: Path) -> None:
    # Mutation: in `HookRunner.decide` leave `failure_blocks` out.
    def broken(api: Any) -> None:
        @api.on("tool_call")
        def raise_it(event: object) -> None:
            raise RuntimeError("broken on purpose")

    async with scene(tmp_path, [call("look", at="x"), reply("ok")], tools=[look], extensions=[broken]) as stage:
        stage.expects_failures = True
        await stage.session.prompt("go")
        assert "could not check" in results(stage.session.messages)[0].text


async def test_an_extension_is_loaded_and_unloaded_while_the_session_is_open(tmp_path: Path) -> None:
    # Mutation: in `RuntimeView.register_tool` give back something that does not remove the tool.
    def adding(api: Any) -> None:
        api.tool(look)
        api.on("input", lambda event: ChangedInput(text=event.text + " (loaded)"))

    async with scene(tmp_path, [call("look", at="x"), reply("ok"), call("look", at="x"), reply("ok")]) as stage:
        loaded = await stage.session.load(adding)
        await stage.session.prompt("one")
        assert "seen x" in texts(stage.session.messages)
        await loaded.unload()
        await stage.session.prompt("two")
        assert "two" in texts(stage.session.messages)
        assert "no tool" in results(stage.session.messages)[-1].text


async def test_changes_of_model_and_level_are_logged_just_before_the_first_request(tmp_path: Path) -> None:
    # Mutation: log them in `SessionCore.start`.
    async with scene(tmp_path, [reply("ok")], thinking_level="low") as stage:
        assert stage.lines() == []
        await stage.session.prompt("go")
        assert [line["type"] for line in stage.lines()] == [
            "model_change",
            "thinking_level_change",
            "message",
            "message",
        ]


async def test_settings_change_at_run_time_and_a_wrong_one_changes_nothing(tmp_path: Path) -> None:
    # Mutation: in `Settings.merged` replace the section instead of merging it.
    async with scene(tmp_path, []) as stage:
        stage.session.update_settings(compaction={"reserve_tokens": 300})
        assert stage.session.context_usage().threshold == 700
        assert stage.session.settings.compaction.keep_recent_tokens == 200
        with pytest.raises(SettingsError, match=r"compaction\.reserve_tokens"):
            stage.session.update_settings(compaction={"reserve_tokens": -1})
        assert stage.session.settings.compaction.reserve_tokens == 300


async def test_nothing_works_on_a_closed_session_and_it_says_so(tmp_path: Path) -> None:
    # Mutation: make `SessionCore.check_open` do nothing.
    async with scene(tmp_path, [], check=False) as stage:
        await stage.session.close()
        assert await stage.session.close() == []
        with pytest.raises(SessionClosedError):
            await stage.session.prompt("go")
        with pytest.raises(SessionClosedError):
            await stage.session.compact()
        with pytest.raises(SessionClosedError):
            stage.session.steer("go")
        assert "closed" in repr(stage.session)


async def test_without_a_model_the_error_names_the_ways_to_give_one(tmp_path: Path) -> None:
    # Mutation: in `choose_model` fall back to a model of its own.
    session = AgentSession(session_manager=SessionManager.in_memory(tmp_path), cwd=tmp_path)
    with pytest.raises(MissingModelError, match="AGENT_SESSION_MODEL"):
        await session.prompt("go")
    await session.close()


async def test_an_empty_prompt_is_refused_before_anything_happens(tmp_path: Path) -> None:
    # Mutation: in `user_message` take blank text.
    async with scene(tmp_path, []) as stage:
        with pytest.raises(ValueError, match="empty"):
            await stage.session.prompt("  ")
        assert stage.lines() == []


async def test_a_run_and_a_compaction_are_logged_with_their_ids_and_numbers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # Mutation: in `Run.execute` leave the binding of `run` out.
    caplog.set_level(logging.INFO, logger="agent_session")
    async with scene(
        tmp_path, [reply(f"answer {number} " + "word " * 60) for number in range(3)], window=8_000
    ) as stage:
        for number in range(3):
            await stage.session.prompt(f"question {number} " + "word " * 60)
        await stage.session.compact()
        records = {record.event: record for record in caplog.records}  # type: ignore[attr-defined]
        session_id = stage.session.session_id
    assert {record.session_id for record in records.values()} == {session_id}  # type: ignore[attr-defined]
    assert records["run.start"].run == records["turn.end"].run == records["run.end"].run  # type: ignore[attr-defined]
    start, end = records["compaction.start"], records["compaction.end"]
    assert start.compaction_id == end.compaction_id  # type: ignore[attr-defined]
    assert end.tokens_after < end.tokens_before  # type: ignore[attr-defined]


async def test_closing_in_the_middle_of_a_run_ends_it_and_gives_back_the_queue(tmp_path: Path) -> None:
    # Mutation: in `SessionCore.close` leave the abort out.
    held = hold(reply("never"))
    async with scene(tmp_path, [held], check=False) as stage:
        with anyio.fail_after(5):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(stage.session.prompt, "go")
                await held.started.wait()
                stage.session.follow_up("later")
                assert await stage.session.close() == ["later"]
        assert stage.names[-2:] == ["agent_settled", "session_shutdown"]


def test_settings_come_from_the_user_the_project_and_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, isolated_environment: Path
) -> None:
    # Mutation: in `Settings.load` let an untrusted project set texts, or merge in another order.
    def write(folder: Path, settings: dict[str, Any]) -> None:
        (folder / ".agent-session").mkdir(exist_ok=True)
        (folder / ".agent-session" / "settings.json").write_text(json.dumps(settings))

    users = {"model": "openai/users", "compaction": {"reserve_tokens": 1, "keep_recent_tokens": 2}}
    projects = {"model": "openai/projects", "compaction": {"keep_recent_tokens": 3, "summary_model": "openai/x"}}
    write(isolated_environment, users)
    write(tmp_path, projects)
    monkeypatch.setenv("AGENT_SESSION_COMPACTION__RESERVE_TOKENS", "4")
    settings = Settings.load(tmp_path)
    assert settings.model == "openai/users"
    assert (settings.compaction.reserve_tokens, settings.compaction.keep_recent_tokens) == (4, 3)
    assert settings.compaction.summary_model is None
    trusted = Settings.load(tmp_path, is_trusted=True)
    assert (trusted.model, trusted.compaction.summary_model) == ("openai/projects", "openai/x")


def test_a_wrong_setting_is_refused_with_its_path_and_an_unknown_one_warns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Mutation: in `_known` let unknown keys pass; in `merged` leave the path out.
    monkeypatch.setenv("AGENT_SESSION_COMPACTION__RESERVE_TOKENS", "-1")
    with pytest.raises(SettingsError, match=r"compaction\.reserve_tokens"):
        Settings.load(tmp_path)
    monkeypatch.delenv("AGENT_SESSION_COMPACTION__RESERVE_TOKENS")
    (tmp_path / ".agent-session").mkdir()
    (tmp_path / ".agent-session" / "settings.json").write_text('{"compaction": {"typo": 1}}')
    with pytest.warns(UserWarning, match=r"compaction\.typo"):
        Settings.load(tmp_path)
    (tmp_path / ".agent-session" / "settings.json").write_text('{"compaction": ')
    with pytest.raises(SettingsError, match=r"settings\.json"):
        Settings.load(tmp_path)


async def test_a_window_nobody_knows_is_warned_of_once_and_an_overflow_still_recovers(tmp_path: Path) -> None:
    # Mutation: in `Run._check` leave the warning out, or give it in every run.
    steps: list[Any] = [reply(words(60, f"answer {number}")) for number in range(3)]
    steps += [fail(400, "prompt is too long: 1200 tokens > 1000 maximum"), reply("fine")]
    async with scene(tmp_path, steps) as stage:
        await stage.session.set_model("openai/nobody-knows")
        for number in range(3):
            await stage.session.prompt(words(60, f"question {number}"))
        assert str(await stage.session.prompt("go")) == "fine"
        assert ["nobody-knows" in event.text for event in stage.of(Warning)] == [True]
        assert stage.session.context_usage().window == 128_000
        assert stage.session.context_usage().threshold < 1_000
