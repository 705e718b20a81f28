"""The interactive session, typed into a real process through a pseudo-terminal; the model is a server on 127.0.0.1."""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from agent_session import SessionManager
from agent_session.testing import FakeProvider, always, calls, fail, hang, hold, reply
from agent_session.testing.script import Step
from session_store.entries import CompactionEntry
from tests.cli.terminals import ALT_ENTER, CTRL_C, CTRL_D, ENTER, Terminal, environment, run, terminal

LONG = "The parser reads the units from left to right and adds them up. " * 12
KEEP_LITTLE = {"AGENT_SESSION_COMPACTION__KEEP_RECENT_TOKENS": "50"}
SUMMARY = "## Goal\nThe parser is to be fixed.\n"


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
    person.say(text)
    await person.shows(answer)
    await person.shows("ready")


async def leave(person: Terminal) -> None:
    person.say("/quit")
    assert await person.ends() == 0


def only_session(cwd: Path) -> SessionManager:
    (info,) = SessionManager.list(cwd)
    return SessionManager.open(info.path, read_only=True)


# Running ------------------------------------------------------------------------------------------


async def test_an_answer_streams_and_the_meter_shows_the_threshold(tmp_path: Path) -> None:
    # Mutation: leave `above.unfinished` out of `Editor._message`, or the mark out of `meter_bar`.
    held = hang(after=1, text="An answer that has only begun")
    async with (
        FakeProvider([reply("Yes.", usage=(1_000, 0, 0, 5)), held]) as provider,
        typing(provider, tmp_path) as person,
    ):
        await ask(person, "Is it fixed?", "assistant  Yes.")
        assert re.search(r"\[█*░*│░*\] 1,005 of 128,000 tokens \(1 %, reported\), compacts above", person.text)
        assert re.search(r"ready  \[░+│░+\] 1\.0k of 128\.0k, compacts above 111\.6k  openai/scripted", person.text)
        person.say("And now?")
        await person.shows("assistant  An answer that has only")
        await person.shows("running")
        person.type(CTRL_C)
        await person.shows("run        aborted")
        await person.shows("ready")
        await leave(person)


async def test_tools_are_shown_with_what_became_of_them(tmp_path: Path) -> None:
    # Mutation: do not subscribe the screen in `Conversation._watch`.
    (tmp_path / "notes.txt").write_text("one\ntwo\n")
    script = [calls([("read", {"path": "notes.txt"}), ("read", {"path": "none.txt"})]), reply("Two lines.")]
    async with FakeProvider(script) as provider, typing(provider, tmp_path) as person:
        await ask(person, "How long are the notes?", "Two lines.")
        assert re.search(r"read     path='notes.txt'  ok, 2 lines, \d", person.text)
        assert re.search(r"read     path='none.txt'  failed, ", person.text)


async def test_what_is_typed_during_a_run_is_shown_as_queued_and_steers_it(tmp_path: Path) -> None:
    # Mutation: let `_obey` prompt with if_busy="raise"; or leave the queue out of `Editor._message`.
    held = hold(reply("First."))
    async with (
        FakeProvider([held, reply("Second."), reply("Third.")]) as provider,
        typing(provider, tmp_path) as person,
    ):
        person.say("Begin.")
        await provider.arrived(1)
        person.say("Use tabs.")
        await person.shows("queued     Use tabs.  (steering)")
        person.say("/later And then stop.")
        await person.shows("queued     And then stop.  (follow-up)")
        held.release()
        await person.shows("Third.")
        await person.until(lambda: "queued  " not in person.text, "an empty queue")
        assert [request.last_user_text for request in provider.requests] == ["Begin.", "Use tabs.", "And then stop."]


async def test_several_lines_are_one_prompt(tmp_path: Path) -> None:
    # Mutation: take the binding of Alt-Enter away, or that of the backslash.
    async with FakeProvider([reply("Three lines.")]) as provider, typing(provider, tmp_path) as person:
        person.type(f"one{ALT_ENTER}two\\{ENTER}three")
        await person.shows("three")
        await ask(person, "", "Three lines.")
        assert provider.requests[0].last_user_text == "one\ntwo\nthree"


