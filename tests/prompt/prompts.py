"""Python prompts that one can type into: plain, IPython, and the two that take `await`."""

from __future__ import annotations

import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from typing_extensions import override

from agent_session.testing import FakeProvider, Step, always, reply
from tests.cli.terminals import Terminal, environment, terminal

LONG = "The parser stops at an empty line. " * 12
SUMMARY = always(reply("## Goal\nMend the parser."))


@dataclass(frozen=True)
class Kind:
    """A prompt: how it is started, what it shows when it waits for a statement, and what for more of one."""

    name: str
    command: tuple[str, ...]
    mark: str
    more: str = "..."

    @override
    def __str__(self) -> str:
        return self.name


PYTHON = Kind("python", (sys.executable, "-q"), ">>>")
IPYTHON = Kind(
    "ipython",
    (sys.executable, "-m", "IPython", "--no-banner", "--no-confirm-exit", "--colors=nocolor"),
    "In [",
    "   ...:",
)
ASYNCIO = Kind("asyncio", (sys.executable, "-m", "asyncio"), ">>>")
OURS = Kind("agent_session", (sys.executable, "-m", "agent_session"), ">>>")


class Prompt:
    """A prompt in a terminal, and the provider that its sessions ask."""

    def __init__(self, kind: Kind, screen: Terminal, provider: FakeProvider) -> None:
        self.kind = kind
        self.screen = screen
        self.provider = provider
        self._prompts = len(self._asked())

    async def enter(self, *source: str) -> str:
        """Type a statement, line by line, and wait until the next is asked for: what it showed."""
        await self.begin(*source)
        return await self.done()

    async def begin(self, *source: str) -> None:
        """Type a statement that will take its time. Our own prompt indents by itself."""
        for number, line in enumerate(source, 1):
            row = self.screen.row
            await self.screen.say(line.lstrip() if self.kind is OURS else line)
            if number < len(source):
                await self.screen.until(partial(self._asks_for_more, row), "a line to go on in")

    async def done(self) -> str:
        """Wait for the end of the statement: what was shown since it was typed."""
        self._prompts += 1
        await self.screen.until(lambda: len(self._asked()) == self._prompts, f"prompt number {self._prompts}")
        *_, last, _ = self._asked()
        return "\n".join(self.screen.text.splitlines()[last:-1])

    def _asks_for_more(self, row: int) -> bool:
        """Below that row."""
        return self.screen.row > row and self.screen.before_cursor.startswith(self.kind.more)

    def _asked(self) -> list[int]:
        """The lines at which the prompt asked; it may stand behind a Ctrl-C that the terminal has shown."""
        lines = self.screen.text.splitlines()
        return [number for number, line in enumerate(lines) if line.removeprefix("^C").startswith(self.kind.mark)]


@asynccontextmanager
async def prompt(
    kind: Kind, folder: Path, *steps: Step, summaries: tuple[Step, ...] = (SUMMARY,)
) -> AsyncIterator[Prompt]:
    """The prompt, waiting for its first line."""
    async with FakeProvider(steps, summaries=summaries) as provider:
        variables = environment(provider, IPYTHONDIR=str(folder / "ipython"))
        if kind is IPYTHON:
            del variables["PYTHONWARNINGS"]  # its own affair
        async with terminal(env=variables, cwd=folder, command=kind.command, columns=160, rows=300) as screen:
            await screen.until(
                lambda: re.fullmatch(r">>>|In \[1\]:", screen.text.rpartition("\n")[2]) is not None, "prompt"
            )
            yield Prompt(kind, screen, provider)
