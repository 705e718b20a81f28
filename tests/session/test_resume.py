"""Opening a session again: everything is as it was left, and nothing is said or written before it is asked."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from agent_session import (
    AgentSession,
    MissingModelError,
    Model,
    SessionLockedError,
    SessionNotFoundError,
    SessionStart,
    Settings,
)
from agent_session.testing import FakeProvider, always, call, reply
from session_store import SessionManager
from tests.session.children import entries_of
from tests.session.scene import SUMMARY, SYSTEM_PROMPT, scene, texts, words
from tests.session.survival_program import digest, look

OPTIONS: dict[str, Any] = {"system_prompt": SYSTEM_PROMPT, "tools": [look]}


@asynccontextmanager
async def provider(*answers: Any) -> AsyncIterator[FakeProvider]:
    async with FakeProvider(answers or [always(reply("done"))], summaries=[always(reply(SUMMARY))]) as serving:
        yield serving


async def made(tmp_path: Path, serving: FakeProvider, *prompts: str, **options: Any) -> Path:
    """The file of a session in the default folder in which these prompts were answered."""
    model = Model("openai/scripted", context_window=1_000)
    async with AgentSession(model, client=serving.client, cwd=tmp_path, **OPTIONS, **options) as session:
        for prompt in prompts:
            await session.prompt(prompt)
        assert session.path is not None
        return session.path


@pytest.mark.parametrize("way", ["path", "text", "id", "beginning of the id", "latest"])
async def test_a_session_is_opened_again_by_its_path_its_id_or_as_the_latest(tmp_path: Path, way: str) -> None:
    # Mutation: in `open_manager` take `resume` for a path only, or "latest" for the latest of all folders.
    async with provider() as serving:
        path = await made(tmp_path, serving, "hello")
        await made(tmp_path / "elsewhere", serving, "something else")
        with SessionManager.open(path, read_only=True) as manager:
            context, session_id = tuple(manager.build_messages()), manager.session_id
        before = path.read_bytes()
        ways: dict[str, str | Path] = {
            "path": path,
            "text": str(path),
            "id": session_id,
            "beginning of the id": session_id[:10],
            "latest": "latest",
        }
        resume = ways[way]
        started: list[SessionStart] = []
        session = AgentSession(resume=resume, client=serving.client, cwd=tmp_path, **OPTIONS)
        session.subscribe(lambda event: started.append(event) if isinstance(event, SessionStart) else None)
        requests = len(serving.requests)
        async with session:
            assert (session.path, session.session_id) == (path, session_id)
            assert session.messages == context
            assert session.context_usage().tokens > 0
            assert session.stats().total.requests == 1
            assert [start.reason for start in started] == ["resume"]
        assert path.read_bytes() == before
        assert len(serving.requests) == requests


async def test_the_latest_where_there_is_none_is_a_new_session(tmp_path: Path) -> None:
    # Mutation: in `SessionManager.continue_recent` raise where there is none.
    async with AgentSession("openai/scripted", resume="latest", cwd=tmp_path) as session:
        assert session.messages == ()
        assert session.path is not None
        assert session.path.exists()


async def test_model_and_thinking_level_are_those_of_the_log(tmp_path: Path) -> None:
    # Mutation: in `choose_model` or `choose_thinking_level` look at the setting before the log.
    async with provider() as serving:
        path = await made(tmp_path, serving, "hello", thinking_level="high")
        with SessionManager.open(path) as manager:
            manager.append_model_change("openai", "another")
        before = path.read_bytes()
        settings = Settings(model="openai/preferred", thinking_level="minimal")
        session = AgentSession(resume=path, settings=settings, client=serving.client, cwd=tmp_path, **OPTIONS)
        async with session:
            assert (session.model.id, session.thinking_level) == ("openai/another", "high")
            await session.prompt("go on")
        assert serving.requests[-1].payload["model"] == "another"
        assert serving.requests[-1].payload["reasoning_effort"] == "high"
    added = path.read_bytes().removeprefix(before)
    assert b"model_change" not in added
    assert b"thinking_level_change" not in added


async def test_another_model_and_level_are_logged_just_before_the_first_request_and_not_on_opening(
    tmp_path: Path,
) -> None:
    # Mutation: in `build_parts` or `start` append the change; in `log_changes` append it though it agrees.
    async with provider() as serving:
        path = await made(tmp_path, serving, "hello")
        before = path.read_bytes()

        def opened() -> AgentSession:
            return AgentSession(
                "openai/other", resume=path, thinking_level="low", client=serving.client, cwd=tmp_path, **OPTIONS
            )

        async with opened() as session:
            assert (session.model.id, session.thinking_level) == ("openai/other", "low")
        assert path.read_bytes() == before
        stored = len(entries_of(path))
        for _ in range(2):
            async with opened() as session:
                await session.prompt("go on")
        assert serving.requests[-1].payload["model"] == "other"
    added = [(entry["type"], entry.get("message", {}).get("role")) for entry in entries_of(path)[stored:]]
    assert added == [
        ("model_change", None),
        ("thinking_level_change", None),
        ("message", "user"),
        ("message", "assistant"),
        ("message", "user"),
        ("message", "assistant"),
    ]
    assert entries_of(path)[stored]["modelId"] == "other"


async def test_name_labels_and_the_state_of_extensions_are_restored(tmp_path: Path) -> None:
    # Mutation: in `SessionReader._admit` leave names or labels out; in `newest_custom` give none.
    async with provider() as serving:
        model = Model("openai/scripted", context_window=1_000)
        async with AgentSession(model, client=serving.client, cwd=tmp_path, **OPTIONS) as session:
            await session.prompt("hello")
            await session.set_name("A session")
            assert session.leaf_id is not None
            label = session.session_manager.append_label(session.session_manager.get_branch()[1].id, "start")
            session.session_manager.append_custom("counter", {"count": 1})
            session.session_manager.append_custom("counter", {"count": 2})
            leaf, path, context, stats = session.leaf_id, session.path, session.messages, session.stats()
        async with AgentSession(resume=path, client=serving.client, cwd=tmp_path, **OPTIONS) as session:
            manager = session.session_manager
            assert manager.name == "A session"
            assert dict(manager.labels) == {label.target_id: "start"}
            assert manager.get_custom("counter") == {"count": 2}
            assert session.leaf_id == leaf
            assert session.messages == context
            assert session.stats() == stats


@pytest.mark.parametrize("is_summarized", [False, True])
async def test_a_session_reopens_on_the_branch_where_it_was_left(tmp_path: Path, is_summarized: bool) -> None:
    # Mutation: in `SessionWriter.branch` move the leaf in memory only.
    steps = [reply("one"), reply("two"), reply("another two")]
    summaries = [reply(SUMMARY)] if is_summarized else []
    async with scene(tmp_path, steps, summaries=summaries) as stage:
        await stage.session.prompt("first")
        await stage.session.prompt("second")
        second = next(
            line["id"] for line in stage.lines("message") if line["message"]["content"][0]["text"] == "second"
        )
        assert await stage.session.navigate_tree(second, summarize=is_summarized) == "second"
        said = ["first", "one", *([SUMMARY] if is_summarized else [])]
        for text, found in zip(said, texts(stage.session.messages), strict=True):
            assert text in found
        leaf, context = stage.session.leaf_id, stage.session.messages
        branch = list(stage.session.transcript)
        # Somebody else looks at the same moment, and sees the same.
        with SessionManager.open(stage.path, read_only=True) as manager:
            assert (manager.leaf_id, tuple(manager.build_messages())) == (leaf, context)
        await stage.session.prompt("second in other words")
        after = stage.session.messages
    assert texts(after)[-2:] == ["second in other words", "another two"]
    async with scene(tmp_path, [], manager=SessionManager.open(stage.path)) as again:
        assert again.session.messages == after
        assert list(again.session.transcript)[: len(branch)] == branch
        # The other branch is still there.
        assert "two" in texts(again.session.session_manager.build_messages(again.lines("message")[3]["id"]))


@pytest.mark.parametrize("is_whole", [True, False])
async def test_a_fork_has_the_same_context_and_leaves_its_source_alone(tmp_path: Path, is_whole: bool) -> None:
    # Mutation: in `fork_file` give new ids, to which the boundary does not point.
    steps = [
        *(reply(words(60, f"answer {number}")) for number in range(3)),
        reply("in the fork"),
        reply("in the source"),
    ]
    async with scene(tmp_path, steps) as stage:
        for number in range(3):
            await stage.session.prompt(words(60, f"question {number}"))
        await stage.session.compact()
        before, context = stage.path.read_bytes(), stage.session.messages
        fork = await stage.session.fork(None if is_whole else stage.session.leaf_id)
        assert stage.path.read_bytes() == before
        forked = AgentSession("openai/scripted", session_manager=fork, client=stage.provider.client, tools=[])
        async with forked:
            assert forked.session_id != stage.session.session_id
            assert forked.messages == context
            assert str(await forked.prompt("go on")) == "in the fork"
        assert stage.path.read_bytes() == before
        assert str(await stage.session.prompt("go on")) == "in the source"
        assert forked.path is not None
        with SessionManager.open(forked.path, read_only=True) as manager:
            assert digest(manager.build_messages()[: len(context)]) == digest(context)
            assert texts(manager.build_messages())[-2:] == ["go on", "in the fork"]


async def test_a_resumed_session_asks_byte_for_byte_what_the_one_that_went_on_asks(tmp_path: Path) -> None:
    # Mutation: in `Projection.advance` take a compaction for something else than `build_projection` does.
    answers = [
        call("look", at="a"),
        reply(words(60, "one")),
        reply(words(60, "two"), thinking="Hm."),
        reply(words(60, "three")),
    ]
    async with provider(*answers, always(reply("done"))) as serving:
        model = Model("openai/scripted", context_window=1_000)
        async with AgentSession(model, client=serving.client, cwd=tmp_path, **OPTIONS) as session:
            for number in range(3):
                await session.prompt(words(60, f"question {number}"))
            await session.compact(keep_recent_tokens=200)
            assert session.path is not None
            copy = Path(shutil.copy(session.path, tmp_path / "copy.jsonl"))
            context = session.messages
            await session.prompt("go on")
        async with AgentSession(model, resume=copy, client=serving.client, cwd=tmp_path, **OPTIONS) as resumed:
            assert resumed.messages == context
            await resumed.prompt("go on")
    live, again = serving.requests[-2:]
    assert live.raw == again.raw


async def test_what_cannot_be_opened_says_why_and_keeps_nothing_locked(tmp_path: Path) -> None:
    # Mutation: in `SessionCore.parts` leave the log open where the rest could not be made.
    async with provider() as serving:
        path = await made(tmp_path, serving)
        with pytest.raises(MissingModelError):
            await AgentSession(resume=path, client=serving.client).start()
        with pytest.raises(SessionNotFoundError):
            await AgentSession("openai/scripted", resume=tmp_path / "no.jsonl").start()
        with pytest.raises(SessionNotFoundError):
            await AgentSession("openai/scripted", resume="no such id").start()
        with SessionManager.open(path) as manager:
            with pytest.raises(ValueError, match="either"):
                await AgentSession("openai/scripted", resume=path, session_manager=manager).start()
            with pytest.raises(SessionLockedError):
                await AgentSession("openai/scripted", resume=path).start()
        async with AgentSession("openai/scripted", resume=path, client=serving.client, **OPTIONS) as session:
            assert str(await session.prompt("go")) == "done"
