"""What a session has spent and holds, in one value for people and programs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from typing_extensions import override

from agent_session.parts import Parts
from session_store.showing import table
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

    def _repr_html_(self) -> str:
        by_model = [(f"by {model}", str(spent)) for model, spent in self.by_model.items()]
        return table(
            f"session {self.name or self.session_id}",
            [
                ("path", self.path and str(self.path)),
                ("messages in the context", self.context_messages),
                ("requests", self.total.requests),
                ("spent", str(self.total)),
                *by_model,
                ("of it compaction", str(self.compaction)),
            ],
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


def html_of(parts: Parts | None, state: str) -> str:
    """The session as a notebook shows it."""
    if parts is None:
        return table("session", [("state", "not opened")])
    manager, usage = parts.manager, parts.meter.usage(parts.settings().compaction)
    return table(
        f"session {manager.name or manager.session_id}",
        [
            ("state", state),
            ("model", parts.models.model.id),
            ("thinking level", parts.models.thinking_level),
            ("context", repr(usage)),
            ("spent", str(stats_of(parts).total)),
            ("path", str(manager.path) if manager.path is not None else None),
        ],
    )
