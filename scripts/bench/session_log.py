#!/usr/bin/env python
"""What a long log costs: resume, turns, appends, forks and lists at growing lengths, against goals.

    python scripts/bench/session_log.py [--million] [--cpu] [--runs N] [--folder FOLDER]

Ends with 1 when a figure is past its goal, or when what was resumed is not what the whole log says. Each figure is the
median of fresh processes, without their start; beside it stands how much of it was the processor's time. "cold": the
page cache was dropped for the file first.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

if __name__ == "__main__":
    # A script's own folder is on the path, the checkout is not.
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from agent_session.testing import FakeProvider, reply
from scripts.bench.long_logs.generator import Shape, write_session
from session_store.list_index import INDEX_NAME
from session_store.locations import folder_for

Said = dict[str, Any]

ROOT = Path(__file__).resolve().parents[2]
LENGTHS = (1_000, 10_000, 100_000)
MILLION = 1_000_000
LISTED = 2_000

# Each goal is a part of what Pi 1.6.0 takes for the same on comparable hardware (see docs/performance.md).
RESUME_MS, RESUME_MB = 18.0, 10.0
UNCOMPACTED_MS, UNCOMPACTED_MB = 3_505 / 1.5, 592.0
INDEX_MS = 3_523 / 8
FORK_MS = 9_470 / 15
LISTING_MS, LISTING_AGAIN_MS = 6_400 / 20, 50.0
ANSWER_MS = 700.0
TURN_MS, TURN_GROWTH = 0.3, 1.15
APPEND_US = 25.0
DURABLE_TIMES_BARE = 1.5


@dataclass(slots=True)
class Figures:
    """The rows of the table, and which goals were missed. With `by_cpu` the processor's part of times is judged."""

    by_cpu: bool
    rows: list[tuple[str, ...]] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)

    def add(
        self,
        what: str,
        log: str,
        value: float,
        unit: str,
        *,
        cpu: float | None = None,
        goal: float | None = None,
        note: str = "",
    ) -> None:
        """One figure; `goal` is the most it may be."""
        verdict = ""
        if goal is not None:
            judged = cpu if self.by_cpu and cpu is not None else value
            verdict = f"{goal:,.4g}"
            if judged > goal:
                self.missed.append(f"{what}, {log}: {judged:,.3g} {unit}, the goal is {goal:,.4g}")
                verdict += "  PAST"
        self.rows.append((what, log, _number(value), _number(cpu), unit, verdict, note))

    def time(self, what: str, log: str, run: Said, *, goal: float | None = None, note: str = "") -> None:
        """A time in ms."""
        self.add(what, log, run["ms"], "ms", cpu=run["cpu_ms"], goal=goal, note=note)

    def show(self, console: Console) -> None:
        table = Table(box=SIMPLE_HEAD)
        for heading in ("what", "log"):
            table.add_column(heading)
        for heading in ("median", "cpu"):
            table.add_column(heading, justify="right")
        for heading in ("unit", "at most", ""):
            table.add_column(heading)
        for row in self.rows:
            table.add_row(*row, style="red" if "PAST" in row[5] else None)
        console.print(table)
        for miss in self.missed:
            console.print(f"MISSED  {miss}", highlight=False)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,.3f}" if value < 10 else f"{value:,.1f}"


def main(arguments: Sequence[str]) -> int:
    asked = parsed(arguments)
    console = Console(width=None if sys.stdout.isatty() else 160)
    with tempfile.TemporaryDirectory(dir=asked.folder) as folder:
        figures = Figures(by_cpu=asked.cpu)
        measure_logs(Path(folder), asked, figures, console)
        measure_uncompacted(Path(folder), asked, figures, console)
        measure_listing(Path(folder), asked, figures, console)
    figures.show(console)
    console.print("all goals met" if not figures.missed else f"{len(figures.missed)} goals missed", highlight=False)
    return 1 if figures.missed else 0


