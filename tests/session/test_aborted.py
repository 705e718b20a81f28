"""Wherever an abort falls, `prompt` returns a message, and its `stop_reason` says `aborted`."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import pytest

from agent_session import Event, ExtensionAPI, SessionManager, Settings, SyncSession, tool
from agent_session.testing import ScriptedModel, Step, always, calls, fail, hang, reply
from session_store.entries import MessageEntry
from session_store.messages import AssistantMessage
from tests.session.scene import fill, filled, scene, words

LONG = words(350)
SECONDS = 5


@tool
async def linger() -> str:
    """Look for a long time."""
    await anyio.sleep_forever()
    return "never"


@tool
def look() -> str:
    """Look."""
    return "seen"


@dataclass(frozen=True, kw_only=True)
class Place:
    """The abort falls when `told` is told, or, where that is None, when the model has been asked.

    `text` is what the returned message says, `in_log` how the newest answer in the log stopped.
    """

    step: Step
    told: str | None
    text: str = ""
    in_log: str | None
    options: dict[str, Any] = field(default_factory=dict)


PLACES = {
    "in an answer": Place(
        step=hang(after=1, text="An answer that never ends"),
        told="message_update",
        text="An answer that never ends",
        in_log="aborted",
    ),
    "before the first word": Place(step=hang(after=0), told=None, in_log="stop"),
    "in a tool": Place(step=calls([("linger", {})], text="I look."), told="tool_execution_start", in_log="toolUse"),
    "between two turns": Place(
        step=calls([("look", {})], text="I look."),
        told="turn_end",
        in_log="toolUse",
    ),
    "before a retry": Place(
        step=fail(500, "no"), told="retry_start", in_log="error", options={"retry": {"base_delay_seconds": 60.0}}
    ),
    "in a compaction between two turns": Place(
        step=calls([("look", {})], text=LONG, usage=(950, 0, 0, 20)),
        told="compaction_start",
        in_log="toolUse",
        options={"summaries": [always(hang())]},
    ),
    "in a compaction after the last answer": Place(
        step=reply(LONG, usage=(950, 0, 0, 20)),
        told="compaction_start",
        in_log="stop",
        options={"summaries": [always(hang())]},
    ),
}


@pytest.mark.parametrize("name", PLACES)
async def test_an_aborted_prompt_returns_a_message_that_says_so(tmp_path: Path, name: str) -> None:
    # Mutation: in `turn.aborted` return the newest answer, cut off or not; or in `SessionCore.hold_run` None.
    place = PLACES[name]
    steps = [*filled(), place.step]
    async with scene(tmp_path, steps, tools=[linger, look], **place.options) as stage:
        await fill(stage)
        reached = anyio.Event()
        stage.session.subscribe(lambda event: reached.set() if event.name == place.told else None)
        with anyio.fail_after(SECONDS):
            prompting = asyncio.create_task(stage.session.prompt("go"))
            await (reached.wait() if place.told is not None else stage.provider.arrived(4))
            await stage.session.abort()
            message = await prompting
        assert message is not None
        assert (message.stop_reason, message.text) == ("aborted", place.text)
        assert message.error_message
        assert _answers(stage.session.session_manager)[-1].stop_reason == place.in_log


async def test_an_abort_before_the_first_request_returns_a_message_that_says_nothing(tmp_path: Path) -> None:
    # Mutation: in `SessionCore.hold_run` return the newest answer of the session where the run has none.
    asked = anyio.Event()

    def setup(api: ExtensionAPI) -> None:
        @api.on("before_agent_start")
        async def hangs(event: Event) -> None:
            if event.prompt is not None and event.prompt.text == "go":  # type: ignore[attr-defined]
                asked.set()
                await anyio.sleep_forever()

    async with scene(tmp_path, [reply("An earlier answer.")], extensions=[setup]) as stage:
        await stage.session.prompt("first")
        with anyio.fail_after(SECONDS):
            prompting = asyncio.create_task(stage.session.prompt("go"))
            await asked.wait()
            await stage.session.abort()
            message = await prompting
        assert message is not None
        assert (message.stop_reason, message.text) == ("aborted", "")
        async with stage.session.run("go") as run:
            run.abort()
            message = await run.result()
        assert message is not None
        assert message.stop_reason == "aborted"


@pytest.mark.parametrize("name", PLACES)
def test_a_session_without_await_returns_the_same(tmp_path: Path, name: str) -> None:
    # Mutation: in `SyncSession.prompt` give back None where it was aborted.
    place = PLACES[name]
    model = ScriptedModel(
        [*filled(), place.step, always(hang())], summaries=place.options.get("summaries"), context_window=1_000
    )
    retry = place.options.get("retry", {})
    settings = Settings().merged({"compaction": {"keep_recent_tokens": 200, "reserve_tokens": 100}, "retry": retry})
    with SyncSession(
        model.model,
        client=model,
        tools=[linger, look],
        settings=settings,
        session_manager=SessionManager.in_memory(tmp_path),
    ) as session:
        for number in range(3):
            session.prompt(words(60, f"question {number}"))

        def abort_there(event: Event) -> None:
            if event.name == (place.told or "message_start"):
                session.abort()

        session.subscribe(abort_there)
        message = session.prompt("go")
        assert message is not None
        assert (message.stop_reason, message.text) == ("aborted", place.text)


def _answers(manager: SessionManager) -> list[AssistantMessage]:
    entries = [entry for entry in manager.get_branch() if isinstance(entry, MessageEntry)]
    return [entry.message for entry in entries if isinstance(entry.message, AssistantMessage)]
