"""`agent-session run`: real processes, their streams piped; the model is a server on 127.0.0.1."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from pathlib import Path
from typing import Any

import anyio
import pytest

from agent_session import SessionManager
from agent_session.testing import FakeProvider, calls, fail, hang, reply
from session_store.message_codec import decode_message
from session_store.messages import AssistantMessage
from tests.cli.terminals import COMMAND, CTRL_C, WAIT_SECONDS, environment, run, terminal

LONG = "The parser reads the units from left to right and adds them up. " * 12


def events(output: bytes) -> list[dict[str, Any]]:
    """Every line must be one JSON object."""
    assert output.endswith(b"\n")
    found = [json.loads(line) for line in output.splitlines()]
    assert all(isinstance(event, dict) for event in found)
    return found


def names(output: bytes) -> list[str]:
    return [event["event"] for event in events(output)]


# Text ---------------------------------------------------------------------------------------------


async def test_the_answer_alone_is_on_standard_output_and_the_way_to_it_on_standard_error(tmp_path: Path) -> None:
    # Mutation: print every answer of the run, or the tools, on standard output.
    (tmp_path / "notes.txt").write_text("one\n")
    script = [calls([("read", {"path": "notes.txt"})], text="I look."), reply("It says one.")]
    async with FakeProvider(script) as provider:
        done = await run("run", "-p", "What do the notes say?", env=environment(provider), cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, b"It says one.\n")
    assert re.search(rb"  read     notes.txt\n           ok, 1 line, ", done.stderr)
    assert b"\x1b" not in done.stderr


async def test_a_terminal_shows_the_answer_as_it_streams_with_the_meter(tmp_path: Path) -> None:
    # Mutation: show answers only where standard output is no terminal.
    script = [reply("It says one.", usage=(1_000, 0, 0, 5))]
    async with (
        FakeProvider(script) as provider,
        terminal("run", "-p", "Well?", env=environment(provider), cwd=tmp_path) as person,
    ):
        await person.shows("assistant  It says one.")
        await person.shows("1,005 of 128,000 tokens")
        assert await person.ends() == 0
    assert person.text.count("It says one.") == 1


ASKING = """
def setup(api):
    @api.on("agent_start")
    async def permitted(event, ctx):
        ctx.notify(f"go on: {await ctx.confirm('Shall it?', default=True)}")
