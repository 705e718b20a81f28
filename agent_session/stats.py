"""What a session has spent and holds, in one value for people and programs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from typing_extensions import override

from agent_session.parts import Parts
from session_store.totals import UsageSum, UsageTotals


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionStats:
    """`total` counts every request of the file, compacted history included; `compaction` is the share of it that
    went into summaries, those that came to nothing included. `context_messages` is what the next request sends.
    """

    session_id: str
    name: str | None
    path: Path | None
    total: UsageSum
    compaction: UsageSum
    by_model: dict[str, UsageSum]
    context_messages: int

    @override
    def __repr__(self) -> str:
        where = f", {self.path}" if self.path is not None else ""
        return (
            f"session {self.name or self.session_id}: {self.context_messages} messages in the context; spent "
            f"{self.total} in {self.total.requests} {'request' if self.total.requests == 1 else 'requests'}, of it "
            f"compaction {self.compaction}{where}"
        )


def stats_of(parts: Parts) -> SessionStats:
    manager = parts.manager
    totals = UsageTotals()
    for target, source in ((totals.by_model, manager.totals.by_model), (totals.by_kind, manager.totals.by_kind)):
        target.update({key: _copied(value) for key, value in source.items()})
    totals.all = _copied(manager.totals.all)
    # A compaction that came to nothing is in the totals at once, in the log with the next entry.
    for model, usage in parts.recorder.owed.items():
        for total in (totals.all, totals.by_model.setdefault(model, UsageSum())):
            total.add(usage)
        totals.by_kind.setdefault("compaction", UsageSum()).add(usage)
    return SessionStats(
        session_id=manager.session_id,
        name=manager.name,
        path=manager.path,
        total=totals.all,
        compaction=totals.compaction,
        by_model=totals.by_model,
        context_messages=len(parts.meter.context()),
    )


def _copied(total: UsageSum) -> UsageSum:
    return replace(total)
