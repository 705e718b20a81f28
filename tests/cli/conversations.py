"""Talking to the interactive session: a prompt that is ready, a question and its answer, the way out."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from agent_session import SessionManager
from agent_session.testing import FakeProvider
from tests.cli.terminals import Terminal, environment, terminal

KEEP_LITTLE = {"AGENT_SESSION_COMPACTION__KEEP_RECENT_TOKENS": "50"}


@asynccontextmanager
async def typing(
    provider: FakeProvider, cwd: Path, *arguments: str, columns: int = 100, **variables: str
) -> AsyncIterator[Terminal]:
    """A session that is ready for the first line."""
    env = environment(provider, **KEEP_LITTLE, **variables)
    async with terminal(*arguments, env=env, cwd=cwd, columns=columns) as person:
        await person.shows("ready")
        yield person


async def ask(person: Terminal, text: str, answer: str) -> None:
    """One prompt and its answer."""
    await person.say(text)
    await person.shows(answer)
    await person.shows("ready")


async def leave(person: Terminal) -> None:
    await person.say("/quit")
    assert await person.ends() == 0


def only_session(cwd: Path) -> SessionManager:
    (info,) = SessionManager.list(cwd)
    return SessionManager.open(info.path, read_only=True)
