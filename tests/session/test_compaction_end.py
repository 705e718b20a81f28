"""What the end of a compaction says: to whoever awaits it, in its event and in the log, for each way it can end."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import anyio
import pytest

from agent_session import (
    Amend,
    CompactionEnd,
    CompactionError,
    CompactionOutcome,
    CompactionResult,
    CompactionStart,
    ContextOverflowError,
    Model,
    ModelCost,
    SessionCompact,
    Veto,
    tool,
)
from agent_session.testing import call, fail, hold, reply
from session_store import Usage
from tests.session.scene import SUMMARY, Scene, fill, filled, scene, texts, words

TOO_LONG = fail(400, "Range of input length should be [1, 1000]")
FULL = (950, 0, 0, 5)


@tool
def write(path: str) -> str:
    """Change a file.

    Args:
        path: Which.
    """
    return "done"


def answering(event: str, answer: object) -> Callable[[Any], None]:
    """An extension that gives one answer to one decision."""

    def setup(api: Any) -> None:
        api.on(event, lambda asked: answer)

    return setup


def ended(stage: Scene) -> CompactionEnd:
    """The one end of the one compaction that was decided on."""
    assert stage.told("before_compact", "compaction_end") == ["before_compact", "compaction_end"]
    (end,) = stage.of(CompactionEnd)
    assert isinstance(end, CompactionEnd)
    return end


# Will it be asked again ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reason", "answer", "status", "will_retry"),
    [
        ("overflow", None, "applied", True),
        ("overflow", Veto("no"), "vetoed", False),
        ("overflow", CompactionResult(words(2_000)), "failed", False),
        ("exceeded", None, "applied", False),
        ("threshold", None, "applied", False),
        ("manual", None, "applied", False),
    ],
)
async def test_the_request_is_said_to_be_repeated_only_where_an_overflow_was_compacted_away(
    tmp_path: Path, reason: str, answer: Any, status: str, will_retry: bool
) -> None:
    # Mutation: in `Compactor._end` promise a retry whatever the status; in `Run._recover` say nothing of it, in
    # `_check` promise one; in `Compactor._attempt` tell one of the three events before the end something else.
    last = {
        "overflow": fail(400, "Input is too long for requested model."),
        "exceeded": reply("good", usage=(1_200, 0, 0, 5)),
        "threshold": reply("ok", usage=FULL),
        "manual": reply("ok"),
    }[reason]
    steps = [*filled(), last, *([reply("again")] if will_retry else [])]
    promised: list[bool] = []

    def watch(api: Any) -> None:
        def before(event: Any) -> Any:
            promised.append(event.will_retry)
            return answer

        api.on("before_compact", before)
        api.on("session_compact", lambda event: promised.append(event.will_retry))

    async with scene(tmp_path, steps, extensions=[watch]) as stage:
        await fill(stage)
        if reason == "overflow" and not will_retry:
            with pytest.raises(ContextOverflowError):
                await stage.session.prompt("go")
        else:
            await stage.session.prompt("go")
        if reason == "manual":
            await stage.session.compact()
        end = ended(stage)
        assert (end.outcome.status, end.will_retry) == (status, will_retry)
        assert end.reason == end.outcome.reason == ("overflow" if reason == "exceeded" else reason)
        # Before the end nobody knows better than what set it off.
        promised += [event.will_retry for event in stage.of(CompactionStart)]
        assert set(promised) == {reason == "overflow"}


# Whose summary it was -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("handler", "status", "from_hook"),
    [
        pytest.param(answering("before_compact", CompactionResult("Mine.")), "applied", True, id="its own"),
        pytest.param(answering("before_compact", CompactionResult(words(900))), "failed", True, id="too large"),
        pytest.param(answering("before_compact", Veto("no")), "vetoed", False, id="vetoed"),
        pytest.param(answering("before_compact", None), "applied", False, id="no opinion"),
        pytest.param(answering("session_compact", Amend(summary="Mine.")), "applied", False, id="amended"),
        pytest.param(answering("session_compact", Veto("no")), "vetoed", False, id="vetoed at the end"),
    ],
)
async def test_an_end_says_whether_the_summary_was_a_handlers(
    tmp_path: Path, handler: Any, status: str, from_hook: bool
) -> None:
    # Mutation: in `Compactor._end` take `from_hook` of the entry alone, or False; in `EntryMaker.entry` set none.
    async with scene(tmp_path, filled(), extensions=[handler]) as stage:
        await fill(stage)
        with nullcontext() if status != "failed" else pytest.raises(CompactionError):
            await stage.session.compact()
        end = ended(stage)
        assert (end.outcome.status, end.from_hook) == (status, from_hook)
        if end.outcome.entry is not None:
            assert end.outcome.entry.from_hook is from_hook
            assert stage.lines("compaction")[0].get("fromHook", False) is from_hook
            (decided,) = stage.of(SessionCompact)
            assert decided.from_hook is from_hook


@pytest.mark.parametrize("reason", ["manual", "threshold", "overflow"])
async def test_files_are_listed_in_a_handlers_summary_too(tmp_path: Path, reason: str) -> None:
    # Mutation: in `EntryMaker.entry` add the lists to the runtime's own summaries only.
    last: dict[str, list[Any]] = {
        "manual": [reply("ok")],
        "threshold": [reply("ok", usage=FULL)],
        "overflow": [TOO_LONG, reply("ok")],
    }
    steps = [call("write", path="made.py"), *filled(4), *last[reason]]
    mine = answering("before_compact", CompactionResult("Mine.", details={"mine": [1]}))
    async with scene(tmp_path, steps, tools=[write], extensions=[mine]) as stage:
        await fill(stage, 4)
        await stage.session.prompt("go")
        if reason == "manual":
            await stage.session.compact()
        (entry,) = stage.compactions
        assert entry.summary.startswith("Mine.")
        assert "<modified-files>\nmade.py\n</modified-files>" in entry.summary
        assert entry.details == {"mine": [1], "readFiles": [], "modifiedFiles": ["made.py"]}


# What the outcome and the entry say -----------------------------------------------------------------


async def test_an_outcome_says_what_it_took_and_its_entry_says_the_same_in_the_file(tmp_path: Path) -> None:
    # Mutation: in `Attempt.ended` leave the duration or the cost out; in `EntryMaker.entry` the duration, model or
    # method; in `_stored_form` the reason or the instructions; in `measured` the size.
    held = hold(reply(SUMMARY, usage=(500, 0, 0, 50)))
    async with scene(tmp_path, filled(), summaries=[held]) as stage:
        cost = ModelCost(input=2.0, output=10.0)
        await stage.session.set_model(Model("openai/scripted", context_window=8_000, cost=cost))
        await fill(stage)
        outcomes: list[CompactionOutcome] = []

        async def compact() -> None:
            outcomes.append(await stage.session.compact("Mind the dates."))

        started = anyio.current_time()
        with anyio.fail_after(5):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(compact)
                await held.started.wait()
                waited = anyio.current_time()
                while anyio.current_time() < waited + 0.02:
                    await anyio.lowlevel.checkpoint()
                held.release()
        (outcome,) = outcomes
        assert 0.02 <= outcome.duration <= anyio.current_time() - started
        assert outcome.cost == pytest.approx((500 * 2 + 50 * 10) / 1_000_000)
        (line,) = stage.lines("compaction")
        assert {key: line[key] for key in ("reason", "method", "model", "instructions")} == {
            "reason": "manual",
            "method": "model",
            "model": "openai/scripted",
            "instructions": "Mind the dates.",
        }
        assert (line["tokensBefore"], line["tokensAfter"]) == (outcome.tokens_before, outcome.tokens_after)
        assert 20 <= line["durationMs"] <= outcome.duration * 1_000
        assert line["usage"]["cost"]["total"] == outcome.cost
        assert line["summary"] == outcome.summary
        assert "checkpoint" in line


async def test_what_a_compaction_failed_of_is_in_its_error_its_event_and_the_log_record(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # Mutation: in `Compactor.run` end it without `error`, or without `why`; in `_end` log no `why`.
    caplog.set_level(logging.INFO, "agent_session")
    async with scene(tmp_path, filled(), summaries=[fail(400, "the quota of project blue is used up")]) as stage:
        await fill(stage)
        with pytest.raises(CompactionError) as caught:
            await stage.session.compact()
        end = ended(stage)
        record = next(record for record in caplog.records if "compaction.end" in record.getMessage())
        for told in (caught.value, caught.value.outcome, end.outcome.error, end.outcome, record.getMessage()):
            assert "the quota of project blue is used up" in str(told)


@pytest.mark.parametrize("raised", [ValueError("a mistake in the runtime"), OSError(28, "no space left")])
async def test_what_nobody_expected_ends_a_compaction_and_not_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, raised: Exception
) -> None:
    # Mutation: in `Compactor.run` catch the errors of this library alone.
    def broken(*arguments: object, **options: object) -> None:
        raise raised

    async with scene(tmp_path, [*filled(), reply("full", usage=FULL), reply("next")]) as stage:
        await fill(stage)
        monkeypatch.setattr("agent_session.compaction_entry.with_file_lists", broken)
        before = len(stage.lines("compaction"))
        assert str(await stage.session.prompt("go")) == "full"
        end = ended(stage)
        assert (end.outcome.status, end.outcome.error) == ("failed", raised)
        assert type(raised).__name__ in str(end.outcome)
        assert len(stage.lines("compaction")) == before
        stage.session.update_settings(compaction={"enabled": False})
        assert str(await stage.session.prompt("go on")) == "next"


# Costs ----------------------------------------------------------------------------------------------


async def test_what_an_aborted_summary_had_cost_by_then_is_told_at_once_and_written_before_the_next_entry(
    tmp_path: Path,
) -> None:
    # Mutation: in `Compactor.run` end an aborted attempt without its spending; in `_end` owe for failures alone.
    held = hold(reply("Of two parts."))
    summaries: list[Any] = [reply("Of the first part.", usage=(300, 0, 0, 20)), held]
    off = {"enabled": False}
    async with scene(tmp_path, filled(4, 150), summaries=summaries, window=1_600, compaction=off) as stage:
        await fill(stage, 4, 150)
        before = stage.path.read_bytes()
        outcomes: list[CompactionOutcome] = []

        async def compact() -> None:
            outcomes.append(await stage.session.compact(keep_recent_tokens=400))

        with anyio.fail_after(5):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(compact)
                await held.started.wait()
                await stage.session.abort()
        (outcome,) = outcomes
        assert (outcome.status, outcome.usage) == ("aborted", Usage(input=300, output=20))
        assert ended(stage).outcome == outcome
        assert stage.session.stats().compaction.total_tokens == 320
        assert stage.path.read_bytes() == before
        await stage.session.set_name("named")
        paid, named = stage.lines()[-2:]
        assert (paid["type"], paid["kind"], paid["usage"]["totalTokens"]) == ("usage", "compaction", 320)
        assert (named["type"], named["parentId"]) == ("session_info", paid["id"])
        assert stage.session.stats().compaction.total_tokens == 320


async def test_what_two_models_cost_that_both_failed_is_written_once_for_each(tmp_path: Path) -> None:
    # Mutation: in `Compactor._end` owe the sum to the last model.
    summaries = [reply(" ", usage=(300, 0, 0, 1)), reply(" ", usage=(200, 0, 0, 1))]
    two = {"summary_model": "openai/s"}
    async with scene(tmp_path, [*filled(), reply("on")], summaries=summaries, compaction=two) as stage:
        await fill(stage)
        with pytest.raises(CompactionError) as caught:
            await stage.session.compact()
        assert caught.value.outcome is not None
        assert caught.value.outcome.usage == Usage(input=500, output=2)
        await stage.session.prompt("go on")
        costs = {line["model"]: line["usage"]["totalTokens"] for line in stage.lines("usage")}
        assert costs == {"s": 301, "scripted": 201}
        assert [line["type"] for line in stage.lines()][-4:] == ["usage", "usage", "message", "message"]


async def test_what_an_applied_compaction_cost_is_on_its_entry_alone(tmp_path: Path) -> None:
    # Mutation: in `Compactor._end` owe whatever the status.
    summaries = [reply("  ", usage=(300, 0, 0, 1)), reply(SUMMARY, usage=(200, 0, 0, 9))]
    two = {"summary_model": "openai/s"}
    async with scene(tmp_path, [*filled(), reply("on")], summaries=summaries, compaction=two) as stage:
        await fill(stage)
        outcome = await stage.session.compact()
        assert outcome.usage == Usage(input=500, output=10)
        await stage.session.prompt("go on")
        assert stage.lines("usage") == []
        assert stage.lines("compaction")[0]["usage"]["totalTokens"] == 510
        assert stage.session.stats().compaction.total_tokens == 510


# What else the branch has to be ----------------------------------------------------------------------


async def test_the_entry_is_as_long_for_ten_messages_as_for_a_hundred(tmp_path: Path) -> None:
    # Mutation: in `EntryMaker._stored_form` put the ids of what leaves into `details`.
    sizes: list[int] = []
    for count in (5, 50):
        async with scene(tmp_path / str(count), filled(count, 20), window=50_000) as stage:
            await fill(stage, count, 20)
            outcome = await stage.session.compact(keep_recent_tokens=40)
            assert outcome.entries_summarized >= 2 * (count - 2)
            sizes.append(len(stage.path.read_bytes().splitlines()[-1]))
    assert abs(sizes[1] - sizes[0]) < 30


async def test_a_boundary_that_left_the_branch_meanwhile_is_refused(tmp_path: Path) -> None:
    # Mutation: in `Compactor._require_same_branch` look at nothing.
    async with scene(tmp_path, filled()) as stage:
        await fill(stage)
        first = stage.lines("message")[0]["id"]

        def move(event: SessionCompact) -> None:
            manager = stage.session.session_manager
            manager.branch(first)
            manager.append_custom_message("note", "on another branch")

        unsubscribe = stage.session.on("session_compact", move)
        with pytest.raises(CompactionError, match="moved"):
            await stage.session.compact()
        unsubscribe()
        assert stage.lines("compaction") == []
        assert texts(stage.session.messages)[-1] == "on another branch"
