"""The person at the terminal, for extensions and tools that ask: `extending.view.Interaction`.

The rule it keeps: a question takes the next line that is typed, and questions are asked one at a time. Nobody waits for
an answer that cannot come: Ctrl-C and the end of the input answer with nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

import anyio

from agent_session.cli.line_input import LineInput
from agent_session.extending.view import NotifyLevel
from agent_session.terminal.screen import Screen

_YES, _NO = ("y", "yes"), ("n", "no")
_STYLES = {"info": "", "warning": "yellow", "error": "red"}


class Person:
    """`take` hands it a line; `question` is what is asked at the moment. `undisturbed` is entered while one is."""

    def __init__(
        self, screen: Screen, *, undisturbed: Callable[[], AbstractContextManager[None]] = nullcontext
    ) -> None:
        self.question: str | None = None
        self.screen = screen
        self._undisturbed = undisturbed
        self._one_at_a_time = anyio.Lock()
        self._asked = anyio.Event()
        self._answered = anyio.Event()
        self._answer: str | None = None

    # What extensions and tools call ---------------------------------------------------------------

    async def confirm(self, title: str, detail: str, default: bool) -> bool:
        """Yes or no; `default` is what an empty line means."""
        async with self._one_at_a_time:
            marks = "[Y/n]" if default else "[y/N]"
            # Plain lines have no prompt that changes while somebody types: there the marks stand here alone.
            self.screen.line("question", f"{title} {marks}", style="bold")
            for line in detail.splitlines():
                self.screen.line("", line)
            while True:
                answer = await self._next_line(marks)
                said = answer.strip().lower() if answer is not None else ""
                if not said or said in _YES + _NO:
                    return said in _YES if said else default
                self.screen.line("", "y or n, please", style="yellow")

    async def ask(self, question: str, choices: Sequence[str]) -> str | None:
        """One of `choices`, by its number or its text; any text where there are none. An empty line is no answer."""
        async with self._one_at_a_time:
            self.screen.line("question", question, style="bold")
            for number, choice in enumerate(choices, start=1):
                self.screen.line(f"{number:>9}", choice)
            while True:
                answer = await self._next_line(f"[1-{len(choices)}]" if choices else "")
                said = answer.strip() if answer is not None else ""
                if not said:
                    return None
                if not choices or said in choices:
                    return said
                if said.isdecimal() and 1 <= int(said) <= len(choices):
                    return choices[int(said) - 1]
                self.screen.line("", f"a number from 1 to {len(choices)}, or nothing", style="yellow")

    def notify(self, text: str, level: NotifyLevel) -> None:
        """One line."""
        self.screen.line("note", text, style=_STYLES[level])

    # What the input calls ------------------------------------------------------------------------

    def take(self, line: str | None) -> bool:
        """Answer the question with a line, None for no answer; False when nothing is asked."""
        if self.question is None:
            return False
        self._answer = line
        self._answered.set()
        self.question = None
        return True

    async def wait_until_asked(self) -> None:
        """Return while a question waits."""
        while self.question is None:
            await self._asked.wait()

    async def answer_from(self, lines: LineInput) -> None:
        """Take a line whenever something is asked and at no other time, until cancelled."""
        while True:
            await self.wait_until_asked()
            self.take(await lines.read())

    async def _next_line(self, question: str) -> str | None:
        self._answered = anyio.Event()
        self.question = question
        self._asked.set()
        self._asked = anyio.Event()
        try:
            with self._undisturbed():
                await self._answered.wait()
        finally:
            self.question = None
        return self._answer
