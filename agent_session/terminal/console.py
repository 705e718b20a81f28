"""Which console: how wide, whether in colour, with which characters.

The rule it keeps: into a pipe or a file go plain lines in ASCII, unbroken and without control codes. A terminal gets
its own width and its colours, unless NO_COLOR is set or it is a dumb one.
"""

from __future__ import annotations

import os
import re
from io import TextIOBase
from typing import IO, cast

from rich.console import Console

PIPED_WIDTH = 120

# Everything a terminal might obey: C0 without tab and newline, DEL, C1.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def make_console(
    file: IO[str] | TextIOBase | None = None,
    *,
    is_terminal: bool | None = None,
    width: int | None = None,
    record: bool = False,
) -> Console:
    """For `file`, standard output by default. `is_terminal` overrules what the file says of itself.

    A pipe has no width of its own, and the usual 80 columns would break tables. With `record` what is printed can be
    exported as a picture.
    """
    file = cast("IO[str] | None", file)
    console = Console(
        file=file,
        force_terminal=is_terminal,
        width=width,
        record=record,
        # A picture looks the same whatever the terminal of who takes it.
        color_system="truecolor" if record else "auto",
        _environ={} if record else None,
        highlight=False,
        emoji=False,
        markup=False,
    )
    if console.is_terminal:
        return console
    return Console(file=file, highlight=False, emoji=False, markup=False, width=PIPED_WIDTH, soft_wrap=True)


def is_dumb() -> bool:
    """Whether the terminal can do no more than print lines."""
    return os.environ.get("TERM", "").lower() in ("", "dumb", "unknown")


def takes_unicode(console: Console) -> bool:
    """Whether blocks and bullets can be shown: on a terminal that says it speaks UTF-8, nowhere else."""
    return console.is_terminal and not console.is_dumb_terminal and console.encoding.lower().startswith("utf")


def printable(text: str) -> str:
    """`text` without control characters: what a model or a tool says must not move the cursor or retitle the window."""
    return _CONTROL.sub("", text).expandtabs(4) if "\t" in text else _CONTROL.sub("", text)
