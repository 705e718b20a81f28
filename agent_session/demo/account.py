"""What happened in a demonstration, and whether all that was promised did.

The rule it keeps: nothing is noted that the session, the operating system or the file did not say. Compactions come
from the session's events, the killed one from the event of the process that was killed; each applied one is compared
with the context it left, and looked up in the file.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from agent_session.compaction.types import CompactionMethod, CompactionReason
from agent_session.demo.killing import Kill
from agent_session.events import (
    AgentEnd,
    AgentStart,
    CompactionEnd,
    Event,
    ExtensionFailed,
    RetryStart,
    TurnEnd,
    Warning,
)
from agent_session.meter import ContextUsage

Moment: TypeAlias = Literal[
    "after a tool step",
    "between tool steps",
    "after last turn",
    "refused for size",
    "before a retry",
    "on request",
]

MOST_OFF = 0.2
"""By how much of itself the context may differ from the size its compaction told. That size follows the scale of the
provider's last report, the context is an estimate until the next one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One compaction. Sizes are tokens; `method` and `after` are None where nothing was stored.

    `outcome` is a status of `CompactionOutcome`, or killed. `measured` is the session's own measure of the context
    afterwards. `entries` is how many were summarised, `entry_id` the stored compaction entry.
    """

    act: int
    moment: Moment
    reason: CompactionReason
    method: CompactionMethod | None
    outcome: str
    before: int
    after: int | None = None
    measured: int | None = None
    entries: int = 0
    entry_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """All that the promises are judged by.

    `is_same_context`: the session that was resumed after the kill had the messages and entries of before.
    `summary_was_sent`: its last request to the provider carried the newest summary. `stored` are the compaction
    entries in the file at the end, by id, in order; `damage` is what reading the file met, `troubles` are the
    warnings and failures that the sessions told.
    """

    rows: Sequence[Row]
    kill: Kill
    is_same_context: bool
    summary_was_sent: bool
    stored: Sequence[str]
    damage: Sequence[str]
    troubles: Sequence[str]
    tests_pass: bool


@dataclass(slots=True)
class Account:
    """Keeps the rows; `listen` is what `session.subscribe` takes, `usage` the session's measure of its context."""

    act: int = 0
    usage: Callable[[], ContextUsage] | None = None
    rows: list[Row] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)
    _is_in_run: bool = False

    def listen(self, event: Event) -> None:
        """Take note of an event."""
        match event:
            case AgentStart():
                self._is_in_run = True
            case AgentEnd():
                self._is_in_run = False
            case TurnEnd():
                self._note_what_followed(event)
            case CompactionEnd():
                self.rows.append(self._row(event))
            case Warning(text=text) | RetryStart(error=text):
                self.troubles.append(text)
            case ExtensionFailed(owner=owner, why=why):
                self.troubles.append(f"{owner}: {why}")
            case _:
                pass

    def note_kill(self, kill: Kill) -> None:
        """A compaction that was told to have started, and whose process is gone."""
        start = kill.start
        self.rows.append(
            Row(
                act=self.act,
                moment="on request",
                reason=start.reason,
                method=None,
                outcome="killed" if kill.signal == signal.SIGKILL else "lost",
                before=start.tokens_before,
            )
        )

    def _row(self, event: CompactionEnd) -> Row:
        outcome = event.outcome
        is_applied = outcome.status == "applied"
        return Row(
            act=self.act,
            moment=self._moment(event.reason),
            reason=event.reason,
            method=outcome.method if is_applied else None,
            outcome=outcome.status,
            before=outcome.tokens_before,
            after=outcome.tokens_after,
            measured=self.usage().tokens if is_applied and self.usage is not None else None,
            entries=outcome.entries_summarized,
            entry_id=outcome.entry.id if outcome.entry is not None else None,
        )

    def _moment(self, reason: CompactionReason) -> Moment:
        if reason == "manual":
            return "on request"
        if reason == "overflow":
            return "refused for size"
        return "after a tool step" if self._is_in_run else "after last turn"

    def _note_what_followed(self, turn: TurnEnd) -> None:
        """What comes next tells a step between two others from the last one, and a recovery from a refusal."""
        if not self.rows or (turn.message is None or turn.message.is_failed):
            return
        last = self.rows[-1]
        if last.moment == "refused for size":
            self.rows[-1] = replace(last, moment="before a retry")
        elif last.moment == "after a tool step" and turn.tool_results:
            self.rows[-1] = replace(last, moment="between tool steps")


@dataclass(frozen=True, slots=True)
class Promise:
    """A sentence about a demonstration, and how the evidence shows it."""

    sentence: str
    is_kept: Callable[[Evidence], bool]


def broken_promises(evidence: Evidence) -> list[str]:
    """The sentences that do not hold; none after a good demonstration."""
    return [promise.sentence for promise in PROMISES if not promise.is_kept(evidence)]


def _has_row(**facts: object) -> Callable[[Evidence], bool]:
    """Whether some row has all of these values."""

    def is_kept(evidence: Evidence) -> bool:
        return any(all(getattr(row, name) == value for name, value in facts.items()) for row in evidence.rows)

    return is_kept


def _went_on_after_the_kill(evidence: Evidence) -> bool:
    outcomes = [row.outcome for row in evidence.rows]
    return "killed" in outcomes and "applied" in outcomes[outcomes.index("killed") :] and evidence.summary_was_sent


def _left_what_it_said(evidence: Evidence) -> bool:
    sizes = [(row.after, row.measured) for row in evidence.rows if row.outcome == "applied"]
    return all(said and measured and abs(said - measured) <= MOST_OFF * measured for said, measured in sizes)


def _file_agrees(evidence: Evidence) -> bool:
    applied = [row.entry_id for row in evidence.rows if row.outcome == "applied"]
    return applied == list(evidence.stored) and not evidence.damage


PROMISES = (
    Promise(
        "the context passed the threshold between two tool steps, and the run went on",
        _has_row(reason="threshold", moment="between tool steps", method="model", outcome="applied"),
    ),
    Promise(
        "the context passed the threshold with the last answer of a run",
        _has_row(reason="threshold", moment="after last turn", method="model", outcome="applied"),
    ),
    Promise(
        "the provider refused a request for its size; compacted, it was sent again and answered",
        _has_row(reason="overflow", moment="before a retry", method="model", outcome="applied"),
    ),
    Promise("session.compact() compacted on request", _has_row(act=4, reason="manual", outcome="applied")),
    Promise("an extension vetoed a compaction", _has_row(outcome="vetoed")),
    Promise("an extension wrote the summary of another", _has_row(method="handler", outcome="applied")),
    Promise("a process was killed with SIGKILL in the middle of a compaction", _has_row(outcome="killed")),
    Promise(
        "the killed process left the session's file as it was, byte for byte",
        lambda evidence: evidence.kill.is_same_file,
    ),
    Promise("the resumed session has the same context", lambda evidence: evidence.is_same_context),
    Promise("it compacted again, and its next request carried the new summary", _went_on_after_the_kill),
    Promise("each compaction left a context of the size it said", _left_what_it_said),
    Promise("the file holds the compactions that were applied and no others, without damage", _file_agrees),
    Promise("the agent did its work: the project's tests pass", lambda evidence: evidence.tests_pass),
    Promise("the sessions told no warning and no failure", lambda evidence: not evidence.troubles),
)