"""


async def test_who_sits_at_the_terminal_is_asked(tmp_path: Path) -> None:
    # Mutation: give the session no `interaction`; or take the answer for the default.
    (tmp_path / "asking.py").write_text(ASKING)
    async with (
        FakeProvider([reply("It says one.")]) as provider,
        terminal(
            *("run", "-p", "Well?", "--extension", "asking.py"), env=environment(provider), cwd=tmp_path
        ) as person,
    ):
        await person.shows("question   Shall it? [Y/n]")
        await person.shows("\n>")
        person.type("n\n")
        await person.shows("note       go on: False")
        assert await person.ends() == 0


@pytest.mark.parametrize(
    ("arguments", "stdin", "sent"),
    [
        (["-p", "Explain."], b"def f(): ...\n", "Explain.\n\ndef f(): ..."),
        ([], b"Explain this.\n", "Explain this."),
        (["-p", "Explain."], b"", "Explain."),
    ],
)
async def test_text_on_standard_input_is_the_prompt_or_is_added_to_it(
    tmp_path: Path, arguments: list[str], stdin: bytes, sent: str
) -> None:
    # Mutation: read standard input only where there is no -p.
    async with FakeProvider([reply("Well.")]) as provider:
        done = await run("run", *arguments, env=environment(provider), cwd=tmp_path, stdin=stdin)
        assert done.stdout == b"Well.\n"
        assert provider.requests[0].last_user_text == sent


async def test_what_is_piped_in_is_shown_by_its_size(tmp_path: Path) -> None:
    # Mutation: show the prompt as it was sent, a diff of a thousand lines included.
    diff = "".join(f"+line {number}\n" for number in range(1_000))
    async with FakeProvider([reply("Well.")]) as provider:
        done = await run("run", "-p", "Explain.", env=environment(provider), cwd=tmp_path, stdin=diff.encode())
        assert "+line 999" in provider.requests[0].last_user_text
    said = done.stderr.decode()
    assert f"user       Explain.\nuser       standard input, 1,000 lines, {len(diff) - 1:,} bytes\n" in said
    assert "+line" not in said


async def test_a_run_that_failed_says_so_in_its_last_line(tmp_path: Path) -> None:
    # Mutation: say why before the run has ended, or nothing at the end.
    async with FakeProvider([fail(400, "no such flag")]) as provider:
        done = await run("run", "-p", "Well?", env=environment(provider), cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, b"")
    last = done.stderr.decode().splitlines()[-1]
    assert last.startswith("run        failed: ")
    assert "no such flag" in last
    assert done.stderr.count(b"no such flag") == 1


async def test_the_window_of_a_model_that_nobody_knows_is_given(tmp_path: Path) -> None:
    # Mutation: ignore --context-window; or forget it where another session is begun.
    arguments = ["--context-window", "50,000"]
    async with FakeProvider([reply("One."), reply("Two."), reply("Three.")]) as provider:
        done = await run("run", "-p", "Well?", *arguments, env=environment(provider), cwd=tmp_path)
        assert "of 50,000 tokens" in done.stderr.decode()
        assert "are assumed" not in done.stderr.decode()
        done = await run(*arguments, env=environment(provider), cwd=tmp_path, stdin=b"/new\nWell?\n/fork\n/session")
        assert len(re.findall(r"of 50,000 tokens", done.stdout.decode())) == 2
        assert "128,000" not in done.stdout.decode()
        done = await run("run", "-p", "Well?", env=environment(provider), cwd=tmp_path)
        assert "128,000 tokens are assumed; " in done.stderr.decode()
        assert "--context-window" in done.stderr.decode()


async def test_resume_goes_on_with_the_newest_session_or_the_one_that_is_named(tmp_path: Path) -> None:
    # Mutation: ignore --resume.
    async with FakeProvider([reply("One."), reply("Two."), reply("Three.")]) as provider:
        env = environment(provider)
        await run("run", "-p", "First?", env=env, cwd=tmp_path)
        await run("run", "-p", "Second?", "--resume", env=env, cwd=tmp_path)
        (info,) = SessionManager.list(tmp_path)
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir()
        await run("run", "-p", "Third?", "--resume", info.id[:6], env=env, cwd=elsewhere)
        assert all(text in provider.requests[2].text for text in ("First?", "Second?", "Third?"))
        assert f"Working directory: {tmp_path}" in provider.requests[2].system.splitlines()


async def test_no_session_keeps_nothing(tmp_path: Path) -> None:
    # Mutation: ignore --no-session.
    async with FakeProvider([reply("One.")]) as provider:
        done = await run("run", "-p", "First?", "--no-session", env=environment(provider), cwd=tmp_path)
    assert done.stdout == b"One.\n"
    assert SessionManager.list_all() == []


async def test_base_url_and_model_say_where_and_which(tmp_path: Path) -> None:
    # Mutation: ignore --base-url, or --thinking.
    async with FakeProvider([reply("One.")]) as provider:
        arguments = ["run", "-p", "First?", "--model", "local/some/model", "--base-url", provider.base_url]
        arguments += ["--thinking", "low"]
        done = await run(*arguments, env=environment(), cwd=tmp_path)
        assert done.stdout == b"One.\n"
        assert provider.requests[0].payload["model"] == "some/model"
        assert "authorization" not in provider.requests[0].headers
    (info,) = SessionManager.list(tmp_path)
    with SessionManager.open(info.path, read_only=True) as manager:
        assert manager.projection.thinking_level == "low"


async def test_a_log_file_gets_the_run_and_never_the_key(tmp_path: Path) -> None:
    # Mutation: do not open the log file, or only the one that an argument names.
    async with FakeProvider([reply("One."), reply("Two."), reply("Three.")]) as provider:
        env = environment(provider, OPENAI_API_KEY="sk-a-secret-key-of-somebody")
        await run("run", "-p", "First?", "--log-file", "a.log", env=env, cwd=tmp_path)
        await run("--log-file", "b.log", "run", "-p", "First?", env=env, cwd=tmp_path)
        await run("run", "-p", "First?", env=env | {"AGENT_SESSION_LOG": "c.log"}, cwd=tmp_path)
        assert provider.requests[0].headers["authorization"].endswith("somebody")
    for name in ("a.log", "b.log", "c.log"):
        text = (tmp_path / name).read_text()
        assert {"run.start", "run.end"} <= {json.loads(line)["event"] for line in text.splitlines()}
        assert "somebody" not in text


async def test_a_command_that_runs_is_shown_with_its_seconds_where_somebody_watches(tmp_path: Path) -> None:
    # Mutation: let `ProgressLine` show compactions alone.
    os.mkfifo(tmp_path / "gate")
    script = [calls([("bash", {"command": "cat gate"})]), reply("It is open.")]
    async with (
        FakeProvider(script) as provider,
        terminal("run", "-p", "Wait.", env=environment(provider), cwd=tmp_path) as person,
    ):
        await person.shows("bash, 1 s  Ctrl-C aborts the run")
        (tmp_path / "gate").write_text("opened\n")
        assert await person.ends() == 0
    assert re.search(r"  bash     cat gate\n +opened\n +ok, exit code 0, ", person.text)
    assert "bash, " not in person.text


ASKING_TOOL = """
from agent_session import ToolContext, tool


