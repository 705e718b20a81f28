"""The ground under every test: `conftest.py` does what it says."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from blockbuster import BlockingError

from agent_session import AgentSession, SessionManager, Settings
from agent_session.testing import ScriptedModel, reply


@pytest.fixture(scope="module", autouse=True)
def machine_with_keys() -> Iterator[None]:
    """A machine whose user has keys, an address of their own and a proxy; made before the environment of a test is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENAI_API_KEY", "of the user")
        patch.setenv("ANTHROPIC_BASE_URL", "https://own.example")
        patch.setenv("https_proxy", "http://proxy.example")
        patch.setenv("AGENT_SESSION_MODEL", "own/model")
        yield


def project_with_settings(folder: Path) -> Path:
    """A folder whose settings have to be read from the disk."""
    (folder / ".agent-session").mkdir()
    (folder / ".agent-session" / "settings.json").write_text("{}", encoding="utf-8")
    return folder


async def test_a_blocking_call_of_the_runtime_on_the_event_loop_fails_the_test(tmp_path: Path) -> None:
    # Mutation: do not activate the watch in conftest.py.
    with pytest.raises(BlockingError):
        Settings.load(project_with_settings(tmp_path))


@pytest.mark.allow_blocking
async def test_a_test_may_ask_to_be_left_alone(tmp_path: Path) -> None:
    # Mutation: ignore the marker in conftest.py.
    assert Settings.load(project_with_settings(tmp_path)) == Settings()


async def test_the_log_may_write_on_the_event_loop(tmp_path: Path) -> None:
    # Mutation: do not except session_store in conftest.py.
    manager = SessionManager.create(tmp_path, session_dir=tmp_path / "sessions")
    async with (
        ScriptedModel([reply("Done.")]) as client,
        AgentSession(client.model, client=client, session_manager=manager) as session,
    ):
        await session.prompt("Go.")
    assert manager.path is not None
    assert "Done." in manager.path.read_text(encoding="utf-8")


async def test_what_a_test_itself_does_on_the_event_loop_is_its_own_affair(tmp_path: Path) -> None:
    # Mutation: watch every module instead of agent_session.
    (tmp_path / "file").write_text("text", encoding="utf-8")
    assert os.listdir(tmp_path) == ["file"]  # noqa: PTH208 - a call that the watch knows


def test_no_test_sees_the_home_the_sessions_or_the_keys_of_the_machine(
    isolated_environment: Path, machine_environment: Mapping[str, str]
) -> None:
    # Mutation: leave one of the replacements out of conftest.py.
    assert Path.home() == isolated_environment != Path(machine_environment["HOME"])
    assert Path(os.environ["AGENT_SESSION_DIR"]).is_relative_to(isolated_environment)
    assert [name for name in os.environ if re.search("_API_KEY|_BASE_URL|_PROXY", name, re.IGNORECASE)] == []
    assert "AGENT_SESSION_MODEL" not in os.environ
