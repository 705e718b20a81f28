"""From what is said to the first request, and what an aborted prompt gives back."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import anyio

from agent_session import ChangedInput, ImageContent, RunChanges, TextContent, UserMessage, tool
from agent_session.testing import call, reply
from tests.pictures import png
from tests.session.scene import scene, texts, words

PIXEL = ImageContent(data=base64.b64encode(png(1, 1)).decode(), mime_type="image/png")


async def test_images_stay_where_a_handler_changes_the_text(tmp_path: Path) -> None:
    # Mutation: in `open_run` make the message of the changed text alone.
    def changing(api: Any) -> None:
        api.on("input", lambda event: ChangedInput(text=event.text.upper()))

    async with scene(tmp_path, [reply("seen")], extensions=[changing], window=8_000) as stage:
        await stage.session.prompt("look", images=[PIXEL])
        (said, _) = stage.session.messages
        assert isinstance(said, UserMessage)
        assert said.content == (TextContent("LOOK"), PIXEL)


async def test_messages_of_a_handler_come_behind_the_prompt_and_are_recorded(tmp_path: Path) -> None:
    # Mutation: in `open_run` leave the messages of `before_agent_start` out, or put them first.
    def adding(api: Any) -> None:
        note = UserMessage(content=(TextContent("The branch is main."),))
        api.on("before_agent_start", lambda event: RunChanges(messages=(note,)))

    async with scene(tmp_path, [reply("seen")], extensions=[adding]) as stage:
        await stage.session.prompt("go")
        assert texts(stage.session.messages) == ["go", "The branch is main.", "seen"]
        assert len(stage.lines("message")) == 3


async def test_a_system_prompt_of_one_run_is_gone_when_it_has_settled(tmp_path: Path) -> None:
    # Mutation: in `SessionCore._settle` keep the override.
    def changing(api: Any) -> None:
        api.on("before_agent_start", lambda event: RunChanges(system_prompt=words(300)) if event.prompt else None)

    async with scene(tmp_path, [reply("seen")], extensions=[changing]) as stage:
        before = stage.session.context_usage().tokens
        await stage.session.prompt("go")
        assert stage.chat_requests[0].payload["messages"][0]["content"] == words(300)
        assert stage.session.context_usage().tokens < before + 50


async def test_an_aborted_prompt_gives_no_answer_of_an_earlier_turn(tmp_path: Path) -> None:
    # Mutation: in `SessionCore.hold_run` return the last answer whatever it is.
    started = anyio.Event()

    @tool
    async def linger() -> str:
        """Linger."""
        started.set()
        await anyio.sleep_forever()
        return ""

    answers: list[Any] = []
    async with scene(tmp_path, [call("linger")], tools=[linger]) as stage:

        async def ask() -> None:
            answers.append(await stage.session.prompt("go"))

        with anyio.fail_after(5):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(ask)
                await started.wait()
                await stage.session.abort()
    assert [(answer.stop_reason, answer.content) for answer in answers] == [("aborted", ())]