@tool
async def careful(context: ToolContext) -> str:
    \"\"\"Asks first.\"\"\"
    return f"it said {await context.confirm('Shall it?')}"


def setup(api):
    api.tool(careful)
"""


async def test_nothing_is_drawn_over_the_answer_to_a_tool_that_asks(tmp_path: Path) -> None:
    # Mutation: do not give the person `progress.hidden`.
    (tmp_path / "asking_tool.py").write_text(ASKING_TOOL)
    async with (
        FakeProvider([calls([("careful", {})]), reply("So be it.")]) as provider,
        terminal(
            *("run", "-p", "Well?", "--extension", "asking_tool.py"), env=environment(provider), cwd=tmp_path
        ) as person,
    ):
        await person.shows("question   Shall it? [y/N]")
        await person.shows("\n>")
        await person.rests()
        person.type("y\n")
        await person.shows("So be it.")
        assert await person.ends() == 0
    assert "> y" in person.text


# JSON ---------------------------------------------------------------------------------------------

NOISY = """
import logging
import os
import subprocess
import sys
import warnings

print("an extension prints while it is loaded")


def setup(api):
    @api.on("agent_start")
    def shout(event, ctx):
        print("an extension prints")
        os.write(1, b"straight to the descriptor\\n")
        subprocess.run(["echo", "from a child"], check=True)
        logging.getLogger("somebody").error("an unconfigured logger")
        warnings.warn("a warning")
        sys.stdout.flush()
