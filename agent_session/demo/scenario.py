"""What the model answers: the script of the provider, act by act.

Only this is invented. A scripted answer may look at the request it answers, as a model would: how much of a long file
it still has room for, what a command printed. Summaries have a list of their own; a compaction that cuts inside a long
turn asks for two, the history first. A request without an answer here, or an answer nobody asked for, is a failed
demonstration.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from agent_session.compaction.text_tokens import estimate_text_tokens
from agent_session.demo.project import MONTHS, Project
from agent_session.models import Model, ModelCost
from agent_session.testing import Answer, Held, RecordedRequest, Step, calls, hold, reply

WINDOW = 8_000
"""Tokens: what the provider takes, whatever a model says of itself."""

_COST = ModelCost(input=0.25, output=2.0)
HONEST_MODEL = Model("local/honest", context_window=WINDOW, cost=_COST)
BOASTFUL_MODEL = Model("local/boastful", context_window=2 * WINDOW, cost=_COST)

PIECE_CHARS = 32
READ_TOKENS = 800
"""Of a long file at a time."""

FIX = "The tests fail. Find out why and fix it. The examples in docs are right."
REVIEW = "Look through docs/history.md: has our parser ever been changed on purpose in what you fixed?"
ADD_UP = "How long did our jobs take from January to March? The logs are in logs."
KEEP = "Keep the decisions about the parser"
WEEKS = "The parser should know weeks: 2w. Write the test first."
KEEP_WEEKS = "Keep what was decided about weeks"
LAST = "What is the state of things?"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """`answers` and `summaries` in the order they are asked for; `held` is the summary that never arrives."""

    answers: tuple[Step, ...]
    summaries: tuple[Step, ...]
    held: Held


def scenario(project: Project, *, pace: float) -> Scenario:
    """The script for a project. `pace` is the seconds between two pieces of a streamed text."""
    author = _Author(project, pace)
    held = hold(author.says(_WEEKS_SUMMARY))
    return Scenario(
        answers=(
            *_fixes_the_tests(author),
            *_reviews_the_history(author),
            *_adds_up_the_logs(author),
            *_adds_weeks(author),
            author.says("Weeks are in, with a test, and everything passes. Nothing is left to do."),
        ),
        summaries=(
            *(author.says(text) for text in (_FIX_SO_FAR, _FIXED, _REVIEW_SO_FAR, _REVIEWED, _LOGS_SO_FAR, _COMPACTED)),
            held,
            author.says(_WEEKS_SUMMARY),
        ),
        held=held,
    )


@dataclass(frozen=True, slots=True)
class _Author:
    """Makes answers that stream at a pace and report their usage, as a provider does."""

    project: Project
    pace: float

    def says(self, text: str) -> Answer:
        return self._streamed(reply(text, usage="auto"))

    def does(self, text: str, *batch: tuple[str, Mapping[str, Any]]) -> Answer:
        return self._streamed(calls(batch, text=text, usage="auto"))

    def reads_until(self, text: str, path: str, *, tokens: int) -> Callable[[RecordedRequest], Answer]:
        """Reads as many lines of a long file as take the context to about `tokens`, some at a time.

        One result with all of them would be a giant, which is shrunk: here the threshold is to be passed.
        """

        def answer(request: RecordedRequest) -> Answer:
            room = tokens - request.tokens - estimate_text_tokens(text)
            lines = self.project.lines_within(path, room)
            step = max(1, lines * READ_TOKENS // max(1, room))
            reads = [
                ("read", {"path": path, "offset": first + 1, "limit": min(step, lines - first)})
                for first in range(0, lines, step)
            ]
            return self.does(text, *reads)

        return answer

    def _streamed(self, answer: Answer) -> Answer:
        return replace(answer, pieces=max(1, len(answer.text) // PIECE_CHARS), pace=self.pace)


def _bash(command: str) -> tuple[str, Mapping[str, Any]]:
    return "bash", {"command": command}


def _read(path: str) -> tuple[str, Mapping[str, Any]]:
    return "read", {"path": path}


def _edit(path: str, old: str, new: str) -> tuple[str, Mapping[str, Any]]:
    return "edit", {"path": path, "old_text": old, "new_text": new}


_TESTS = _bash("sh run-tests")
_PARSER = "durations/parse.py"


def _fixes_the_tests(author: _Author) -> tuple[Step, ...]:
    """The long table of examples, then the sources: the threshold is passed before anything was edited."""
    return (
        author.does("I run the tests first.", _TESTS),
        author.reads_until("Three fail. What the examples say decides.", "docs/examples.md", tokens=5_600),
        author.does(
            "Now the parser and its tests.",
            _read(_PARSER),
            _read("tests/test_parse.py"),
            _read("README.md"),
            _read("durations/__main__.py"),
        ),
        author.does(
            "Two faults: a later unit replaces the earlier ones, and a day has 12 hours. The first one first.",
            _edit(_PARSER, "        seconds = int(part[1])", "        seconds += int(part[1])"),
            _TESTS,
        ),
        author.does("Now the day.", _edit(_PARSER, '"d": 43_200', '"d": 86_400'), _TESTS),
        author.says(
            "The tests pass. `parse` kept only the last unit (`=` where `+=` belongs), and a day was 43,200 seconds."
        ),
    )


def _reviews_the_history(author: _Author) -> tuple[Step, ...]:
    """One long read, and an answer that is itself what passes the threshold."""
    return (
        author.reads_until("I read it from the start.", "docs/history.md", tokens=5_800),
        author.says(_REVIEW_ANSWER),
    )


def _adds_up_the_logs(author: _Author) -> tuple[Step, ...]:
    """Three logs, one after the other: with the third the request is larger than the provider takes."""

    def tells_the_sum(request: RecordedRequest) -> Answer:
        printed = str(request.messages[-1]["content"])
        total = printed.partition("total: ")[2].partition(" ")[0]
        return author.says(f"{total} seconds from January to March. `sh add-up logs/*.log` prints it by month.")

    january, february, march = (f"logs/{month}.log" for month in MONTHS)
    return (
        author.does("January first.", _read(january)),
        author.does("February.", _read(february)),
        author.does("And March.", _read(march)),
        author.does("There is a command for the sum.", _bash("sh add-up logs/*.log")),
        tells_the_sum,
    )


def _adds_weeks(author: _Author) -> tuple[Step, ...]:
    """The threshold is passed with the tests red, and again when they are green."""
    return (
        author.reads_until("First what the examples say of weeks.", "docs/examples.md", tokens=5_790),
        author.does(
            "Nothing yet. The test first; it has to fail.",
            _edit("tests/test_parse.py", "    def test_nonsense_is_refused", _WEEK_TEST),
            _TESTS,
        ),
        author.does("It fails as it should. Now the unit.", _edit(_PARSER, '"d": 86_400', _WEEK_UNIT), _TESTS),
        author.says("`parse` knows weeks now: `2w` is 1,209,600 seconds. The test was red before and is green."),
    )


_WEEK_UNIT = '"d": 86_400, "w": 604_800'
_WEEK_TEST = """\
    def test_a_week_has_seven_days(self):
        self.assertEqual(parse("1w"), 7 * 24 * 3_600)
        self.assertEqual(parse("2w 1d"), 15 * 24 * 3_600)

    def test_nonsense_is_refused"""

_REVIEW_ANSWER = """\
No. What I have read of the history names the parser often, and never what I changed.

