"""What may become of a compaction, each told and returned as what it is."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import anyio
import pytest

from agent_session import (
    KEEP_NOTHING,
    AgentSettled,
    Amend,
    BeforeCompact,
    CompactionEnd,
    CompactionError,
    CompactionResult,
    CompactionStart,
    ExtensionFailed,
    SessionCompact,
    Settings,
    SummarizationError,
    Summarize,
    Veto,
    tool,
)
from agent_session.testing import calls, fail, hold, reply, stop
from tests.session.scene import SUMMARY, fill, filled, scene, texts, words

COMPACTION = ("before_compact", "compaction_start", "session_compact", "compaction_end")


def extension(event: str, answer: Callable[[Any], Any]) -> Callable[[Any], None]:
    def setup(api: Any) -> None:
        api.on(event, answer)

    setup.__qualname__ = "the_extension"
    return setup


async def test_a_veto_before_asks_no_model_and_changes_nothing(tmp_path: Path) -> None:
    # Mutation: in `Compactor._attempt` go on after `before.veto`.
    async with scene(tmp_path, filled(), extensions=[extension("before_compact", lambda event: Veto("no"))]) as stage:
        await fill(stage)
        before, context = stage.path.read_bytes(), stage.session.messages
        outcome = await stage.session.compact()
        assert outcome.status == "vetoed"
        assert "the_extension" in str(outcome)
        assert "no" in str(outcome)
        assert stage.told(*COMPACTION) == ["before_compact", "compaction_end"]
        assert stage.of(CompactionEnd)[0].aborted is True
        assert stage.path.read_bytes() == before
        assert stage.session.messages == context
        assert stage.summary_requests == []


async def test_a_veto_of_the_finished_entry_stores_nothing_and_its_cost_is_kept(tmp_path: Path) -> None:
    # Mutation: in `Compactor._end` do not `owe`; in `Recorder._pay` forget what is owed.
    veto = extension("session_compact", lambda event: Veto("not good enough"))
    steps = [*filled(), reply("next")]
    async with scene(tmp_path, steps, summaries=[reply(SUMMARY, usage=(400, 0, 0, 40))], extensions=[veto]) as stage:
        await fill(stage)
        before = stage.path.read_bytes()
        outcome = await stage.session.compact()
        assert outcome.status == "vetoed"
        assert outcome.usage is not None
        assert outcome.usage.total_tokens == 440
        assert stage.told(*COMPACTION) == ["before_compact", "compaction_start", "session_compact", "compaction_end"]
        assert stage.path.read_bytes() == before
        assert stage.session.stats().compaction.total_tokens == 440
        await stage.session.prompt("go on")
        lines = stage.lines()
        usage = next(line for line in lines if line["type"] == "usage")
        assert (usage["kind"], usage["usage"]["totalTokens"]) == ("compaction", 440)
        assert lines[lines.index(usage) + 1]["message"]["role"] == "user"
        assert stage.session.stats().compaction.total_tokens == 440


async def test_a_handlers_summary_takes_the_place_of_the_models(tmp_path: Path) -> None:
    # Mutation: in `Compactor._attempt` ignore `before.result`.
    mine = extension("before_compact", lambda event: CompactionResult("Mine."))
    async with scene(tmp_path, filled(), extensions=[mine]) as stage:
        await fill(stage)
        outcome = await stage.session.compact()
        assert (outcome.status, outcome.method) == ("applied", "handler")
        assert outcome.entry is not None
        assert outcome.entry.from_hook is True
        assert outcome.entry.summary.startswith("Mine.")
        assert stage.summary_requests == []
        assert stage.of(CompactionEnd)[0].from_hook is True
        assert texts(stage.session.messages)[0].startswith("Mine.")


async def test_a_handler_may_have_the_runtime_summarise(tmp_path: Path) -> None:
    # Mutation: in `AttemptServices.summarize` leave the handler's instructions out.
    async def mine(event: BeforeCompact) -> CompactionResult:
        return await event.summarize(instructions="Only decisions.")

    summary = reply("Decisions.", usage=(300, 0, 0, 10))
    async with scene(tmp_path, filled(), summaries=[summary], extensions=[extension("before_compact", mine)]) as stage:
        await fill(stage)
        outcome = await stage.session.compact()
        assert (outcome.status, outcome.method) == ("applied", "handler")
        assert "Only decisions." in stage.summary_requests[0].last_user_text
        assert outcome.usage is not None
        assert outcome.usage.total_tokens == 310


async def test_a_handler_may_add_to_the_default_summary(tmp_path: Path) -> None:
    # Mutation: in `EntryMaker._stored_form` leave the pinned text out.
    more = Summarize(instructions="Name the file.", pinned=["PINNED: exactly this."])
    async with scene(tmp_path, filled(), extensions=[extension("before_compact", lambda event: more)]) as stage:
        await fill(stage)
        outcome = await stage.session.compact("And the date.")
        assert (outcome.status, outcome.method) == ("applied", "model")
        request = stage.summary_requests[0].last_user_text
        assert "Name the file." in request
        assert "And the date." in request
        assert "PINNED: exactly this." in texts(stage.session.messages)[0]


async def test_the_finished_entry_may_be_amended(tmp_path: Path) -> None:
    # Mutation: in `Compactor._commit` store the entry as it was before the decision.
    amend = extension(
        "session_compact", lambda event: Amend(summary=event.entry.summary + "\nAmended.", details={"a": 1})
    )
    async with scene(tmp_path, filled(), extensions=[amend]) as stage:
        await fill(stage)
        outcome = await stage.session.compact()
        assert outcome.entry is not None
        assert outcome.entry.summary.endswith("Amended.")
        assert outcome.entry.details == {"a": 1}
        assert stage.of(SessionCompact)[0].entry == outcome.entry
        assert stage.lines("compaction")[0]["summary"].endswith("Amended.")


@pytest.mark.parametrize(
    ("summary", "why"),
    [
        pytest.param(reply("  \n "), "blank", id="blank"),
        pytest.param(calls([("bash", {"command": "touch ran"})], text=SUMMARY), "tool call", id="a tool call"),
        pytest.param(stop("length", text="## Goal and then"), "cut off", id="cut off for length"),
        pytest.param(fail(400, "no such model"), "no such model", id="a refusal of the provider"),
        pytest.param(stop("content_filter", text=SUMMARY), "refused", id="filtered"),
    ],
)
async def test_a_summary_that_is_none_fails_and_leaves_the_history(tmp_path: Path, summary: Any, why: str) -> None:
    # Mutation: in `check_summary` accept each of these.
    async with scene(tmp_path, [*filled(), reply("still usable")], summaries=[summary], tools=["bash"]) as stage:
        await fill(stage)
        before, context = stage.path.read_bytes(), stage.session.messages
        with pytest.raises(CompactionError, match=why) as caught:
            await stage.session.compact()
        assert caught.value.outcome is not None
        assert caught.value.outcome.status == "failed"
        assert stage.outcomes == ["failed"]
        assert stage.of(CompactionEnd)[0].outcome.error is caught.value.outcome.error
        assert stage.path.read_bytes() == before
        assert stage.session.messages == context
        assert not (tmp_path / "ran").exists()
        assert str(await stage.session.prompt("go on")) == "still usable"


async def test_a_failed_automatic_compaction_leaves_the_run_going(tmp_path: Path) -> None:
    # Mutation: raise in `Run._check` when an outcome is failed.
    steps = [*filled(), reply("answered", usage=(950, 0, 0, 5))]
    async with scene(tmp_path, steps, summaries=[reply(" ")]) as stage:
        await fill(stage)
        assert str(await stage.session.prompt("go")) == "answered"
        assert stage.outcomes == ["failed"]
        assert isinstance(stage.of(CompactionEnd)[0].outcome.error, SummarizationError)


async def test_a_summary_larger_than_what_it_stands_for_is_not_stored(tmp_path: Path) -> None:
    # Mutation: in `EntryMaker.tokens_after` drop the comparison.
    async with scene(tmp_path, filled(), summaries=[reply(words(900))]) as stage:
        await fill(stage)
        with pytest.raises(CompactionError, match="no progress"):
            await stage.session.compact()
        assert stage.lines("compaction") == []


async def test_nothing_to_compact_is_skipped_and_not_announced(tmp_path: Path) -> None:
    # Mutation: announce before `_prepare`.
    async with scene(tmp_path, [reply("hi")]) as stage:
        await stage.session.prompt("hello")
        stage.events.clear()
        outcome = await stage.session.compact()
        assert outcome.status == "skipped"
        assert outcome.why
        assert stage.events == []


async def test_what_takes_less_than_the_words_around_a_summary_is_said_to_be_no_progress_and_costs_nothing(
    tmp_path: Path,
) -> None:
    # Mutation: in `EntryMaker.made` leave `_require_worth` out: a summary is paid for, and thrown away.
    async with scene(tmp_path, [reply("hi") for _ in range(3)], summaries=[], window=8_000) as stage:
        for _ in range(3):
            await stage.session.prompt("hello")
        before = stage.path.read_bytes()
        with pytest.raises(CompactionError, match=r"no progress.* no model was asked") as caught:
            await stage.session.compact()
        assert caught.value.outcome is not None
        assert (caught.value.outcome.status, caught.value.outcome.usage) == ("failed", None)
        assert stage.told("before_compact", "compaction_end") == ["before_compact", "compaction_end"]
        assert stage.path.read_bytes() == before


async def test_a_few_short_messages_are_summarised_in_as_few_words_as_they_are_worth(tmp_path: Path) -> None:
    # Mutation: in `EntryMaker._order` leave `most_words` out, or give it for every record.
    async with scene(tmp_path, filled(2) + filled(2, 700), window=8_000) as stage:
        await fill(stage, 2)
        assert (await stage.session.compact()).status == "applied"
        await fill(stage, 2, 700)
        assert (await stage.session.compact()).status == "applied"
        short, *long = (request.last_user_text for request in stage.summary_requests)
        [words_allowed] = re.findall(r"Above (\d+) words", short)
        assert 40 < int(words_allowed) < 100  # of 160 tokens that leave
        assert not [text for text in long if "Above" in text]


async def test_aborting_the_compaction_alone_leaves_the_log_and_the_session(tmp_path: Path) -> None:
    # Mutation: in `Compactor.run` let the compaction's own cancellation go on to the caller.
    held = hold(reply(SUMMARY))
    async with scene(tmp_path, [*filled(), reply("fine")], summaries=[held]) as stage:
        await fill(stage)
        before = stage.path.read_bytes()
        outcomes: list[Any] = []

        async def compact() -> None:
            outcomes.append(await stage.session.compact())

        with anyio.fail_after(5):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(compact)
                await held.started.wait()
                assert stage.session.is_compacting
                assert stage.session.abort_compaction()
        assert [outcome.status for outcome in outcomes] == ["aborted"]
        assert stage.of(CompactionEnd)[0].aborted is True
        assert stage.path.read_bytes() == before
        assert str(await stage.session.prompt("go on")) == "fine"


async def test_aborting_an_automatic_compaction_alone_leaves_its_run_going(tmp_path: Path) -> None:
    # Mutation: in `ActivityGate.abort_innermost` abort the outermost.
    @tool
    def look() -> str:
        """Look."""
        return "seen"

    held = hold(reply(SUMMARY))
    full = calls([("look", {})], usage=(950, 0, 0, 5))
    steps = [*filled(), full, reply("done", usage=(300, 0, 0, 5))]
    async with scene(tmp_path, steps, summaries=[held], tools=[look]) as stage:
        await fill(stage)
        answers: list[Any] = []

        async def ask() -> None:
            answers.append(await stage.session.prompt("go"))

        with anyio.fail_after(5):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(ask)
                await held.started.wait()
                assert stage.session.abort_compaction()
        assert [str(answer) for answer in answers] == ["done"]
        assert stage.outcomes == ["aborted"]
        assert stage.lines("compaction") == []
        assert stage.of(AgentSettled)[-1].aborted is False


async def test_a_handler_may_cancel_the_compaction(tmp_path: Path) -> None:
    # Mutation: make `CompactionScope.cancel` do nothing.
    def cancel(event: BeforeCompact) -> None:
        event.signal.abort()

    async with scene(tmp_path, filled(), extensions=[extension("before_compact", cancel)]) as stage:
        await fill(stage)
        outcome = await stage.session.compact()
        assert outcome.status == "aborted"
        assert stage.summary_requests == []


async def test_what_a_handler_is_told_before_a_compaction(tmp_path: Path) -> None:
    # Mutation: in `Compactor._attempt` tell another reason; in `AttemptServices` give other text, or another branch.
    seen: list[BeforeCompact] = []
    started: list[CompactionStart] = []
    async with scene(tmp_path, filled(), extensions=[extension("before_compact", seen.append)]) as stage:
        await fill(stage)
        stage.session.subscribe(lambda event: started.append(event) if isinstance(event, CompactionStart) else None)
        await stage.session.compact("why not")
        event = seen[0]
        assert (event.reason, event.instructions, event.model) == ("manual", "why not", "openai/scripted")
        assert event.tokens_before > 0
        assert event.threshold == 900
        assert texts(event.dropped)
        assert event.first_kept_entry_id in {line["id"] for line in stage.lines()}
        assert [entry.id for entry in event.branch_entries][-1] == stage.lines("compaction")[0]["parentId"]
        assert "question 0" in event.text()
        assert started[0].reason == "manual"


async def test_a_handler_that_raises_is_reported_and_the_default_summary_is_used(tmp_path: Path) -> None:
    # Mutation: in `HookRunner.decide` let a handler's exception through.
    def broken(event: BeforeCompact) -> None:
        raise RuntimeError("broken on purpose")

    async with scene(tmp_path, filled(), extensions=[extension("before_compact", broken)]) as stage:
        stage.expects_failures = True
        await fill(stage)
        outcome = await stage.session.compact()
        assert (outcome.status, outcome.method) == ("applied", "model")
        failures = stage.of(ExtensionFailed)
        assert [failure.owner.endswith("the_extension") for failure in failures] == [True]
        assert "broken on purpose" in failures[0].why


async def test_a_handler_that_hangs_is_left_behind_and_an_abort_does_not_wait_for_it(tmp_path: Path) -> None:
    # Mutation: in `HookRunner._called` await the handler without its clock.
    async def forever(event: BeforeCompact) -> None:
        await anyio.sleep_forever()

    settings = Settings().merged(
        {"hook_timeout": 0.05, "compaction": {"reserve_tokens": 100, "keep_recent_tokens": 200}}
    )
    async with scene(tmp_path, filled(), extensions=[extension("before_compact", forever)], settings=settings) as stage:
        stage.expects_failures = True
        await fill(stage)
        with anyio.fail_after(5):
            outcome = await stage.session.compact()
        assert (outcome.status, outcome.method) == ("applied", "model")
        assert "abandoned" in stage.of(ExtensionFailed)[0].why
    reached = anyio.Event()

    async def stubborn(event: BeforeCompact) -> None:
        reached.set()
        while True:
            try:
                await anyio.sleep_forever()
            except BaseException:  # noqa: ASYNC103 - swallowing cancellation is what is tested
                if stop_it:
                    raise

    stop_it: list[bool] = []
    async with scene(tmp_path / "b", filled(), extensions=[extension("before_compact", stubborn)]) as stage:
        await fill(stage)
        with anyio.fail_after(5):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(stage.session.compact)
                await reached.wait()
                with anyio.fail_after(1):
                    await stage.session.abort()
        assert stage.outcomes == ["aborted"]
        stop_it.append(True)


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(lambda event: CompactionResult("Mine.", "0000000000000000"), id="an unknown boundary"),
        pytest.param(lambda event: CompactionResult("   "), id="a blank summary"),
        pytest.param(lambda event: CompactionResult(cast("str", 7)), id="a summary that is no text"),
        pytest.param(lambda event: CompactionResult("Mine.", cast("str", 7)), id="a boundary that is no id"),
        pytest.param(lambda event: "Mine.", id="an answer of the wrong type"),
        pytest.param(lambda event: Amend(summary="Mine."), id="the answer of another event"),
    ],
)
async def test_a_wrong_answer_is_the_extensions_failure_and_the_default_goes_on(tmp_path: Path, wrong: Any) -> None:
    # Mutation: in `BeforeCompact._folded` check neither summary nor boundary.
    async with scene(tmp_path, filled(), extensions=[extension("before_compact", wrong)]) as stage:
        stage.expects_failures = True
        await fill(stage)
        outcome = await stage.session.compact()
        assert (outcome.status, outcome.method) == ("applied", "model")
        assert len(stage.of(ExtensionFailed)) == 1
        assert stage.of(ExtensionFailed)[0].event == "before_compact"


@pytest.mark.parametrize("reason", ["manual", "threshold", "overflow"])
async def test_each_trigger_asks_its_handlers_once(tmp_path: Path, reason: str) -> None:
    # Mutation: leave the `decide` of either event out of the pipeline.
    asked: list[tuple[str, str]] = []

    def watch(api: Any) -> None:
        for name in ("before_compact", "session_compact"):
            api.on(name, lambda event: asked.append((event.name, event.reason)))

    last = {
        "manual": reply("ok"),
        "threshold": reply("ok", usage=(950, 0, 0, 5)),
        "overflow": fail(400, "prompt is too long: 1200 tokens > 1000 maximum"),
    }[reason]
    steps = [*filled(), last, *([reply("after")] if reason == "overflow" else [])]
    async with scene(tmp_path, steps, extensions=[watch]) as stage:
        await fill(stage)
        await stage.session.prompt("go")
        if reason == "manual":
            await stage.session.compact()
        assert asked == [("before_compact", reason), ("session_compact", reason)]


async def test_a_handler_may_keep_nothing_or_its_own_part_of_the_history(tmp_path: Path) -> None:
    # Mutation: in `EntryMaker._stored_form` ignore the handler's boundary; in `SessionCompact._folded` store
    # `KEEP_NOTHING`.
    async with scene(tmp_path, [*filled(), reply("fine")]) as stage:
        await fill(stage)
        second = [line["id"] for line in stage.lines("message") if line["message"]["role"] == "user"][1]
        unsubscribe = stage.session.on("before_compact", lambda event: CompactionResult("Mine.", second))
        outcome = await stage.session.compact()
        assert stage.of(BeforeCompact)[0].first_kept_entry_id != second
        assert outcome.entry is not None
        assert outcome.entry.first_kept_entry_id == second
        kept = [text[:10] for text in texts(stage.session.messages)]
        assert kept == ["Mine.", "question 1", "answer 1 w", "question 2", "answer 2 w"]
        await stage.session.prompt("more")
        unsubscribe()
        stage.session.on("session_compact", lambda event: Amend(first_kept_entry_id=KEEP_NOTHING))
        stage.session.on("before_compact", lambda event: CompactionResult("All gone."))
        await stage.session.compact(keep_recent_tokens=0)
        assert len(stage.session.messages) == 1
        assert stage.lines("compaction")[-1]["firstKeptEntryId"] in (None, stage.lines("compaction")[-1]["id"])


async def test_a_handlers_summary_that_cuts_a_turn_in_two_still_carries_its_request(tmp_path: Path) -> None:
    # Mutation: in `EntryMaker.measured` leave `with_current_request` out.
    async with scene(tmp_path, filled()) as stage:
        await fill(stage)
        answer = [line["id"] for line in stage.lines("message") if line["message"]["role"] == "assistant"][2]
        stage.session.on("before_compact", lambda event: CompactionResult("Mine.", answer))
        stage.session.on("session_compact", lambda event: Amend(summary="Amended."))
        outcome = await stage.session.compact()
        assert outcome.summary is not None
        assert outcome.summary.startswith("Amended.")
        assert "## Current request" in outcome.summary
        assert "question 2 word" in outcome.summary


async def test_the_shipped_custom_compaction_writes_the_summary_with_its_own_prompt(tmp_path: Path) -> None:
    # Mutation: in `summary_prompt` ignore `prompt`; in `custom_compaction` leave the instructions of `compact` out.
    async with scene(tmp_path, filled(), summaries=[reply("Handed over.")], extensions=["custom_compaction"]) as stage:
        await fill(stage)
        outcome = await stage.session.compact("Mind the dates.")
        assert (outcome.status, outcome.method) == ("applied", "handler")
        request = stage.summary_requests[0].last_user_text
        assert "Write handover notes" in request
        assert "Mind the dates." in request
        assert texts(stage.session.messages)[0].startswith("Handed over.")
