"""A short storm: random sessions, all bad at once, on a virtual clock; and that the storm sees what it looks for."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

from agent_session import Settings, compaction_entry
from agent_session.compaction import prepare
from agent_session.llm.client import ModelRequest, PreparedRequest
from scripts.bench import compaction_storm
from scripts.bench.storm import virtual_time
from scripts.bench.storm.drive import Verdict, judged
from scripts.bench.storm.ledger import Spent, StepCount
from scripts.bench.storm.plans import plan_of
from scripts.bench.storm.policies import POLICIES
from scripts.bench.storm.provider import StormProvider
from scripts.bench.storm.report import Row, broken_goals, ratio_of, rows_of
from session_store.messages import ToolResultMessage

MOST_WINDOW = 16_384

# Nothing but keeping less, and less again, lets session 110 go on.
SEEDS = (*range(5), 110)

# Hundreds of calls a second: what watches them for blocking ones would take longer than they do.
pytestmark = pytest.mark.allow_blocking


def judge(seed: int, policy: str = "default") -> Verdict:
    return judged(plan_of(seed, MOST_WINDOW), POLICIES[policy])


@pytest.mark.parametrize("policy", ["default", "prefix", "digest"])
def test_no_random_session_is_stuck_loses_a_message_or_sends_what_no_provider_takes(policy: str) -> None:
    # Mutation: in `_preparation` order `dropped_entry_ids` by their text, or leave the first message out of what is
    # summarised; in `halvings` give the first budget alone.
    verdicts = [judge(seed, policy) for seed in SEEDS]
    assert {verdict.seed: verdict.failures for verdict in verdicts if verdict.failures} == {}
    applied = sum(verdict.outcomes[f"applied {method}"] for verdict in verdicts for method in ("model", "digest"))
    assert applied > len(SEEDS)  # there was a storm


def test_the_same_seed_is_the_same_session() -> None:
    # Mutation: in `Plan.turn` throw dice without a name; in `judged` leave out `_ids_of`.
    def told(seed: int) -> object:
        verdict = judge(seed)
        return verdict.outcomes, verdict.errors, verdict.chat.calls, verdict.summaries.calls, verdict.work

    assert told(4) == told(4)
    assert told(4) != told(5)


def test_a_message_that_leaves_without_a_record_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    # Mutation: in `Ledger._check_applied` leave out `_lose`.
    monkeypatch.setattr(compaction_entry, "record_of_loss", lambda plan: {})
    assert any(judge(seed, "digest").lost for seed in SEEDS)


def test_a_summary_that_never_read_what_it_replaces_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    # Mutation: in `Ledger.summary_read` take every planted token as read.
    messages = prepare._messages
    monkeypatch.setattr(prepare, "_messages", lambda units: messages(units)[1:])
    assert any(judge(seed).lost for seed in SEEDS)


def test_a_request_that_no_provider_takes_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    # Mutation: in `fault_of` give None at once.
    whole = StormProvider.prepare

    def without_results(self: StormProvider, request: ModelRequest) -> PreparedRequest:
        kept = [message for message in request.messages if not isinstance(message, ToolResultMessage)]
        return whole(self, replace(request, messages=kept))

    monkeypatch.setattr(StormProvider, "prepare", without_results)
    assert judge(0).invalid


def test_calls_are_bounded_by_the_turns_of_a_step_and_by_nothing_else() -> None:
    # Mutation: in `StepCount.bound` leave the `1 +` of the retries out.
    settings = Settings()
    # By hand: (2 x 3 + 1) x 4 requests; (3 failed + 2 applied + 4 recoveries) x 8 summary calls x 4 tries each.
    assert StepCount(turns=3).bound(settings, manual=0) == 28 + 9 * 8 * 4
    assert StepCount(turns=3).bound(settings, manual=1) == 28 + 10 * 8 * 4


def test_a_storm_in_fair_weather_ends_well_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    # Mutation: in `broken_goals` take every policy for one that failed.
    arguments = ["--sessions", "2", "--policy", "default", "--jobs", "1", "--most-window", "4096"]
    assert compaction_storm.main(arguments) == 0
    printed = capsys.readouterr().out
    assert "seeds 0 to 1" in printed
    assert "all goals met" in printed


def test_a_missed_goal_ends_with_1_and_is_shown_with_the_fewest_steps_that_show_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Mutation: in `main` give 0; in `smallest_steps` keep every step.
    monkeypatch.setattr(compaction_entry, "record_of_loss", lambda plan: {})
    seed = next(seed for seed in SEEDS if judge(seed, "digest").lost)
    arguments = ["--seed", str(seed), "--policy", "digest", "--jobs", "1", "--most-window", str(MOST_WINDOW)]
    assert compaction_storm.main([*arguments, "--sessions", "1"]) == 1
    printed = capsys.readouterr().out
    assert "MISSED  digest: 1 sessions lost" in printed
    [again] = [line for line in printed.splitlines() if "again:" in line]
    steps = again.split("--steps ")[1].split()[0]
    assert len(steps.split(",")) < len(plan_of(seed, MOST_WINDOW).steps)
    assert compaction_storm.main([*arguments, "--steps", steps]) == 1


def test_a_ratio_of_costs_is_told_with_the_range_that_chance_gives_it() -> None:
    # Mutation: in `ratio_of` give no spread; leave the work out of the ratio; take the sessions of one of them alone.
    one = judge(0)

    def row(dollars: list[float], work: int) -> Row:
        made = Row(POLICIES["default"])
        for seed, cost in enumerate(dollars):
            made.add(replace(one, seed=seed, work=work, summaries=Spent(dollars=cost)))
        return made

    def money(verdict: Verdict) -> float:
        return verdict.summaries.dollars

    alike = ratio_of(row([2.0] * 100, 10), row([3.0] * 100, 30), money)
    assert (alike.least, alike.times, alike.most) == pytest.approx((2.0, 2.0, 2.0))
    uneven = ratio_of(row([1.0] * 99 + [101.0], 10), row([1.0] * 100, 10), money)
    assert uneven.times == pytest.approx(2.0)
    assert uneven.least < 1.0
    assert uneven.most > 4.0
    assert ratio_of(row([2.0] * 50 + [90.0], 10), row([1.0] * 50, 10), money).times == pytest.approx(2.0)


def test_the_default_may_cost_a_little_more_than_the_cheapest_and_no_more() -> None:
    # Mutation: in `broken_goals` look at `most`, or do not look at costs.
    one = judge(0)

    def costing(policy: str, cost: float) -> list[Verdict]:
        return [replace(one, seed=n, policy=policy, work=10, summaries=Spent(fresh=5, dollars=cost)) for n in range(50)]

    assert broken_goals(rows_of([*costing("default", 1.1), *costing("naive", 1.0)])) == []
    by_chance = [*costing("default", 1.1)[1:], replace(one, seed=0, work=10, summaries=Spent(fresh=5, dollars=30))]
    assert broken_goals(rows_of([*by_chance, *costing("naive", 1.0)])) == []
    [broken] = broken_goals(rows_of([*costing("default", 1.3), *costing("naive", 1.0), *costing("late", 1.2)]))
    assert broken == "default: 1.30 (1.30 to 1.30) times the money of naive for the same work"
    assert broken_goals(rows_of([*costing("default", 1.3), *costing("prefix", 1.0)])) == []


# The virtual clock ------------------------------------------------------------------------------


def test_an_hour_of_waiting_takes_no_time() -> None:
    # Mutation: in `_JumpingSelector.select` hand the timeout on to the real one.
    async def wait() -> float:
        began = anyio.current_time()
        await anyio.sleep(3_600)
        return anyio.current_time() - began

    assert timed(partial(virtual_time.run, wait)) == pytest.approx(3_600)


def test_the_clock_stands_still_while_a_thread_works() -> None:
    # Mutation: in `_JumpingSelector.select` leave out the branch for threads: the limit is jumped to.
    async def work() -> str:
        release = threading.Event()
        with anyio.fail_after(5):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(anyio.to_thread.run_sync, partial(release.wait, 30))
                await anyio.lowlevel.checkpoint()
                release.set()
        return "done"

    assert timed(partial(virtual_time.run, work)) == "done"


def test_waiting_that_nobody_can_end_is_told() -> None:
    # Mutation: in `_JumpingSelector.select` take no timeout as zero.
    async def wait() -> None:
        await anyio.Event().wait()

    with pytest.raises(virtual_time.Stalled):
        timed(partial(virtual_time.run, wait))


def timed(work: Callable[[], object]) -> object:
    """What `work` gives, in a thread of its own that is not waited for longer than five seconds."""
    answers: list[object] = []
    errors: list[Exception] = []

    def target() -> None:
        try:
            answers.append(work())
        except Exception as error:  # noqa: BLE001 - it is raised again where somebody sees it
            errors.append(error)

    thread = threading.Thread(target=target, daemon=True)
    thread.start()
    thread.join(5)
    assert not thread.is_alive(), "it waits in real time"
    if errors:
        raise errors[0]
    return answers[0]