async def test_ctrl_c_during_a_run_aborts_it_and_gives_back_what_was_queued(tmp_path: Path) -> None:
    # Mutation: let `_abort` drop what `session.abort()` returns.
    script: list[Step] = [hang(after=1, text="Thinking about it for ever"), reply("Heard.")]
    async with FakeProvider(script) as provider, typing(provider, tmp_path) as person:
        person.say("Begin.")
        await person.shows("assistant  Thinking about it for")
        person.say("Use tabs.")
        await person.shows("queued     Use tabs.")
        person.type(CTRL_C)
        await person.shows("run        aborted")
        await person.shows("> Use tabs.")
        await ask(person, " Please.", "Heard.")
        assert provider.requests[1].last_user_text == "Use tabs. Please."
        await leave(person)


@pytest.mark.parametrize("term", ["xterm-256color", "dumb"])
async def test_ctrl_d_leaves_a_run_only_when_it_is_typed_twice(tmp_path: Path, term: str) -> None:
    # Mutation: leave at the first; or never take a line again after the first on a dumb terminal.
    async with (
        FakeProvider([hang(after=1, text="Thinking about it for ever")]) as provider,
        terminal(env=environment(provider, TERM=term), cwd=tmp_path) as person,
    ):
        await person.shows("/help lists the commands")
        person.type("Begin.\n" if term == "dumb" else f"Begin.{ENTER}")
        await person.shows("assistant  Thinking about it for")
        person.type(CTRL_D)
        await person.shows("Ctrl-D again leaves")
        person.type(CTRL_D)
        assert await person.ends() == 0
        assert "run        aborted" in person.text
    with only_session(tmp_path) as manager:
        assert manager.projection.messages


async def test_the_providers_error_is_told_once_and_the_session_goes_on(tmp_path: Path) -> None:
    # Mutation: let an error of the prompt out of `_obey`; or do not compare with the refusal in `Screen.error`.
    script: list[Step] = [fail(400, "no such flag: frobnicate"), reply("Fine.")]
    async with FakeProvider(script) as provider, typing(provider, tmp_path) as person:
        person.say("Begin.")
        await person.shows("frobnicate")
        await person.shows("ready")
        await ask(person, "Again.", "Fine.")
        assert person.text.count("frobnicate") == 1
        assert b"Traceback" not in person.bytes


# Compaction ---------------------------------------------------------------------------------------


async def test_compact_shows_its_progress_and_what_it_did_in_one_line(tmp_path: Path) -> None:
    # Mutation: leave the phase out of `CompactionClock.line`; or the instructions out of the command.
    held = hold(reply(SUMMARY))
    async with (
        FakeProvider([reply(LONG), reply(LONG)], summaries=[held, reply(SUMMARY)]) as provider,
        typing(provider, tmp_path) as person,
    ):
        await ask(person, "How does it work?", "adds them up")
        await ask(person, "And then?", "And then?")
        await person.until(lambda: person.text.count("context ") == 2, "a second answer")
        person.say("/compact Keep the units")
        await person.until(
            lambda: re.search(r"compacting: summarizing 1/1, \d s \(Ctrl-C aborts it\)", person.text) is not None,
            "the progress",
        )
        assert "Keep the units" in (await provider.arrived(3)).text
        held.release()
        await person.shows("compaction applied (manual, model): ")
        await person.shows("summary    The parser is to be fixed.")
        assert "compacting:" not in person.text
        await person.shows("ready")
        assert re.search(r"applied \(manual, model\): [\d,]+ -> [\d,]+ tokens, \d+ entries summarised", person.text)
        await leave(person)
    with only_session(tmp_path) as manager:
        assert [entry.instructions for entry in manager if isinstance(entry, CompactionEntry)] == ["Keep the units"]


async def test_ctrl_c_aborts_a_compaction_by_hand_and_the_session_goes_on(tmp_path: Path) -> None:
    # Mutation: let Ctrl-C raise KeyboardInterrupt in the editor; or leave the session on an aborted compaction.
    script = [reply(LONG), reply(LONG), reply("Still here.")]
    async with FakeProvider(script, summaries=[hang()]) as provider, typing(provider, tmp_path) as person:
        await ask(person, "How does it work?", "adds them up")
        await ask(person, "And then?", "And then?")
        await person.until(lambda: person.text.count("context ") == 2, "a second answer")
        person.say("/compact")
        await person.shows("compacting: summarizing 1/1")
        person.type(CTRL_C)
        await person.shows("compaction aborted (manual")
        await person.shows("ready")
        await ask(person, "Are you there?", "Still here.")
        await leave(person)


