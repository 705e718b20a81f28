"""A picture of the demonstration for documents: some of its acts and its table, as a terminal shows them."""

from __future__ import annotations

import io
import re
from pathlib import Path

from rich.console import Console

from agent_session.terminal.console import make_console

PICTURED_ACTS = (1, 4)
WIDTH = 112

# The export names fonts on somebody's server; a picture in a document asks nobody.
_FONT = re.compile(r"\s*@font-face \{.*?\}", re.DOTALL)


def recording_console() -> Console:
    """A terminal that nobody looks at. It records when it is told to."""
    console = make_console(io.StringIO(), is_terminal=True, record=True, width=WIDTH)
    console.record = False
    return console


def save_picture(console: Console, path: Path) -> None:
    """What the console recorded, as SVG."""
    svg = console.export_svg(title="scripts/demo", unique_id="demonstration")
    path.write_text(_FONT.sub("", svg), encoding="utf-8")
