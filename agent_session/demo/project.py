"""The small project that the agent works on: a package with two faults, its tests, documents and logs.

Written into a folder of its own for each demonstration. Nothing in it is random, so that two demonstrations are alike;
the long files are long enough to fill a window of 8,000 tokens, and everything in them is true.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

from agent_session.compaction.text_tokens import estimate_text_tokens

_PARSE = '''\
"""Durations as people write them: `1h 30m` is 5400 seconds."""

import re

SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 43_200}

_PART = re.compile(r"(\\d+)\\s*([a-z])")


def parse(text: str) -> int:
    """The seconds in `text`: numbers with their units, largest first or not, spaces where you like.

    Raises:
        ValueError: it is empty, or something in it is no number with a known unit.
    """
    rest = text.strip().lower()
    if not rest:
        raise ValueError("no duration")
    seconds = 0
    while rest:
        part = _PART.match(rest)
        if part is None or part[2] not in SECONDS:
            raise ValueError(f"not a duration: {text!r}")
        seconds = int(part[1]) * SECONDS[part[2]]
        rest = rest[part.end() :].lstrip()
    return seconds
'''

_MAIN = '''\
"""How long the jobs in some log files took: `python -m durations logs/*.log`."""

import re
import sys
from pathlib import Path

from durations.parse import parse

total = 0
for name in sys.argv[1:]:
    took = re.findall(r"took ([0-9smhd ]+?) +ok", Path(name).read_text())
    seconds = sum(map(parse, took))
    total += seconds
    print(f"{name}: {len(took)} jobs, {seconds} seconds")
print(f"total: {total} seconds")
'''

_TESTS = """\
import re
import unittest
from pathlib import Path

from durations.parse import parse

EXAMPLES = Path(__file__).parent.parent / "docs" / "examples.md"


class Parsing(unittest.TestCase):
    def test_a_number_with_a_unit(self):
        self.assertEqual(parse("45s"), 45)
        self.assertEqual(parse("2 m"), 120)

    def test_units_add_up(self):
        self.assertEqual(parse("1h 30m"), 5_400)

    def test_a_day_has_24_hours(self):
        self.assertEqual(parse("1d"), 24 * 3_600)

    def test_nonsense_is_refused(self):
        for text in ("", "soon", "5x", "h5"):
            with self.assertRaises(ValueError):
                parse(text)

    def test_every_example_in_the_documents(self):
        rows = re.findall(r"^\\| ([0-9smhd ]+) \\| (\\d+) \\|", EXAMPLES.read_text(), re.MULTILINE)
        self.assertGreater(len(rows), 100)
        for text, seconds in rows:
            self.assertEqual(parse(text), int(seconds), text)
"""

_README = """\
# durations

`parse("1h 30m")` is 5400. The documents are in `docs`, the logs of our jobs in `logs`.
`sh run-tests` runs the tests, `sh add-up logs/*.log` adds up what the jobs took.
"""

EXAMPLE_ROWS = 420
HISTORY_LINES = 340
JOBS_A_MONTH = 105
MONTHS = ("2026-01", "2026-02", "2026-03")


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """A project on the disk. `root` is its folder."""

    root: Path

    def lines_within(self, path: str, tokens: int) -> int:
        """How many of the first lines of a file take at most that many tokens; at least one."""
        left = tokens
        count = 0
        for line in (self.root / path).read_text(encoding="utf-8").splitlines(keepends=True):
            left -= estimate_text_tokens(line)
            if left < 0:
                break
            count += 1
        return max(1, count)

    def tests_pass(self) -> bool:
        """Run its tests."""
        return subprocess.run(["sh", "run-tests"], cwd=self.root, capture_output=True, check=False).returncode == 0


def make_project(root: Path) -> Project:
    """Write the project into `root`, a new folder."""
    python = shlex.quote(sys.executable)
    files = {
        "README.md": _README,
        # -B: an edit within the clock's tick of the last compilation is seen, too.
        "run-tests": f"exec {python} -B -m unittest discover -t . -s tests 2>&1\n",
        "add-up": f'exec {python} -B -m durations "$@"\n',
        "durations/__init__.py": "",
        "durations/__main__.py": _MAIN,
        "durations/parse.py": _PARSE,
        "tests/__init__.py": "",
        "tests/test_parse.py": _TESTS,
        "docs/examples.md": "\n".join(_examples()) + "\n",
        "docs/history.md": "\n".join(_history()) + "\n",
        **{f"logs/{month}.log": "\n".join(_jobs(month)) + "\n" for month in MONTHS},
    }
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return Project(root=root)


def _examples() -> Iterator[str]:
    yield from dedent("""\
        # Examples

        | written | seconds | in words |
        |---|---|---|""").splitlines()
    for number in range(EXAMPLE_ROWS):
        days, hours, minutes = number % 4, number * 7 % 24, number * 11 % 59 + 1
        parts = [(days, "d", "day"), (hours, "h", "hour"), (minutes, "m", "minute")]
        shown = [(count, unit, name) for count, unit, name in parts if count]
        written = " ".join(f"{count}{unit}" for count, unit, _ in shown)
        words = ", ".join(f"{count} {name}{'s' if count > 1 else ''}" for count, _, name in shown)
        yield f"| {written} | {days * 86_400 + hours * 3_600 + minutes * 60} | {words} |"


def _history() -> Iterator[str]:
    yield "# History"
    subjects = (
        "The parser",
        "The command line",
        "The test suite",
        "The table of examples",
        "The error text",
        "The log",
    )
    verbs = ("no longer forgets", "now knows", "names", "is quicker with", "says more about", "refuses")
    objects = (
        "a sign before a number",
        "units in capitals",
        "two units without a space",
        "an empty text",
        "a fraction",
    )
    for number in range(HISTORY_LINES):
        subject, verb, thing = subjects[number % 6], verbs[number // 6 % 6], objects[number % 5]
        yield f"- 0.{number // 8}.{number % 8}: {subject} {verb} {thing}."


def _jobs(month: str) -> Iterator[str]:
    jobs = ("backup", "build", "index", "report", "mirror")
    shift = int(month[-2:])
    for number in range(JOBS_A_MONTH):
        day, hour = number // 6 % 28 + 1, number % 6 * 4
        took = f"{(number + shift) * 5 % 3}h {number * 13 * shift % 60}m {number * 17 % 60}s"
        yield f"{month}-{day:02} {hour:02}:00 {jobs[number % 5]:<8} took {took:<12} ok"
