"""What a user gets wrong: one sentence that says what to do, an exit code, never a traceback."""

from __future__ import annotations

import json
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from agent_session import SessionManager
from agent_session.cli import failures
from agent_session.cli.arguments import options_of, parse
from agent_session.testing import FakeProvider, always, fail, reply
from tests.cli.terminals import COMMAND, ROOT, environment, run, terminal

HELP_SECONDS = 0.2
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_help_comes_in_a_fifth_of_a_second() -> None:
    # Mutation: import `agent_session.cli.interactive` at the top of `main`.
    times = []
    for _ in range(7):  # on a busy machine the processor's time is the program's own, and the best of a few more so
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([*COMMAND, "--help"], capture_output=True, check=True, timeout=60, env=environment())
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)
        if times[-1] < HELP_SECONDS:
            return
    pytest.fail(f"{min(times):.3f} s at best")


@pytest.mark.parametrize("arguments", [[], ["run"], ["sessions"], ["sessions", "list"], ["sessions", "show"], ["demo"]])
async def test_every_command_has_help(tmp_path: Path, arguments: list[str]) -> None:
    # Mutation: leave `help=` out of one of the commands.
    done = await run(*arguments, "--help", env=environment(), cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.startswith(b"usage: agent-session")


def test_the_exit_codes_are_in_the_help_and_in_the_readme() -> None:
    # Mutation: change a code, or leave one out of the table.
    shown = subprocess.run(
        [*COMMAND, "--help"], capture_output=True, text=True, check=True, timeout=60, env=environment()
    ).stdout
    codes = (failures.DONE, failures.FAILED, failures.WRONG_USE, failures.NO_MODEL, failures.INTERRUPTED)
    for code in codes:
        assert re.search(rf"^  {code} ", shown, re.MULTILINE)
        assert re.search(rf"^\| {code} +\|", README, re.MULTILINE)
    assert str(failures.TERMINATED) in shown


@pytest.mark.parametrize("arguments", [[], ["run", "-p", "Well?"]])
async def test_without_a_model_the_error_names_the_flag_the_variable_and_the_demonstration(
    tmp_path: Path, arguments: list[str]
) -> None:
    # Mutation: print MissingModelError's own text, which is for programs.
    done = await run(*arguments, env=environment(), cwd=tmp_path, stdin=b"")
    assert (done.returncode, done.stdout) == (3, b"")
    said = done.stderr.decode()
    assert all(name in said for name in ("--model", "AGENT_SESSION_MODEL", "agent-session demo"))
    assert len(said.splitlines()) == 1
    assert SessionManager.list_all() == []


async def test_events_as_json_end_with_the_error_also_where_nothing_could_be_opened(tmp_path: Path) -> None:
    # Mutation: say on standard error alone that there is no model, or that a setting is wrong.
    wrong = {"AGENT_SESSION_MODEL": "openai/x", "AGENT_SESSION_RETRY__MAX_RETRIES": "-1"}
    for more, code, error in (({}, 3, "MissingModelError"), (wrong, 2, "SettingsError")):
        done = await run("run", "-p", "Well?", "--json", env=environment() | more, cwd=tmp_path)
        (line,) = done.stdout.splitlines()
        result = json.loads(line)
        assert (done.returncode, result["event"], result["exit_code"]) == (code, "result", code)
        assert result["error"]["type"] == error
        assert len(done.stderr.splitlines()) == 1


async def test_a_provider_that_nobody_knows_is_refused_once_with_what_to_do(tmp_path: Path) -> None:
    # Mutation: tell the failed attempt beside the failed run; or say what only a program can do.
    done = await run("run", "-p", "Well?", "--model", "nosuch/model", env=environment(), cwd=tmp_path)
    assert (done.returncode, done.stdout) == (3, b"")
    said = done.stderr.decode()
    assert said.count("no client for nosuch/model") == 1
    assert all(name in said for name in ("NOSUCH_BASE_URL", "--base-url", "--model", "agent-session demo"))
    assert "AgentSession(" not in said
    assert "refused" not in said


@pytest.mark.parametrize("arguments", [[], ["run", "-p", "Well?"]])
async def test_without_a_key_the_error_names_the_variable_the_flags_and_the_demonstration(
    tmp_path: Path, arguments: list[str]
) -> None:
    # Mutation: do not ask for the key before the session's file is made.
    done = await run(*arguments, "--model", "openai/gpt-5-mini", env=environment(), cwd=tmp_path, stdin=b"")
    assert (done.returncode, done.stdout) == (3, b"")
    said = done.stderr.decode()
    assert all(name in said for name in ("OPENAI_API_KEY", "--base-url", "--model", "agent-session demo"))
    assert len(said.splitlines()) == 1
    assert SessionManager.list_all() == []


async def test_at_a_terminal_too_what_cannot_work_is_said_before_the_first_line(tmp_path: Path) -> None:
    # Mutation: let what opening raises out of the task group as a group of exceptions.
    async with terminal(env=environment(), cwd=tmp_path) as person:
        assert await person.ends() == 3
    assert "no model: give --model" in person.text
    assert b"Traceback" not in person.bytes


# Mutations: take `k` for 1,024; take what is no number for one.
@pytest.mark.parametrize(
    ("text", "tokens"),
    [("128000", 128_000), ("128,000", 128_000), ("8k", 8_000), ("1.5M", 1_500_000), ("0.5K", 500)],
)
def test_a_window_is_written_as_people_write_it(text: str, tokens: int) -> None:
    assert options_of(parse(["--context-window", text])).context_window == tokens


@pytest.mark.parametrize("text", ["many", "0", "0k", "-5", "1e9", "k", "8kk", "9" * 400, "٣"])
def test_what_is_no_window_is_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse([f"--context-window={text}"])
    assert "is no number of tokens, as 128000 or 128k" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["run", "-p", "Well?", "--model", "gpt"], "model id 'gpt' is not `provider/name`"),
        (["run"], "nothing to say"),
        (["run", "fix", "it"], "agent-session run: error: the prompt goes after -p: agent-session run -p 'fix it'"),
        (["run", "-p", "Well?", "--context-window", "many"], "'many' is no number of tokens"),
        (["run", "-p", "Well?", "--base-url", "localhost:8000"], "'localhost:8000' does not begin with http://"),
        (["run", "-p", "Well?", "--resume", "nonsense"], "no session 'nonsense'; `agent-session sessions list --all`"),
        (["run", "-p", "Well?", "--extension", "nonsense_extension"], "nonsense_extension"),
        (["sessions", "show", "nonsense"], "no session 'nonsense'"),
        (["sessions", "show", "./nonsense.jsonl"], "no file ./nonsense.jsonl"),
        (["sessions", "show", "latest"], "no session 'latest'"),
        (["sessions", "frobnicate"], "invalid choice"),
        (["--frobnicate"], "there is no option --frobnicate\n"),
        (["--modle", "openai/x"], "there is no option --modle; did you mean --model?"),
        (["--resmue=x", "run", "-p", "Well?"], "there is no option --resmue; did you mean --resume?"),
        (["run", "--resume", "x", "--no-session"], "not allowed with"),
    ],
)
async def test_wrong_use_is_one_sentence_and_status_2(tmp_path: Path, arguments: list[str], says: str) -> None:
    # Mutations: count one of these errors as a failure of the model; in `parse` leave out `_refuse_unknown`.
    async with FakeProvider([always(reply("Well."))]) as provider:
        done = await run(*arguments, env=environment(provider), cwd=tmp_path)
    assert says in done.stderr.decode()
    assert b"Traceback" not in done.stderr
    assert (done.returncode, done.stdout) == (2, b"")


