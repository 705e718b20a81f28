"""One demonstration from an empty folder to its verdict.

The rule it keeps: it succeeds only where every promise is kept, and what fails is said in plain words on stderr.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from time import monotonic

import anyio

from agent_session.demo.account import PROMISES, broken_promises
from agent_session.demo.acts import demonstrate
from agent_session.demo.killing import DemonstrationError
from agent_session.demo.picture import PICTURED_ACTS, recording_console, save_picture
from agent_session.demo.screen import Screen, make_console
from agent_session.errors import AgentSessionError
from session_store.errors import SessionStoreError

PACE_SECONDS = 0.015
"""Between two pieces of an answer, where somebody watches."""


def play(folder: Path, *, picture: Path | None = None) -> int:
    """Play it in `folder`, which is kept; 0 when every promise was kept, else 1.

    With `picture` nobody watches: what a terminal would have shown of some acts is saved there.
    """
    console = make_console() if picture is None else recording_console()
    screen = Screen(console, pictured=() if picture is None else PICTURED_ACTS)
    started = monotonic()
    try:
        pace = PACE_SECONDS if console.is_terminal and picture is None else 0.0
        evidence, path = anyio.run(partial(demonstrate, screen, folder, pace=pace))
    except (AgentSessionError, SessionStoreError, DemonstrationError, AssertionError, OSError) as error:
        print(f"\nthe demonstration failed: {type(error).__name__}: {error}\nits files: {folder}", file=sys.stderr)
        return 1
    broken = broken_promises(evidence)
    screen.table(evidence.rows, evidence.stored)
    if picture is not None:
        save_picture(console, picture)
    screen.heading("What was promised")
    for promise in PROMISES:
        is_kept = promise.sentence not in broken
        screen.line("kept" if is_kept else "BROKEN", promise.sentence, style="" if is_kept else "red")
    screen.line("took", f"{monotonic() - started:.1f} s")
    screen.heading("Left for looking at")
    screen.path("project", folder / "project")
    screen.path("session", path)
    if broken:
        print(f"the demonstration did not show what it promises: {'; '.join(broken)}", file=sys.stderr)
    return 1 if broken else 0
