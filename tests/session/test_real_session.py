"""A real coding session in the oldest format, in the folder that AGENT_SESSION_TEST_DATA names, is gone on with."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path
from typing import Any

import orjson
import pytest

from agent_session import AgentSession, Event, Model, Warning
from agent_session.testing import pairs_ok, reply
from session_store import SessionManager
from session_store.entries import CompactionEntry, MessageEntry
from session_store.locations import folder_for
from tests.session.children import (
    KILLED,
    check_survived,
    context_of,
    entries_of,
    in_time,
    launcher,
    provider,
    whole_lines,
)
from tests.session.survival_program import Task, digest, look

FILE_NAME = "real-session-v1-a.jsonl"
CWD = "/home/dev/workspaces/pi-mono"
WINDOW = 1_000_000
CONTEXT_MESSAGES = 914 - 22
"""Its messages without the answers that failed or say nothing."""


@pytest.fixture
def session_dir(isolated_environment: Path) -> Path:
    """The default folder of all sessions."""
    return isolated_environment / "sessions"


@pytest.fixture
def copy(session_dir: Path) -> Path:
    folder = os.environ.get("AGENT_SESSION_TEST_DATA")
    if folder is None:
        pytest.skip("AGENT_SESSION_TEST_DATA names no folder with real sessions")
    target = folder_for(CWD, session_dir)
    target.mkdir(parents=True)
    return Path(shutil.copy(Path(folder) / FILE_NAME, target / FILE_NAME))


def header_of(path: Path) -> Any:
    return orjson.loads(path.read_bytes().splitlines()[0])


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


async def test_it_is_listed_and_opens_with_its_bytes_untouched_and_shows_its_context(copy: Path) -> None:
    # Mutation: in `JsonlLog.open` write to the file; in `is_sent` send what failed.
    before = sha256(copy)
    (row,) = SessionManager.list(CWD)
    assert (row.path, row.damaged) == (copy, None)
    async with provider([]) as serving:
        for resume in (copy, row.id, "latest"):
            session = AgentSession(
                Model("openai/scripted", context_window=WINDOW), resume=resume, client=serving.client, tools=[], cwd=CWD
            )
            events: list[Event] = []
            session.subscribe(events.append)
            async with session:
                assert (session.path, session.session_id) == (copy, row.id)
                assert len(session.messages) == CONTEXT_MESSAGES
                assert pairs_ok(session.messages)
                assert sum(isinstance(entry, MessageEntry) for entry in session.transcript) == 914
                assert session.context_usage().tokens > 50_000
                assert "context" in repr(session.stats())
                assert not [event for event in events if isinstance(event, Warning)]
        async with AgentSession(resume=copy, client=serving.client, tools=[]) as session:
            assert session.model.id == "anthropic/claude-sonnet-4-5"
        assert serving.requests == []
    assert sha256(copy) == before
    assert [path.name for path in copy.parent.iterdir()] == [FILE_NAME]


async def test_it_takes_a_prompt_with_two_calls_is_compacted_killed_and_resumed_with_an_identical_context(
    copy: Path,
) -> None:
    # Mutation: in `JsonlLog._move_to_successor` leave the old entries or the new lines out.
    before = sha256(copy)
    context = context_of(copy)
    async with provider() as serving:
        async with (
            launcher() as start,
            start.child(
                Task(path=str(copy), url=serving.base_url, verbs=("prompt", "compact", "wait"), window=WINDOW)
            ) as child,
        ):
            with in_time():
                assert await child.heard("resumed") == context
                prompted = await child.heard("context")
                path = Path(await child.heard("file"))
                compacted = await child.heard("context")
                assert Path(await child.heard("file")) == path
                child.kill()
                assert await child.ended() == KILLED
        assert child.all("tool") == ["look", "look"]
        assert child.all("compaction") == ["applied"]
        assert len({context, prompted, compacted}) == 3

        assert sha256(copy) == before
        assert path.parent == copy.parent
        header = header_of(path)
        assert (header["version"], header["parentSession"], header["cwd"]) == (3, str(copy), CWD)
        check_survived(path, child.announced)
        # All 1,018 entries, and what was added: the model, five messages, the compaction.
        assert len(entries_of(path)) == 1018 + 1 + 5 + 1
        assert context_of(path) == compacted
        stored = whole_lines(path)

        again = AgentSession(
            Model("openai/scripted", context_window=WINDOW),
            resume="latest",
            client=serving.client,
            tools=[look],
            cwd=CWD,
        )
        async with again:
            assert again.path == path
            assert digest(again.messages) == compacted
            newest = again.session_manager.get_latest_compaction_entry()
            assert isinstance(newest, CompactionEntry)
            assert newest.tokens_after is not None
            assert newest.tokens_after < newest.tokens_before // 10
            assert len(again.messages) < 20
            assert whole_lines(path) == stored
            await again.prompt("go on")
            assert pairs_ok(again.messages)
        assert whole_lines(path).startswith(stored)
        assert {row.path for row in SessionManager.list(CWD)} == {copy, path}


async def test_it_is_compacted_before_its_first_request_where_it_does_not_fit(copy: Path) -> None:
    # Mutation: in `Run._until_stopped` do not check before a request; in `_move_to_successor` say nothing.
    async with provider([reply("done")]) as serving:
        session = AgentSession(
            Model("openai/scripted", context_window=100_000), resume=copy, client=serving.client, tools=[], cwd=CWD
        )
        warned: list[str] = []
        session.subscribe(lambda event: warned.append(event.text) if isinstance(event, Warning) else None)
        async with session:
            assert session.context_usage().percent > 100
            assert str(await session.prompt("go on")) == "done"
            assert pairs_ok(session.messages)
            assert session.path != copy
        # That it moved to a new file is said once.
        assert [str(copy) in text and "version 1" in text for text in warned] == [True]
        chat = [request for request in serving.requests if not request.is_summary]
        assert len(chat) == 1
        assert chat[0].tokens < 100_000
        assert all(request.tokens < 100_000 for request in serving.requests)