BROKEN = "def setup(api):\n    raise RuntimeError('not today')\n"


@pytest.mark.parametrize("arguments", [["run", "-p", "Well?"], ["run", "-p", "Well?", "--json"], []])
async def test_an_extension_that_is_asked_for_and_cannot_be_loaded_ends_it_before_anything_is_asked(
    tmp_path: Path, arguments: list[str]
) -> None:
    # Mutation: in `Host._begin` go on without it, as a session does.
    (tmp_path / "broken.py").write_text(BROKEN)
    async with FakeProvider([]) as provider:
        done = await run(
            *arguments, "--extension", "broken.py", env=environment(provider), cwd=tmp_path, stdin=b"Well?\n"
        )
        assert provider.requests == []
    assert done.returncode == 2
    assert done.stderr.count(b"not today") == 1
    assert b"Traceback" not in done.stderr
    assert SessionManager.list_all() == []


async def test_a_key_that_is_refused_is_no_reason_to_speak_of_servers_without_one(tmp_path: Path) -> None:
    # Mutation: add the hint whatever the provider has answered; or leave in what only a program can do.
    async with FakeProvider([fail(401, "Incorrect API key provided")]) as provider:
        done = await run("run", "-p", "Well?", env=environment(provider), cwd=tmp_path)
    assert done.returncode == 3
    said = done.stderr.decode()
    assert "Incorrect API key" in said
    assert not any(word in said for word in ("--base-url", "agent-session demo", "AgentSession("))


def test_each_of_the_two_programs_names_the_other() -> None:
    # Mutation: leave either sentence out.
    for module, other in (("agent_session.cli", "python -m agent_session "), ("agent_session", "`agent-session`")):
        command = [sys.executable, "-m", module, "--help"]
        shown = subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=60, env=environment()
        ).stdout
        assert other in shown