async def test_ctrl_c_aborts_a_compaction_inside_a_run_alone_and_the_run_goes_on(tmp_path: Path) -> None:
    # Mutation: call `session.abort()` where `interrupt` calls `abort_compaction()`.
    (tmp_path / "notes.txt").write_text("one\ntwo\n")
    tool = calls([("read", {"path": "notes.txt"})], text=LONG, usage=(120_000, 0, 0, 50))
    script: list[Step] = [reply(LONG), tool, reply("Done all the same.", usage=(100, 0, 0, 5))]
    async with FakeProvider(script, summaries=[hang()]) as provider, typing(provider, tmp_path) as person:
        await ask(person, "How does it work?", "adds them up")
        person.say("Read the notes.")
        await person.shows("compacting: summarizing 1/1")
        person.type(CTRL_C)
        await person.shows("compaction aborted (threshold")
        await person.shows("Done all the same.")
        assert "run        aborted" not in person.text
        await person.shows("ready")
        await leave(person)


async def test_nothing_to_compact_is_said_and_is_no_error(tmp_path: Path) -> None:
    # Mutation: print nothing for a skipped compaction; no event tells of it.
    async with FakeProvider([]) as provider, typing(provider, tmp_path) as person:
        person.say("/compact")
        await person.shows("compaction skipped (manual)")
        await leave(person)


# Commands -----------------------------------------------------------------------------------------


async def test_help_lists_every_command(tmp_path: Path) -> None:
    # Mutation: leave one command out of the table.
    async with FakeProvider([]) as provider, typing(provider, tmp_path) as person:
        person.say("/help")
        await person.shows("/quit")
        for name in ("/compact", "/session", "/model", "/tree", "/fork", "/new", "/resume", "/later", "/help"):
            assert re.search(rf"^{name} ", person.text, re.MULTILINE)


async def test_an_unknown_command_is_refused_and_nothing_is_sent(tmp_path: Path) -> None:
    # Mutation: send a line that begins with a slash to the model.
    async with FakeProvider([]) as provider, typing(provider, tmp_path) as person:
        person.say("/frobnicate now")
        await person.shows("error      no command /frobnicate; /help lists the ones there are")


async def test_session_says_where_it_is_and_what_it_spent(tmp_path: Path) -> None:
    # Mutation: print the stats of another session.
    async with FakeProvider([reply("Yes.", usage=(90, 0, 0, 10))]) as provider, typing(provider, tmp_path) as person:
        await ask(person, "Is it fixed?", "Yes.")
        person.say("/session")
        await person.shows("spent      100 tokens")
        with only_session(tmp_path) as manager:
            assert f"session    {manager.session_id}" in person.text
            assert f"file       {str(manager.path)[:40]}" in person.text


async def test_model_takes_another_model_and_says_which(tmp_path: Path) -> None:
    # Mutation: do not call `set_model`.
    async with FakeProvider([reply("Yes.")]) as provider, typing(provider, tmp_path) as person:
        person.say("/model")
        await person.shows("openai/scripted; /model provider/name takes another")
        person.say("/model other")
        await person.shows("error      model id 'other' is not `provider/name`")
        person.say("/model openai/other")
        await person.until(lambda: "compacts above 111.6k  openai/other" in person.text, "the other model")
        await ask(person, "Is it fixed?", "Yes.")
        assert provider.requests[0].payload["model"] == "other"


async def test_a_model_without_a_key_is_refused_by_name(tmp_path: Path) -> None:
    # Mutation: do not ask for the key before the model is taken.
    async with FakeProvider([]) as provider:
        env = environment(provider, LOCAL_BASE_URL=provider.base_url, AGENT_SESSION_MODEL="local/scripted")
        del env["OPENAI_BASE_URL"], env["OPENAI_API_KEY"]
        async with terminal(env=env, cwd=tmp_path) as person:
            await person.shows("ready")
            person.say("/model openai/gpt-5-mini")
            await person.shows("no key for openai/gpt-5-mini: set OPENAI_API_KEY")
            await person.shows("compacts above 111.6k  local/scripted")


