"""The demonstration with its face on: in a terminal, by the command that a person types."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.terminals import environment, terminal


@pytest.mark.slow
async def test_a_terminal_gets_it_in_colour_with_the_meter_that_has_the_threshold_in_it(tmp_path: Path) -> None:
    # Mutation: make the demonstration's console as for a pipe; or play nothing for the command `demo`.
    async with terminal("demo", env=environment(TMPDIR=str(tmp_path)), cwd=tmp_path, rows=400) as person:
        for act in range(1, 8):  # each of them takes its time
            await person.shows(f"\n{act}. ")
        await person.shows("What was promised")
        assert await person.ends() == 0
    assert re.search(r"^context    \[█+░*│░+\] [\d,]+ of 8,000 tokens \(\d+ %, reported\)", person.text, re.MULTILINE)
    assert re.search(r"^context    \[█+│█+░*\] ", person.text, re.MULTILINE)
    for colour in (b"32m", b"33m", b"31m"):  # applied and within; vetoed; killed and beyond
        assert colour in person.bytes
    assert person.text.count("\nkept       ") >= 10
