"""A session whose last run did not end well goes on with a valid context, and says once what was interrupted."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import orjson
import pytest

from agent_session import ToolResultMessage, Usage, UserMessage, tool
from agent_session.testing import calls, pairs_ok, reply
from session_store import AssistantMessage, Content, SessionManager, TextContent, ToolCall
from session_store.entries import MessageEntry
from tests.session.scene import scene, texts

CALLS = (ToolCall("call_a", "look", {"at": "a"}), ToolCall("call_b", "look", {"at": "b"}))


@tool
async def look(at: str) -> str:
    """Look at something."""
    return f"seen {at}"


def asked(text: str = "look around") -> UserMessage:
    return UserMessage(content=(TextContent(text),), timestamp=1)


def answered(content: Sequence[Content], *, stop_reason: str = "toolUse") -> AssistantMessage:
    return AssistantMessage(
        content=tuple(content),
        api="openai-completions",
        provider="openai",
        model="scripted",
        usage=Usage(),
        stop_reason=stop_reason,
        timestamp=2,
    )


def left_behind(tmp_path: Path, *messages: Any) -> Path:
    """The file of a session whose process ended without a word after these messages."""
    with SessionManager.create(tmp_path, session_dir=tmp_path / "sessions") as manager:
        manager.append_model_change("openai", "scripted")
        for message in messages:
            manager.append_message(message)
        assert manager.path is not None
        return manager.path


def results_in(path: Path) -> list[ToolResultMessage]:
    with SessionManager.open(path, read_only=True) as manager:
        messages = [entry.message for entry in manager if isinstance(entry, MessageEntry)]
    return [message for message in messages if isinstance(message, ToolResultMessage)]


async def test_calls_without_results_at_the_end_get_one_each_with_the_next_prompt(tmp_path: Path) -> None:
    # Mutation: in `Run.execute` leave `answer_open_calls` out; in `SessionCore.start` call it too.
    path = left_behind(tmp_path, asked(), answered(CALLS))
    before = path.read_bytes()
    async with scene(tmp_path, [], manager=SessionManager.open(path), tools=[look]) as stage:
        assert pairs_ok(stage.session.messages)
        assert path.read_bytes() == before
    for prompt in ("go on", "and on"):
        async with scene(tmp_path, [reply("done")], manager=SessionManager.open(path), tools=[look]) as stage:
            assert str(await stage.session.prompt(prompt)) == "done"
            assert pairs_ok(stage.session.messages)
            roles = [message["role"] for message in stage.chat_requests[0].messages]
            assert roles[:5] == ["system", "user", "assistant", "tool", "tool"]
        results = results_in(path)
        assert [(result.tool_call_id, result.is_error) for result in results] == [("call_a", True), ("call_b", True)]
        assert all("interrupted" in result.text for result in results)


async def test_results_that_were_recorded_stay_and_only_the_others_are_made_up(tmp_path: Path) -> None:
    # Mutation: in `dangling_calls` forget what was answered.
    result = ToolResultMessage(
        tool_call_id="call_b", tool_name="look", content=(TextContent("seen b"),), is_error=False, timestamp=3
    )
    path = left_behind(tmp_path, asked(), answered(CALLS), result)
    async with scene(tmp_path, [reply("done")], manager=SessionManager.open(path), tools=[look]) as stage:
        await stage.session.prompt("go on")
        assert pairs_ok(stage.session.messages)
    assert [(made.tool_call_id, made.is_error) for made in results_in(path)] == [("call_b", False), ("call_a", True)]


@pytest.mark.parametrize("stop_reason", ["error", "aborted"])
async def test_calls_of_an_answer_that_failed_are_never_answered(tmp_path: Path, stop_reason: str) -> None:
    # Mutation: in `is_sent` send answers that failed.
    path = left_behind(tmp_path, asked(), answered(CALLS, stop_reason=stop_reason))
    async with scene(tmp_path, [reply("done")], manager=SessionManager.open(path), tools=[look]) as stage:
        await stage.session.prompt("go on")
        assert [message["role"] for message in stage.chat_requests[0].messages] == ["system", "user", "user"]
    assert results_in(path) == []


async def test_a_tool_that_was_aborted_is_answered_once_though_the_session_is_closed_in_between(tmp_path: Path) -> None:
    # Mutation: in `Run.execute` leave `answer_open_calls` out.
    started = anyio.Event()

    @tool
    async def linger(at: str) -> str:
        """Look for a long time."""
        started.set()
        await anyio.sleep_forever()
        return at

    steps = [calls([("look", {"at": "a"}), ("linger", {"at": "b"})])]
    async with scene(tmp_path, steps, tools=[look, linger]) as stage:
        with anyio.fail_after(5):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(stage.session.prompt, "look around")
                await started.wait()
                await stage.session.abort()
    for _ in range(2):
        manager = SessionManager.open(stage.path)
        async with scene(tmp_path, [reply("done")], manager=manager, tools=[look, linger]) as again:
            assert str(await again.session.prompt("go on")) == "done"
    assert [(made.tool_name, made.is_error) for made in results_in(stage.path)] == [("look", False), ("linger", True)]


@pytest.mark.parametrize("kept", [1, 40, -10, -2])
async def test_a_torn_last_line_is_moved_aside_and_the_next_prompt_stands_on_its_own_line(
    tmp_path: Path, kept: int
) -> None:
    # Mutation: in `JsonlLog.open` leave `settle_tail` out: the next line is glued to the torn one, and lost with it.
    path = left_behind(tmp_path, asked("kept"), answered([TextContent("torn")], stop_reason="stop"))
    *whole, last = path.read_bytes().splitlines(keepends=True)
    torn = last[:kept]
    path.write_bytes(b"".join(whole) + torn)
    async with scene(tmp_path, [reply("done")], manager=SessionManager.open(path)) as stage:
        assert texts(stage.session.messages) == ["kept"]
        await stage.session.prompt("go on")
        context = stage.session.messages
    assert texts(context) == ["kept", "go on", "done"]
    assert path.with_name(f"{path.name}.damaged").read_bytes() == torn
    for line in path.read_bytes().splitlines():
        orjson.loads(line)
    with SessionManager.open(path, read_only=True) as manager:
        assert tuple(manager.build_messages()) == context
        assert not manager.damage


async def test_a_whole_last_line_without_its_newline_is_kept(tmp_path: Path) -> None:
    # Mutation: in `settle_tail` move every tail aside.
    path = left_behind(tmp_path, asked("kept"), answered([TextContent("whole")], stop_reason="stop"))
    path.write_bytes(path.read_bytes()[:-1])
    async with scene(tmp_path, [reply("done")], manager=SessionManager.open(path)) as stage:
        await stage.session.prompt("go on")
        assert texts(stage.session.messages) == ["kept", "whole", "go on", "done"]
    assert [entry.get("message", {}).get("role") for entry in stage.lines()] == [
        None,
        "user",
        "assistant",
        "user",
        "assistant",
    ]
