"""Names and times for entries.

An id is randomness and nothing else: it is never looked up before it is used, so making one costs the same
in a log of a hundred thousand entries as in an empty one.
"""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime


def new_id() -> str:
    """16 hexadecimal digits (64 bits) of randomness."""
    return os.urandom(8).hex()


def now_iso() -> str:
    """The time of an entry: ISO-8601 in UTC with milliseconds and `Z`."""
    return f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%f}"[:-3] + "Z"


def now_ms() -> int:
    """The time of a message: Unix milliseconds."""
    return time.time_ns() // 1_000_000
