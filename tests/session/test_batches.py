"""The calls of one answer: which run beside each other, what each says, and what the run makes of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from agent_session import (
    Block,
    ChangedArguments,
    Tool,
    ToolContext,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolExecutionUpdate,
    ToolResult,
    TurnEnd,
    tool,
)
from agent_session.testing import call, calls, reply
from session_store.errors import StaleLeafError
from tests.session.scene import results, scene, texts


def noting(name: str, running: list[str], *, is_sequential: bool = False) -> Tool:
    """A tool that notes when it begins and ends, with room for others in between."""

    async def execute(arguments: Any, context: ToolContext) -> str:
        running.append(f"{name} begins")
        for _ in range(5):
            await anyio.lowlevel.checkpoint()
        running.append(f"{name} ends")
        return name

    mode: Any = "sequential" if is_sequential else "parallel"
    return Tool(name, name, {"type": "object", "properties": {}}, execute, mode)


async def test_a_sequential_tool_runs_alone_and_those_after_it_wait(tmp_path: Path) -> None:
    # Mutation: in `tool_execution._is_sequential` return False.
    running: list[str] = []
    tools = [noting("a", running), noting("b", running), noting("alone", running, is_sequential=True)]
    steps = [calls([("a", {}), ("b", {}), ("alone", {}), ("alone", {}), ("a", {})]), reply("done")]
    async with scene(tmp_path, steps, tools=tools) as stage:
        await stage.session.prompt("go")
    assert running[:2] == ["a begins", "b begins"]
    assert sorted(running[2:4]) == ["a ends", "b ends"]
    assert running[4:] == [*["alone begins", "alone ends"] * 2, "a begins", "a ends"]


@pytest.mark.parametrize(("batch", "requests"), [(["last", "last"], 1), (["last", "look"], 2)])
async def test_a_run_is_over_where_all_tools_of_a_batch_say_so(tmp_path: Path, batch: list[str], requests: int) -> None:
    # Mutation: in `run_calls` take one tool's word for all of them; in `_until_stopped` do not look at `is_final`.
    @tool
    def last() -> ToolResult:
        """The last thing there is to do."""
        return ToolResult("done", terminate=True)

    @tool
    def look() -> str:
        """Look."""
        return "seen"

    steps = [calls([(name, {}) for name in batch]), *([reply("more")] if requests == 2 else [])]
    async with scene(tmp_path, steps, tools=[last, look]) as stage:
        await stage.session.prompt("go")
        assert len(stage.chat_requests) == requests


async def test_arguments_that_a_handler_changed_are_validated_again(tmp_path: Path) -> None:
    # Mutation: in `tool_execution._prepare` take the changed arguments as they are.
    ran: list[int] = []

    @tool
    def count(to: int) -> str:
        """Count."""
        ran.append(to)
        return "counted"

    def changing(api: Any) -> None:
        api.on("tool_call", lambda event: ChangedArguments({"to": "7" if event.arguments["to"] == 1 else "many"}))

    steps = [calls([("count", {"to": 1}), ("count", {"to": 2})]), reply("ok")]
    async with scene(tmp_path, steps, tools=[count], extensions=[changing]) as stage:
        await stage.session.prompt("go")
        assert ran == [7]
        good, bad = results(stage.session.messages)
        assert good.text == "counted"
        assert bad.is_error
        assert "changed the arguments" in bad.text
        assert [event.arguments for event in stage.of(ToolExecutionStart)] == [{"to": "7"}, {"to": "many"}]


async def test_a_refusal_of_the_last_call_comes_before_the_first_side_effect(tmp_path: Path) -> None:
    # Mutation: in `run_calls` run each call as soon as it is prepared.
    asked: list[str] = []

    @tool
    def touch(name: str) -> str:
        """Touch."""
        asked.append(f"ran {name}")
        return name

    def guarding(api: Any) -> None:
        @api.on("tool_call")
        def guard(event: Any) -> Block | None:
            asked.append(f"asked {event.arguments['name']}")
            return Block("no") if event.arguments["name"] == "b" else None

    steps = [calls([("touch", {"name": "a"}), ("touch", {"name": "b"})]), reply("ok")]
    async with scene(tmp_path, steps, tools=[touch], extensions=[guarding]) as stage:
        await stage.session.prompt("go")
        assert asked == ["asked a", "asked b", "ran a"]
        assert [result.is_error for result in results(stage.session.messages)] == [False, True]


async def test_what_a_tool_reports_is_told_and_what_it_returns_is_told_and_recorded(tmp_path: Path) -> None:
    # Mutation: in `tool_execution._execute` forget the report; in `_message` forget `details`.
    async def execute(arguments: Any, context: ToolContext) -> ToolResult:
        context.report("half-way")
        await anyio.lowlevel.checkpoint()
        return ToolResult("all the way", details={"steps": 2})

    walk = Tool("walk", "Walk.", {"type": "object", "properties": {}}, execute)
    async with scene(tmp_path, [call("walk"), reply("ok")], tools=[walk]) as stage:
        await stage.session.prompt("go")
        assert [event.text for event in stage.of(ToolExecutionUpdate)] == ["half-way"]
        names = stage.told("tool_execution_start", "tool_execution_update", "tool_execution_end", "turn_end")
        expected = ["tool_execution_start", "tool_execution_update", "tool_execution_end", "turn_end", "turn_end"]
        assert names == expected
        assert [block.text for block in stage.of(ToolExecutionEnd)[0].content] == ["all the way"]
        (result,) = results(stage.session.messages)
        assert (result.text, result.details) == ("all the way", {"steps": 2})
        assert stage.of(TurnEnd)[0].tool_results == (result,)


async def test_a_tool_that_is_not_offered_is_not_there(tmp_path: Path) -> None:
    # Mutation: in `tool_execution._prepare` look at all the registry has.
    ran: list[str] = []

    @tool
    def look() -> str:
        """Look."""
        ran.append("look")
        return "seen"

    @tool
    def other() -> str:
        """Something else."""
        return "other"

    async with scene(tmp_path, [call("look"), reply("ok")], tools=[look, other]) as stage:
        stage.session.set_active_tools(["other"])
        await stage.session.prompt("go")
        assert ran == []
        offered = [definition["function"]["name"] for definition in stage.chat_requests[0].payload["tools"]]
        assert offered == ["other", "search_history"]
        assert "available: other, search_history" in results(stage.session.messages)[0].text


async def test_a_log_that_refuses_a_result_does_not_end_the_siblings_of_its_tool(tmp_path: Path) -> None:
    # Mutation: in `run_calls` let the error out of the task: its siblings are cancelled in the middle of their work.
    ended: list[str] = []

    async def disturb(arguments: Any, context: ToolContext) -> str:
        # As another program would that appends to the file.
        path = await anyio.Path(stage.path).open("a")
        await path.write('{"type":"custom","id":"x","parentId":null,"timestamp":"","customType":"x","data":1}\n')
        await path.aclose()
        return "disturbed"

    async def linger(arguments: Any, context: ToolContext) -> str:
        while not stage.names.count("tool_execution_end"):
            await anyio.lowlevel.checkpoint()
        for _ in range(20):
            await anyio.lowlevel.checkpoint()
        ended.append("linger")
        return "lingered"

    nothing = {"type": "object", "properties": {}}
    tools = [Tool("disturb", "Disturb.", nothing, disturb), Tool("linger", "Linger.", nothing, linger)]
    async with scene(tmp_path, [calls([("disturb", {}), ("linger", {})])], tools=tools, check=False) as stage:
        with anyio.fail_after(5), pytest.raises(StaleLeafError):
            await stage.session.prompt("go")
        assert ended == ["linger"]
        assert stage.session.is_idle


async def test_an_agent_run_ends_with_all_that_it_recorded(tmp_path: Path) -> None:
    # Mutation: in `Run.end_agent_run` forget the messages, or those of the run before.
    from agent_session import AgentEnd

    @tool
    def look() -> str:
        """Look."""
        return "seen"

    async with scene(tmp_path, [call("look"), reply("one"), reply("two")], tools=[look]) as stage:
        await stage.session.prompt("go")
        await stage.session.prompt("go on")
        assert [texts(event.messages) for event in stage.of(AgentEnd)] == [
            ["go", "", "seen", "one"],
            ["go on", "two"],
        ]
