#!/usr/bin/env python
"""How long it takes until the package can be used: medians over fresh processes, against the goals where there are any.

    python scripts/bench/imports.py [RUNS]

Ends with 1 when a median is past its goal. Imports are timed inside the process, commands from outside of it, the start
of the interpreter included. The first run of each is not counted: it may have to compile.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from time import perf_counter

ROOT = Path(__file__).resolve().parents[2]
RUNS = 15

_TIMED = "from time import perf_counter as now; began = now(); {}; print(now() - began)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """`once` gives the seconds of one run in a fresh process; `goal_seconds` None: shown, and not judged."""

    name: str
    once: Callable[[], float]
    goal_seconds: float | None = None


def main(arguments: Sequence[str]) -> int:
    runs = int(arguments[0]) if arguments else RUNS
    verdicts = [report(item, runs) for item in measured()]
    return 0 if all(verdicts) else 1


def report(item: Measured, runs: int) -> bool:
    """Print one line; whether the median is within its goal."""
    item.once()
    seconds = sorted(item.once() for _ in range(runs))
    middle = median(seconds)
    is_within = item.goal_seconds is None or middle <= item.goal_seconds
    verdict = ""
    if item.goal_seconds is not None:
        verdict = f"{'within' if is_within else 'PAST'} the goal of {item.goal_seconds * 1000:.0f} ms"
    print(f"{item.name:<44} {middle * 1000:7.1f} ms   fastest {seconds[0] * 1000:7.1f}   {verdict}".rstrip())
    return is_within


def measured() -> list[Measured]:
    items = [
        Measured(name="import agent_session", once=partial(inside, "import agent_session"), goal_seconds=0.15),
        Measured(
            name="from agent_session import AgentSession",
            once=partial(inside, "from agent_session import AgentSession"),
        ),
        Measured(
            name="AgentSession('openai/gpt-5-mini'), opened",
            once=partial(
                inside,
                "from agent_session import AgentSession, SessionManager; "
                "AgentSession('openai/gpt-5-mini', session_manager=SessionManager.in_memory()).context_usage()",
            ),
        ),
    ]
    if find_spec("agent_session.cli") is not None:
        program = "import sys; from agent_session.cli.main import main; sys.exit(main())"
        items.append(Measured(name="agent-session --help", once=partial(outside, program, "--help"), goal_seconds=0.2))
    return items


def inside(statement: str) -> float:
    done = subprocess.run(
        [sys.executable, "-c", _TIMED.format(statement)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return float(done.stdout)


def outside(program: str, *arguments: str) -> float:
    began = perf_counter()
    subprocess.run([sys.executable, "-c", program, *arguments], cwd=ROOT, capture_output=True, check=True)
    return perf_counter() - began


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.exit(main(sys.argv[1:]))
