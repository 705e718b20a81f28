"""Whether a failed request may be sent again unchanged, and when. Pure: no clock, no dice of its own."""

from __future__ import annotations

from collections.abc import Callable

from agent_session.errors import ModelError
from agent_session.settings import RetrySettings

_TRANSIENT_KINDS = frozenset({"rate", "server", "network", "stream_cut", "silence"})
_TRANSIENT_STATUSES = frozenset({408, 409, 425})
_SIZE_KINDS = frozenset({"overflow", "overflow_bytes", "request_exceeds_rate_budget"})


def is_retryable(error: ModelError) -> bool:
    """Whether the same request may succeed later.

    Size is looked at first, whatever the status: a request that is too large stays too large. Any other 4xx is final,
    but for the statuses that speak of the moment (408, 409, 425) and for limits per minute.
    """
    if error.kind in _SIZE_KINDS:
        return False
    return error.kind in _TRANSIENT_KINDS or error.status in _TRANSIENT_STATUSES


def delay_for(
    attempt: int, settings: RetrySettings, error: ModelError, *, now: float, random: Callable[[], float]
) -> float | None:
    """Seconds to wait before the `attempt`-th retry (from 1), or None to give up.

    What the provider asked for is obeyed up to `max_retry_after_seconds`; beyond that the answer is None, and
    `error.retry_at` tells the caller when. Without a request the base doubles, spread by a quarter either way and
    never above that same maximum. `now` is Unix seconds, `random` gives a number within 0 and 1.
    """
    if not settings.enabled or attempt > settings.max_retries or not is_retryable(error):
        return None
    if error.retry_at is not None:
        wait = max(0.0, error.retry_at - now)
        return wait if wait <= settings.max_retry_after_seconds else None
    doubled = settings.base_delay_seconds * 2.0 ** (attempt - 1)
    return min(doubled * (0.75 + random() / 2), settings.max_retry_after_seconds)
