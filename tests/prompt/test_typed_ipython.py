"""The verbs of a session typed, with `await`, into IPython: what Ctrl-C does there."""

from __future__ import annotations

import sys
from pathlib import Path

from anyio import run_process

from agent_session.testing import hang, reply
from tests.cli.terminals import CTRL_C, environment
from tests.prompt.prompts import IPYTHON, LONG, Prompt, prompt

MODEL = "Model('openai/scripted', context_window=128_000)"
OPEN = f"from agent_session import *; session = AgentSession({MODEL}, tools=())"
PYTHONS_OWN = "import signal; signal.getsignal(signal.SIGINT) is signal.default_int_handler"


async def interrupt(typed: Prompt, request: int = 1) -> None:
    await typed.provider.arrived(request)
    await typed.screen.waits()
    typed.screen.type(CTRL_C)


async def test_ctrl_c_aborts_the_run_and_the_call_returns_what_had_come(tmp_path: Path) -> None:
    # Mutation: leave the signal to IPython, whose KeyboardInterrupt nobody in the event loop hears of.
    async with prompt(IPYTHON, tmp_path, hang(after=2), reply("Go on.")) as typed:
        await typed.enter(OPEN)
        await typed.begin("message = await session.prompt('Think.')")
        await interrupt(typed)
        assert "KeyboardInterrupt" not in await typed.done()
        assert "('aborted', True)" in await typed.enter("message.stop_reason, session.is_idle")
        await typed.provider.requests[0].disconnected.wait()
        assert "True" in await typed.enter(PYTHONS_OWN)
        assert "Go on." in await typed.enter("(await session.prompt('And now?')).text")
        assert "True" in await typed.enter(PYTHONS_OWN)


async def test_ctrl_c_in_a_run_as_a_block_ends_its_events(tmp_path: Path) -> None:
    # Mutation: take the signal in `prompt` alone.
    async with prompt(IPYTHON, tmp_path, hang(after=2)) as typed:
        await typed.enter(OPEN)
        await typed.begin(
            "async with session.run('Think.') as run:", "    names = [event.name async for event in run]", ""
        )
        await interrupt(typed)
        assert "KeyboardInterrupt" not in await typed.done()
        assert "agent_settled" in await typed.enter("names[-1]")


async def test_ctrl_c_in_the_middle_of_a_compaction_returns_its_outcome(tmp_path: Path) -> None:
    # Mutation: take the signal only while a run is under way.
    async with prompt(IPYTHON, tmp_path, reply(LONG), reply(LONG), summaries=(hang(),)) as typed:
        await typed.enter(OPEN)
        await typed.enter("m = await session.prompt('What ends the parser?')")
        await typed.enter("m = await session.prompt('Why?')")
        await typed.begin("await session.compact()")
        await interrupt(typed, 3)
        assert "aborted (manual" in await typed.done()
        assert "(True, 4)" in await typed.enter("session.is_idle, len(session.messages)")


async def test_a_second_ctrl_c_raises_at_once_and_what_was_left_can_be_waited_for(tmp_path: Path) -> None:
    # Mutation: abort again at every press, or let go of the signal after the first.
    async with prompt(IPYTHON, tmp_path, hang(after=2)) as typed:
        await typed.enter(OPEN)
        await typed.enter("async def held(event): import anyio; print('be', 'held'); await anyio.sleep(60)")
        await typed.enter("session.on('agent_end', held) and None")
        await typed.begin("message = await session.prompt('Think.')")
        await interrupt(typed)
        await typed.screen.until(lambda: "be held" in typed.screen.text)
        await typed.screen.waits()
        typed.screen.type(CTRL_C)
        assert "KeyboardInterrupt" in await typed.done()
        assert "True" in await typed.enter("await session.wait_for_idle() or session.is_idle")
        assert "True" in await typed.enter(PYTHONS_OWN)


async def test_what_computes_is_interrupted_at_the_first_press_though_a_run_waits_for_the_next_await(
    tmp_path: Path,
) -> None:
    # Mutation: take every Ctrl-C for the run, also where no event loop is running.
    async with prompt(IPYTHON, tmp_path, hang(after=2)) as typed:
        await typed.enter(OPEN)
        await typed.enter("import time; block = session.events()")
        await typed.enter("stream = await block.__aenter__(); session.steer('Think.')")
        await typed.enter("while (await anext(stream)).name != 'message_update': pass")
        assert "False" in await typed.enter("session.is_idle")
        await typed.begin("if print('be', 'gun') is None: time.sleep(60)")
        await typed.screen.until(lambda: "be gun" in typed.screen.text.splitlines())
        await typed.screen.waits()
        typed.screen.type(CTRL_C)
        assert "KeyboardInterrupt" in await typed.done()
        await typed.enter("await session.abort() and None")


async def test_whoever_handles_the_signal_keeps_it(tmp_path: Path) -> None:
    # Mutation: take the signal over from whatever handles it.
    async with prompt(IPYTHON, tmp_path, hang(after=2)) as typed:
        await typed.enter("from agent_session import *; import asyncio")
        await typed.enter("async def ask():", f"    await AgentSession({MODEL}, tools=()).prompt('Think.')", "")
        await typed.begin("asyncio.run(ask())")
        await interrupt(typed)
        assert "KeyboardInterrupt" in await typed.done()


async def test_no_signal_of_a_program_is_touched(tmp_path: Path) -> None:
    # Mutation: do not look whether this is IPython.
    program = """
import asyncio, signal
from agent_session import *
from agent_session.testing import ScriptedModel, reply

async def main():
    model = ScriptedModel([reply("Hello.")])
    session = AgentSession(model.model, client=model, tools=(), session_manager=SessionManager.in_memory())
    session.on("agent_start", lambda event: print(signal.getsignal(signal.SIGINT) is signal.default_int_handler))
    await session.prompt("Hi.")
    await session.close()

asyncio.new_event_loop().run_until_complete(main())
"""
    done = await run_process((sys.executable, "-c", program), env=environment(PYTHONWARNINGS=""), cwd=tmp_path)
    assert done.stdout == b"True\n"
