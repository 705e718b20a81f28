"""The interactive session, typed into a real process through a pseudo-terminal; the model is a server on 127.0.0.1."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

import pytest

from agent_session.testing import FakeProvider, always, calls, fail, hang, hold, reply
from agent_session.testing.script import Step
from session_store.entries import CompactionEntry
from tests.cli.conversations import ask, leave, only_session, typing
from tests.cli.terminals import (
    ALT_ENTER,
    COMMAND,
    CTRL_C,
    CTRL_D,
    CTRL_J,
    CTRL_Z,
    ENTER,
    UP,
    environment,
    run,
    terminal,
)

LONG = "The parser reads the units from left to right and adds them up. " * 12
SUMMARY = "## Goal\nThe parser is to be fixed.\n"


# Running ------------------------------------------------------------------------------------------


async def test_an_answer_streams_and_the_meter_shows_the_threshold(tmp_path: Path) -> None:
    # Mutation: leave `above.unfinished` out of `Editor._message`, or the mark out of `meter_bar`; or let `Editor._tick`
    # draw nothing.
    held = hang(after=1, text="An answer that has only begun")
    async with (
        FakeProvider([reply("Yes.", usage=(1_000, 0, 0, 5)), held]) as provider,
        typing(provider, tmp_path) as person,
    ):
        await ask(person, "Is it fixed?", "assistant  Yes.")
        assert re.search(r"\[█*░*│░*\] 1,005 of 128,000 tokens \(1 %, reported\), compacts above", person.text)
        assert re.search(r"ready  \[░+│░+\] 1\.0k of 128\.0k, compacts above 111\.6k  openai/scripted", person.text)
        await person.say("And now?")
        await person.shows("assistant  An answer that has only")
        await person.shows("running 2 s")  # though nothing comes any more
        person.type(CTRL_C)
        await person.shows("run        aborted")
        await person.shows("ready")
        await leave(person)


async def test_tools_are_shown_with_what_became_of_them(tmp_path: Path) -> None:
    # Mutation: do not subscribe the screen in `Conversation._watch`; or leave the details out of the end of a tool.
    (tmp_path / "notes.txt").write_text("one\ntwo\n")
    script = [
        calls([("read", {"path": "notes.txt"}), ("read", {"path": "none.txt"})]),
        calls([("edit", {"path": "notes.txt", "old_text": "two", "new_text": "three"})]),
        reply("Two lines."),
    ]
    async with FakeProvider(script) as provider, typing(provider, tmp_path) as person:
        await ask(person, "How long are the notes?", "Two lines.")
        assert re.search(r"  read     notes.txt\n", person.text)
        assert re.search(r"  read     notes.txt  ok, 2 lines, \d", person.text)
        assert re.search(r"none.txt(  |\n +)failed, ", person.text)
        assert re.search(r"  edit     notes.txt\n +@@.*@@\n +-two\n +\+three\n +ok, \+1 -1 lines, \d", person.text)


async def test_a_command_that_runs_is_shown_with_its_seconds_and_then_with_what_it_printed(tmp_path: Path) -> None:
    # Mutation: leave the tools out of `WorkClock.line`; or show a call only when it ends.
    os.mkfifo(tmp_path / "gate")
    script = [calls([("bash", {"command": "cat gate; echo enough"})]), reply("It is open.")]
    async with FakeProvider(script) as provider, typing(provider, tmp_path) as person:
        await person.say("Wait at the gate.")
        await person.shows("  bash     cat gate; echo enough")
        await person.shows("bash, 1 s (Ctrl-C aborts)")
        (tmp_path / "gate").write_text("opened\n")
        await person.shows("It is open.")
        assert re.search(r"\n +opened\n +enough\n +ok, exit code 0, \d", person.text)
        await person.until(lambda: "bash, " not in person.text, "a status line without it")


async def test_what_is_typed_during_a_run_is_shown_as_queued_and_steers_it(tmp_path: Path) -> None:
    # Mutation: let `_obey` prompt with if_busy="raise"; or leave the queue out of `Editor._message`.
    held = hold(reply("First."))
    async with (
        FakeProvider([held, reply("Second."), reply("Third.")]) as provider,
        typing(provider, tmp_path) as person,
    ):
        await person.say("Begin.")
        await provider.arrived(1)
        await person.say("Use tabs.")
        await person.shows("queued     Use tabs.  (steering)")
        await person.say("/later And then stop.")
        await person.shows("queued     And then stop.  (follow-up)")
        held.release()
        await person.shows("Third.")
        await person.until(lambda: "queued  " not in person.text, "an empty queue")
        assert [request.last_user_text for request in provider.requests] == ["Begin.", "Use tabs.", "And then stop."]


async def test_who_waits_while_a_library_is_loaded_is_told(tmp_path: Path) -> None:
    # Mutation: in `loading_teller` say nothing; or say it for every model.
    async with FakeProvider([reply("Yes.")]) as provider:
        async with typing(provider, tmp_path) as person:
            await ask(person, "Is it fixed?", "Yes.")
            assert "loading litellm" not in person.text
        async with typing(provider, tmp_path, AGENT_SESSION_MODEL="nosuch/model") as person:
            await person.say("Is it fixed?")
            await person.shows("model      loading litellm, which")


async def test_nothing_is_drawn_while_nothing_happens(tmp_path: Path) -> None:
    # Mutation: in `Above.write` take the nothing that is written when the status line is made for something to draw.
    async with FakeProvider([]) as provider, typing(provider, tmp_path) as person:
        await person.rests()


async def test_several_lines_are_one_prompt(tmp_path: Path) -> None:
    # Mutation: take the binding of Alt-Enter away, that of Ctrl-J, or that of the backslash.
    async with FakeProvider([reply("Four lines.")]) as provider, typing(provider, tmp_path) as person:
        await person.press(f"one{ALT_ENTER}two\\{ENTER}three{CTRL_J}four")
        await person.shows("four")
        await ask(person, "", "Four lines.")
        assert provider.requests[0].last_user_text == "one\ntwo\nthree\nfour"


async def test_commands_are_completed_and_what_was_sent_is_remembered(tmp_path: Path) -> None:
    # Mutation: give the editor no completer, or no history; or keep what was sent without a session all the same.
    history = Path.home() / ".agent-session" / "history"
    async with FakeProvider([reply("One.")]) as provider:
        async with typing(provider, tmp_path, "--no-session") as person:
            await ask(person, "First?", "One.")
            await person.press("/compa\t")
            await person.shows("> /compact")
            await person.press(UP)
            await person.shows("> First?")
            await person.press(CTRL_C)
            await leave(person)
        assert not history.exists()
        async with typing(provider, tmp_path) as person:
            await person.say("/model")
            await person.shows("/model provider/name")
            await leave(person)
        assert history.stat().st_mode & 0o777 == 0o600
        async with typing(provider, tmp_path) as person:
            await person.press(UP + UP)
            await person.shows("> /model")


async def test_what_is_typed_before_there_is_a_prompt_counts_as_typed(tmp_path: Path) -> None:
    # Mutation: give the editor the library's own input; it takes an early Enter for one inside the text.
    async with (
        FakeProvider([reply("One.")]) as provider,
        terminal(env=environment(provider), cwd=tmp_path) as person,
    ):
        person.type(f"First?{ENTER}/sess")
        await person.shows("assistant  One.")
        await person.shows("> /sess")
        await person.say("ion")
        await person.shows("2 in the context")
        assert provider.requests[0].last_user_text == "First?"


async def test_ctrl_d_before_there_is_a_prompt_leaves(tmp_path: Path) -> None:
    # Mutation: take an early Ctrl-D for the NUL that the terminal made of it.
    async with FakeProvider([]) as provider, terminal(env=environment(provider), cwd=tmp_path) as person:
        person.type(CTRL_D)
        assert await person.ends() == 0


async def test_ctrl_c_during_a_run_aborts_it_and_gives_back_what_was_queued(tmp_path: Path) -> None:
    # Mutation: let `_abort` drop what `session.abort()` returns.
    script: list[Step] = [hang(after=1, text="Thinking about it for ever"), reply("Heard.")]
    async with FakeProvider(script) as provider, typing(provider, tmp_path) as person:
        await person.say("Begin.")
        await person.shows("assistant  Thinking about it for")
        await person.say("Use tabs.")
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
    # Mutation: let an error of the prompt out of `_obey`; or tell the reason of a failed attempt when it fails.
    script: list[Step] = [fail(400, "no such flag: frobnicate"), reply("Fine.")]
    async with FakeProvider(script) as provider, typing(provider, tmp_path) as person:
        await person.say("Begin.")
        await person.shows("frobnicate")
        await person.shows("ready")
        lines = person.text.splitlines()
        assert [line[:18] for line in lines if line.startswith(("run", "failed", "refused", "error"))] == [
            "run        failed:"
        ]
        await ask(person, "Again.", "Fine.")
        assert person.text.count("frobnicate") == 1
        assert b"Traceback" not in person.bytes


# Compaction ---------------------------------------------------------------------------------------


async def test_compact_shows_its_progress_and_what_it_did_in_one_line(tmp_path: Path) -> None:
    # Mutation: leave the phase or the seconds out of `WorkClock.line`; or the instructions out of the command.
    held = hold(reply(SUMMARY))
    async with (
        FakeProvider([reply(LONG), reply(LONG)], summaries=[held, reply(SUMMARY)]) as provider,
        typing(provider, tmp_path) as person,
    ):
        await ask(person, "How does it work?", "adds them up")
        await ask(person, "And then?", "And then?")
        await person.until(lambda: person.text.count("context ") == 2, "a second answer")
        await person.say("/compact Keep the units")
        await person.until(
            lambda: re.search(r"compacting: summarizing 1/1, \d s \(Ctrl-C aborts it\)", person.text) is not None,
            "the progress",
        )
        assert "Keep the units" in (await provider.arrived(3)).text
        await person.shows("compacting: summarizing 1/1, 1 s")
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
        await person.say("/compact")
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
        await person.say("Read the notes.")
        await person.shows("compacting: summarizing 1/1")
        person.type(CTRL_C)
        await person.shows("compaction aborted (threshold")
        await person.shows("Done all the same.")
        assert "run        aborted" not in person.text
        await person.shows("ready")
        await leave(person)


async def test_a_compaction_is_previewed_made_and_taken_back_in_a_line_each(tmp_path: Path) -> None:
    # Mutation: let `/preview` compact, or `/undo` say nothing.
    script = [reply(LONG), reply(LONG)]
    async with (
        FakeProvider(script, summaries=[always(reply(SUMMARY))]) as provider,
        typing(provider, tmp_path) as person,
    ):
        await person.say("/undo")
        await person.shows("undo       there is no compaction on this branch")
        await ask(person, "How does it work?", "adds them up")
        await ask(person, "And then?", "And then?")
        await person.until(lambda: person.text.count("context ") == 2, "a second answer")
        await person.say("/preview Keep the units")
        await person.shows("compaction preview (manual, model): ")
        await person.until(
            lambda: re.search(r"-> about [\d,]+ tokens, \d+ entries to summarise, \d calls?", person.text) is not None,
            "what would be cut",
        )
        assert len(provider.requests) == 2
        await person.say("/compact")
        await person.shows("compaction applied (manual, model): ")
        await person.shows("ready")
        await person.say("/undo")
        await person.until(
            lambda: (
                re.search(r"undo       [\d,]+ -> [\d,]+ tokens; the newest compaction is taken back", person.text)
                is not None
            ),
            "the undo",
        )
        await person.say("/tree")
        await person.shows("(undo: ")
        await leave(person)
    with only_session(tmp_path) as manager:
        newest = manager.get_latest_compaction_entry()
        assert newest is not None
        assert newest.is_undo
        shown = " ".join(str(getattr(message, "text", message)) for message in manager.build_messages())
        assert "How does it work?" in shown
        listed = await run("sessions", "show", manager.session_id, env=environment(provider), cwd=tmp_path)
    assert re.search(r"^undo  ", listed.stdout.decode(), re.MULTILINE)


async def test_an_undo_waits_for_nobody_and_says_so(tmp_path: Path) -> None:
    # Mutation: let `/undo` abort what runs.
    held = hold(reply("First."))
    async with FakeProvider([held]) as provider, typing(provider, tmp_path) as person:
        await person.say("Begin.")
        await provider.arrived(1)
        await person.say("/undo")
        await person.shows("Ctrl-C aborts it")
        held.release()
        await person.shows("First.")
        await person.shows("ready")


async def test_a_compaction_that_is_asked_for_during_a_run_is_acknowledged_at_once(tmp_path: Path) -> None:
    # Mutation: in `/compact` say nothing before it has happened.
    held = hold(reply(LONG))
    script: list[Step] = [reply(LONG), held]
    async with (
        FakeProvider(script, summaries=[always(reply(SUMMARY))]) as provider,
        typing(provider, tmp_path) as person,
    ):
        await ask(person, "How does it work?", "adds them up")
        await person.say("And then?")
        await provider.arrived(2)
        await person.say("/compact")
        await person.shows("compaction asked for; it comes at the next safe point of what runs")
        held.release()
        await person.shows("compaction applied (manual, model): ")
        await leave(person)


async def test_nothing_to_compact_is_said_and_is_no_error(tmp_path: Path) -> None:
    # Mutation: print nothing for a skipped compaction; no event tells of it.
    async with FakeProvider([]) as provider, typing(provider, tmp_path) as person:
        await person.say("/compact")
        await person.shows("compaction skipped (manual)")
        await leave(person)


# Going on -----------------------------------------------------------------------------------------


async def test_a_session_that_is_resumed_shows_the_last_exchange_also_where_it_was_aborted(tmp_path: Path) -> None:
    # Mutation: look for the newest answer in the context alone, which has no aborted ones.
    script: list[Step] = [reply("One."), hang(after=1, text="A second answer that never ends")]
    async with FakeProvider(script) as provider:
        async with typing(provider, tmp_path) as person:
            await ask(person, "First?", "One.")
            await person.say("Second?")
            await person.shows("assistant  A second answer that never")
            person.type(CTRL_C)
            await person.shows("run        aborted")
            await leave(person)
        async with typing(provider, tmp_path, "--resume") as person:
            await person.shows("user       Second?\nassistant  A second answer that never ends (aborted)")
            await leave(person)


async def test_ctrl_z_gives_the_terminal_back_to_the_shell_until_it_is_taken_up_again(tmp_path: Path) -> None:
    # Mutation: take the binding of Ctrl-Z away; or in `Editor._suspend` leave the terminal without its line editing.
    async with (
        FakeProvider([reply("One.")]) as provider,
        terminal(
            env=environment(provider, PS1="shell% "), cwd=tmp_path, command=["/bin/bash", "--norc", "--noprofile", "-i"]
        ) as person,
    ):
        await person.shows("shell%")
        person.type(f"{shlex.join(COMMAND)}\n")
        await person.shows("ready")
        await person.press(f"Half a line{CTRL_Z}")
        await person.shows("Stopped")
        person.type("echo $((40 + 2)) lines\n")
        await person.shows("42 lines")
        person.type("fg\n")
        await person.until(
            lambda: person.text.rpartition("42 lines")[2].count("> Half a line") == 1, "the editor again"
        )
        await ask(person, " and the rest.", "One.")
        assert provider.requests[0].last_user_text == "Half a line and the rest."
        await person.say("/quit")
        await person.until(lambda: person.text.rstrip().endswith("shell%"), "the shell")
        person.type("exit\n")
        assert await person.ends() == 0


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


@pytest.mark.parametrize(("answer", "became"), [("y", "ok, 1 line,"), ("", "failed, "), ("what\rn", "failed, ")])
async def test_an_extension_asks_the_person_at_the_terminal(tmp_path: Path, answer: str, became: str) -> None:
    # Mutation: give AgentSession no `interaction`; or let any line mean yes.
    (tmp_path / "notes.txt").write_text("one\n")
    (tmp_path / "asking.py").write_text(ASKING)
    script = [calls([("read", {"path": "notes.txt"})]), reply("So be it.")]
    async with (
        FakeProvider(script) as provider,
        typing(provider, tmp_path, "--extension", str(tmp_path / "asking.py")) as person,
    ):
        await person.say("Read.")
        await person.shows("note       a tool is asked for")
        await person.shows("question   May it read?")
        await person.shows("[y/N]")
        await person.say(answer)
        await person.shows("So be it.")
        assert became in person.text


async def test_a_dumb_terminal_shows_a_prompt_where_an_answer_is_due(tmp_path: Path) -> None:
    # Mutation: in `Conversation._asking` do not redraw the input.
    (tmp_path / "notes.txt").write_text("one\n")
    (tmp_path / "asking.py").write_text(ASKING)
    arguments = ("--extension", str(tmp_path / "asking.py"))
    async with (
        FakeProvider([calls([("read", {"path": "notes.txt"})]), reply("So be it.")]) as provider,
        terminal(*arguments, env=environment(provider, TERM="dumb"), cwd=tmp_path) as person,
    ):
        await person.shows("\n>")
        person.type("Read.\n")
        await person.shows("question   May it read? [y/N]")
        await person.until(lambda: person.before_cursor == "> ", "a prompt")
        person.type("y\n")
        await person.shows("So be it.")


async def test_no_color_leaves_colours_out(tmp_path: Path) -> None:
    # Mutation: in `make_console` give `no_color=False`.
    async with FakeProvider([reply("One."), reply("Two.")]) as provider:
        for no_color, has_colours in (("", True), ("1", False)):
            async with typing(provider, tmp_path, NO_COLOR=no_color) as person:
                await ask(person, "First?", "One." if has_colours else "Two.")
                await leave(person)
                assert bool(re.search(rb"\x1b\[(?:\d+;)*(?:3[0-7]|38|9[0-7])[;m]", person.bytes)) == has_colours


async def test_a_dumb_terminal_gets_plain_lines_and_takes_lines_while_a_run_is_on(tmp_path: Path) -> None:
    # Mutation: use the editor whatever TERM says; or write the prompt while more is to come.
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
        await person.until(lambda: person.before_cursor == "> ", "a prompt on a line of its own")
        person.type("/quit\n")
        assert await person.ends() == 0
        assert b"\x1b" not in person.bytes
        prompts = [line for line in person.text.splitlines() if line.startswith(">")]
        assert prompts == ["> Begin.", "> /quit"]


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
