"""What a storm came to: one row for each policy, the goals it is judged by, and how to see a failure again.

What a policy costs is summed over sessions of every size, and a few large ones weigh most: two policies differ by a
tenth and more by chance. So a ratio of costs is told with the range in which nine of ten such storms would have it, and
a goal is missed where all of that range is above it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from typing_extensions import override

from scripts.bench.storm.drive import Verdict
from scripts.bench.storm.fleet import described, smallest_steps
from scripts.bench.storm.policies import POLICIES, Policy

MOST_TIMES_CHEAPEST: Final = 1.15
"""What is kept word for word, the others may save on: naive agents keep nothing."""

_STANDARD_ERRORS: Final = 1.645
"""On either side of a ratio, for nine of ten."""

_SHOWN_FAILURES: Final = 3


_SIZES: Final[dict[str, Callable[[Verdict], float]]] = {
    "tokens": lambda verdict: verdict.summaries.tokens,
    "money": lambda verdict: verdict.summaries.dollars,
}


@dataclass(frozen=True, slots=True)
class Ratio:
    """How many times as much one policy takes as another, for the same work; `least` and `most` are its range."""

    times: float
    least: float
    most: float

    @override
    def __str__(self) -> str:
        return f"{self.times:.2f} ({self.least:.2f} to {self.most:.2f})"


@dataclass(slots=True)
class Row:
    """The sums of one policy. Of each sort of failure the sessions are counted, once each. `verdicts` are by seed."""

    policy: Policy
    verdicts: dict[int, Verdict] = field(default_factory=dict)
    failed: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    needless: int = 0
    limped: int = 0
    steepest: float = 0.0
    work: int = 0
    summary_tokens: int = 0
    summary_dollars: float = 0.0
    dollars: float = 0.0

    def add(self, verdict: Verdict) -> None:
        self.verdicts[verdict.seed] = verdict
        self.failed.update({failure.partition(":")[0] for failure in verdict.failures})
        self.outcomes += verdict.outcomes
        self.needless += bool(verdict.needless)
        self.limped += verdict.limped
        self.steepest = max(self.steepest, verdict.steepest)
        self.work += verdict.work
        self.summary_tokens += verdict.summaries.tokens
        self.summary_dollars += verdict.summaries.dollars
        self.dollars += verdict.summaries.dollars + verdict.chat.dollars

    @property
    def sessions(self) -> int:
        return len(self.verdicts)

    @property
    def is_yardstick(self) -> bool:
        """Whether the default is held against it: also, every session came to an end."""
        return self.policy.is_yardstick and not self.failed["stuck"]

    @property
    def tokens(self) -> float:
        """Tokens of summaries, input and output, for each token of work."""
        return self.summary_tokens / max(1, self.work)

    @property
    def money(self) -> float:
        """Dollars of summaries for a million tokens of work."""
        return 1e6 * self.summary_dollars / max(1, self.work)

    @property
    def money_in_all(self) -> float:
        """Dollars of all requests for a million tokens of work."""
        return 1e6 * self.dollars / max(1, self.work)


def rows_of(verdicts: Iterable[Verdict]) -> list[Row]:
    """One row for each policy, in the order in which they come."""
    rows: dict[str, Row] = {}
    for verdict in verdicts:
        rows.setdefault(verdict.policy, Row(POLICIES[verdict.policy])).add(verdict)
    return list(rows.values())


def broken_goals(rows: Sequence[Row]) -> list[str]:
    """Which goals are missed, in words."""
    broken = [
        f"{row.policy.name}: {count} sessions {sort}" for row in rows for sort, count in sorted(row.failed.items())
    ]
    for what, cheapest, ratio in _against_the_cheapest(rows):
        if ratio.least > MOST_TIMES_CHEAPEST:
            broken.append(f"default: {ratio} times the {what} of {cheapest} for the same work")
    return broken


def ratio_of(row: Row, other: Row, size: Callable[[Verdict], float]) -> Ratio:
    """What `row` takes for its work against `other`, over the sessions that both have."""
    pairs = [(row.verdicts[seed], other.verdicts[seed]) for seed in row.verdicts.keys() & other.verdicts.keys()]
    columns = [(size(one), one.work, size(two), two.work) for one, two in pairs]
    sums = [max(sum(column), 1e-12) for column in zip(*columns, strict=True)]
    times = sums[0] / sums[1] / (sums[2] / sums[3])
    # Each session's part in the logarithm of the ratio: their squares add up to its variance.
    parts = (a / sums[0] - b / sums[1] - c / sums[2] + d / sums[3] for a, b, c, d in columns)
    spread = math.exp(_STANDARD_ERRORS * math.sqrt(sum(part * part for part in parts)))
    return Ratio(times, times / spread, times * spread)


def _against_the_cheapest(rows: Sequence[Row]) -> list[tuple[str, str, Ratio]]:
    """(what, the cheapest yardstick, the default against it), for tokens and for money of summaries."""
    default = next((row for row in rows if row.policy.name == "default"), None)
    others = [row for row in rows if row.is_yardstick and row.summary_tokens]
    if default is None or not others:
        return []
    ratios = {
        what: [(row.policy.name, ratio_of(default, row, size)) for row in others] for what, size in _SIZES.items()
    }
    return [(what, *max(found, key=lambda pair: pair[1].times)) for what, found in ratios.items()]


def show(rows: Sequence[Row], console: Console) -> None:
    """The table, and under it what the policies are."""
    table = Table(title="compaction storm", box=SIMPLE_HEAD)
    table.add_column("policy", no_wrap=True)
    columns = (
        "sessions", "stuck", "over bound", "lost", "invalid", "fault", "needless", "limped", "calls/ bound",
        "model", "digest", "shrink", "failed", "tokens/ work", "$/M work", "$/M in all",
    )  # fmt: skip
    for name in columns:
        table.add_column(name, justify="right")
    for row in rows:
        failed = sum(count for outcome, count in row.outcomes.items() if outcome.startswith("failed"))
        table.add_row(
            row.policy.name,
            f"{row.sessions:,}",
            *(_counted(row.failed[sort]) for sort in ("stuck", "over the bound", "lost", "invalid", "fault")),
            f"{row.needless:,}",
            f"{row.limped:,}",
            f"{row.steepest:.0%}",
            *(f"{row.outcomes[f'applied {method}']:,}" for method in ("model", "digest", "shrink")),
            f"{failed:,}",
            f"{row.tokens:.2f}",
            f"{row.money:.2f}",
            f"{row.money_in_all:.2f}",
        )
    console.print(table)
    for row in rows:
        console.print(f"  {row.policy.name}: {row.policy.says}", highlight=False)
    for line in _costs_of(rows):
        console.print(f"  {line}", highlight=False)
    console.print(
        "  needless: sessions with an error for size although what must be kept would have fitted. limped: more than "
        "one small prompt was needed after the storm. calls/ bound: the most of its bound that a step took. tokens and "
        "$: of summaries, for a token and for a million tokens of new messages",
        highlight=False,
    )


def _costs_of(rows: Sequence[Row]) -> Iterator[str]:
    """The default's costs against every other policy's that asks a model, in words."""
    default = next((row for row in rows if row.policy.name == "default"), None)
    for row in rows:
        if default is not None and row is not default and row.summary_tokens:
            ratios = ", ".join(f"{what} {ratio_of(default, row, size)}" for what, size in _SIZES.items())
            yield f"default / {row.policy.name}: {ratios}"


def show_failures(verdicts: Sequence[Verdict], most_window: int, console: Console) -> None:
    """The first failures of each policy, each with as few steps as still show it."""
    shown: Counter[str] = Counter()
    for verdict in verdicts:
        if not verdict.failures:
            continue
        shown[verdict.policy] += 1
        if shown[verdict.policy] > _SHOWN_FAILURES:
            continue
        plan, smallest = smallest_steps(verdict, most_window)
        steps = ",".join(str(step.number) for step in plan.steps)
        console.print(f"\n[bold]{verdict.policy}, seed {verdict.seed}[/]: {smallest.failures[0]}", highlight=False)
        for step in plan.steps:
            console.print(f"    {described(step)}", highlight=False)
        console.print(
            f"    again: --policy {verdict.policy} --seed {verdict.seed} --sessions 1 --steps {steps or 'none'} "
            f"--most-window {most_window}",
            highlight=False,
        )


def _counted(count: int) -> str:
    return f"[red]{count:,}[/]" if count else "0"
