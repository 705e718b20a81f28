"""Each system call of a session fails once, or is its last: nothing announced is lost, and no file is torn."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from rich.console import Console

from tests.session.syscall_sweep import FAULTS, SESSIONS, Fault, Row, Session, shown, sweep

pytestmark = [
    pytest.mark.slow,
    pytest.mark.allow_blocking,
    pytest.mark.skipif(shutil.which("strace") is None, reason="there is no strace"),
]


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("session", SESSIONS, ids=lambda session: session.name)
async def test_whatever_the_disk_refuses_nothing_announced_is_lost_and_no_file_is_torn(
    tmp_path: Path, session: Session, fault: Fault
) -> None:
    # Mutations: in `JsonlLog._write_at_end` do not drop the fragment; in `JsonlLog._write` forget what was refused; in
    # `write_all` write once; in `settle_tail` cut the end off before it is kept; in `_created`, `_settle` or
    # `WriterLock._acquire` let the `OSError` through.
    rows = await sweep(tmp_path, sessions=[session], faults=[fault])
    console = Console(width=120)
    console.print(shown(rows))
    assert [failure for row in rows for failure in row.failures] == []
    assert sum(row.runs for row in rows) >= {"new": 17, "torn": 8}[session.name]


def test_a_row_says_what_was_broken() -> None:
    # Mutation: in `Row.failures` leave one of the three out.
    row = Row(session="new", call="write", fault="EIO", lost=["number 2"], torn=["number 3"], unexpected=["number 4"])
    assert [failure.split(":")[0] for failure in row.failures] == [
        "new write EIO lost",
        "new write EIO torn",
        "new write EIO unexpected",
    ]
