"""What a storm came to: one row for each policy, the goals it is judged by, and how to see a failure again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from scripts.bench.storm.drive import Verdict
from scripts.bench.storm.fleet import described, smallest_steps
from scripts.bench.storm.policies import POLICIES, Policy

MOST_TIMES_CHEAPEST: Final = 1.15

_SHOWN_FAILURES: Final = 3


@dataclass(slots=True)
class Row:
    """The sums of one policy. Of each sort of failure the sessions are counted, once each."""

    policy: Policy
    sessions: int = 0
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
        self.sessions += 1
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
    def is_yardstick(self) -> bool:
        """Whether the default is compared with it: every session came to an end, with summaries of the same model."""
        return self.policy.is_peer and not self.failed["stuck"]

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
    default = next((row for row in rows if row.policy.name == "default"), None)
    if default is not None:
        for what, (times, cheapest) in _times_cheapest(default, rows).items():
            if times > MOST_TIMES_CHEAPEST:
                broken.append(f"default: {times:.2f} times the {what} of {cheapest} for the same work")
    return broken


def _times_cheapest(row: Row, rows: Sequence[Row]) -> dict[str, tuple[float, str]]:
    """How many times the cheapest yardstick's tokens and money this row takes, and which that is."""
    found: dict[str, tuple[float, str]] = {}
    sizes: dict[str, Callable[[Row], float]] = {"tokens": lambda row: row.tokens, "money": lambda row: row.money}
    for what, size in sizes.items():
        yardsticks = [other for other in rows if other.is_yardstick and size(other)]
        if yardsticks:
            cheapest = min(yardsticks, key=size)
            found[what] = (size(row) / size(cheapest), cheapest.policy.name)
    return found


def show(rows: Sequence[Row], console: Console) -> None:
    """The table, and under it what the policies are."""
    table = Table(title="compaction storm", box=SIMPLE_HEAD)
    table.add_column("policy", no_wrap=True)
    columns = (
        "sessions", "stuck", "over bound", "lost", "invalid", "fault", "needless", "limped", "calls/ bound",
        "model", "digest", "shrink", "failed", "tokens/ work", "$/M work", "times cheapest", "$/M in all",
    )  # fmt: skip
    for name in columns:
        table.add_column(name, justify="right")
    for row in rows:
        failed = sum(count for outcome, count in row.outcomes.items() if outcome.startswith("failed"))
        times = _times_cheapest(row, rows) if row.policy.is_peer else {}
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
            " / ".join(f"{share:.2f}" for share, _ in times.values()) or "-",
            f"{row.money_in_all:.2f}",
        )
    console.print(table)
    for row in rows:
        console.print(f"  {row.policy.name}: {row.policy.says}", highlight=False)
    console.print(
        "  needless: sessions with an error for size although what must be kept would have fitted. limped: more than "
        "one small prompt was needed after the storm. calls/ bound: the most of its bound that a step took. tokens and "
        "$: of summaries, for a token and for a million tokens of new messages",
        highlight=False,
    )


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