async def test_tree_shows_what_was_said_and_goes_back_to_it(tmp_path: Path) -> None:
    # Mutation: do not offer the text that `navigate_tree` returns.
    script = [reply("It adds."), reply("It subtracts.")]
    async with FakeProvider(script) as provider, typing(provider, tmp_path) as person:
        await ask(person, "What does it do?", "It adds.")
        person.say("/tree")
        await person.until(lambda: "* " in person.text, "the tree")
        entry = re.findall(r"\* ([0-9a-f]{8}) What does it do\?", person.text)[0]
        person.say("/tree nonsense")
        await person.shows("no entries begin with 'nonsense'")
        person.say(f"/tree {entry}")
        await person.shows("> What does it do?")
        await ask(person, " Now?", "It subtracts.")
        assert "It adds." not in provider.requests[1].text
        assert provider.requests[1].last_user_text == "What does it do? Now?"
        person.say("/tree")
        await person.until(
            lambda: len(re.findall(r"^ *\*? +[0-9a-f]{8} +What", person.text, re.MULTILINE)) >= 3, "both"
        )
        await leave(person)


async def test_fork_goes_on_in_a_copy_and_leaves_the_other_alone(tmp_path: Path) -> None:
    # Mutation: fork, and stay in the first session.
    async with FakeProvider([reply("One."), reply("Two.")]) as provider, typing(provider, tmp_path) as person:
        await ask(person, "First?", "One.")
        person.say("/fork")
        await person.shows("the other one stays as it was")
        copy = re.findall(r"fork +this is session (\w+) now", person.text)[0]
        await ask(person, "Second?", "Two.")
        await leave(person)
    counts = {info.id == copy: info.message_count for info in SessionManager.list(tmp_path)}
    assert counts == {True: 4, False: 2}


async def test_new_begins_another_session_and_resume_chooses_one(tmp_path: Path) -> None:
    # Mutation: let `/new` keep the context; or let `/resume` take the newest without asking.
    script = [reply("One."), reply("Two."), reply("Three.")]
    async with FakeProvider(script) as provider, typing(provider, tmp_path) as person:
        await ask(person, "First?", "One.")
        person.say("/new")
        await person.shows("new        session ")
        await ask(person, "Second?", "Two.")
        assert "First?" not in provider.requests[1].text
        person.say("/resume")
        await person.shows("question   Which session?")
        await person.shows("First?")
        await person.shows("[1-1]")
        person.say("1")
        await person.shows("2 messages in the context")
        await person.until(lambda: person.text.splitlines()[-1].startswith("ready"), "ready")
        await ask(person, "Third?", "Three.")
        assert "First?" in provider.requests[2].text
        assert "Second?" not in provider.requests[2].text
        await leave(person)


async def test_a_session_in_which_nothing_was_said_leaves_no_file(tmp_path: Path) -> None:
    # Mutation: do not remove the file in `Host._end`.
    async with FakeProvider([reply("One.")]) as provider, typing(provider, tmp_path) as person:
        await ask(person, "First?", "One.")
        person.say("/new")
        await person.shows("new        session ")
        person.type(CTRL_D)
        assert await person.ends() == 0
    assert [info.message_count for info in SessionManager.list(tmp_path)] == [2]


async def test_a_session_that_is_open_elsewhere_is_refused_and_the_present_one_stays(tmp_path: Path) -> None:
    # Mutation: close the present session before the other one is open.
    async with FakeProvider([reply("One.")]) as provider, typing(provider, tmp_path) as person:
        with SessionManager.create(tmp_path) as elsewhere:
            person.say(f"/resume {elsewhere.session_id}")
            await person.until(lambda: f"process {os.getpid()}" in person.text, "who has it")
            await ask(person, "First?", "One.")


# A person, and terminals --------------------------------------------------------------------------

ASKING = """
from agent_session import Block


def setup(api):
    @api.on("tool_call")
    async def permitted(event, ctx):
        ctx.notify("a tool is asked for")
        if not await ctx.confirm("May it read?", "notes.txt", default=False):
            return Block("the user said no")
        return None
"""


