#!/usr/bin/env python
"""A storm: thousands of random sessions, driven through the real `AgentSession` on a virtual clock, policy by policy.

    python scripts/bench/compaction_storm.py [--sessions N] [--seed S] [--policy NAME ...]

Ends with 1 where a goal is missed: a session that ended stuck, more calls than the bound, a message lost without a
record, a request that no provider takes, or a default that costs more than 1.15 times the cheapest policy, by more than
chance: of two storms over other seeds the one may say 1.0 and the other 1.3.
The same seed gives the same sessions. A failure is printed with the fewest steps that still show it; `--steps` plays
only those.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

if __name__ == "__main__":
    # A script's own folder is on the path, the checkout is not.
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from scripts.bench.storm.drive import judged
from scripts.bench.storm.fleet import run_all
from scripts.bench.storm.plans import plan_of
from scripts.bench.storm.policies import POLICIES
from scripts.bench.storm.report import broken_goals, rows_of, show, show_failures

SESSIONS = 1_000
MOST_WINDOW = 1_000_000


def main(arguments: Sequence[str]) -> int:
    asked = parsed(arguments)
    console = Console(width=None if sys.stdout.isatty() else 200)
    if asked.steps is not None:
        return replay(asked, console)
    policies = [POLICIES[name] for name in asked.policy or POLICIES]
    seeds = range(asked.seed, asked.seed + asked.sessions)
    console.print(f"seeds {seeds.start} to {seeds.stop - 1}, {len(policies)} policies, {asked.jobs} processes")
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("sessions", total=len(seeds) * len(policies))
        verdicts = run_all(
            seeds, policies, most_window=asked.most_window, jobs=asked.jobs, done=lambda _: progress.advance(task)
        )
    rows = rows_of(verdicts)
    show(rows, console)
    broken = broken_goals(rows)
    if any(verdict.failures for verdict in verdicts):
        show_failures(verdicts, asked.most_window, console)
    for goal in broken:
        console.print(f"MISSED  {goal}", highlight=False)
    console.print("all goals met" if not broken else f"{len(broken)} goals missed", highlight=False)
    return 1 if broken else 0


def replay(asked: argparse.Namespace, console: Console) -> int:
    """Some steps of one session, and all that is known of it afterwards."""
    plan = plan_of(asked.seed, asked.most_window)
    numbers = {int(number) for number in asked.steps.split(",")} if asked.steps != "none" else set()
    plan = plan.only(tuple(step for step in plan.steps if step.number in numbers))
    verdict = judged(plan, POLICIES[(asked.policy or ["default"])[0]])
    console.print(plan)
    console.print(verdict)
    return 1 if verdict.failures else 0


def parsed(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sessions", type=int, default=SESSIONS, help="how many, for each policy")
    parser.add_argument("--seed", type=int, default=0, help="of the first; each has the next one")
    parser.add_argument("--policy", action="append", choices=list(POLICIES), help="this one only; may be repeated")
    parser.add_argument("--most-window", type=int, default=MOST_WINDOW, help="tokens: no larger window")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--steps", help="play only these steps of the one session, for example 0,3,4")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