"""


async def test_json_prints_events_and_nothing_else_whatever_is_printed_meanwhile(tmp_path: Path) -> None:
    # Mutation: write the events to sys.stdout without `ReservedOutput`.
    (tmp_path / "noisy.py").write_text(NOISY)
    (tmp_path / "notes.txt").write_text("one\n")
    script = [
        calls([("bash", {"command": "cat notes.txt"})], text="I look."),
        reply("It says one.", usage=(90, 0, 0, 10)),
    ]
    async with FakeProvider(script) as provider:
        env = environment(provider, PYTHONWARNINGS="default")
        done = await run("run", "-p", "Well?", "--json", "--extension", "noisy.py", env=env, cwd=tmp_path)
    assert done.returncode == 0
    assert {"session", "session_start", "agent_start", "message_update", "message_end", "tool_execution_start"} <= set(
        names(done.stdout)
    )
    assert names(done.stdout)[0] == "session"
    assert names(done.stdout)[-1] == "result"
    for noise in (b"an extension prints while", b"straight to the", b"from a child", b"unconfigured", b"a warning"):
        assert noise in done.stderr


async def test_json_has_one_shape_and_messages_as_in_the_file(tmp_path: Path) -> None:
    # Mutation: name a message's keys as Python does.
    async with FakeProvider([reply("It says one.", chunks=3, usage=(90, 0, 0, 10))]) as provider:
        done = await run("run", "-p", "Well?", "--json", env=environment(provider), cwd=tmp_path)
    told = events(done.stdout)
    assert all(isinstance(event["schema_version"], int) for event in told)
    opening = told[0]
    assert (opening["cwd"], opening["model"]) == (str(tmp_path), "openai/scripted")
    deltas = [event["delta"] for event in told if event["event"] == "message_update"]
    assert "".join(delta["text"] for delta in deltas if delta["type"] == "text_delta") == "It says one."
    ended = [event["message"] for event in told if event["event"] == "message_end"]
    assert [message["role"] for message in ended] == ["user", "assistant"]
    answer = decode_message(ended[1])
    assert isinstance(answer, AssistantMessage)
    assert (answer.text, answer.usage.input, answer.usage.output) == ("It says one.", 90, 10)
    lines = (await anyio.Path(opening["path"]).read_text()).splitlines()
    stored = {json.loads(line)["id"]: json.loads(line) for line in lines}
    appended = [event["entry"] for event in told if event["event"] == "entry_appended"]
    assert appended
    assert all(entry == stored[entry["id"]] for entry in appended)
    assert told[-1] == {
        "event": "result", "schema_version": 1, "exit_code": 0, "stop_reason": "stop", "text": "It says one.",
        "error": None,
    }  # fmt: skip


async def test_json_tells_a_compaction_with_its_numbers(tmp_path: Path) -> None:
    # Mutation: leave dataclasses out of `_json`: the outcome becomes a line of text.
    script = [reply(LONG), reply(LONG, usage=(120_000, 0, 0, 50))]
    async with FakeProvider(script, summaries=[reply("The goal."), reply("The turn.")]) as provider:
        env = environment(provider, AGENT_SESSION_COMPACTION__KEEP_RECENT_TOKENS="50")
        await run("run", "-p", "First?", env=env, cwd=tmp_path)
        done = await run("run", "-p", "Second?", "--resume", "--json", env=env, cwd=tmp_path)
    told = {event["event"]: event for event in events(done.stdout)}
    assert told["compaction_start"]["reason"] == "threshold"
    assert told["compaction_progress"]["phase"] == "summarizing"
    outcome = told["compaction_end"]["outcome"]
    assert (outcome["type"], outcome["status"], outcome["entry"]["type"]) == (
        "compaction_outcome",
        "applied",
        "compaction",
    )
    assert outcome["tokens_after"] < outcome["tokens_before"]


async def test_json_tells_the_error_in_the_last_line_and_in_the_exit_code(tmp_path: Path) -> None:
    # Mutation: end with 0; or leave the error out of the result.
    async with FakeProvider([fail(400, "no such flag")]) as provider:
        done = await run("run", "-p", "Well?", "--json", env=environment(provider), cwd=tmp_path)
    assert done.returncode == 1
    result = events(done.stdout)[-1]
    assert (result["exit_code"], result["error"]["type"]) == (1, "ModelRequestError")
    assert "no such flag" in result["error"]["message"]
    assert b"no such flag" in done.stderr
    assert b"Traceback" not in done.stderr


async def test_a_reader_that_goes_away_ends_it_without_a_traceback(tmp_path: Path) -> None:
    # Mutation: do not abort when the output is broken; or let BrokenPipeError end the thread with a traceback.
    ours, theirs = os.pipe()
    script = [reply("One. " * 400, chunks=400, pace=0.02)]
    async with (
        FakeProvider(script) as provider,
        await anyio.open_process(
            [*COMMAND, "run", "-p", "Well?", "--json"],
            env=environment(provider),
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            stdout=theirs,
        ) as process,
    ):
        os.close(theirs)
        assert process.stderr is not None
        with anyio.fail_after(WAIT_SECONDS):
            output = b""
            while b"text_delta" not in output:
                await anyio.wait_readable(ours)
                output += os.read(ours, 65_536)
            os.close(ours)
            assert b"".join([piece async for piece in process.stderr]) == b""
            assert await process.wait() == 1
            await provider.requests[0].disconnected.wait()


# Ending -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
async def test_a_signal_aborts_the_run_and_what_streamed_is_kept(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    # Mutation: leave at once, without aborting the session.
    async with (
        FakeProvider([hang(after=1, text="An answer that never ends")]) as provider,
        await anyio.open_process(
            [*COMMAND, "run", "-p", "Well?", "--json"],
            env=environment(provider),
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
        ) as process,
    ):
        assert process.stdout is not None
        output = b""
        with anyio.fail_after(WAIT_SECONDS):
            while b"text_delta" not in output:
                output += await process.stdout.receive()
            process.send_signal(number)
            output += b"".join([piece async for piece in process.stdout])
            assert await process.wait() == code
    assert events(output)[-1]["stop_reason"] == "aborted"
    (info,) = SessionManager.list(tmp_path)
    with SessionManager.open(info.path, read_only=True) as manager:
        newest = manager.build_projection().messages[-1].message
        assert isinstance(newest, AssistantMessage)
        assert (newest.text, newest.stop_reason) == ("An answer that never ends", "aborted")


async def test_ctrl_c_at_a_terminal_aborts_the_run_without_a_traceback(tmp_path: Path) -> None:
    # Mutation: do not receive SIGINT in `_run`.
    async with (
        FakeProvider([hang(after=1, text="An answer that never ends")]) as provider,
        terminal("run", "-p", "Well?", env=environment(provider), cwd=tmp_path) as person,
    ):
        await person.shows("assistant  An answer that never")
        person.type(CTRL_C)
        assert await person.ends() == 130
    assert b"Traceback" not in person.bytes


async def test_a_compaction_moves_on_a_terminal_while_it_is_made(tmp_path: Path) -> None:
    # Mutation: do not subscribe the progress line.
    script = [reply(LONG), reply(LONG, usage=(120_000, 0, 0, 50))]
    async with FakeProvider(script, summaries=[hang()]) as provider:
        env = environment(provider, AGENT_SESSION_COMPACTION__KEEP_RECENT_TOKENS="50")
        await run("run", "-p", "First?", env=env, cwd=tmp_path)
        async with terminal("run", "-p", "Second?", "--resume", env=env, cwd=tmp_path) as person:
            await person.until(
                lambda: re.search(r"compacting: summarizing 1/1, 1 s", person.text) is not None, "the progress"
            )
            person.type(CTRL_C)
            assert await person.ends() == 130
            assert "compacting" not in person.text
            assert "compaction aborted (threshold" in person.text