@pytest.mark.parametrize(("answer", "became"), [("y", "ok, 1 lines"), ("", "failed, "), ("what\rn", "failed, ")])
async def test_an_extension_asks_the_person_at_the_terminal(tmp_path: Path, answer: str, became: str) -> None:
    # Mutation: give AgentSession no `interaction`; or let any line mean yes.
    (tmp_path / "notes.txt").write_text("one\n")
    (tmp_path / "asking.py").write_text(ASKING)
    script = [calls([("read", {"path": "notes.txt"})]), reply("So be it.")]
    async with (
        FakeProvider(script) as provider,
        typing(provider, tmp_path, "--extension", str(tmp_path / "asking.py")) as person,
    ):
        person.say("Read.")
        await person.shows("note       a tool is asked for")
        await person.shows("question   May it read?")
        await person.shows("[y/N]")
        person.say(answer)
        await person.shows("So be it.")
        assert became in person.text


async def test_no_color_leaves_colours_out(tmp_path: Path) -> None:
    # Mutation: give the console a `color_system` of its own.
    async with FakeProvider([reply("One."), reply("Two.")]) as provider:
        for no_color, has_colours in (("", True), ("1", False)):
            async with typing(provider, tmp_path, NO_COLOR=no_color) as person:
                await ask(person, "First?", "One." if has_colours else "Two.")
                await leave(person)
                assert bool(re.search(rb"\x1b\[(?:\d+;)*(?:3[0-7]|38|9[0-7])[;m]", person.bytes)) == has_colours


async def test_a_dumb_terminal_gets_plain_lines_and_takes_lines_while_a_run_is_on(tmp_path: Path) -> None:
    # Mutation: use the editor whatever TERM says.
    held = hold(reply("First."))
    async with (
        FakeProvider([held, reply("Second.")]) as provider,
        terminal(env=environment(provider, TERM="dumb"), cwd=tmp_path) as person,
    ):
        await person.shows("\n>")
        person.type("Begin.\n")
        await provider.arrived(1)
        person.type("Use tabs.\n")
        await person.shows("queued     Use tabs.")
        held.release()
        await person.shows("assistant  Second.")
        person.type("/quit\n")
        assert await person.ends() == 0
        assert b"\x1b" not in person.bytes


async def test_a_narrow_terminal_breaks_lines_between_words(tmp_path: Path) -> None:
    # Mutation: let the meter take its full width whatever the terminal's.
    async with FakeProvider([reply(LONG)]) as provider, typing(provider, tmp_path, columns=36) as person:
        await ask(person, "How?", "assistant  The parser reads the")
        assert "           units from left to right" in person.text
        assert re.search(r"context    \[[█░│]{10}\]", person.text)


async def test_what_a_model_says_cannot_command_the_terminal(tmp_path: Path) -> None:
    # Mutation: let `printable` pass ESC through.
    evil = "\x1b]0;owned\x07\x1b[2Jgone \u009b31m."
    async with FakeProvider([reply(evil)]) as provider, typing(provider, tmp_path) as person:
        await ask(person, "Clear the screen.", "gone")
        assert "Clear the screen." in person.text
        assert b"\x1b]0;owned" not in person.bytes


async def test_lines_of_a_pipe_run_one_after_the_other(tmp_path: Path) -> None:
    # Mutation: take the next line while the one before still runs: it would steer.
    async with FakeProvider([reply("One."), reply("Two.")]) as provider:
        done = await run(env=environment(provider), cwd=tmp_path, stdin=b"First?\n/model\nSecond \\\nquestion?")
        assert (done.returncode, done.stderr) == (0, b"")
        assert [request.last_user_text for request in provider.requests] == ["First?", "Second \nquestion?"]
        output = done.stdout.decode()
        assert output.index("One.") < output.index("/model provider/name") < output.index("Two.")
        assert output.isascii()
        assert "\x1b" not in output


async def test_a_failure_in_a_pipe_is_the_exit_code(tmp_path: Path) -> None:
    # Mutation: end with 0 whatever happened.
    async with FakeProvider([fail(400, "no such flag"), always(reply("One."))]) as provider:
        done = await run(env=environment(provider), cwd=tmp_path, stdin=b"First?\nSecond?\n")
        assert done.returncode == 1
        assert b"no such flag" in done.stdout
        assert b"One." in done.stdout
