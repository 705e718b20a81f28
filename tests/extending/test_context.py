"""What a handler is handed: copies, requests, a person to ask, and an API that belongs to the extension."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from agent_session.extending.api import ExtensionAPI
from agent_session.extending.context import ExtensionContext
from agent_session.hooks import Input
from agent_session.tools.types import Tool, ToolContext
from session_store.messages import AssistantMessage, ToolCall
from tests.extending.fake_session import FakeSession, open_session


async def context_of(session: FakeSession) -> ExtensionContext:
    contexts: list[ExtensionContext] = []
    unsubscribe = session.extensions.on("input", lambda event, ctx: contexts.append(ctx))
    await session.extensions.hooks.decide(Input(text="hi"))
    unsubscribe()
    return contexts[0]


async def test_the_context_shows_the_session():
    async with open_session() as session:
        ctx = await context_of(session)
        session.session_name = "scratch"
        session.is_idle = False

        assert (ctx.session_id, ctx.session_name, ctx.cwd) == (session.session_id, "scratch", session.cwd)
        assert (ctx.model, ctx.thinking_level, ctx.leaf_id) == (session.model, "off", "leaf")
        assert (ctx.is_idle, ctx.system_prompt, ctx.context_usage()) == (False, "be brief", None)
        assert ctx.settings == session.settings


async def test_nothing_written_to_what_the_context_shows_reaches_the_session():
    message = AssistantMessage(content=(ToolCall("c", "read", {"path": "a"}),))

    async with open_session() as session:
        ctx = await context_of(session)
        session.messages = [message]
        session.entries["state"] = {"n": [1]}

        shown = ctx.messages[0]
        assert isinstance(shown, AssistantMessage)
        shown.tool_calls[0].arguments.clear()
        ctx.settings.compaction.model_overrides["m"] = ctx.settings.compaction
        ctx.get_entry_data("state")["n"].append(2)
        kept = {"list": [1]}
        ctx.append_entry("mine", kept)
        kept["list"].append(2)

    # Mutation: return the view's own values -> each of these differs.
    assert message.tool_calls[0].arguments == {"path": "a"}
    assert session.settings.compaction.model_overrides == {}
    assert session.entries == {"state": {"n": [1]}, "mine": {"list": [1]}}


async def test_requests_are_left_with_the_session():
    async with open_session() as session:
        ctx = await context_of(session)
        ctx.request_compaction("keep decisions")
        ctx.send_message("go on")
        ctx.send_message("stop", deliver_as="steer")
        ctx.set_label("e1", "here")
        ctx.abort()

    assert session.asked == [
        ("compaction", "keep decisions"),
        ("message", "go on", "follow_up"),
        ("message", "stop", "steer"),
        ("label", "e1", "here"),
        ("abort",),
    ]


class Person:
    def __init__(self) -> None:
        self.seen: list[Any] = []

    async def confirm(self, title: str, detail: str, default: bool) -> bool:
        self.seen.append(("confirm", title, detail, default))
        return True

    async def ask(self, question: str, choices: Sequence[str]) -> str | None:
        self.seen.append(("ask", question, choices))
        return None

    def notify(self, text: str, level: str) -> None:
        self.seen.append(("notify", text, level))


async def test_a_person_is_asked():
    person = Person()

    async with open_session(interaction=person) as session:
        ctx = await context_of(session)
        assert await ctx.confirm("Delete?", "all of it") is True
        assert await ctx.ask("Which?", ["a", "b"], default="b") == "b"
        ctx.notify("done", "warning")

    assert person.seen == [
        ("confirm", "Delete?", "all of it", False),
        ("ask", "Which?", ("a", "b")),
        ("notify", "done", "warning"),
    ]
    assert session.events == []


async def test_without_a_person_the_default_is_taken_with_one_warning():
    async with open_session() as session:
        ctx = await context_of(session)
        assert await ctx.confirm("Delete?") is False
        assert await ctx.confirm("Keep?", default=True) is True
        assert await ctx.ask("Which?", ["a"], default="a") == "a"
        assert await ctx.ask("Name?") is None
        ctx.notify("done")

    # Mutation: warn each time, or never -> not one.
    (warning,) = session.warnings
    assert "'Delete?'" in warning
    assert "interaction" in warning


async def test_an_extension_offers_tools_made_of_functions_and_of_tools():
    async def execute(arguments: Any, context: ToolContext) -> str:
        return "done"

    def setup(api: ExtensionAPI) -> None:
        @api.tool
        def count(path: str) -> str:
            """Count lines.

            Args:
                path: where
            """
            return path

        @api.tool(name="other", execution_mode="sequential")
        async def named(path: str) -> str:
            """Other."""
            return path

        assert isinstance(count, Tool)
        assert (
            api.tool(Tool(name="ready", description="", parameters={"type": "object"}, execute=execute)).name == "ready"
        )

    async with open_session() as session:
        await session.extensions.load(setup)
        assert list(session.tools) == ["count", "other", "ready"]
        assert session.tools["count"].description == "Count lines."
        assert session.tools["other"].execution_mode == "sequential"


async def test_an_extension_leaves_entries_messages_and_labels_from_its_setup():
    apis: list[ExtensionAPI] = []

    def setup(api: ExtensionAPI) -> None:
        apis.append(api)
        assert api.append_entry("state", {"n": 1}) == "entry"
        assert api.get_entry_data("state") == {"n": 1}
        api.send_message("hello", deliver_as="next_turn")
        api.set_label("e1", None)
        api.logger.info("example.loaded")

    async with open_session() as session:
        extension = await session.extensions.load(setup)
        assert session.asked == [("message", "hello", "next_turn"), ("label", "e1", None)]
        assert apis[0].name == extension.name


@pytest.mark.parametrize("shown", ["api", "ctx", "handle"])
async def test_what_is_handed_out_says_whose_it_is(shown: str):
    handed: dict[str, Any] = {}

    def setup(api: ExtensionAPI) -> None:
        handed["api"] = api
        api.on("input", lambda event, ctx: handed.update(ctx=ctx))

    async with open_session() as session:
        handed["handle"] = await session.extensions.load(setup)
        await session.extensions.hooks.decide(Input(text="hi"))
        assert handed["handle"].name in repr(handed[shown])
