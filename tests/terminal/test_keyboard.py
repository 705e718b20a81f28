"""The keyboard of an editor, on a pseudo-terminal of this process."""

from __future__ import annotations

import os
import termios
from collections.abc import Iterator

import anyio
import pytest
from prompt_toolkit import PromptSession
from prompt_toolkit.application import run_in_terminal
from prompt_toolkit.input import Input
from prompt_toolkit.output import DummyOutput

from agent_session.terminal.keyboard import Keyboard


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Where keys are pressed; standard input is the terminal that they are pressed at."""
    master, slave = os.openpty()
    with os.fdopen(slave) as terminal:
        monkeypatch.setattr("sys.stdin", terminal)
        yield master
    os.close(master)


def edits_lines(fd: int) -> bool:
    """Whether the terminal edits lines by itself, where Enter is a line feed."""
    return bool(termios.tcgetattr(fd)[3] & termios.ICANON)


def editor(keyboard: Input) -> PromptSession[str]:
    return PromptSession(input=keyboard, output=DummyOutput())


async def test_lines_that_came_before_anybody_read_are_given_one_by_one(keys: int) -> None:
    # Mutation: do not call back in `attach`: the first waits for another key.
    os.write(keys, b"one\rtwo\rthr")
    session = editor(Keyboard())
    with anyio.fail_after(5):
        assert [await session.prompt_async(), await session.prompt_async()] == ["one", "two"]
        os.write(keys, b"ee\r")
        assert await session.prompt_async() == "three"
    assert edits_lines(keys)


async def test_keys_stay_keys_while_output_goes_above_what_is_typed(keys: int) -> None:
    # Mutation: leave `cooked_mode` to the library: what is entered meanwhile becomes a line feed.
    session = editor(Keyboard())
    seen: list[bool] = []

    async def meanwhile() -> None:
        await run_in_terminal(lambda: seen.append(edits_lines(keys)))
        os.write(keys, b"sent\r")

    def begin() -> None:
        session.app.create_background_task(meanwhile())

    with anyio.fail_after(5):
        assert await session.prompt_async(pre_run=begin) == "sent"
    assert seen == [False]
