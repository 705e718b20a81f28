"""`agent-session sessions`: lists and shows, and changes nothing."""

from __future__ import annotations

import json
import re
from pathlib import Path

from agent_session import SessionManager
from agent_session.testing import FakeProvider, calls, reply
from tests.cli.terminals import environment, run


async def made(tmp_path: Path) -> Path:
    """A session with a tool call in it."""
    (tmp_path / "notes.txt").write_text("one\n")
    script = [calls([("read", {"path": "notes.txt"})], text="I look."), reply("It says one.", usage=(90, 0, 0, 10))]
    async with FakeProvider(script) as provider:
        await run("run", "-p", "What do the notes say?", env=environment(provider), cwd=tmp_path)
    (info,) = SessionManager.list(tmp_path)
    return info.path


async def test_list_has_a_row_for_each_session_of_this_folder_or_of_all(tmp_path: Path) -> None:
    # Mutation: list all folders always; or no other ever.
    path = await made(tmp_path)
    other = tmp_path / "other"
    other.mkdir()
    here = (await run("sessions", "list", env=environment(), cwd=tmp_path)).stdout.decode()
    assert path.stem.rpartition("_")[2][:8] in here
    assert "What do the notes say?" in here
    nothing = await run("sessions", "list", env=environment(), cwd=other)
    assert (nothing.returncode, nothing.stdout) == (
        0,
        b"no sessions of this folder yet; --all lists those of all folders\n",
    )
    everywhere = (await run("sessions", "list", "--all", env=environment(), cwd=other)).stdout.decode()
    assert "What do the notes say?" in everywhere
    assert everywhere.isascii()


async def test_list_as_json_has_one_object_a_line(tmp_path: Path) -> None:
    # Mutation: print the table with --json.
    path = await made(tmp_path)
    done = await run("sessions", "list", "--json", env=environment(), cwd=tmp_path)
    (row,) = [json.loads(line) for line in done.stdout.splitlines()]
    assert (row["path"], row["message_count"], row["damaged"]) == (str(path), 4, None)


async def test_show_tells_what_was_said_and_leaves_the_file_alone(tmp_path: Path) -> None:
    # Mutation: open the session for writing.
    path = await made(tmp_path)
    before = path.read_bytes()
    with SessionManager.open(path):  # in use by somebody: reading needs no lock
        done = await run("sessions", "show", "latest", env=environment(), cwd=tmp_path)
    output = done.stdout.decode()
    lines = ["user       What do", "assistant  I look.", "  read     path='notes.txt'", "assistant  It says one."]
    positions = [output.index(line) for line in lines]
    assert positions == sorted(positions)
    assert "spent      100 tokens" in output
    assert path.read_bytes() == before


async def test_show_says_which_line_is_damaged(tmp_path: Path) -> None:
    # Mutation: leave `manager.damage` out, or the number of the line.
    path = await made(tmp_path)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:2], b"no entry\n", *lines[2:]]))
    output = (await run("sessions", "show", "latest", env=environment(), cwd=tmp_path)).stdout.decode()
    assert re.search(r"^damage     line 3: not a JSON object", output, re.MULTILINE)
    assert "assistant  It says one." in output


async def test_show_as_json_gives_the_lines_of_the_branch(tmp_path: Path) -> None:
    # Mutation: print Python's names of the fields.
    path = await made(tmp_path)
    done = await run("sessions", "show", path.stem.rpartition("_")[2][:8], "--json", env=environment(), cwd=tmp_path)
    assert done.stdout.splitlines() == path.read_bytes().splitlines()[1:]