def parsed(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--million", action="store_true", help="a log of 1,000,000 entries (2.8 GB), too")
    parser.add_argument("--runs", type=int, default=7, help="processes for each figure")
    parser.add_argument("--cpu", action="store_true", help="judge the processor's time: where the machine is busy")
    parser.add_argument("--folder", type=Path, help="where the logs are made; by default among the temporary files")
    return parser.parse_args(arguments)


# The measurements -----------------------------------------------------------------------------------------------------


def measure_logs(folder: Path, asked: argparse.Namespace, figures: Figures, console: Console) -> None:
    few = min(3, asked.runs)
    shortest: Said | None = None
    for entries in (*LENGTHS, *((MILLION,) if asked.million else ())):
        path = folder / f"{entries}.jsonl"
        size = write_session(path, Shape(entries=entries))
        log = f"{entries:,} entries, {size / 1e6:,.0f} MB"
        console.print(f"[dim]{log}[/]")
        figures.time("raw read", log, _middle([_run("raw_read", path) for _ in range(few)]))
        warm = [_run("resume", path) for _ in range(asked.runs)]
        figures.time("resume to the first context, warm", log, _middle(warm), goal=RESUME_MS)
        cold = [_run("resume", path, before=_drop_cache) for _ in range(asked.runs)]
        figures.time("resume to the first context, cold", log, _middle(cold), goal=RESUME_MS)
        note = f"{warm[0]['messages']} messages"
        figures.add("memory of that", log, _median(warm, "mb"), "MB", goal=RESUME_MB, note=note)
        figures.time("totals of the session, resumed", log, _run("totals", path), goal=RESUME_MS)
        if entries <= LENGTHS[-1]:
            _check(figures, log, warm[0]["said"], _run("whole", path)["said"])
        is_reference = entries == LENGTHS[-1]
        goal = INDEX_MS if is_reference else None
        figures.time("index of all of it", log, _middle([_run("index", path) for _ in range(few)]), goal=goal)
        turns = [_run("turn", path) for _ in range(few)]
        turn = _middle(turns)
        shortest = shortest or turn
        figures.time("a turn: 3 entries, context, threshold", log, turn, goal=TURN_MS)
        growth, cpu_growth = turn["ms"] / shortest["ms"], turn["cpu_ms"] / shortest["cpu_ms"]
        figures.add("that, to the shortest log's", log, growth, "times", cpu=cpu_growth, goal=TURN_GROWTH)
        figures.time("a compaction written", log, _middle([run["compaction"] for run in turns]))
        appends = [_run("append", path) for _ in range(few)]
        append, bare = _middle(appends), _middle([run["bare"] for run in appends])
        note = f"a bare write {bare['ms'] * 1_000:.1f}"
        micros = append["ms"] * 1_000, append["cpu_ms"] * 1_000
        figures.add("an entry of 3.4 KB appended", log, micros[0], "us", cpu=micros[1], goal=APPEND_US, note=note)
        durable = [_run("durable_turn", path) for _ in range(few)]
        times = median(run["ms"] / run["bare"]["ms"] for run in durable)
        note = f"{_median(durable, 'ms'):.2f} ms"
        figures.add("a durable turn, to a bare one", log, times, "times", goal=DURABLE_TIMES_BARE, note=note)
        if is_reference:
            figures.time("fork", log, _middle([_run("fork", path) for _ in range(few)]), goal=FORK_MS)
            figures.time("start, resume, one answer, exit", log, _answers(asked, path), goal=ANSWER_MS)
        path.unlink()


def measure_uncompacted(folder: Path, asked: argparse.Namespace, figures: Figures, console: Console) -> None:
    path = folder / "uncompacted.jsonl"
    size = write_session(path, Shape(entries=LENGTHS[-1], compacted=False))
    log = f"{LENGTHS[-1]:,} entries, {size / 1e6:,.0f} MB, all context"
    console.print(f"[dim]{log}[/]")
    runs = [_run("resume", path) for _ in range(min(3, asked.runs))]
    figures.time("resume to the first context, warm", log, _middle(runs), goal=UNCOMPACTED_MS)
    figures.add("memory of that", log, _median(runs, "mb"), "MB", goal=UNCOMPACTED_MB)
    path.unlink()


def measure_listing(folder: Path, asked: argparse.Namespace, figures: Figures, console: Console) -> None:
    root = folder / "sessions"
    size = 0
    for number in range(LISTED):
        home = folder_for(f"/home/me/project-{number % 20}", root)
        home.mkdir(parents=True, exist_ok=True)
        path = home / f"2026-01-05T09-00-00-000Z_{number:016x}.jsonl"
        size += write_session(path, Shape(entries=85, seed=number, compacted=False))
    log = f"{LISTED:,} sessions, {size / 1e6:,.0f} MB"
    console.print(f"[dim]{log}[/]")
    runs = [_run("listing", root, before=_forget_list) for _ in range(asked.runs)]
    figures.time("list them", log, _middle(runs), goal=LISTING_MS)
    figures.time("list them again", log, _middle([run["again"] for run in runs]), goal=LISTING_AGAIN_MS)


def _check(figures: Figures, log: str, resumed: Any, whole: Any) -> None:
    if resumed != whole:
        figures.missed.append(f"{log}: what was resumed is not what the whole log says")


def _answers(asked: argparse.Namespace, path: Path) -> Said:
    """The command line, from its start to its end, with a provider that answers at once."""
    with FakeProvider([reply("Done.")] * asked.runs).serving() as provider:
        variables = {
            **os.environ,
            "OPENAI_BASE_URL": provider.base_url,
            "OPENAI_API_KEY": "a-key",
            "AGENT_SESSION_DIR": str(path.parent / "elsewhere"),
        }
        command = [sys.executable, "-m", "agent_session.cli", "run", "-p", "Go on.", "--model", "openai/scripted"]
        command += ["--resume", str(path)]
        return _middle([_timed(command, variables) for _ in range(asked.runs)])


def _timed(command: list[str], variables: dict[str, str]) -> Said:
    began, before = perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, env=variables, cwd=ROOT, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"ms": (perf_counter() - began) * 1_000, "cpu_ms": cpu * 1_000}


def _middle(runs: list[Said]) -> Said:
    return {name: _median(runs, name) for name in ("ms", "cpu_ms")}


def _median(runs: list[Said], name: str) -> float:
    return float(median(run[name] for run in runs))


def _run(what: str, path: Path, *, before: Callable[[Path], None] | None = None) -> Said:
    if before is not None:
        before(path)
    command = [sys.executable, "-m", "scripts.bench.long_logs.once", what, str(path)]
    done = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE)
    found: Said = json.loads(done.stdout)
    return found


def _forget_list(root: Path) -> None:
    (root / INDEX_NAME).unlink(missing_ok=True)


def _drop_cache(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(fd)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
