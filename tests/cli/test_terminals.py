"""The harness itself: what is started in it has a terminal as a person's programs have."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from tests.cli.terminals import CTRL_C, environment, terminal

WAITING = "print('waits', flush=True)\ntry:\n    input()\nexcept KeyboardInterrupt:\n    print('interrupted')"


async def test_ctrl_c_reaches_what_is_started_even_where_the_tests_ignore_it(tmp_path: Path) -> None:
    # Mutation: start the command without `INTERRUPTIBLE`.
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        async with terminal(env=environment(), cwd=tmp_path, command=[sys.executable, "-c", WAITING]) as person:
            await person.shows("waits")
            await person.waits()
            person.type(CTRL_C)
            await person.shows("interrupted")
            assert await person.ends() == 0
    finally:
        signal.signal(signal.SIGINT, before)
