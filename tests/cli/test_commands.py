"""The commands of the interactive session, typed into a real process through a pseudo-terminal."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from agent_session import SessionManager
from agent_session.testing import FakeProvider, hold, reply
from tests.cli.conversations import ask, leave, only_session, typing
from tests.cli.terminals import CTRL_D, environment, run, terminal


async def test_help_lists_every_command(tmp_path: Path) -> None:
    # Mutation: leave one command out of the table.
    async with FakeProvider([]) as provider, typing(provider, tmp_path) as person:
        await person.say("/help")
        await person.shows("/quit")
        for name in (
            "/compact",
            "/preview",
            "/undo",
            "/session",
            "/model",
            "/tree",
            "/fork",
            "/new",
            "/resume",
            "/later",
            "/help",
        ):
            assert re.search(rf"^{name} ", person.text, re.MULTILINE)


async def test_an_unknown_command_is_refused_and_nothing_is_sent(tmp_path: Path) -> None:
    # Mutation: send a line that begins with a slash to the model.
    async with FakeProvider([]) as provider, typing(provider, tmp_path) as person:
        await person.say("/frobnicate now")
        await person.shows("error      no command /frobnicate; /help lists the ones there are")
        await person.say("/compct Keep the units")
        await person.shows("error      no command /compct; /compact is one")


@pytest.mark.parametrize("text", ["/home/x is broken", "/etc: what is there?", " /new is what I typed", "/1 of 2"])
async def test_a_text_that_only_begins_with_a_slash_is_a_prompt(tmp_path: Path, text: str) -> None:
    # Mutation: take every line that begins with a slash for a command; or strip a line before that is decided.
    async with FakeProvider([reply("One.")]) as provider, typing(provider, tmp_path) as person:
        await ask(person, text, "One.")
        assert provider.requests[0].last_user_text == text.strip()


async def test_session_says_where_it_is_and_what_it_spent(tmp_path: Path) -> None:
    # Mutation: print the stats of another session; or count one as many.
    async with FakeProvider([reply("Yes.", usage=(90, 0, 0, 10))]) as provider, typing(provider, tmp_path) as person:
        await ask(person, "Is it fixed?", "Yes.")
        await person.say("/session")
        await person.shows("spent      100 tokens")
        assert " in 1 request, on summaries " in person.text
        with only_session(tmp_path) as manager:
            assert f"session    {manager.session_id}" in person.text
            assert f"file       {str(manager.path)[:40]}" in person.text


async def test_model_takes_another_model_and_says_which(tmp_path: Path) -> None:
    # Mutation: do not call `set_model`.
    async with FakeProvider([reply("Yes.")]) as provider, typing(provider, tmp_path) as person:
        await person.say("/model")
        await person.shows("openai/scripted; /model provider/name takes another")
        await person.say("/model other")
        await person.shows("error      model id 'other' is not `provider/name`")
        await person.say("/model openai/other")
        await person.until(lambda: "compacts above 111.6k  openai/other" in person.text, "the other model")
        await ask(person, "Is it fixed?", "Yes.")
        assert provider.requests[0].payload["model"] == "other"


async def test_a_model_without_a_key_is_refused_by_name(tmp_path: Path) -> None:
    # Mutation: do not ask for the key before the model is taken; or name options of a command line that is over.
    async with FakeProvider([]) as provider:
        env = environment(provider, LOCAL_BASE_URL=provider.base_url, AGENT_SESSION_MODEL="local/scripted")
        del env["OPENAI_BASE_URL"], env["OPENAI_API_KEY"]
        async with terminal(env=env, cwd=tmp_path) as person:
            await person.shows("ready")
            await person.say("/model openai/gpt-5-mini")
            await person.shows("no key for openai/gpt-5-mini: set OPENAI_API_KEY")
            assert "--base-url" not in person.text
            await person.shows("compacts above 111.6k  local/scripted")


async def test_tree_shows_what_was_said_and_goes_back_to_it(tmp_path: Path) -> None:
    # Mutation: do not offer the text that `navigate_tree` returns.
    script = [reply("It adds."), reply("It subtracts.")]
    async with FakeProvider(script) as provider, typing(provider, tmp_path) as person:
        await ask(person, "What does it do?", "It adds.")
        await person.say("/tree")
        await person.until(lambda: "* " in person.text, "the tree")
        entry = re.findall(r"\* ([0-9a-f]{8}) What does it do\?", person.text)[0]
        await person.say("/tree nonsense")
        await person.shows("no entries begin with 'nonsense'")
        await person.say(f"/tree * {entry}")
        await person.shows("> What does it do?")
        await ask(person, " Now?", "It subtracts.")
        assert "It adds." not in provider.requests[1].text
        assert provider.requests[1].last_user_text == "What does it do? Now?"
        await person.say("/tree")
        await person.until(
            lambda: len(re.findall(r"^ *\*? +[0-9a-f]{8} +What", person.text, re.MULTILINE)) >= 3, "both"
        )
        await leave(person)


async def test_fork_goes_on_in_a_copy_and_leaves_the_other_alone(tmp_path: Path) -> None:
    # Mutation: fork, and stay in the first session.
    async with FakeProvider([reply("One."), reply("Two.")]) as provider, typing(provider, tmp_path) as person:
        await ask(person, "First?", "One.")
        await person.say("/fork")
        await person.shows("the other one stays as it was")
        copy = re.findall(r"fork +this is session (\w+) now", person.text)[0]
        await ask(person, "Second?", "Two.")
        await leave(person)
    counts = {info.id == copy: info.message_count for info in SessionManager.list(tmp_path)}
    assert counts == {True: 4, False: 2}


async def test_fork_takes_an_entry_and_copies_what_leads_to_it(tmp_path: Path) -> None:
    # Mutation: fork everything, whichever entry is named.
    script = [reply("One."), reply("Two."), reply("Three.")]
    async with FakeProvider(script) as provider, typing(provider, tmp_path) as person:
        await ask(person, "First?", "One.")
        await ask(person, "Second?", "Two.")
        with only_session(tmp_path) as manager:
            answer = next(entry for entry in manager if "One." in repr(entry))
        await person.say(f"/fork {answer.id[:8]}")
        await person.shows("the other one stays as it was")
        await ask(person, "Third?", "Three.")
        assert "One." in provider.requests[2].text
        assert "Second?" not in provider.requests[2].text


@pytest.mark.parametrize("command", ["/new", "/fork", "/resume"])
async def test_a_session_that_works_is_not_left_for_another(tmp_path: Path, command: str) -> None:
    # Mutation: in the command leave `_require_idle` out: what runs would be aborted.
    held = hold(reply("One."))
    async with FakeProvider([held]) as provider, typing(provider, tmp_path) as person:
        SessionManager.create(tmp_path).close()  # to be resumed
        await person.say("First?")
        await provider.arrived(1)
        await person.say(command)
        await person.shows("error      the session is busy (run): Ctrl-C aborts it")
        held.release()
        await person.shows("assistant  One.")
        await person.shows("ready")


async def test_new_keeps_nothing_where_nothing_was_to_be_kept(tmp_path: Path) -> None:
    # Mutation: let `Host.begin_new` make a file whatever the options say.
    script = [reply("One."), reply("Two.")]
    async with FakeProvider(script) as provider, typing(provider, tmp_path, "--no-session") as person:
        await ask(person, "First?", "One.")
        await person.say("/new")
        await person.shows("new        session ")
        await ask(person, "Second?", "Two.")
        await leave(person)
    assert SessionManager.list_all() == []


async def test_new_begins_another_session_and_resume_chooses_one(tmp_path: Path) -> None:
    # Mutation: let `/new` keep the context; or let `/resume` take the newest without asking.
    script = [reply("One."), reply("Two."), reply("Three.")]
    async with FakeProvider(script) as provider, typing(provider, tmp_path) as person:
        await ask(person, "First?", "One.")
        await person.say("/new")
        await person.shows("new        session ")
        await ask(person, "Second?", "Two.")
        assert "First?" not in provider.requests[1].text
        await person.say("/resume")
        await person.shows("question   Which session?")
        (other,) = (info for info in SessionManager.list(tmp_path) if info.first_message == "First?")
        listed = await run("sessions", "list", env=environment(provider), cwd=tmp_path)
        when = re.findall(rf"{other.id[:8]}  +(\d{{4}}-\d\d-\d\d \d\d:\d\d)", listed.stdout.decode())[0]
        assert f"{other.id[:8]}  {when}  First?" in person.text
        await person.shows("First?")
        await person.shows("[1-1]")
        await person.say("1")
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
        await person.say("/new")
        await person.shows("new        session ")
        await person.press(CTRL_D)
        assert await person.ends() == 0
    assert [info.message_count for info in SessionManager.list(tmp_path)] == [2]


async def test_a_session_that_is_open_here_under_another_name_is_said_to_be_in_use_here(tmp_path: Path) -> None:
    # Mutation: name the program's own process by its number.
    async with FakeProvider([]) as provider, typing(provider, tmp_path) as person:
        (info,) = SessionManager.list(tmp_path)
        (tmp_path / "link.jsonl").symlink_to(info.path)
        await person.say(f"/resume {tmp_path / 'link.jsonl'}")
        await person.until(lambda: "in use by this program itself" in " ".join(person.text.split()), "who has it")


async def test_a_session_that_is_open_elsewhere_is_refused_and_the_present_one_stays(tmp_path: Path) -> None:
    # Mutation: close the present session before the other one is open.
    async with FakeProvider([reply("One.")]) as provider, typing(provider, tmp_path) as person:
        with SessionManager.create(tmp_path) as elsewhere:
            await person.say(f"/resume {elsewhere.session_id}")
            await person.until(lambda: f"process {os.getpid()}" in person.text, "who has it")
            await ask(person, "First?", "One.")
