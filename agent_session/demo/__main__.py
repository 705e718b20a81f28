"""`python -m agent_session.demo`: plays the demonstration and says whether it was what it promised.

Exit status: 0 when every promise was kept, 1 when one was not, 130 after Ctrl-C. Needs no key, no network and no
configuration, and reads none; the folder it works in is left for looking at.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from time import monotonic

import anyio

from agent_session.demo.account import PROMISES, broken_promises
from agent_session.demo.acts import demonstrate
from agent_session.demo.killing import DemonstrationError
from agent_session.demo.screen import Screen, make_console
from agent_session.errors import AgentSessionError
from session_store.errors import SessionStoreError

PACE_SECONDS = 0.012
"""Between two pieces of an answer, where somebody watches."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Play the demonstration; its exit status."""
    argparse.ArgumentParser(
        prog="python -m agent_session.demo",
        description="A coding agent fixes a small project, and its session compacts, is killed and resumes. Offline: "
        "the answers are scripted, everything else is real.",
    ).parse_args(arguments)
    console = make_console()
    screen = Screen(console)
    folder = Path(tempfile.mkdtemp(prefix="agent-session-demo-")).resolve()
    started = monotonic()
    try:
        play = partial(demonstrate, screen, folder, pace=PACE_SECONDS if console.is_terminal else 0.0)
        evidence, path = anyio.run(play)
    except KeyboardInterrupt:
        print(f"\ninterrupted; what there is lies in {folder}", file=sys.stderr)
        return 130
    except (AgentSessionError, SessionStoreError, DemonstrationError, AssertionError, OSError) as error:
        print(f"\nthe demonstration failed: {type(error).__name__}: {error}\nits files: {folder}", file=sys.stderr)
        return 1
    broken = broken_promises(evidence)
    screen.table(evidence.rows, evidence.stored)
    for promise in PROMISES:
        is_kept = promise.sentence not in broken
        screen.line("  kept" if is_kept else "  BROKEN", promise.sentence, style="" if is_kept else "red")
    screen.line("took", f"{monotonic() - started:.1f} s")
    screen.line("project", str(folder / "project"))
    screen.line("session", str(path))
    if broken:
        print(f"the demonstration did not show what it promises: {'; '.join(broken)}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
