"""The verbs of a session typed, with `await`, into `python -m asyncio` and `python -m agent_session`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_session import AgentSession
from agent_session.testing import always, hang, reply
from tests.cli.terminals import CTRL_C, CTRL_D
from tests.prompt.prompts import ASYNCIO, LONG, OURS, Kind, Prompt, prompt

KINDS = pytest.mark.parametrize("kind", [ASYNCIO, OURS], ids=str)

# What is typed, and below it what must then be seen.
EVERY_VERB = """\
>>> (await session.start()) is session
True
>>> session.is_idle, session.is_streaming, session.is_compacting, session.is_retrying
(True, False, False, False)
>>> heard = []; taken_off = session.subscribe(heard.append)
>>> @session.on('agent_settled')
... def told(event):
...     print('settled', event.aborted)
...
>>> message = await session.prompt('What ends the parser?')
settled False
>>> message.text[:10]
'The parser'
>>> async with session.run('Why?') as run:
...     async for event in run: name = event.name
...
settled False
>>> name, run.text[:10], await run.result() is not None
('agent_settled', 'The parser', True)
>>> taken_off(); len(heard) > 10
True
>>> async with session.events() as stream:
...     await session.set_thinking_level('low')
...     print((await anext(stream)).name)
...
entry_appended
>>> session.thinking_level, session.model.id
('low', 'openai/scripted')
>>> session.steer('Steered.'); session.follow_up('Followed.')
>>> type(session.pending_messages), type(session.clear_queue())
(<class 'tuple'>, <class 'list'>)
>>> await session.wait_for_idle()
>>> session.context_usage()
compacts above
>>> len(session.messages) >= 6, len(list(session.transcript)) > 6
(True, True)
>>> outcome = await session.compact(
...     'Keep the parser',
...     keep_recent_tokens=0,
... )
>>> outcome
applied (manual, model)
>>> len(list(session.dropped())) > 2, session.search('What ends')[0].where
(True, 'summarised')
>>> await session.undo_compaction()
applied (manual):
>>> await session.compact(dry_run=True)
preview (manual,
>>> session.abort_compaction(), await session.abort()
(False, [])
>>> handle = await session.load(lambda api: None); await handle.unload(); handle
unloaded>
>>> await session.set_model('openai/other'); session.model.id
'openai/other'
>>> session.set_active_tools(['read']); session.set_active_tools(None)
>>> await session.set_name('parser'); session.session_manager.name
'parser'
>>> changed = session.update_settings(compaction={'enabled': False}); session.settings is changed
True
>>> question = next(entry for entry in session.transcript if 'What ends' in repr(entry))
>>> await session.navigate_tree(question.id)
'What ends the parser?'
>>> fork = await session.fork(); fork.session_id != session.session_id, fork.close()
(True, None)
>>> session.path.exists(), session.cwd.exists(), session.leaf_id in repr(list(session.transcript))
(True, True, True)
>>> session.stats()
session parser
>>> await session.close()
[]
"""


def statements(dialogue: str) -> Iterator[tuple[list[str], str]]:
    """Each statement's lines, and what is below them."""
    for block in re.split(r"^>>> ", dialogue, flags=re.MULTILINE)[1:]:
        first, *rest = block.splitlines()
        more = [line for line in rest if line.startswith("...")]
        yield [first, *(line[4:] for line in more)], "\n".join(rest[len(more) :])


async def ready(typed: Prompt) -> None:
    """`session` is at hand; at the standard library's prompt it has to be made."""
    if typed.kind is ASYNCIO:
        await typed.enter("from agent_session import AgentSession; session = AgentSession()")


def test_the_list_has_every_verb() -> None:
    # Mutation: leave a verb out of the list, or add one to AgentSession.
    named = set(re.findall(r"session\.(\w+)", EVERY_VERB))
    assert {name for name in dir(AgentSession) if not name.startswith("_")} | {"on"} <= named


@KINDS
async def test_every_verb_can_be_typed_each_in_a_line_of_its_own(kind: Kind, tmp_path: Path) -> None:
    # Mutation: let `prompt` hold a cancel scope or task group of the task that called `start`.
    async with prompt(kind, tmp_path, always(reply(LONG))) as typed:
        await ready(typed)
        for lines, expected in statements(EVERY_VERB):
            shown = await typed.enter(*lines)
            assert expected in shown, shown
            assert "Error" not in shown, shown
        await typed.begin("exit()")
        assert await typed.screen.ends() == 0


@KINDS
async def test_a_compaction_prints_one_line(kind: Kind, tmp_path: Path) -> None:
    # Mutation: take the outcome's `__repr__` away.
    async with prompt(kind, tmp_path, always(reply(LONG))) as typed:
        await ready(typed)
        await typed.enter("m = await session.prompt('What ends the parser?')")
        await typed.enter("m = await session.prompt('Why?')")
        _, *lines = (await typed.enter("await session.compact('Keep the parser', keep_recent_tokens=0)")).splitlines()
        assert len(lines) == 1
        assert lines[0].startswith("applied (manual, model): ")


@KINDS
async def test_ctrl_c_in_the_middle_of_an_answer_leaves_a_session_that_goes_on(kind: Kind, tmp_path: Path) -> None:
    # Mutation: wait in a shield for the answer that a cancelled prompt had asked for.
    async with prompt(kind, tmp_path, hang(after=2), reply("Go on.")) as typed:
        await ready(typed)
        await typed.enter("heard = []; _ = session.subscribe(lambda event: heard.append(event.name))")
        if kind is ASYNCIO:  # ours shows by itself what comes
            await typed.enter("_ = session.subscribe(lambda event: print(getattr(event, 'delta', '')))")
        await typed.begin("await session.prompt('Think.')")
        await typed.screen.until(lambda: "never ends" in typed.screen.text, "an answer")
        await typed.screen.waits()
        typed.screen.type(CTRL_C)
        shown = await typed.done()
        # The standard library's prompt cancels what is awaited; ours aborts the run, and the prompt returns.
        assert ("KeyboardInterrupt" in shown) == (kind is ASYNCIO)
        assert ("<AssistantMessage aborted" in shown) == (kind is OURS)
        assert "True" in await typed.enter("session.is_idle and heard[-1] == 'agent_settled'")
        assert "Go on." in await typed.enter("(await session.prompt('And now?')).text")


async def test_at_our_prompt_a_second_ctrl_c_ends_the_statement(tmp_path: Path) -> None:
    # Mutation: abort again at every press.
    async with prompt(OURS, tmp_path, hang(after=2)) as typed:
        await typed.enter("import anyio")
        await typed.enter("_ = session.subscribe(lambda event: print(event.name) if 'settled' in event.name else None)")
        await typed.begin("(await session.prompt('Think.'), await anyio.sleep(60))")
        await typed.screen.shows("An answer that never ends")
        typed.screen.type(CTRL_C)
        await typed.screen.shows("agent_settled")
        typed.screen.type(CTRL_C)
        assert "KeyboardInterrupt" in await typed.done()


async def test_at_our_prompt_ctrl_c_interrupts_what_computes_and_what_awaits(tmp_path: Path) -> None:
    # Mutation: only cancel, which a computation never feels; or only raise, which ends the event loop.
    async with prompt(OURS, tmp_path) as typed:
        await typed.enter("import anyio")
        for statement in ("while True: pass", "await anyio.sleep(60)"):
            await typed.begin("if print('be', 'gun') is None:", statement, "")
            await typed.screen.until(lambda: typed.screen.text.endswith("be gun"), "be gun")
            typed.screen.type(CTRL_C)
            assert "KeyboardInterrupt" in await typed.done()
        assert "True" in await typed.enter("session.is_idle")


async def test_at_our_prompt_ctrl_c_throws_the_line_away_and_ctrl_d_leaves(tmp_path: Path) -> None:
    # Mutation: leave at Ctrl-C.
    async with prompt(OURS, tmp_path) as typed:
        await typed.screen.press("await session.pro")
        await typed.screen.shows("session.pro")
        await typed.screen.press(CTRL_C)
        await typed.done()
        await typed.screen.press(CTRL_D)
        assert await typed.screen.ends() == 0
        assert "Traceback" not in typed.screen.text


async def test_at_our_prompt_names_are_completed_and_lines_remembered(tmp_path: Path) -> None:
    # Mutation: no completer, or no history file.
    async with prompt(OURS, tmp_path) as typed:
        await typed.screen.press("session.navi\t")
        await typed.screen.shows("session.navigate_tree(")
        await typed.screen.press(CTRL_C)
        await typed.done()
        await typed.enter("remembered = 'this line'")
        await typed.begin("exit()")
        await typed.screen.ends()
    async with prompt(OURS, tmp_path) as typed:
        await typed.screen.press("rem\x1b[A")
        await typed.screen.shows("remembered = 'this line'")
        history = Path.home() / ".agent-session" / "python_history"
        assert history.stat().st_mode & 0o777 == 0o600


async def test_at_our_prompt_a_mistake_is_one_line_and_a_fault_shows_the_statement(tmp_path: Path) -> None:
    # Mutation: show every error with the frames of the prompt itself.
    async with prompt(OURS, tmp_path) as typed:
        shown = await typed.enter("await session.navigate_tree('nowhere')")
        assert len(shown.splitlines()) == 2
        assert "EntryNotFoundError: " in shown
        await typed.enter("def divide(number):", "return number / 0", "")
        shown = await typed.enter("divide(1)")
        assert "repl" not in shown
        assert "    return number / 0" in shown
        assert "ZeroDivisionError" in shown
        assert "SyntaxError" in await typed.enter("1 +* 2")
        assert "3" in await typed.enter("_ = 3; _")
