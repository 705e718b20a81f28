"""`python -m agent_session` without a terminal: what is piped in, mistakes, exit statuses."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import anyio
import pytest

from agent_session.testing import FakeProvider, reply
from tests.cli.terminals import environment

COMMAND = [sys.executable, "-m", "agent_session"]


async def piped(text: str, *arguments: str, folder: Path, env: Mapping[str, str]) -> subprocess.CompletedProcess[bytes]:
    with anyio.fail_after(30):
        return await anyio.run_process(
            [*COMMAND, *arguments], input=text.encode(), cwd=folder, env=dict(env), check=False
        )


async def test_what_is_piped_in_is_run_without_a_prompt(tmp_path: Path) -> None:
    # Mutation: show the prompt or the banner without a terminal, or forget the last statement, which no newline ends.
    async with FakeProvider([reply("Hello.")]) as provider:
        done = await piped(
            "for number in range(2):\n    print(number)\n\nmessage = await session.prompt(\n'Hi.')\nprint(message)",
            folder=tmp_path,
            env=environment(provider),
        )
    assert (done.returncode, done.stdout.decode(), done.stderr.decode()) == (0, "0\n1\nHello.\n", "")


@pytest.mark.parametrize("arguments", [["openai/given"], ["--model", "openai/given"]])
async def test_the_model_is_named_with_or_without_its_option(tmp_path: Path, arguments: list[str]) -> None:
    # Mutation: in `main` look at one of the two alone.
    done = await piped("print(session.model.id)", *arguments, "--no-session", folder=tmp_path, env=environment())
    assert (done.stdout.decode(), done.stderr.decode()) == ("openai/given\n", "")


async def test_the_status_is_what_exit_was_given(tmp_path: Path) -> None:
    # Mutation: end with 0 whatever the program said.
    env = environment(AGENT_SESSION_MODEL="openai/scripted")
    assert (await piped("exit(3)", "--no-session", folder=tmp_path, env=env)).returncode == 3
    done = await piped("raise SystemExit('not like this')", "--no-session", folder=tmp_path, env=env)
    assert (done.returncode, done.stderr.decode()) == (1, "not like this\n")


@pytest.mark.parametrize(
    ("arguments", "variables", "said"),
    [
        ([], {}, "AGENT_SESSION_MODEL"),
        (["nonsense"], {}, "`provider/name`"),
        ([], {"AGENT_SESSION_MODEL": "nonsense"}, "`provider/name`"),
        (["openai/x", "--resume", "nowhere"], {}, "nowhere"),
        (["openai/x", "--model", "openai/y"], {}, "not allowed with"),
        (["openai/x", "--resume", "latest", "--no-session"], {}, "not allowed with"),
    ],
)
async def test_a_mistake_is_one_line_that_says_what_to_do(
    arguments: list[str], variables: dict[str, str], said: str, tmp_path: Path
) -> None:
    # Mutation: let MissingModelError, ValueError or SessionNotFoundError out of `main`.
    done = await piped("", *arguments, folder=tmp_path, env={**environment(), **variables})
    errors = done.stderr.decode()
    assert (done.returncode, done.stdout) == (2, b"")
    assert said in errors
    assert "Traceback" not in errors
    assert len([line for line in errors.splitlines() if not line.startswith(("usage", " "))]) == 1


async def test_a_missing_key_is_said_by_the_name_of_its_variable(tmp_path: Path) -> None:
    # Mutation: show errors that are raised on purpose with a traceback.
    done = await piped("await session.prompt('Hi.')", "openai/x", "--no-session", folder=tmp_path, env=environment())
    assert "OPENAI_API_KEY" in done.stderr.decode()
    assert "Traceback" not in done.stderr.decode()
    assert len(done.stderr.decode().splitlines()) == 1


async def test_a_session_is_gone_on_with(tmp_path: Path) -> None:
    # Mutation: ignore `--resume`.
    async with FakeProvider([reply("Hello.")]) as provider:
        env = environment(provider)
        await piped("message = await session.prompt('Hi.')", folder=tmp_path, env=env)
        done = await piped("len(session.messages)", "--resume", "latest", folder=tmp_path, env=env)
        assert done.stdout == b"2\n"
        done = await piped("len(session.messages), session.path", "--no-session", folder=tmp_path, env=env)
        assert done.stdout == b"(0, None)\n"
