"""Names and times for entries.

An id is randomness and nothing else: it is never looked up before it is used, so making one costs the same
in a log of a hundred thousand entries as in an empty one.
"""

from __future__ import annotations

import os
import re
import time
from datetime import UTC, datetime
from functools import lru_cache

_RANDOM = re.compile(r"[0-9a-f]{16}")


def new_id() -> str:
    """16 hexadecimal digits (64 bits) of randomness."""
    return os.urandom(8).hex()


def is_random(entry_id: str) -> bool:
    """Whether an id looks like one of `new_id`."""
    return _RANDOM.fullmatch(entry_id) is not None


def now_iso() -> str:
    """The time of an entry: ISO-8601 in UTC with milliseconds and `Z`."""
    seconds, rest = divmod(time.time_ns(), 1_000_000_000)
    return f"{_second(seconds)}.{rest // 1_000_000:03d}Z"


@lru_cache(maxsize=1)
def _second(seconds: int) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}"


def now_ms() -> int:
    """The time of a message: Unix milliseconds."""
    return time.time_ns() // 1_000_000
