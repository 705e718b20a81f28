"""Texts made short for where there is little room, times, and numbers with what they count."""

from __future__ import annotations

from datetime import datetime

from session_store.totals import UsageSum


def shortened(text: str, length: int) -> str:
    """On one line, its end left out where it is longer."""
    return bounded(" ".join(text.split()), length)


def bounded(text: str, length: int) -> str:
    """At most `length` characters, spaces and newlines as they are."""
    return text if len(text) <= length else f"{text[: length - 3]}..."


def local_time(seconds: float) -> str:
    """`2026-03-01 14:05`, where the reader is. `seconds` since 1970."""
    return f"{datetime.fromtimestamp(seconds):%Y-%m-%d %H:%M}"  # noqa: DTZ006 - local


def spent(total: UsageSum, on_summaries: UsageSum) -> str:
    """All that a session cost, and how much of it for its compactions."""
    return f"{total} in {counted(total.requests, 'request')}, on summaries {on_summaries}"


def counted(count: int, thing: str) -> str:
    """`1 line`, `2 lines`."""
    return f"{count:,} {thing}" if count == 1 else f"{count:,} {thing}s"
