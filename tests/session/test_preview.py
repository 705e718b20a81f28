"""`compact(dry_run=True)`: what a compaction would do and cost, and nothing of it happens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from agent_session import CompactionOutcome, Model, ModelCost
from agent_session.testing import hold, reply
from tests.session.scene import SUMMARY, fill, filled, scene

PRICED = Model("openai/scripted", context_window=2_000, cost=ModelCost(input=1.0, output=2.0))


def files_in(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*"))


async def test_a_preview_asks_no_model_appends_nothing_and_tells_nothing(tmp_path: Path) -> None:
    # Mutation: in `AgentSession.compact` compact all the same.
    async with scene(tmp_path, filled(), summaries=[]) as stage:
        await fill(stage)
        files = files_in(tmp_path)
        before, context = stage.path.read_bytes(), stage.session.messages
        outcome = await stage.session.compact(dry_run=True)
        assert outcome.status == "preview"
        assert stage.path.read_bytes() == before
        assert files_in(tmp_path) == files
        assert stage.session.messages == context
        assert stage.names == []
        assert stage.summary_requests == []


async def test_a_preview_says_what_the_compaction_then_does(tmp_path: Path) -> None:
    # Mutation: in `AgentSession.compact` preview with another request than the one that was made.
    summary = reply(SUMMARY, usage=(1_600, 0, 0, 50))
    async with scene(tmp_path, filled(), summaries=[summary], window=2_000) as stage:
        await fill(stage)
        await stage.session.set_model(PRICED)
        previews = [await stage.session.compact(keep_recent_tokens=keep, dry_run=True) for keep in (0, 200)]
        assert previews[0].entries_summarized > previews[1].entries_summarized
        assert previews[0].tokens_after is not None
        preview = previews[1]
        outcome = await stage.session.compact(keep_recent_tokens=200)
        assert (preview.reason, preview.method) == (outcome.reason, outcome.method) == ("manual", "model")
        assert preview.tokens_before == outcome.tokens_before
        assert preview.entries_summarized == outcome.entries_summarized
        assert preview.calls == len(stage.summary_requests)
        assert preview.tokens_after is not None
        assert outcome.tokens_after is not None
        assert outcome.tokens_after <= preview.tokens_after < preview.tokens_before
        assert preview.cost
        assert outcome.cost
        assert 0.5 < preview.cost / outcome.cost < 2


async def test_a_preview_of_a_short_record_expects_a_summary_that_is_shorter(tmp_path: Path) -> None:
    # Mutation: in `Summarizer.forecast` do not look at `most_words`.
    async with scene(tmp_path, filled(size=40), window=8_000, reserve=2_000) as stage:
        await fill(stage, size=40)
        preview = await stage.session.compact(dry_run=True)
        assert preview.tokens_after is not None
        assert preview.tokens_after < preview.tokens_before


async def test_a_preview_is_one_line(tmp_path: Path) -> None:
    # Mutation: in `CompactionOutcome.__str__` show a preview like a failure.
    async with scene(tmp_path, filled()) as stage:
        await fill(stage)
        await stage.session.set_model(PRICED)
        preview = await stage.session.compact(dry_run=True)
        assert (
            repr(preview)
            == str(preview)
            == (
                f"preview (manual, model): {preview.tokens_before:,} -> about {preview.tokens_after:,} tokens, "
                f"{preview.entries_summarized} entries to summarise, {preview.calls} calls, about ${preview.cost:.4f}"
            ).replace("1 calls", "1 call")
        )


async def test_where_nothing_would_be_done_the_preview_says_why(tmp_path: Path) -> None:
    # Mutation: in `EntryMaker.preview` go on after a skip.
    async with scene(tmp_path, [reply("hi")]) as stage:
        await stage.session.prompt("hello")
        preview = await stage.session.compact(dry_run=True)
        real = await stage.session.compact()
        assert (preview.status, preview.why) == (real.status, real.why)
        assert preview.status == "skipped"


async def test_a_preview_is_given_while_a_run_is_on_and_inside_a_handler(tmp_path: Path) -> None:
    # Mutation: in `AgentSession.compact` claim the gate for a preview.
    inside: list[CompactionOutcome] = []
    held = hold(reply("waited for"))
    async with scene(tmp_path, [*filled(), held]) as stage:
        await fill(stage)

        @stage.session.on("before_agent_start")
        async def looking(event: Any) -> None:
            inside.append(await stage.session.compact(dry_run=True))

        with anyio.fail_after(5):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(stage.session.prompt, "wait")
                await held.started.wait()
                assert (await stage.session.compact(dry_run=True)).status == "preview"
                assert stage.session.is_streaming
                held.release()
        assert [outcome.status for outcome in inside] == ["preview"]
        assert stage.outcomes == []


async def test_a_preview_of_a_closed_session_is_refused(tmp_path: Path) -> None:
    # Mutation: in `AgentSession.compact` do not ask whether the session is open.
    from agent_session import SessionClosedError

    async with scene(tmp_path, [], check=False) as stage:
        await stage.session.close()
        with pytest.raises(SessionClosedError):
            await stage.session.compact(dry_run=True)
