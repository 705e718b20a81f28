"""What an interpreter that exits owes to a session that nobody closed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from session_store import SessionManager

ROOT = Path(__file__).parent.parent.parent
BEGIN = """
import resource, sys
from agent_session import SyncSession
from agent_session.testing import ScriptedModel, hang, reply

model = ScriptedModel([reply("Hello."), hang(after=1)])
session = SyncSession(model.model, client=model, tools=())
session.prompt("Hi.")
"""


def left(program: str, folder: Path) -> tuple[int, str]:
    """Status and standard error of a program that begins with a session and then does this."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", BEGIN + program],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT), "AGENT_SESSION_DIR": str(folder / "sessions")},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    return done.returncode, done.stderr


def test_the_session_is_told_that_it_ends(tmp_path: Path) -> None:
    # Mutation: let the daemon thread die with the interpreter, without closing the session.
    assert left("session.on('session_shutdown', lambda event: print('told', file=sys.stderr))", tmp_path) == (
        0,
        "told\n",
    )


def test_a_program_that_fails_fails_as_it_would_without_a_session(tmp_path: Path) -> None:
    # Mutation: let closing at exit raise.
    status, errors = left("session.follow_up('More.'); sys.exit(4)", tmp_path)
    assert (status, errors) == (4, "")


def test_entries_that_could_not_be_written_are_told_of_in_one_line(tmp_path: Path) -> None:
    # Mutation: swallow every error at exit.
    program = """
size = session.path.stat().st_size
resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
session.set_name("a name that finds no room")
"""
    status, errors = left(program, tmp_path)
    assert status == 0
    assert errors.startswith("agent_session: ")
    assert "could not be written" in errors
    assert len(errors.splitlines()) == 1
    [info] = SessionManager.list(tmp_path, session_dir=tmp_path / "sessions")
    with SessionManager.open(info.path) as manager:
        assert len(manager.build_messages()) == 2
