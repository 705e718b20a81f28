"""What is said while a run is under way: when it enters, in which order, and how often."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio

from agent_session import Event, QueueUpdate, tool
from agent_session.testing import call, reply
from tests.session.scene import Scene, scene, texts


def speaking(stages: list[Scene], *said: tuple[str, str]) -> Any:
    """A tool that queues something: (lane, text)."""

    @tool
    async def look() -> str:
        """Look."""
        for lane, text in said:
            getattr(stages[0].session, lane)(text)
        return "seen"

    return look


async def test_steering_enters_before_the_next_request(tmp_path: Path) -> None:
    # Mutation: in `Run._until_stopped` deliver steering before the first request only.
    stages: list[Scene] = []
    look = speaking(stages, ("steer", "one"), ("steer", "two"))
    async with scene(tmp_path, [call("look"), reply("done")], tools=[look]) as stage:
        stages.append(stage)
        await stage.session.prompt("go")
        assert texts(stage.session.messages) == ["go", "", "seen", "one", "two", "done"]


async def test_steering_of_a_last_answer_is_answered_in_the_same_run(tmp_path: Path) -> None:
    # Mutation: in `Run._until_stopped` stop although something was delivered.
    async with scene(tmp_path, [reply("one"), reply("two")]) as stage:

        def steer(event: Event) -> None:
            if event.name == "message_end" and stage.names.count("message_end") == 2:
                stage.session.steer("wait")

        stage.session.subscribe(steer)
        assert str(await stage.session.prompt("go")) == "two"
        assert texts(stage.session.messages) == ["go", "one", "wait", "two"]
        assert stage.names.count("agent_start") == 1


async def test_follow_ups_enter_one_by_one_when_the_run_would_end(tmp_path: Path) -> None:
    # Mutation: in `Run._until_stopped` deliver all follow-ups at once, or before the tools' results are answered.
    stages: list[Scene] = []
    look = speaking(stages, ("follow_up", "first"), ("follow_up", "second"))
    steps = [call("look"), reply("seen it"), reply("to the first"), reply("to the second")]
    async with scene(tmp_path, steps, tools=[look]) as stage:
        stages.append(stage)
        assert str(await stage.session.prompt("go")) == "to the second"
        said = texts(stage.session.messages)
        assert said == ["go", "", "seen", "seen it", "first", "to the first", "second", "to the second"]
        assert stage.session.pending_messages == ()


async def test_a_message_for_the_next_turn_starts_no_run_and_goes_with_the_next_prompt(tmp_path: Path) -> None:
    # Mutation: in `Run._agent_run` leave the lane of the next turn out; in `MessageQueue.starts_a_run` count it.
    def noting(api: Any) -> None:
        @api.on("session_start")
        def note(event: Any, ctx: Any) -> None:
            ctx.send_message("by the way", deliver_as="next_turn")

    async with scene(tmp_path, [reply("done")], extensions=[noting]) as stage:
        with anyio.fail_after(5):
            await stage.session.wait_for_idle()
        assert stage.provider.requests == []
        assert stage.session.pending_messages == ("by the way",)
        await stage.session.prompt("go")
        assert texts(stage.session.messages) == ["go", "by the way", "done"]


async def test_what_was_on_its_way_into_the_log_comes_back_in_order(tmp_path: Path) -> None:
    # Mutation: in `MessageQueue.restore` put the items back in the other order.
    stages: list[Scene] = []
    look = speaking(stages, ("steer", "one"), ("steer", "two"))
    asked = anyio.Event()

    def waiting(api: Any) -> None:
        @api.on("message_end")
        async def wait(event: Any) -> None:
            if getattr(event.message, "text", "") == "one":
                asked.set()
                await anyio.sleep_forever()

    async with scene(tmp_path, [call("look")], tools=[look], extensions=[waiting]) as stage:
        stages.append(stage)
        with anyio.fail_after(5):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(stage.session.prompt, "go")
                await asked.wait()
                assert stage.session.pending_messages == ("one", "two")
                assert await stage.session.abort() == ["one", "two"]
        assert stage.session.pending_messages == ()


async def test_every_change_of_the_queue_is_told(tmp_path: Path) -> None:
    # Mutation: in `MessageQueue.put`, `delivered` or `withdraw` leave `_on_change` out.
    stages: list[Scene] = []
    look = speaking(stages, ("steer", "one"), ("follow_up", "two"))
    async with scene(tmp_path, [call("look"), reply("done")], tools=[look]) as stage:
        stages.append(stage)

        def take_back(event: Event) -> None:
            if event.name == "turn_end" and stage.names.count("turn_end") == 2:
                assert stage.session.clear_queue() == ["two"]

        stage.session.subscribe(take_back)
        assert str(await stage.session.prompt("go")) == "done"
        told = [(event.steering, event.follow_up) for event in stage.of(QueueUpdate)]
        assert told == [(("one",), ()), (("one",), ("two",)), ((), ("two",)), ((), ())]


async def test_what_is_said_while_a_run_settles_starts_the_next_one(tmp_path: Path) -> None:
    # Mutation: in `SessionCore.hold_run` leave `wake` out.
    said = iter(["and one more thing"])

    def adding(api: Any) -> None:
        @api.on("agent_settled")
        def add(event: Any, ctx: Any) -> None:
            for text in said:
                ctx.send_message(text)

    async with scene(tmp_path, [reply("one"), reply("two")], extensions=[adding]) as stage:
        with anyio.fail_after(5):
            assert str(await stage.session.prompt("go")) == "one"
            await stage.session.wait_for_idle()
        assert texts(stage.session.messages) == ["go", "one", "and one more thing", "two"]
