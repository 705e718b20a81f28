"""Any task may call any verb: no scope, task group or context of one call is needed by the next.

So it is used in a notebook, where each cell is a task of its own, and at a prompt, where the loop stands still between
two lines.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import anyio
import pytest

from agent_session import (
    AgentSession,
    CompactionEnd,
    Event,
    Model,
    SessionClosedError,
    tool,
)
from agent_session.testing import ScriptedModel, always, call, hold, reply
from session_store import SessionManager
from tests.session.scene import SUMMARY, scene, texts, words
from tests.session.tasks import alone, check_nothing_left, now


@tool
async def look(at: str) -> str:
    """Look at something."""
    return f"seen {at}"


async def test_every_verb_works_in_a_task_of_its_own(tmp_path: Path) -> None:
    # Mutation: enter a task group in `start` and leave it in `close`.
    steps = [always(lambda request: reply(words(60, request.last_user_text.split()[0])))]
    async with scene(tmp_path, steps, tools=[look], check=False) as stage:
        session = stage.session

        async def next_event(stream: Any, name: str) -> Event:
            async for event in stream:
                if event.name == name:
                    return event  # type: ignore[no-any-return]
            raise AssertionError("the stream ended")

        await alone(session.start())
        assert str(await alone(session.prompt(words(60, "one")))).startswith("one")
        seen: list[Event] = []
        unsubscribe = await alone(now(lambda: session.subscribe(seen.append)))
        await alone(session.set_model(Model("openai/other", context_window=1_000)))
        await alone(session.set_thinking_level("low"))
        await alone(session.set_name("A name"))
        await alone(now(lambda: session.set_active_tools([])))
        await alone(now(lambda: session.update_settings(hook_timeout=3.0)))
        assert str(await alone(session.prompt(words(60, "two")))).startswith("two")
        assert stage.chat_requests[-1].payload["model"] == "other"
        assert "tools" not in stage.chat_requests[-1].payload

        await alone(now(lambda: session.steer("three")))
        await alone(session.wait_for_idle())
        await alone(now(lambda: session.follow_up("four")))
        await alone(session.wait_for_idle())
        assert [text.split()[0] for text in texts(session.messages)][-4:] == ["three", "three", "four", "four"]
        assert await alone(now(session.clear_queue)) == []
        assert await alone(session.abort()) == []
        assert await alone(now(session.abort_compaction)) is False

        # A block whose beginning, middle and end belong to three tasks.
        events = session.events()
        stream = await alone(events.__aenter__())
        running = session.run(words(60, "five"))
        run = await alone(running.__aenter__())
        assert (await alone(next_event(stream, "agent_start"))).name == "agent_start"
        assert str(await alone(run.result())).startswith("five")
        await alone(events.__aexit__(None, None, None))
        await alone(running.__aexit__(None, None, None))
        check_nothing_left(session)

        assert (await alone(session.compact())).status == "applied"
        loaded: list[str] = []

        def extension(api: Any) -> None:
            api.on("agent_start", lambda event: loaded.append(event.name))

        handle = await alone(session.load(extension))
        await alone(session.prompt("six"))
        await alone(handle.unload())
        await alone(session.prompt("seven"))
        assert loaded == ["agent_start"]

        first = stage.lines("message")[0]["id"]
        assert (await alone(session.navigate_tree(first))).startswith("one")
        assert session.messages == ()
        fork = await alone(session.fork(first))
        assert len(texts(fork.build_messages())) == 1
        await alone(now(fork.close))
        assert (await alone(now(session.stats))).total.requests == 8  # seven answers and a summary
        assert (await alone(now(session.context_usage))).tokens >= 0

        count = len(seen)
        await alone(now(unsubscribe))
        assert str(await alone(session.prompt("eight"))).startswith("eight")
        assert len(seen) == count
        stage.check_whole()
        check_nothing_left(session)
        assert await alone(session.close()) == []
        with pytest.raises(SessionClosedError):
            await alone(session.prompt("nine"))


async def test_a_block_that_one_task_enters_may_be_left_by_another(tmp_path: Path) -> None:
    # Mutation: enter a task group in `start` and leave it in `close`.
    async with ScriptedModel([reply("one"), reply("two")]) as model:
        session = AgentSession(Model("scripted/model", context_window=10_000), client=model, cwd=tmp_path)
        assert await alone(session.__aenter__()) is session
        assert str(await alone(session.prompt("first"))) == "one"
        assert str(await session.prompt("second")) == "two"
        await alone(session.__aexit__(None, None, None))
        assert session.path is not None
        SessionManager.open(session.path).close()


def test_a_session_goes_on_over_lines_between_which_the_loop_stands_still(tmp_path: Path) -> None:
    # Mutation: enter a task group in `SessionCore.start`.
    model = ScriptedModel([call("look", at="a"), reply("one"), reply("two"), reply("three")])
    session = AgentSession(Model("scripted/model", context_window=10_000), client=model, tools=[look], cwd=tmp_path)
    with asyncio.Runner() as runner:
        assert str(runner.run(session.prompt("first"))) == "one"
        runner.run(session.set_name("Lines"))

        async def say() -> None:
            session.steer("second")

        # Said on one line, answered while the loop runs for another.
        runner.run(say())
        runner.run(session.wait_for_idle())
        assert texts(session.messages)[-1] == "two"
        assert str(runner.run(session.prompt("third"))) == "three"
        assert runner.run(session.close()) == []
    model.assert_done()


async def test_the_end_of_one_task_is_not_the_end_of_another(tmp_path: Path) -> None:
    # Mutation: in `SessionCore.wake` start nothing; in `ActivityGate.claim_in_turn` leave who gave up in the line.
    held = hold(reply("one"))
    async with scene(tmp_path, [held, reply("two"), reply("three")]) as stage:
        session = stage.session
        # Queued by a task that is over long before the answer comes.
        await alone(now(lambda: session.steer("first")))
        with anyio.fail_after(5):
            await held.started.wait()
            waiting = asyncio.create_task(session.prompt("second", if_busy="wait"))
            given_up = asyncio.create_task(session.prompt("never", if_busy="wait"))
            watching = asyncio.create_task(session.wait_for_idle())
            await anyio.lowlevel.checkpoint()
            given_up.cancel()
            await asyncio.wait([given_up])
            with anyio.CancelScope() as scope:
                scope.cancel()
                await session.prompt("never either", if_busy="wait")
            held.release()
            assert str(await waiting) == "two"
            await watching
        assert given_up.cancelled()
        assert str(await alone(session.prompt("third"))) == "three"
        assert texts(session.messages) == ["first", "one", "second", "two", "third", "three"]


async def test_tasks_of_their_own_steer_name_watch_and_end_one_run(tmp_path: Path) -> None:
    # Mutation: in `ActivityGate.is_inside` look at the gate alone, and not at the caller's own activity.
    started = anyio.Event()

    @tool
    async def linger(at: str) -> str:
        """Look for a long time."""
        started.set()
        await anyio.sleep_forever()
        return at

    async with scene(tmp_path, [call("linger", at="a"), reply("done")], tools=[linger]) as stage:
        session = stage.session
        async with session.events() as stream:
            prompting = asyncio.create_task(session.prompt("look"))
            with anyio.fail_after(5):
                await started.wait()
            await alone(session.set_name("Busy"))
            await alone(session.set_thinking_level("high"))
            await alone(now(lambda: session.steer("hurry")))
            assert session.pending_messages == ("hurry",)
            assert (await alone(now(session.stats))).name == "Busy"
            assert await alone(session.abort()) == ["hurry"]
            assert session.is_idle
            with anyio.fail_after(5):
                message = await prompting
            assert message is not None
            assert message.stop_reason == "aborted"
            names: list[str] = []
            async for event in stream:
                names.append(event.name)
                if event.name == "agent_settled":
                    break
        assert "thinking_level_select" in names
        assert str(await alone(session.prompt("go on"))) == "done"
        assert stage.told("agent_settled") == ["agent_settled"] * 2


async def test_a_compaction_in_one_task_is_ended_from_another(tmp_path: Path) -> None:
    # Mutation: keep the scope of a compaction in a context variable of its task.
    held = hold(reply(SUMMARY))
    async with scene(tmp_path, [reply(words(60)) for _ in range(3)], summaries=[held]) as stage:
        for _ in range(3):
            await alone(stage.session.prompt(words(60)))
        compacting = asyncio.create_task(stage.session.compact())
        with anyio.fail_after(5):
            await held.started.wait()
            assert await alone(now(stage.session.abort_compaction)) is True
            assert (await compacting).status == "aborted"
        assert [event.outcome.status for event in stage.of(CompactionEnd)] == ["aborted"]
        check_nothing_left(stage.session)
