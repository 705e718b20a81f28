"""What a person at a Python prompt is told unasked: warnings, failures of extensions, compactions; one dim line each.

Rule: only where Python itself says that somebody is at a prompt (`sys.ps1`, which the interpreter, `python -m asyncio`
and IPython set); a program prints nothing. The lines go to standard error.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import TextIO

from agent_session.events import CompactionEnd, Event, ExtensionFailed, Warning
from session_store.showing import one_line

LINE_CHARS = 500
"""A warning says what to do at its end: room for all of it."""

PACKAGE = f"{Path(__file__).parent}{os.sep}"
DIM, PLAIN = "\x1b[2m", "\x1b[0m"


class _Showing:
    """Somebody who shows what happens. Tasks may outlive that, and remember it."""

    is_over = False


_showing: ContextVar[_Showing | None] = ContextVar("agent_session_showing", default=None)


def listen(event: Event) -> None:
    """A listener: tell of the event, unless whoever caused it shows what happens anyway (`shown_by_the_caller`)."""
    showing = _showing.get()
    if showing is None or showing.is_over:
        tell(event)


@contextmanager
def shown_by_the_caller() -> Iterator[None]:
    """What is caused inside of the block, `tell` is called for by somebody who knows what else is on the screen."""
    showing = _Showing()
    token = _showing.set(showing)
    try:
        yield
    finally:
        showing.is_over = True
        _showing.reset(token)


def tell(event: Event) -> None:
    """Print the line of an event, if it has one."""
    line = line_of(event)
    if line is None or sys.stderr is None:
        return
    # Whoever cannot be told must not be stopped by it either.
    with suppress(OSError, ValueError):
        text = one_line(line, LINE_CHARS)
        print(f"{DIM}{text}{PLAIN}" if _takes_styles(sys.stderr) else text, file=sys.stderr, flush=True)  # noqa: T201


def line_of(event: Event) -> str | None:
    """What a person has to know of it; None: nothing, or nobody is there.

    A compaction by hand is not told: it is what its call returns.
    """
    if not hasattr(sys, "ps1"):
        return None
    match event:
        case Warning(text=text):
            return f"warning: {text}"
        case ExtensionFailed(event="load", why=why):
            return f"{why}{_place(event.error)}; the session goes on without it"
        case ExtensionFailed(owner=owner, event=name, why=why):
            return f"{owner} failed at {name}: {why}{_place(event.error)}"
        case CompactionEnd(reason="threshold" | "overflow", outcome=outcome):
            return f"compaction {outcome}"
        case _:
            return None


def _place(error: BaseException | None) -> str:
    """Where it was raised: an error that has a cause, where that was. Nothing where it was not the user's own code."""
    while error is not None and error.__cause__ is not None:
        error = error.__cause__
    frames = traceback.extract_tb(error.__traceback__) if error is not None else []
    if not frames or frames[-1].filename.startswith((PACKAGE, "<frozen ")):
        return ""
    return f" ({frames[-1].filename}, line {frames[-1].lineno})"


def _takes_styles(stream: TextIO) -> bool:
    return stream.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM", "dumb") != "dumb"
