"""`SyncSession` typed into a real Python and a real IPython."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from agent_session.testing import hang, reply
from session_store import SessionManager
from tests.cli.terminals import CTRL_C
from tests.prompt.prompts import IPYTHON, LONG, PYTHON, Kind, Prompt, prompt

KINDS = pytest.mark.parametrize("kind", [PYTHON, IPYTHON], ids=str)
OPEN = "from agent_session import SyncSession; s = SyncSession('openai/scripted', tools=())"
EXIT_SECONDS = 2.0


async def leave(typed: Prompt) -> float:
    """Type `exit()`; the seconds until the interpreter was gone. It must have nothing to complain about."""
    await typed.begin("exit()")
    begun = time.monotonic()
    assert await typed.screen.ends() == 0
    assert "Traceback" not in typed.screen.text
    assert "Exception ignored" not in typed.screen.text
    return time.monotonic() - begun


@KINDS
async def test_a_prompt_streams_and_a_compaction_says_in_one_line_what_it_did(kind: Kind, tmp_path: Path) -> None:
    # Mutation: print nothing while a prompt runs, or take the outcome's `__repr__` away.
    async with prompt(kind, tmp_path, reply(LONG, chunks=5), reply(LONG)) as typed:
        await typed.enter(OPEN)
        shown = await typed.enter("m = s.prompt('What ends the parser?')")
        assert "".join(shown.split()).count("Theparserstopsatanemptyline.") == 12
        shown = await typed.enter("m")
        assert '<AssistantMessage stop, openai/scripted: "The parser' in shown
        await typed.enter("m = s.prompt('Why?')")
        lines = (await typed.enter("s.compact('Keep the parser', keep_recent_tokens=0)")).splitlines()
        assert len(lines) == 2
        assert "applied (manual, model): " in lines[1]
        shown = await typed.enter("s")
        assert "<SyncSession " in shown
        assert "openai/scripted, idle>" in shown
        assert await leave(typed) < EXIT_SECONDS


@KINDS
async def test_ctrl_c_in_the_middle_of_an_answer_aborts_it_and_the_call_returns_what_had_come(
    kind: Kind, tmp_path: Path
) -> None:
    # Mutation: raise KeyboardInterrupt at the first Ctrl-C, or cancel the call instead of aborting the run.
    async with prompt(kind, tmp_path, hang(after=2), reply("Go on.")) as typed:
        await typed.enter(OPEN)
        await typed.begin("m = s.prompt('Think.')")
        await typed.screen.shows("An answer that never ends")
        typed.screen.type(CTRL_C)
        assert "KeyboardInterrupt" not in await typed.done()
        assert "('aborted', 'An answer that never ends', True)" in await typed.enter("m.stop_reason, m.text, s.is_idle")
        assert "Go on." in await typed.enter("m = s.prompt('And now?')")
        await leave(typed)


@KINDS
async def test_ctrl_c_in_the_middle_of_a_compaction_ends_it_and_returns_its_outcome(kind: Kind, tmp_path: Path) -> None:
    # Mutation: let only `prompt` be aborted by Ctrl-C.
    async with prompt(kind, tmp_path, reply(LONG), reply(LONG), summaries=(hang(),)) as typed:
        await typed.enter(OPEN)
        await typed.enter("m = s.prompt('What ends the parser?')")
        await typed.enter("m = s.prompt('Why?')")
        await typed.begin("s.compact()")
        await typed.provider.arrived(3)
        typed.screen.type(CTRL_C)
        shown = await typed.done()
        assert "aborted (manual" in shown
        assert "KeyboardInterrupt" not in shown
        assert "(True, 4)" in await typed.enter("s.is_idle, len(s.messages)")
        await leave(typed)


@KINDS
async def test_a_second_ctrl_c_raises_at_once(kind: Kind, tmp_path: Path) -> None:
    # Mutation: go on waiting after the second Ctrl-C.
    async with prompt(kind, tmp_path, hang(after=2)) as typed:
        await typed.enter(OPEN)
        # Its own time is two seconds once the run is aborted, and so long the call does not return.
        blank = [""] if kind is PYTHON else []
        await typed.enter("async def held(event): import anyio; await anyio.sleep(60)", *blank)
        await typed.enter("s.on('agent_end', held) and None")
        await typed.begin("m = s.prompt('Think.')")
        await typed.screen.shows("An answer that never ends")
        typed.screen.type(CTRL_C)
        await typed.screen.shows("^C")
        typed.screen.type(CTRL_C)
        shown = await typed.done()
        assert "KeyboardInterrupt" in shown
        assert "True" in await typed.enter("s.wait_for_idle() or s.is_idle")


async def test_ctrl_c_ends_what_cannot_be_aborted_at_the_first_press(tmp_path: Path) -> None:
    # Mutation: call `abort()` for every verb.
    async with prompt(PYTHON, tmp_path) as typed:
        await typed.enter(OPEN)
        await typed.enter("async def setup(api): import anyio; print('setting up'); await anyio.sleep(60)", "")
        await typed.begin("s.load(setup)")
        await typed.screen.until(lambda: "setting up" in typed.screen.text.splitlines())
        typed.screen.type(CTRL_C)
        assert "KeyboardInterrupt" in await typed.done()
        assert "True" in await typed.enter("s.is_idle")


async def test_ctrl_c_while_standing_in_line_ends_that_too(tmp_path: Path) -> None:
    # Mutation: only abort: what stands in line then has its turn, and asks the model; or return None for it.
    async with prompt(PYTHON, tmp_path, hang(after=2)) as typed:
        await typed.enter(OPEN)
        await typed.enter("s.steer('Think.')")
        await typed.provider.arrived(1)
        await typed.enter("import threading, time")
        await typed.enter(
            "def tell():", "    while not s._session._gate.waiting: time.sleep(0.01)", "    print('in', 'line')", ""
        )
        await typed.begin("threading.Thread(target=tell).start(); s.prompt('And then?', if_busy='wait')")
        await typed.screen.until(lambda: "in line" in typed.screen.text.splitlines(), "in line")
        typed.screen.type(CTRL_C)
        assert "<AssistantMessage aborted" in await typed.done()
        assert "True" in await typed.enter("s.is_idle")
        await leave(typed)


@KINDS
async def test_an_interpreter_that_forgets_its_session_exits_at_once(kind: Kind, tmp_path: Path) -> None:
    # Mutation: make the session's thread no daemon, or wait at exit for what runs to end by itself.
    async with prompt(kind, tmp_path, hang(after=2)) as typed:
        await typed.enter(OPEN)
        await typed.enter("s.steer('Think.')")
        request = await typed.provider.arrived(1)
        assert await leave(typed) < EXIT_SECONDS
        await request.disconnected.wait()
    [info] = SessionManager.list(tmp_path)
    with SessionManager.open(info.path) as manager:  # and nobody holds its lock
        assert [message.text for message in manager.build_messages()] == ["Think."]  # type: ignore[union-attr]


async def test_a_handler_that_does_not_end_holds_up_the_exit_only_for_its_grace(tmp_path: Path) -> None:
    # Mutation: wait at exit until the session is closed, however long that takes.
    async with prompt(PYTHON, tmp_path) as typed:
        await typed.enter(OPEN)
        await typed.enter("import time; s.on('session_shutdown', lambda event: time.sleep(60)) and None")
        await typed.enter("s.start()")
        assert await leave(typed) < 10.0


@KINDS
async def test_a_mistake_is_told_from_the_line_that_was_typed(kind: Kind, tmp_path: Path) -> None:
    # Mutation: raise errors with the frames of the session's thread.
    async with prompt(kind, tmp_path) as typed:
        await typed.enter(OPEN)
        for statement, name in {
            "s.navigate_tree('nowhere')": "EntryNotFoundError",
            "s.set_thinking_level('hgih')": "SettingsError",
            "s.on('warnign', print)": "ExtensionError",
            "s.run('Hi.').text": "AttributeError",
            "import agent_session; agent_session.Settings(typo=1)": "SettingsError",
        }.items():
            shown = await typed.enter(statement)
            assert name in shown
            assert "anyio" not in shown
            assert "thread.py" not in shown
            assert len(shown.splitlines()) <= 12, shown
            assert shown.count("Traceback") == 1
