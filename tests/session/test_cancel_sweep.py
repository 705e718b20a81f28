"""Cancelling at every await of a compaction and of a prompt: the log as before or whole, the session usable."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from agent_session import (
    AgentEnd,
    AgentSession,
    AgentStart,
    AssistantMessage,
    CompactionOutcome,
    Event,
    MessageEnd,
    ToolExecutionEnd,
    TurnEnd,
    TurnStart,
    tool,
)
from agent_session.testing import always, call, calls, reply
from session_store import SessionManager, pairs_ok
from tests.session.cancelling import WAYS, Way, cancelled_at
from tests.session.scene import Scene, scene, texts, words

LIMIT = 400


@tool
def look(at: str) -> str:
    """Look at something."""
    return words(30, f"seen {at}")


def check_reopened(stage: Scene) -> None:
    """The file says what the session says, and no line of it is torn."""
    reopened = SessionManager.open(stage.path, read_only=True)
    assert not reopened.damage
    assert tuple(reopened.build_messages()) == stage.session.messages
    reopened.close()


def watching(api: Any) -> None:
    """Handlers that await, so that there are suspensions inside of decisions and notifications too."""
    for name in ("before_compact", "session_compact", "compaction_start", "compaction_end", "message_end", "tool_call"):

        async def pause(event: Any) -> None:
            await anyio.lowlevel.checkpoint()

        api.on(name, pause)


@pytest.mark.parametrize("way", WAYS)
async def test_a_compaction_cancelled_anywhere_is_whole_or_never_was(tmp_path: Path, way: Way) -> None:
    # Mutation: in `Compactor._commit` put an await between the append and `attempt.outcome`, or set that after the
    # announcement; in `run` call `_end` behind the `finally` instead of inside of it.
    statuses: set[str] = set()
    for at in range(1, LIMIT):
        steps = [*(reply(words(60, f"answer {number}")) for number in range(3)), reply("usable")]
        async with scene(tmp_path / f"{way}{at}", steps, extensions=[watching]) as stage:
            for number in range(3):
                await stage.session.prompt(words(60, f"question {number}"))
            stage.events.clear()
            before = stage.path.read_bytes()
            with anyio.fail_after(10):
                reached, result = await cancelled_at(at, way, stage.session, stage.session.compact())
            stage.check_whole()
            after = stage.path.read_bytes()
            assert after.startswith(before)
            assert len(stage.lines("compaction")) == (1 if after != before else 0)
            if isinstance(result, CompactionOutcome):
                statuses.add(result.status)
                assert (result.status == "applied") == (after != before)
            assert stage.outcomes == (["applied"] if after != before else stage.outcomes)
            if stage.outcomes:
                assert stage.names[-1] == "compaction_end"
            check_reopened(stage)
            assert str(await stage.session.prompt("go on")) == "usable"
        if not reached:
            break
    else:
        pytest.fail(f"more than {LIMIT} suspensions: the sweep did not come to an end")
    assert at > 10
    if way == "abort":
        assert statuses >= {"aborted", "applied"}


@pytest.mark.parametrize("way", WAYS)
async def test_a_prompt_cancelled_anywhere_leaves_a_valid_log_and_a_usable_session(tmp_path: Path, way: Way) -> None:
    # Mutation: in `SessionCore.hold_run` leave `_settle` out of the `finally`; in `turn._recorded` and in
    # `tool_execution._record` store nothing where the decision was cancelled.
    for at in range(1, LIMIT):
        asked = [
            reply("done", usage=(950, 0, 0, 5)),
            call("look", at="c"),
            calls([("look", {"at": "a"}), ("look", {"at": "b"})]),
        ]

        def next_step(request: Any, asked: list[Any] = asked) -> Any:
            return asked.pop() if asked else reply("usable")

        decided: list[AssistantMessage] = []

        def noting(api: Any, decided: list[AssistantMessage] = decided) -> None:
            @api.on("message_end")
            def note(asked_about: MessageEnd) -> None:
                if isinstance(asked_about.message, AssistantMessage):
                    decided.append(asked_about.message)

        extensions = [noting, watching]
        async with scene(tmp_path / f"{way}{at}", [always(next_step)], tools=[look], extensions=extensions) as stage:
            with anyio.fail_after(10):
                reached, result = await cancelled_at(at, way, stage.session, stage.session.prompt("look around"))
            stage.check_whole()
            assert len(stage.of(AgentStart)) == len(stage.of(AgentEnd))
            if stage.of(AgentStart):
                assert stage.names[-1] == "agent_settled"
                assert stage.names.count("agent_settled") == 1
            check_reopened(stage)
            assert stage.session.pending_messages == ()
            # A tool that has run and an answer that is whole are not forgotten, and no answer is there twice.
            stored = [line["message"] for line in stage.lines("message")]
            ran = {event.call_id for event in stage.of(ToolExecutionEnd) if not event.is_error}
            assert ran <= {message["toolCallId"] for message in stored if message["role"] == "toolResult"}
            answers = [message["role"] for message in stored].count("assistant")
            assert len(decided) <= answers <= len(stage.chat_requests)
            asked.clear()
            assert str(await stage.session.prompt("go on")) == "usable"
            assert pairs_ok(stage.session.messages)
            for request in stage.chat_requests:
                roles = [message["role"] for message in request.payload["messages"]]
                assert roles[-1] in ("user", "tool")
            check_reopened(stage)
        if not reached:
            break
    else:
        pytest.fail(f"more than {LIMIT} suspensions: the sweep did not come to an end")
    assert at > 20
    assert str(result) == "done"
    assert len(stage.of(TurnStart)) == len(stage.of(TurnEnd))
    assert "seen c" in str(texts(stage.session.messages)) or stage.outcomes


async def test_a_queued_message_is_delivered_or_still_queued_wherever_the_run_ends(tmp_path: Path) -> None:
    # Mutation: in `Run._deliver` leave `restore` out, or call `delivered` before the append.
    for at in range(1, LIMIT):
        asked = iter([call("look", at="a")])

        def next_step(request: Any, asked: Any = asked) -> Any:
            return next(asked, reply("ok"))

        async with scene(tmp_path / str(at), [always(next_step)], tools=[look], extensions=[watching]) as stage:

            def steer(event: Event, session: AgentSession = stage.session) -> None:
                if isinstance(event, ToolExecutionEnd):
                    session.steer("steered")

            stage.session.subscribe(steer)
            with anyio.fail_after(10):
                reached, _ = await cancelled_at(at, "task", stage.session, stage.session.prompt("go"))
            was_sent = any(event.name == "tool_execution_end" for event in stage.events)
            said = [line["message"]["content"][0].get("text") for line in stage.lines("message")]
            in_log, in_queue = said.count("steered"), stage.session.pending_messages.count("steered")
            assert in_log + in_queue == (1 if was_sent else 0)
            # What counts as waiting can be taken back, so it is in its lane and not for ever on its way.
            assert stage.session.clear_queue() == ["steered"] * in_queue
        if not reached:
            break
    else:
        pytest.fail("the sweep did not come to an end")