- The sum of the units: no release says that a later unit takes the place of an earlier one. The examples have always \
added them up, from the first row with two units on, and so does the test that was there before me. It was a slip of \
one character.
- The length of a day: nothing there speaks of working days or of 12 hours. Every row of the examples with a day in it \
counts 86,400 seconds, and the jobs in our logs cross midnight without anything special.
- What the parser refuses was not touched: an empty text, a number without a unit, a unit it does not know.

So both were faults and no decisions, and nobody can have relied on them without being wrong by a lot: a job of one \
day was reported as half a day, and one of an hour and a half as thirty minutes. Whoever has stored such sums should \
make them again from the logs; `sh add-up logs/*.log` does it. I would say so in the next release, in one line: \
durations of several units are added up, and a day has 24 hours.

What could be done beside, and is not: a fraction such as 1.5h is refused as it always was; a unit written twice is \
added up twice; spaces are free. None of that is needed for the tests, so I left it alone. Two things I would look at \
before the next release: the table of examples has no row with seconds in it, so only the tests speak of them, and the \
error text quotes the whole input, however long it is. Neither is wrong, and neither belongs to this change."""

_SUMMARY = """\
## Goal
{goal}

## Constraints & Preferences
- The examples in docs/examples.md are right; the code has to follow them.

## Progress
### Done
{done}
### In Progress
{doing}
### Blocked
(none)

