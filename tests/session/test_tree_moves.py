"""Moving in the tree and forking: decided first, then done, and on the disk when it is told."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agent_session import AgentSessionError, SessionFork, SessionManager, SessionTree, TreeSummary, Veto
from agent_session.testing import fail, reply
from session_store import jsonl_log
from tests.session.scene import Scene, fill, filled, scene, texts, words


def user_ids(stage: Scene) -> list[str]:
    return [line["id"] for line in stage.lines("message") if line["message"]["role"] == "user"]


async def test_a_move_to_a_question_stands_before_it_and_gives_its_text_back(tmp_path: Path) -> None:
    # Mutation: in `TreeMoves.navigate` stand on the question itself.
    async with scene(tmp_path, filled()) as stage:
        await fill(stage)
        text = await stage.session.navigate_tree(user_ids(stage)[1])
        assert text == words(60, "question 1")
        assert len(stage.session.messages) == 2
        (told,) = stage.of(SessionTree)
        assert told.new_leaf_id == stage.session.leaf_id
        answer = [line["id"] for line in stage.lines("message")][-1]
        assert told.old_leaf_id == answer
        assert await stage.session.navigate_tree(answer) is None
        assert len(stage.session.messages) == 6


async def test_a_veto_leaves_the_leaf_where_it_is(tmp_path: Path) -> None:
    # Mutation: in `TreeMoves.navigate` go on after the veto.
    async with scene(tmp_path, [*filled(), reply("usable")]) as stage:
        await fill(stage)
        before = stage.path.read_bytes()
        stage.session.on("before_tree", lambda event: Veto("stay"))
        with pytest.raises(AgentSessionError, match="stay"):
            await stage.session.navigate_tree(user_ids(stage)[1], summarize=True)
        assert stage.path.read_bytes() == before
        assert stage.summary_requests == []
        assert stage.of(SessionTree) == []
        assert str(await stage.session.prompt("go on")) == "usable"


async def test_a_veto_makes_no_fork(tmp_path: Path) -> None:
    # Mutation: in `TreeMoves.fork` go on after the veto.
    async with scene(tmp_path, filled()) as stage:
        await fill(stage)
        stage.session.on("before_fork", lambda event: Veto("no second one"))
        with pytest.raises(AgentSessionError, match="no second one"):
            await stage.session.fork()
        assert stage.of(SessionFork) == []
        assert len(SessionManager.list(tmp_path, session_dir=tmp_path / "sessions")) == 1


async def test_a_handler_may_write_the_summary_of_the_branch_and_label_it(tmp_path: Path) -> None:
    # Mutation: in `TreeMoves.navigate` ask the model all the same, or forget the label.
    async with scene(tmp_path, filled(), summaries=[]) as stage:
        await fill(stage)
        stage.session.on("before_tree", lambda event: TreeSummary(summary="We tried.", label="first try"))
        await stage.session.navigate_tree(user_ids(stage)[1], summarize=True)
        (told,) = stage.of(SessionTree)
        assert told.summary_entry is not None
        assert (told.summary_entry.summary, told.summary_entry.from_hook) == ("We tried.", True)
        assert dict(stage.session.session_manager.labels) == {told.summary_entry.id: "first try"}
        assert "We tried." in texts(stage.session.messages)[-1]


async def test_a_branch_whose_summary_fails_is_not_left_and_its_cost_is_kept(tmp_path: Path) -> None:
    # Mutation: in `TreeMoves._summarized` do not owe; in `navigate` move before the summary is there.
    summaries = [reply(" ", usage=(300, 0, 0, 1))]
    async with scene(tmp_path, filled(), summaries=summaries) as stage:
        await fill(stage)
        leaf, before = stage.session.leaf_id, stage.path.read_bytes()
        with pytest.raises(AgentSessionError, match="blank"):
            await stage.session.navigate_tree(user_ids(stage)[1], summarize=True)
        assert stage.session.leaf_id == leaf
        assert stage.path.read_bytes() == before
        assert stage.session.stats().total.total_tokens >= 301
        assert stage.session.stats().compaction.total_tokens == 301


async def test_failures_on_one_branch_say_nothing_of_another(tmp_path: Path) -> None:
    # Mutation: in `TreeMoves.navigate` keep the count of failures.
    steps = [*filled(), reply("95 %", usage=(950, 0, 0, 5))]
    async with scene(tmp_path, steps, summaries=[fail(400, "no")]) as stage:
        await fill(stage)
        await stage.session.prompt("go")
        assert stage.outcomes == ["failed"]
        assert stage.session._core.parts.backoff.failures == 1
        await stage.session.navigate_tree(user_ids(stage)[1])
        assert stage.session._core.parts.backoff.failures == 0


@pytest.mark.allow_blocking
async def test_a_move_is_on_the_disk_when_it_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Mutation: in `TreeMoves.navigate` leave the flush out.
    synced: list[int] = []
    monkeypatch.setattr(jsonl_log, "_sync_data", lambda fd: synced.append(os.fstat(fd).st_size))
    async with scene(tmp_path, filled()) as stage:
        await fill(stage)
        seen: list[int] = []
        stage.session.subscribe(lambda event: seen.append(synced[-1]) if isinstance(event, SessionTree) else None)
        await stage.session.navigate_tree(user_ids(stage)[1])
        assert seen == [stage.path.stat().st_size]
