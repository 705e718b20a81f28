"""Many sessions at once: every seed under every policy, over the processors of the machine.

The rule it keeps: sessions share nothing, so that a verdict depends on its seed and its policy alone, whatever ran
beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed

from scripts.bench.storm.drive import Verdict, judged
from scripts.bench.storm.plans import Plan, Step, plan_of
from scripts.bench.storm.policies import POLICIES, Policy


def run_all(
    seeds: Sequence[int], policies: Sequence[Policy], *, most_window: int, jobs: int, done: Callable[[Verdict], None]
) -> list[Verdict]:
    """The verdicts, by policy and seed; `done` hears of each as it comes."""
    pairs = [(seed, policy.name, most_window) for seed in seeds for policy in policies]
    verdicts: list[Verdict] = []
    for verdict in _played(pairs, jobs):
        done(verdict)
        verdicts.append(verdict)
    order = {policy.name: place for place, policy in enumerate(policies)}
    return sorted(verdicts, key=lambda verdict: (order[verdict.policy], verdict.seed))


def smallest_steps(verdict: Verdict, most_window: int) -> tuple[Plan, Verdict]:
    """The session with as few steps as still fail in the first way in which it failed, and how it fails then."""
    policy, plan = POLICIES[verdict.policy], plan_of(verdict.seed, most_window)
    sort = _sorts(verdict)[0]
    for position in reversed(range(len(plan.steps))):
        fewer = plan.only(plan.steps[:position] + plan.steps[position + 1 :])
        tried = judged(fewer, policy)
        if sort in _sorts(tried):
            plan, verdict = fewer, tried
    return plan, verdict


def described(step: Step) -> str:
    """One step in a line."""
    images = f", {step.images} images" if step.images else ""
    meanwhile = f", {step.delay:.1f} s into it" if step.kind not in ("prompt", "compact", "smaller_model") else ""
    return (
        f"{step.number}: {step.kind}{meanwhile}: {step.tokens:,} tokens of {step.text_kind}{images}, {step.turns} turns"
    )


def _sorts(verdict: Verdict) -> list[str]:
    return [failure.partition(":")[0] for failure in verdict.failures]


def _played(pairs: Iterable[tuple[int, str, int]], jobs: int) -> Iterator[Verdict]:
    if jobs == 1:
        yield from (_judge(*pair) for pair in pairs)
        return
    with ProcessPoolExecutor(jobs) as pool:
        waiting = [pool.submit(_judge, *pair) for pair in pairs]
        for finished in as_completed(waiting):
            yield finished.result()


def _judge(seed: int, policy: str, most_window: int) -> Verdict:
    return judged(plan_of(seed, most_window), POLICIES[policy])
