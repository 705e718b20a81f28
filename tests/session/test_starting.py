"""A session is started by whatever is asked of it first, once, and an end that comes meanwhile is an end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from agent_session import AgentSession, Event, Model, SessionClosedError, SessionStart
from agent_session.testing import ScriptedModel, always, reply
from tests.session.scene import SUMMARY, SYSTEM_PROMPT, texts, words
from tests.session.tasks import alone, check_nothing_left

SMALL = Model("scripted/model", context_window=1_000)

Verb = Callable[[AgentSession], Awaitable[Any]]


async def steered(session: AgentSession) -> None:
    session.steer("go on")
    await session.wait_for_idle()


async def followed_up(session: AgentSession) -> None:
    session.follow_up("go on")
    await session.wait_for_idle()


async def ran(session: AgentSession) -> None:
    async with session.run("go on") as run:
        await run.result()


async def navigated(session: AgentSession) -> None:
    await session.navigate_tree(session.session_manager.get_branch()[1].id)


async def forked(session: AgentSession) -> None:
    (await session.fork()).close()


FIRST_VERBS: dict[str, tuple[Verb, int]] = {
    "start": (lambda session: session.start(), 0),
    "prompt": (lambda session: session.prompt("go on"), 1),
    "run": (ran, 1),
    "steer": (steered, 1),
    "follow_up": (followed_up, 1),
    "compact": (lambda session: session.compact(), 0),
    "set_model": (lambda session: session.set_model("scripted/other"), 0),
    "set_thinking_level": (lambda session: session.set_thinking_level("low"), 0),
    "set_name": (lambda session: session.set_name("A name"), 0),
    "navigate_tree": (navigated, 0),
    "fork": (forked, 0),
    "load": (lambda session: session.load(lambda api: None), 0),
}


@asynccontextmanager
async def left(tmp_path: Path) -> AsyncIterator[tuple[AgentSession, ScriptedModel, list[Event]]]:
    """A session with a past, constructed and not started."""
    model = ScriptedModel([reply(words(60)), reply(words(60))])
    async with AgentSession(SMALL, client=model, tools=[], system_prompt=SYSTEM_PROMPT, cwd=tmp_path) as session:
        await session.prompt(words(60))
        await session.prompt(words(60))
    model = ScriptedModel([always(reply("done"))], summaries=[always(reply(SUMMARY))])
    session = AgentSession(SMALL, resume="latest", client=model, tools=[], system_prompt=SYSTEM_PROMPT, cwd=tmp_path)
    events: list[Event] = []
    session.subscribe(events.append)
    yield session, model, events
    await session.close()


@pytest.mark.parametrize("name", FIRST_VERBS)
async def test_the_first_verb_starts_the_session_whichever_it_is(tmp_path: Path, name: str) -> None:
    # Mutation: in that verb leave `start` out.
    verb, requests = FIRST_VERBS[name]
    async with left(tmp_path) as (session, model, events):
        await alone(verb(session))
        names = [event.name for event in events if event.name != "queue_update"]
        assert names.count("session_start") == 1
        assert names[0] == "session_start"
        assert len([request for request in model.requests if not request.is_summary]) == requests
        await alone(session.start())
        assert sum(isinstance(event, SessionStart) for event in events) == 1
        check_nothing_left(session)


async def test_text_for_a_session_that_nobody_started_is_answered_though_nobody_waits(tmp_path: Path) -> None:
    # Mutation: in `SessionCore.wake` start nothing where the session is not started.
    async with left(tmp_path) as (session, model, _):
        session.steer("go on")
        with anyio.fail_after(5):
            request = await model.arrived(1)
            await session.wait_for_idle()
        assert request.last_user_text == "go on"
        assert texts(session.messages)[-1] == "done"


@pytest.mark.parametrize("is_started", [False, True])
async def test_text_may_come_from_a_callback_of_the_loop_where_no_task_runs(tmp_path: Path, is_started: bool) -> None:
    # Mutation: make `Activity`'s cancel scope where the gate is claimed: only a task can make one.
    async with left(tmp_path) as (session, model, events):
        if is_started:
            await session.start()
        loop = asyncio.get_running_loop()
        loop.call_soon(session.steer, "go on")
        loop.call_soon(session.follow_up, "and then stop")
        with anyio.fail_after(5):
            await model.arrived(2)
            await session.wait_for_idle()
            loop.call_soon(session.steer, "once more")
            assert (await model.arrived(3)).last_user_text == "once more"
            loop.call_soon(session.abort_compaction)
            await session.wait_for_idle()
        assert [request.last_user_text for request in model.requests] == ["go on", "and then stop", "once more"]
        assert not [event for event in events if event.name in ("warning", "extension_failed")]


async def test_many_first_verbs_at_once_start_the_session_once(tmp_path: Path) -> None:
    # Mutation: in `SessionCore._start_once` leave the lock out.
    async def slow(api: Any) -> None:
        setups.append("slow")
        await anyio.lowlevel.checkpoint()

    setups: list[str] = []
    model = ScriptedModel([reply("done")])
    session = AgentSession("scripted/model", client=model, tools=[], extensions=[slow], cwd=tmp_path)
    events: list[Event] = []
    session.subscribe(events.append)
    with anyio.fail_after(5):
        results = await asyncio.gather(
            session.start(),
            session.prompt("go"),
            session.set_name("A name"),
            session.set_thinking_level("low"),
            session.start(),
        )
    assert str(results[1]) == "done"
    assert setups == ["slow"]
    assert [event.name for event in events].count("session_start") == 1
    await session.close()


# Ends that come early ---------------------------------------------------------------------------


async def starting(session: AgentSession) -> asyncio.Task[Any]:
    """A prompt in a task of its own that has claimed the session and not opened it yet."""
    prompting = asyncio.create_task(session.prompt("go"))
    while session.is_idle:
        await anyio.lowlevel.checkpoint()
    assert session._core.opened is None
    return prompting


async def test_an_abort_while_a_session_starts_ends_the_prompt_that_starts_it(tmp_path: Path) -> None:
    # Mutation: in `SessionCore.abort` return at once where the log is not open yet.
    model = ScriptedModel([reply("done")])
    session = AgentSession("scripted/model", client=model, tools=[], cwd=tmp_path)
    with anyio.fail_after(5):
        prompting = await starting(session)
        await session.abort()
        assert session.is_idle
        assert (await prompting).stop_reason == "aborted"
        assert model.requests == []
        assert str(await alone(session.prompt("go"))) == "done"
        await session.close()


async def test_a_start_that_was_ended_loads_nothing_twice_when_it_is_made_again(tmp_path: Path) -> None:
    # Mutation: in `ExtensionSet.load_all` keep what was loaded when the rest is cancelled.
    heard: list[str] = []
    hangs = anyio.Event()
    is_hanging = True

    def quick(api: Any) -> None:
        api.on("agent_start", lambda event: heard.append(event.name))

    async def slow(api: Any) -> None:
        if is_hanging:
            hangs.set()
            await anyio.sleep_forever()

    model = ScriptedModel([reply("done")])
    session = AgentSession("scripted/model", client=model, tools=[], extensions=[quick, slow], cwd=tmp_path)
    with anyio.fail_after(5):
        prompting = await starting(session)
        await hangs.wait()
        await session.abort()
        assert (await prompting).stop_reason == "aborted"
        is_hanging = False
        assert str(await session.prompt("go")) == "done"
        assert heard == ["agent_start"]
        await session.close()


async def test_closing_while_a_session_starts_ends_the_start(tmp_path: Path) -> None:
    # Mutation: in `SessionCore.abort` return at once where the log is not open yet: `close` never ends.
    session = AgentSession("scripted/model", client=ScriptedModel(), tools=[], cwd=tmp_path)
    with anyio.fail_after(5):
        prompting = await starting(session)
        assert await session.close() == []
        with pytest.raises(SessionClosedError):
            await prompting
        with pytest.raises(SessionClosedError):
            await session.start()
