"""What a session has spent, summed over every entry of the file, compacted history included.

Owns the sums; they are kept up entry by entry. The rule: each usage in the log is counted once in `all`, once
under its model and once under what it was for. Prices nobody knows make a sum a lower bound, never a zero.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Self

from typing_extensions import override

from session_store.entries import BranchSummaryEntry, CompactionEntry, Entry, MessageEntry, UsageEntry
from session_store.messages import AssistantMessage, Json, ToolResultMessage, Usage
from session_store.showing import Brief, Shown

UNKNOWN_MODEL = "unknown"

COUNTED_TYPES: Final = frozenset({MessageEntry.type, CompactionEntry.type, BranchSummaryEntry.type, UsageEntry.type})
"""The types of entries that may say what was spent."""


@dataclass(slots=True, repr=False)
class UsageSum(Shown):
    """Tokens in disjoint parts and US dollars. With `has_unknown_cost` the cost is a lower bound."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    cost: float = 0.0
    has_unknown_cost: bool = False
    requests: int = 0

    @property
    def total_tokens(self) -> int:
        return self.input + self.output + self.cache_read + self.cache_write

    def add(self, usage: Usage) -> None:
        """Count one request."""
        self.requests += 1
        self.input += usage.input
        self.output += usage.output
        self.cache_read += usage.cache_read
        self.cache_write += usage.cache_write
        if usage.cost is not None:
            self.cost += usage.cost.total
        else:
            self.has_unknown_cost = True

    def to_json(self) -> Json:
        """As in a checkpoint; `unknownCost` only where there is some."""
        data: Json = {
            "input": self.input,
            "output": self.output,
            "cacheRead": self.cache_read,
            "cacheWrite": self.cache_write,
            "cost": self.cost,
            "requests": self.requests,
        }
        if self.has_unknown_cost:
            data["unknownCost"] = True
        return data

    @classmethod
    def from_json(cls, data: Json) -> Self:
        """What `to_json` gave.

        Raises:
            TypeError, ValueError, KeyError: it is something else.
        """
        return cls(
            input=int(data["input"]),
            output=int(data["output"]),
            cache_read=int(data["cacheRead"]),
            cache_write=int(data["cacheWrite"]),
            cost=float(data["cost"]),
            has_unknown_cost=data.get("unknownCost") is True,
            requests=int(data["requests"]),
        )

    def add_sum(self, other: UsageSum) -> None:
        """Count all that another sum counts."""
        self.requests += other.requests
        self.input += other.input
        self.output += other.output
        self.cache_read += other.cache_read
        self.cache_write += other.cache_write
        self.cost += other.cost
        self.has_unknown_cost |= other.has_unknown_cost

    @override
    def __str__(self) -> str:
        if self.has_unknown_cost and not self.cost:
            return f"{self.total_tokens:,} tokens, cost unknown"
        digits = 2 if self.cost >= 0.01 or not self.cost else 4
        return f"{self.total_tokens:,} tokens, ${self.cost:.{digits}f}{'+' if self.has_unknown_cost else ''}"

    @override
    def _line(self) -> str:
        return f"{self}, {self.requests} requests"


@dataclass(slots=True, repr=False)
class UsageTotals(Brief):
    """`by_model` by `provider/model`; `by_kind` by what it was for.

    Kinds: "answer", "tool", "compaction", "branch_summary", and whatever `usage` entries say. What a
    compaction spent counts as "compaction" whether it was applied (on its entry) or came to nothing (in a
    `usage` entry of that kind).
    """

    all: UsageSum = field(default_factory=UsageSum)
    by_model: dict[str, UsageSum] = field(default_factory=dict)
    by_kind: dict[str, UsageSum] = field(default_factory=dict)

    @classmethod
    def of(cls, by_model: dict[str, UsageSum], by_kind: dict[str, UsageSum]) -> Self:
        """Totals that others added up, by both."""
        totals = cls(by_model=by_model, by_kind=by_kind)
        for spent in by_model.values():
            totals.all.add_sum(spent)
        return totals

    @property
    def compaction(self) -> UsageSum:
        return self.by_kind.get("compaction", UsageSum())

    def add(self, entry: Entry) -> None:
        """Count what one entry says was spent, if it says anything."""
        match entry:
            case MessageEntry(message=AssistantMessage() as answer):
                # A request that failed before the model read anything cost nothing that could be unknown.
                if answer.usage.total_tokens or not answer.is_failed:
                    self._count("answer", _model_key(answer.provider, answer.model), answer.usage)
            case MessageEntry(message=ToolResultMessage(usage=Usage() as usage)):
                self._count("tool", UNKNOWN_MODEL, usage)
            case CompactionEntry(usage=Usage() as usage):
                self._count("compaction", entry.model or UNKNOWN_MODEL, usage)
            case BranchSummaryEntry(usage=Usage() as usage):
                self._count("branch_summary", UNKNOWN_MODEL, usage)
            case UsageEntry():
                self._count(entry.kind, _model_key(entry.provider, entry.model), entry.usage)
            case _:
                pass

    def _count(self, kind: str, model: str, usage: Usage) -> None:
        self.all.add(usage)
        self.by_model.setdefault(model, UsageSum()).add(usage)
        self.by_kind.setdefault(kind, UsageSum()).add(usage)


def _model_key(provider: str, model: str) -> str:
    return "/".join(part for part in (provider, model) if part) or UNKNOWN_MODEL
