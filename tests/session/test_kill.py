"""A process that is killed: what was announced is in the file, and the session goes on as if nothing had happened."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import anyio
import pytest

from agent_session import AgentSession, Model, SessionLockedError
from agent_session.testing import always, call, calls, hold, reply
from session_store import SessionManager
from tests.session.children import (
    KILLED,
    check_survived,
    context_of,
    entries_of,
    in_time,
    launcher,
    new_session,
    provider,
    said_in,
    whole_lines,
)
from tests.session.scene import SUMMARY, SYSTEM_PROMPT
from tests.session.survival_program import Moment, Task, look

WORK = ("prompt", "prompt", "compact")
WORK_ENTRIES = 6 + 5 + 1
"""The model; a question, an answer with two calls, their results, the answer, twice; the compaction."""

KILLS_EACH = 10


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
async def test_nothing_that_was_announced_is_lost_when_a_process_is_killed_at_any_moment(
    tmp_path: Path, seed: int
) -> None:
    # Mutation: in `JsonlLog._write_at_end` keep the bytes until `sync`; in `JsonlLog.open` leave `settle_tail` out; in
    # `WriterLock` take the text in the lock file for the lock, or do not lock.
    chance = random.Random(seed)
    path = new_session(tmp_path)
    announced: list[str] = []
    context = context_of(path)
    stored = whole_lines(path)
    async with provider() as serving, launcher() as start:
        for kill in range(KILLS_EACH):
            # Of three the last kills itself half-way through a write: no signal from outside hits that moment.
            writes = chance.randint(1, 25) if kill % 3 == 2 else 0
            async with start.child(Task(path=str(path), url=serving.base_url, dies_writing=writes)) as child:
                with in_time():
                    assert await child.heard("resumed") == context
                    with pytest.raises(SessionLockedError) as refused:
                        SessionManager.open(path)
                    assert refused.value.pid == child.pid
                    if not writes:
                        for _ in range(chance.randint(1, 25)):
                            await child.heard("entry")
                        # A moment between two of them, inside whatever is being done.
                        with anyio.move_on_after(chance.uniform(0, 0.02)):
                            await child.ended()
                        child.kill()
                    assert await child.ended() == KILLED
            announced += child.announced
            assert path.read_bytes().startswith(stored)
            check_survived(path, announced)
            context, stored = context_of(path), whole_lines(path)
        async with start.child(Task(path=str(path), url=serving.base_url, verbs=WORK)) as child:
            with in_time():
                assert await child.ended() == 0
        check_survived(path, [*announced, *child.announced])
        assert child.all("context")[-1] == context_of(path)
    assert any(entry["type"] == "compaction" for entry in entries_of(path))


async def test_each_entry_is_in_the_file_in_the_moment_in_which_it_is_announced(tmp_path: Path) -> None:
    # Mutation: in `Recorder.store` tell before the append.
    last: list[dict[str, Any]] = []
    async with provider() as serving, launcher() as start:
        for number in range(1, WORK_ENTRIES + 1):
            path = new_session(tmp_path / str(number))
            task = Task(path=str(path), url=serving.base_url, verbs=WORK, dies_told=number)
            async with start.child(task) as child:
                with in_time():
                    assert await child.ended() == KILLED
            assert len(child.announced) == number
            last = entries_of(path)
            assert child.announced == [entry["id"] for entry in last][:number]
            check_survived(path, child.announced)
    assert last[-1]["type"] == "compaction"


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["before", "within", "after"])
async def test_a_kill_at_any_write_leaves_a_session_that_goes_on_from_there(tmp_path: Path, moment: Moment) -> None:
    # Mutation: in `JsonlLog.open` leave `settle_tail` out.
    async with provider() as serving, launcher() as start:
        for number in range(1, WORK_ENTRIES + 1):
            path = new_session(tmp_path / str(number))
            url = serving.base_url
            task = Task(path=str(path), url=url, verbs=WORK, dies_writing=number, moment=moment)
            async with start.child(task) as child:
                with in_time():
                    assert await child.ended() == KILLED
            stored = entries_of(path)
            # The one that was written when the process died had been told to nobody.
            assert len(child.announced) == number - 1
            assert len(stored) == number - 1 + (moment == "after")
            assert (whole_lines(path) == path.read_bytes()) == (moment != "within")
            check_survived(path, child.announced)
            context = context_of(path)
            async with start.child(Task(path=str(path), url=url, verbs=("prompt",))) as child:
                with in_time():
                    assert await child.heard("resumed") == context
                    assert await child.ended() == 0
            assert entries_of(path)[: len(stored)] == stored
            assert child.announced == [entry["id"] for entry in entries_of(path)[len(stored) :]]
            check_survived(path, child.announced)


async def test_a_process_killed_in_the_middle_of_a_compaction_resumes_with_an_identical_context(tmp_path: Path) -> None:
    # Mutation: in `Compactor._attempt` append anything before the summary is there.
    path = new_session(tmp_path)
    summary = hold(reply(SUMMARY))
    async with provider(summaries=[summary, always(reply(SUMMARY))]) as serving, launcher() as start:
        async with start.child(Task(path=str(path), url=serving.base_url, verbs=WORK, window=100_000)) as child:
            with in_time():
                await summary.started.wait()
                before = path.read_bytes()
                # Of what the first and the second prompt left.
                await child.heard("context")
                context = await child.heard("context")
                assert child.announced == [entry["id"] for entry in entries_of(path)]
                assert len(child.announced) == WORK_ENTRIES - 1
                child.kill()
                assert await child.ended() == KILLED
        summary.release()
        assert path.read_bytes() == before
        check_survived(path, child.announced)
        async with start.child(Task(path=str(path), url=serving.base_url, verbs=("compact",), window=100_000)) as child:
            with in_time():
                assert await child.heard("resumed") == context
                assert await child.heard("context") != context
                assert await child.ended() == 0
        assert child.all("compaction") == ["applied"]
        # Append-only: what was there before the compaction is there after it, byte for byte.
        assert path.read_bytes().startswith(before)
        check_survived(path, child.announced)


@pytest.mark.parametrize("moment", ["before", "within", "after"])
async def test_a_kill_while_a_compaction_is_written_leaves_all_of_it_or_nothing(tmp_path: Path, moment: Moment) -> None:
    # Mutation: in `JsonlLog.open` leave `settle_tail` out; in `SessionWriter._append` write the entry in two writes.
    path = new_session(tmp_path)
    async with provider() as serving, launcher() as start:
        async with start.child(Task(path=str(path), url=serving.base_url, verbs=WORK[:2])) as child:
            with in_time():
                assert await child.ended() == 0
        before, context = said_in(path), child.all("context")[-1]
        other = Path(shutil.copytree(path.parent, tmp_path / "other")) / path.name
        async with start.child(
            Task(path=str(path), url=serving.base_url, verbs=("compact",), dies_writing=1, moment=moment)
        ) as child:
            with in_time():
                assert await child.heard("resumed") == context
                assert await child.ended() == KILLED
        assert child.announced == []
        check_survived(path, [])
        if moment == "after":
            # As if the process had lived.
            async with start.child(Task(path=str(other), url=serving.base_url, verbs=("compact",))) as child:
                with in_time():
                    assert await child.ended() == 0
            assert said_in(path) == said_in(other) != before
        else:
            assert context_of(path) == context
            assert not [entry for entry in entries_of(path) if entry["type"] == "compaction"]


async def test_a_killed_tool_run_is_answered_once_when_the_session_goes_on(tmp_path: Path) -> None:
    # Mutation: in `Run.execute` leave `answer_open_calls` out; in `dangling_calls` count what was answered as open.
    path = new_session(tmp_path)
    steps = [calls([("look", {"at": "a"}), ("linger", {"at": "b"})]), reply("on"), reply("further")]
    async with provider(steps) as serving:
        async with (
            launcher() as start,
            start.child(Task(path=str(path), url=serving.base_url, verbs=("prompt",))) as child,
        ):
            with in_time():
                # The model, the question, the two calls, the one result.
                await child.until(lambda: child.all("tool") == ["look", "linger"] and len(child.announced) == 4)
                child.kill()
                assert await child.ended() == KILLED
        check_survived(path, child.announced)
        for prompt, answer in (("go on", "on"), ("and on", "further")):
            session = AgentSession(
                Model("openai/scripted", context_window=100_000),
                resume=path,
                client=serving.client,
                tools=[look],
                system_prompt=SYSTEM_PROMPT,
            )
            async with session:
                assert str(await session.prompt(prompt)) == answer
    messages = [entry["message"] for entry in entries_of(path) if entry["type"] == "message"]
    results = [message for message in messages if message["role"] == "toolResult"]
    assert [(result["toolName"], result["isError"]) for result in results] == [("look", False), ("linger", True)]
    assert "interrupted" in results[1]["content"][0]["text"]


async def test_a_session_is_on_the_disk_from_its_first_moment(tmp_path: Path) -> None:
    # Mutation: in `JsonlLog` write the header, or the entries, with the first answer only.
    path = new_session(tmp_path)
    assert path.read_bytes().count(b"\n") == 1
    held = hold(call("look", at="a"))
    async with provider([held]) as serving, launcher() as start:
        async with start.child(Task(path=str(path), url=serving.base_url, verbs=("prompt",))) as child:
            with in_time():
                await held.started.wait()
                child.kill()
                assert await child.ended() == KILLED
        held.release()
    header, *entries = path.read_bytes().splitlines()
    assert b'"type":"session"' in header
    assert [entry.get("message", {}).get("role") for entry in entries_of(path)] == [None, "user"]
    assert len(entries) == 2
    check_survived(path, child.announced)
