"""What a tool has of the session that runs it: what it was given, how full the context is, and a person to ask."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from agent_session import ToolContext, Warning, tool
from agent_session.testing import call, calls, reply
from tests.session.scene import results, scene


class Nod:
    """A person who says yes to everything, and remembers what it was."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, bool]] = []

    async def confirm(self, title: str, detail: str, default: bool) -> bool:
        self.asked.append((title, detail, default))
        return True

    async def ask(self, question: str, choices: Sequence[str]) -> str | None:
        return None

    def notify(self, text: str, level: str) -> None:
        pass


@tool
async def delete(path: str, context: ToolContext) -> str:
    """Delete a file."""
    return "deleted" if await context.confirm("Delete it?", path, default=path == "old.txt") else "kept"


async def test_a_tool_has_what_the_session_was_given_for_it_and_sees_how_full_the_context_is(tmp_path: Path) -> None:
    # Mutation: in `_execute` leave `deps` out, or hand over a copy; or let `context_usage` give None.
    stock = {"bolt": 40}

    @tool
    async def take(part: str, context: ToolContext) -> str:
        """Take one."""
        context.deps[part] -= 1
        usage = context.context_usage()
        return f"{context.deps[part]} left, {usage.threshold if usage is not None else '?'} tokens"

    async with scene(tmp_path, [call("take", part="bolt"), reply("done")], tools=[take], deps=stock) as stage:
        await stage.session.prompt("Take a bolt.")
        assert [result.text for result in results(stage.session.messages)] == ["39 left, 900 tokens"]
    assert stock == {"bolt": 39}


async def test_a_tool_asks_the_person(tmp_path: Path) -> None:
    # Mutation: in `_confirm_for` take the default without asking.
    person = Nod()
    steps = [call("delete", path="new.txt"), reply("done")]
    async with scene(tmp_path, steps, tools=[delete], interaction=person) as stage:
        await stage.session.prompt("Delete it.")
        assert [result.text for result in results(stage.session.messages)] == ["deleted"]
        assert stage.of(Warning) == []
    assert person.asked == [("Delete it?", "new.txt", False)]


async def test_where_nobody_is_a_tool_gets_the_default_and_that_is_told_once(tmp_path: Path) -> None:
    # Mutation: in `_confirm_for` always say no; or do not remember that it was told.
    steps = [calls([("delete", {"path": "new.txt"}), ("delete", {"path": "old.txt"})]), reply("done")]
    async with scene(tmp_path, steps, tools=[delete]) as stage:
        await stage.session.prompt("Delete them.")
        assert [result.text for result in results(stage.session.messages)] == ["kept", "deleted"]
        [warning] = stage.of(Warning)
        assert "the tool delete turned to a person ('Delete it?') and there is none" in warning.text