async def test_the_version_is_said(tmp_path: Path) -> None:
    # Mutation: say nothing for `--version`.
    done = await run("--version", env=environment(), cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, b"")
    assert re.fullmatch(rb"agent-session \d+\.\d+\.\d+\n", done.stdout)


async def test_a_wrong_setting_is_named_with_its_path(tmp_path: Path) -> None:
    # Mutation: give `Settings()` instead of `Settings.load(cwd)`; or do not say who set it.
    env = environment(AGENT_SESSION_MODEL="openai/x", AGENT_SESSION_COMPACTION__RESERVE_TOKENS="-5")
    done = await run("run", "-p", "Well?", env=env, cwd=tmp_path)
    assert done.returncode == 2
    assert b"setting compaction.reserve_tokens" in done.stderr
    assert b"(from AGENT_SESSION_COMPACTION__RESERVE_TOKENS)" in done.stderr
    file = tmp_path / ".agent-session" / "settings.json"
    file.parent.mkdir()
    file.write_text('{"compaction": {"reserve_tokens": -5}}')
    done = await run("run", "-p", "Well?", env=environment(AGENT_SESSION_MODEL="openai/x"), cwd=tmp_path)
    assert done.returncode == 2
    assert f"(from {file})" in done.stderr.decode()


async def test_an_unknown_setting_is_a_warning_in_one_line(tmp_path: Path) -> None:
    # Mutation: leave `warnings.showwarning` alone: it prints where in the program it was raised.
    home = Path(environment()["HOME"])
    (home / ".agent-session").mkdir()
    (home / ".agent-session" / "settings.json").write_text('{"frobnicate": 1}')
    async with FakeProvider([reply("Well.")]) as provider:
        env = environment(provider, PYTHONWARNINGS="default")
        done = await run("run", "-p", "Well?", env=env, cwd=tmp_path)
    assert done.stdout == b"Well.\n"
    said = done.stderr.decode()
    assert re.search(r"^agent-session: warning: unknown setting frobnicate in /\S+; known are: ", said, re.MULTILINE)
    assert "settings.py" not in said


async def test_a_session_that_is_in_use_says_by_whom(tmp_path: Path) -> None:
    # Mutation: print SessionLockedError's own text, which is for programs.
    async with FakeProvider([]) as provider:
        with SessionManager.create(tmp_path) as manager:
            done = await run("run", "-p", "Well?", "--resume", env=environment(provider), cwd=tmp_path)
            assert done.returncode == 1
            assert re.search(rb"in use by process \d+; close it there", done.stderr)
            assert manager.path is not None
            assert manager.path.exists()


async def test_a_log_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    # Mutation: print the error with its number.
    done = await run("sessions", "list", "--log-file", "none/a.log", env=environment(), cwd=tmp_path)
    assert (done.returncode, done.stderr) == (1, b"agent-session: none/a.log: No such file or directory\n")


def test_a_mistake_that_comes_out_of_a_group_of_tasks_is_one_sentence_too() -> None:
    # Mutation: explain what was raised and not what it holds.
    program = (
        "import sys\n"
        "import agent_session.cli.main as cli\n"
        "def broken(given): raise ExceptionGroup('tasks', [ExceptionGroup('more', [OSError('the disk is full')])])\n"
        "cli._obey = broken\n"
        "sys.exit(cli.main([]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, env=environment()
    )
    assert (done.returncode, done.stderr) == (1, "agent-session: the disk is full\n")


def test_a_folder_that_is_gone_is_said_in_words(tmp_path: Path) -> None:
    # Mutation: print the error with its number.
    gone = tmp_path / "gone"
    gone.mkdir()
    program = (
        "import os, sys; os.rmdir(os.getcwd())\n"
        "from agent_session.cli.main import main\n"
        "sys.exit(main(['run', '-p', 'x']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, env=environment(), cwd=gone
    )
    assert (done.returncode, done.stderr) == (1, "agent-session: the folder in which this was started is gone\n")


def test_the_readme_says_where_the_command_is() -> None:
    # Mutation: write the command without saying how it comes onto the path.
    assert re.search(r"`scripts/setup`[^`]*`\.venv/bin`", README)


def test_a_fault_of_the_program_itself_shows_its_traceback() -> None:
    # Mutation: explain every exception as if a user had caused it: a bug could not be reported.
    program = (
        "import agent_session.cli.main as cli\n"
        "def broken(given): raise TypeError('a bug')\n"
        "cli._obey = broken\n"
        "cli.main([])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, env=environment()
    )
    assert done.returncode == 1
    assert "Traceback" in done.stderr
