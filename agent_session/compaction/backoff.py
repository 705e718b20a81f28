"""Not again and again: how long an automatic compaction that fails is left alone.

The rule it keeps: after the n-th failure in a row, 2^(n-1) - 1 further checks pass before the next attempt, so that a
run of T turns pays for about log2(T) failures, and the first is tried again at once. Whoever checks asks
`should_attempt` each time, and records what became of each compaction.
"""

from __future__ import annotations

from typing_extensions import override

from agent_session.compaction.types import CompactionOutcome, CompactionReason

DIGEST_AFTER_FAILURES = 2


class Backoff:
    """Failures in a row, and how many checks still pass."""

    __slots__ = ("_checks_to_pass", "_failures")

    def __init__(self) -> None:
        self._failures = 0
        self._checks_to_pass = 0

    @override
    def __repr__(self) -> str:
        return f"Backoff(failures={self._failures}, checks_to_pass={self._checks_to_pass})"

    @property
    def failures(self) -> int:
        """Failed automatic attempts in a row."""
        return self._failures

    @property
    def is_digest_next(self) -> bool:
        """Whether the model has failed often enough that the next attempt does without it."""
        return self._failures >= DIGEST_AFTER_FAILURES

    def should_attempt(self, reason: CompactionReason) -> bool:
        """Whether to compact now. A `threshold` that is refused uses up one check; the others always try."""
        if reason != "threshold" or not self._checks_to_pass:
            return True
        self._checks_to_pass -= 1
        return False

    def record(self, outcome: CompactionOutcome) -> None:
        """Learn what became of a compaction, whatever set it off.

        An applied summary by a model or a handler, and any applied manual compaction, end the row of failures; a
        digest or a shrink does not. A veto that came after a summary was paid for counts as a failure, since it would
        be paid for again; an abort, a free veto and a skip count as nothing.
        """
        is_manual = outcome.reason == "manual"
        if outcome.status == "applied":
            if is_manual or outcome.method in ("model", "handler"):
                self.reset()
        elif not is_manual and (
            outcome.status == "failed" or (outcome.status == "vetoed" and outcome.usage is not None)
        ):
            self._failures += 1
            self._checks_to_pass = 2 ** (self._failures - 1) - 1

    def reset(self) -> None:
        """Start afresh: another model, other settings, another branch."""
        self._failures = 0
        self._checks_to_pass = 0
