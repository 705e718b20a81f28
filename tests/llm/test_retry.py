"""What may be sent again, and when."""

import pytest

from agent_session.errors import ModelError, ModelErrorKind, ModelRequestError
from agent_session.llm.retry import delay_for, is_retryable
from agent_session.settings import RetrySettings

SETTINGS = RetrySettings(max_retries=3, base_delay_seconds=2, max_retry_after_seconds=60)


def error(kind: ModelErrorKind, status: int | None = None, retry_at: float | None = None) -> ModelError:
    return ModelRequestError("refused", kind=kind, status=status, retry_at=retry_at)


def middle() -> float:
    return 0.5


# Mutation: move one kind or status to the other side.
@pytest.mark.parametrize(
    ("kind", "status", "expected"),
    [
        ("server", 503, True),
        ("server", None, True),
        ("network", None, True),
        ("stream_cut", None, True),
        ("silence", None, True),
        ("rate", 429, True),
        ("bad_request", 408, True),
        ("bad_request", 409, True),
        ("bad_request", 400, False),
        ("bad_request", 404, False),
        ("auth", 401, False),
        ("output_setting", 400, False),
        ("content", 400, False),
        ("pairing", 400, False),
        ("unknown", None, False),
        ("request_exceeds_rate_budget", 429, False),
        ("overflow", 400, False),
        ("overflow", 500, False),
        ("overflow_bytes", 413, False),
    ],
)
def test_only_what_may_pass_is_sent_again(kind: ModelErrorKind, status: int | None, expected: bool) -> None:
    assert is_retryable(error(kind, status)) is expected


# Mutation: ask for the status before the size.
def test_a_request_that_is_too_large_is_never_sent_again_whatever_its_status() -> None:
    assert not is_retryable(error("overflow", 408))


# Mutation: make the wait grow linearly.
def test_the_wait_doubles() -> None:
    waits = [delay_for(attempt, SETTINGS, error("server"), now=0, random=middle) for attempt in (1, 2, 3)]
    assert waits == [2, 4, 8]


# Mutation: take the jitter away.
def test_the_wait_is_spread_by_a_quarter_either_way() -> None:
    assert delay_for(1, SETTINGS, error("server"), now=0, random=lambda: 0.0) == 1.5
    assert delay_for(1, SETTINGS, error("server"), now=0, random=lambda: 1.0) == 2.5


# Mutation: no upper limit for the doubled wait.
def test_the_doubled_wait_ends_at_the_maximum() -> None:
    patient = RetrySettings(max_retries=50, base_delay_seconds=2, max_retry_after_seconds=60)
    assert delay_for(50, patient, error("server"), now=0, random=middle) == 60


# Mutation: back off in spite of what the provider said.
def test_what_the_provider_asks_for_is_obeyed() -> None:
    assert delay_for(3, SETTINGS, error("rate", 429, retry_at=1_017), now=1_000, random=middle) == 17
    assert delay_for(1, SETTINGS, error("rate", 429, retry_at=990), now=1_000, random=middle) == 0


# Mutation: wait for the maximum instead of giving up.
def test_a_wait_beyond_the_maximum_is_not_begun() -> None:
    assert delay_for(1, SETTINGS, error("rate", 429, retry_at=1_061), now=1_000, random=middle) is None


# Mutation: count retries from 0.
def test_after_the_last_retry_nothing_is_waited_for() -> None:
    assert delay_for(3, SETTINGS, error("server"), now=0, random=middle) is not None
    assert delay_for(4, SETTINGS, error("server"), now=0, random=middle) is None


# Mutation: ignore `enabled`, or the kind.
def test_nothing_is_waited_for_when_retries_are_off_or_useless() -> None:
    off = RetrySettings(enabled=False)
    assert delay_for(1, off, error("server"), now=0, random=middle) is None
    assert delay_for(1, SETTINGS, error("bad_request", 400), now=0, random=middle) is None
