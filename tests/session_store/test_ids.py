from __future__ import annotations

import re
import time
from datetime import UTC, datetime

from session_store.ids import new_id, now_iso, now_ms


def test_ids_are_sixteen_hexadecimal_digits_and_do_not_repeat():
    ids = [new_id() for _ in range(10_000)]
    assert all(re.fullmatch("[0-9a-f]{16}", entry_id) for entry_id in ids)
    # Mutation: two bytes of randomness instead of eight.
    assert len(set(ids)) == len(ids)


def test_times_are_utc_with_milliseconds():
    text = now_iso()
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", text)
    assert abs((datetime.now(UTC) - datetime.fromisoformat(text)).total_seconds()) < 5
    assert abs(now_ms() - time.time() * 1000) < 5000
