"""What a person at a prompt is told unasked: warnings, failed extensions, compactions. A program prints nothing."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from anyio import run_process

from agent_session.testing import FakeProvider, always, reply
from tests.cli.terminals import environment, terminal
from tests.prompt.prompts import ASYNCIO, IPYTHON, LONG, OURS, PYTHON, Kind, prompt

SYNC = pytest.mark.parametrize("kind", [PYTHON, IPYTHON], ids=str)
MODEL = "Model('openai/scripted', context_window=128_000)"  # known, so that nothing has to be said about it
OPEN = f"from agent_session import *; s = SyncSession({MODEL}, tools=())"
FAILING = """
from agent_session import SyncSession
session = SyncSession("openai/scripted", tools=(), extensions=["nowhere"])
unused = session.on("agent_start", lambda event: 1 / 0)
message = session.prompt("Hi.")
"""
FAILED = r"__main__.<lambda> failed at agent_start: ZeroDivisionError: division by zero \(<[^>]+>, line \d\)"


@SYNC
async def test_a_handler_that_raises_is_told_in_a_dim_line_with_its_place(kind: Kind, tmp_path: Path) -> None:
    # Mutation: do not tell of `ExtensionFailed`, or print it without style.
    async with prompt(kind, tmp_path, always(reply("Hello."))) as typed:
        await typed.enter(OPEN)
        await typed.enter("s.on('agent_start', lambda event: 1 / 0) and None")
        _, told, answer = [line for line in (await typed.enter("m = s.prompt('Hi.')")).splitlines() if line.strip()]
        assert re.fullmatch(FAILED, told)
        assert answer == "Hello."
        assert b"\x1b[2m__main__.<lambda> failed" in typed.screen.bytes


@SYNC
async def test_an_extension_that_cannot_be_loaded_and_a_warning_are_told(kind: Kind, tmp_path: Path) -> None:
    # Mutation: tell only of what happens in a call that shows its answer, such as `prompt`.
    async with prompt(kind, tmp_path, always(reply("Hello."))) as typed:
        await typed.enter("from agent_session import *; s = SyncSession('openai/scripted', extensions=['nowhere'])")
        shown = await typed.enter("s.start() and None")
        assert "extension nowhere: is neither shipped" in shown
        assert "the session goes on without it" in shown
        # The limits of this model are not known.
        assert "warning: " in await typed.enter("m = s.prompt('Hi.')")


async def test_a_compaction_that_comes_by_itself_is_told_and_one_by_hand_is_what_its_call_returns(
    tmp_path: Path,
) -> None:
    # Mutation: tell of every compaction, or of none.
    steps = (reply(LONG), reply(LONG, usage=(1_900, 0, 0, 90)), reply(LONG))
    async with prompt(PYTHON, tmp_path, *steps) as typed:
        await typed.enter("from agent_session import *; small = Model('openai/scripted', context_window=2_000)")
        await typed.enter("settings = Settings(compaction=CompactionSettings(keep_recent_tokens=10))")
        await typed.enter("s = SyncSession(small, tools=(), settings=settings); m = s.prompt('What ends it?')")
        shown = await typed.enter("m = s.prompt('Why?')")
        assert shown.count("compaction applied (threshold, model): ") == 1
        await typed.enter("m = s.prompt('And then?')")
        _, outcome = (await typed.enter("s.compact(keep_recent_tokens=0)")).splitlines()
        assert outcome.startswith("applied (manual, model): ")


async def test_a_line_stands_alone_in_the_middle_of_an_answer(tmp_path: Path) -> None:
    # Mutation: print it without ending the line of text, or on the session's own thread.
    async with prompt(PYTHON, tmp_path, reply("One two three.", chunks=3)) as typed:
        await typed.enter(OPEN)
        await typed.enter("def fail(event):", "    if event.name == 'message_update': [][1]", "")
        await typed.enter("s.subscribe(fail) and None")
        shown = (await typed.enter("m = s.prompt('Hi.')")).splitlines()[1:]
        told = [line for line in shown if line.startswith("listener fail failed at message_update: IndexError")]
        assert len(told) == 3
        assert "".join(line for line in shown if line not in told).replace(" ", "") == "Onetwothree."


async def test_what_a_run_does_that_a_call_has_left_behind_is_told_too(tmp_path: Path) -> None:
    # Mutation: take a task for shown that remembers a call which is over.
    async with prompt(PYTHON, tmp_path, always(reply("Hello."))) as typed:
        await typed.enter(OPEN)
        await typed.enter("s.on('agent_start', lambda event: 1 / 0) and None")
        # Said after the run that the call waits for has settled: it starts another, in a task of the session's.
        await typed.enter("def more(event):", "    if len(s.messages) < 3: s.steer('More.')", "")
        await typed.enter("s.on('agent_settled', more) and None")
        await typed.enter("m = s.prompt('Hi.'); s.wait_for_idle(); len(s.messages)")
        assert len(re.findall(FAILED, typed.screen.text)) == 2


@pytest.mark.parametrize("kind", [ASYNCIO, OURS], ids=str)
async def test_prompts_that_await_tell_the_same_once(kind: Kind, tmp_path: Path) -> None:
    # Mutation: let the session's listener tell as well what the prompt itself shows.
    async with prompt(kind, tmp_path, always(reply("Hello."))) as typed:
        if kind is ASYNCIO:
            await typed.enter("from agent_session import *; session = AgentSession('openai/scripted', tools=())")
        await typed.enter("session.on('agent_start', lambda event: 1 / 0) and None")
        shown = await typed.enter("m = await session.prompt('Hi.')")
        assert len(re.findall(FAILED, shown)) == 1
        assert b"\x1b[2m__main__.<lambda> failed" in typed.screen.bytes


@pytest.mark.parametrize("is_piped", [False, True], ids=["in a terminal", "into a pipe"])
async def test_a_program_is_told_nothing(tmp_path: Path, *, is_piped: bool) -> None:
    # Mutation: tell whenever standard error is a terminal; or always.
    async with FakeProvider([always(reply("Hello."))]) as provider:
        env = environment(provider)
        command = (sys.executable, "-c", FAILING)
        if is_piped:
            done = await run_process(command, env=env, cwd=tmp_path)
            assert (done.stdout, done.stderr) == (b"", b"")
        else:
            async with terminal(env=env, cwd=tmp_path, command=command) as screen:
                assert await screen.ends() == 0
                assert screen.text == "Hello."


async def test_lines_go_to_standard_error_without_codes_where_it_is_no_terminal(tmp_path: Path) -> None:
    # Mutation: print on standard output, or dim what goes into a file.
    async with FakeProvider([always(reply("Hello."))]) as provider:
        done = await run_process(
            (sys.executable, "-i", "-q"), input=FAILING.encode(), env=environment(provider), cwd=tmp_path
        )
        assert b"failed at agent_start" not in done.stdout
        assert re.search(rf"^(>>> )*{FAILED}$", done.stderr.decode(), re.MULTILINE)
        assert b"\x1b" not in done.stderr


async def test_a_person_who_cannot_be_told_does_not_stop_the_answer(tmp_path: Path) -> None:
    # Mutation: let the error of a closed stream out of `tell`: the call then ends with it.
    async with FakeProvider([always(reply("Hello."))]) as provider:
        program = f"import sys; sys.ps1 = '>>> '; sys.stderr.close()\n{FAILING}\nprint(message)"
        program = program.replace('"Hi."', '"Hi.", on_text=lambda text: None')
        done = await run_process((sys.executable, "-c", program), env=environment(provider), cwd=tmp_path)
        assert done.stdout == b"Hello.\n"
