"""How long a failing automatic compaction is left alone."""

from __future__ import annotations

from math import floor, log2

import pytest

from agent_session.compaction.backoff import Backoff
from agent_session.compaction.types import CompactionOutcome
from session_store.messages import Usage

FAILED = CompactionOutcome(status="failed", reason="threshold", method="model")


def checks_passed(backoff: Backoff) -> int:
    """How many checks pass before the next attempt."""
    passed = 0
    while not backoff.should_attempt("threshold"):
        passed += 1
        assert passed < 1_000
    return passed


# Mutation: `2 ** failures - 1`; or a count that does not grow.
def test_after_the_nth_failure_in_a_row_so_many_checks_pass():
    backoff = Backoff()
    assert checks_passed(backoff) == 0
    for expected in (0, 1, 3, 7, 15):
        backoff.record(FAILED)
        assert checks_passed(backoff) == expected
    assert backoff.failures == 5


# Mutation: `failures > 2`.
def test_the_third_attempt_in_a_row_is_the_digest():
    backoff = Backoff()
    for is_digest_next in (False, True, True):
        backoff.record(FAILED)
        assert backoff.is_digest_next is is_digest_next


# Mutation: let the wait hold for every reason.
@pytest.mark.parametrize("reason", ["overflow", "manual"])
def test_an_overflow_and_a_person_always_try(reason):
    backoff = Backoff()
    for _ in range(4):
        backoff.record(FAILED)
    assert backoff.should_attempt(reason)
    assert checks_passed(backoff) == 7


# Mutation: reset on a digest or shrink; or not on a handler's summary or a manual compaction.
@pytest.mark.parametrize(
    ("outcome", "failures"),
    [
        (CompactionOutcome(status="applied", reason="threshold", method="model"), 0),
        (CompactionOutcome(status="applied", reason="overflow", method="handler"), 0),
        (CompactionOutcome(status="applied", reason="manual", method="digest"), 0),
        (CompactionOutcome(status="applied", reason="threshold", method="digest"), 3),
        (CompactionOutcome(status="applied", reason="threshold", method="shrink"), 3),
        (CompactionOutcome(status="failed", reason="overflow"), 4),
        (CompactionOutcome(status="failed", reason="manual"), 3),
        (CompactionOutcome(status="aborted", reason="threshold"), 3),
        (CompactionOutcome(status="skipped", reason="threshold"), 3),
        (CompactionOutcome(status="vetoed", reason="threshold"), 3),
        (CompactionOutcome(status="vetoed", reason="threshold", usage=Usage(input=9)), 4),
    ],
)
def test_what_counts_as_a_failure_and_what_ends_the_row(outcome, failures):
    backoff = Backoff()
    for _ in range(3):
        backoff.record(FAILED)
    backoff.record(outcome)
    assert backoff.failures == failures


# Mutation: reset the count and leave the wait.
def test_a_reset_tries_again_at_once():
    backoff = Backoff()
    for _ in range(5):
        backoff.record(FAILED)
    backoff.reset()
    assert checks_passed(backoff) == 0
    assert not backoff.is_digest_next


# Mutation: a wait that does not double.
@pytest.mark.parametrize("turns", [1, 2, 3, 10, 100, 1_000])
def test_failures_grow_with_the_logarithm_of_the_checks(turns):
    backoff = Backoff()
    for _ in range(turns):
        if backoff.should_attempt("threshold"):
            backoff.record(FAILED)
    assert backoff.failures <= 1 + floor(log2(turns + 1))
