"""The tool `ls`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agent_session.errors import ToolError
from agent_session.tools import ToolContext
from agent_session.tools.ls import LS
from agent_session.tools.read import READ
from tests.tools.calls import call, open_descriptors, shown


async def test_names_come_in_order_folders_with_a_slash_and_links_with_their_target(folder: Path, context: ToolContext):
    # Mutation: list in the system's order; or follow the link and show a folder.
    for name in ("z.txt", ".hidden", "B", *(f"{number:02}" for number in range(30))):
        (folder / name).touch()
    (folder / "src").mkdir()
    (folder / "link").symlink_to("src")
    (folder / "dangling").symlink_to("/nowhere/at all")
    assert shown(await call(LS, context)).split("\n") == [
        ".hidden", *(f"{number:02}" for number in range(30)), "B", "dangling -> /nowhere/at all", "link -> src", "src/",
        "z.txt",
    ]  # fmt: skip


async def test_a_folder_may_be_named(folder: Path, context: ToolContext):
    (folder / "src").mkdir()
    (folder / "src" / "a.py").touch()
    assert shown(await call(LS, context, path="src")) == "a.py"
    assert shown(await call(LS, context, path="./src/")) == "a.py"


async def test_an_empty_folder_says_so(folder: Path, context: ToolContext):
    assert shown(await call(LS, context)) == "(the folder is empty)"


async def test_names_that_could_be_taken_for_lines_are_written_out(folder: Path, context: ToolContext):
    # Mutation: show names as they are.
    (folder / "a\nb").touch()
    os.close(os.open(os.fsencode(folder) + b"/caf\xe9", os.O_CREAT))
    assert shown(await call(LS, context)) == "a\\nb\ncaf\\udce9"


async def test_at_the_limit_it_says_how_many_there_are(folder: Path, context: ToolContext):
    # Mutation: leave the note out.
    for name in "abc":
        (folder / name).touch()
    result = await call(LS, context, limit=2)
    assert shown(result) == "a\nb\n[2 of 3 names; raise limit to see more]"
    assert result.details["limitReached"]
    assert shown(await call(LS, context, limit=3)) == "a\nb\nc"


async def test_more_than_can_be_shown_is_cut_and_all_of_it_can_be_read(folder: Path, context: ToolContext):
    # Mutation: give the names without `bound`.
    for number in range(2_100):
        (folder / f"{number:04}").touch()
    result = await call(LS, context, limit=3_000)
    assert "lines 1-2,000 of 2,100" in shown(result)
    assert shown(await call(READ, context, path=result.details["fullOutputPath"], offset=2_100)) == "2099"


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("a.py", r"a\.py: is a file, not a folder"),
        ("sr", "sr: no such file. Near it: src"),
        ("..", "outside of the working folder"),
        ("out", "outside of the working folder"),
        (" ", "the path is empty"),
    ],
)
async def test_what_is_no_folder_of_the_project_is_refused(folder: Path, context: ToolContext, path: str, why: str):
    # Mutation: list a path without `resolve`.
    (folder / "a.py").touch()
    (folder / "src").mkdir()
    (folder / "out").symlink_to(folder.parent)
    before = open_descriptors()
    with pytest.raises(ToolError, match=why):
        await call(LS, context, path=path)
    assert open_descriptors() <= before