## Key Decisions
{decisions}

## Next Steps
{following}

## Critical Context
- `sh run-tests` runs the tests, `sh add-up logs/*.log` adds up the logs.
- The parser is `parse` in durations/parse.py; its units are in SECONDS."""

_ADDED = "- Units are added up: `seconds +=`, since every example with two units is a sum."
_DAY = "- A day is 86,400 seconds, since every example with a day says so."

_FIX_SO_FAR = """\
## Request
Find out why the tests fail and fix it; docs/examples.md is right.

## So Far
- `sh run-tests`: 3 of 5 fail: test_a_day_has_24_hours (43200 != 86400), test_units_add_up (1800 != 5400), and the \
test that compares every example.
- Read docs/examples.md: units are added up, a day is 86,400 seconds.

## Needed To Go On
- The sources come next: durations/parse.py, tests/test_parse.py. Nothing was edited yet."""

_FIXED = _SUMMARY.format(
    goal="Fix the failing tests; then say whether the history speaks of what was fixed.",
    done="- durations/parse.py: units are added up, a day has 24 hours. All 5 tests pass.",
    doing="- The question about docs/history.md.",
    decisions=f"{_ADDED}\n{_DAY}",
    following="(none)",
)

_REVIEW_SO_FAR = """\
## Request
Has the parser ever been changed on purpose in what was fixed? docs/history.md is to be looked through.

## So Far
- Read docs/history.md: no release speaks of units replacing each other, nor of a day of 12 hours.

## Needed To Go On
- Both were faults, no decisions."""

_REVIEWED = _SUMMARY.format(
    goal="Fix the failing tests (done); add up what the jobs took from January to March.",
    done="- durations/parse.py fixed, all 5 tests pass.\n- docs/history.md: both were faults, no decisions.",
    doing="- Adding up the logs.",
    decisions=f"{_ADDED}\n{_DAY}",
    following="- The sum of logs/2026-01.log to logs/2026-03.log.",
)

_LOGS_SO_FAR = """\
## Request
How long the jobs took from January to March; the logs are in logs.

## So Far
- Read logs/2026-01.log and logs/2026-02.log: 105 jobs each, every line ends with `took <duration> ok`.

## Needed To Go On
- Do not add up by hand: `sh add-up logs/*.log` prints the sum."""

_COMPACTED = _SUMMARY.format(
    goal="Fix the failing tests (done); add up what the jobs took (done).",
    done="- durations/parse.py fixed, all 5 tests pass.\n- The logs were added up with `sh add-up logs/*.log`.",
    doing="(none)",
    decisions=f"{_ADDED}\n{_DAY}\n- Fractions stay refused; a unit written twice counts twice.",
    following="(none)",
)

_WEEKS_SUMMARY = _SUMMARY.format(
    goal="Fix the failing tests, add up the logs, teach the parser weeks: all done.",
    done="- durations/parse.py fixed, and it knows weeks; all 6 tests pass.\n- The logs were added up.",
    doing="(none)",
    decisions=f"{_ADDED}\n{_DAY}\n- A week is 604,800 seconds; its test was written first and was red.",
    following="(none)",
)
