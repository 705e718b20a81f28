"""The tool `write`, and what it shares with `edit`: replacing a file whole."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from agent_session.errors import ToolError
from agent_session.tools import ToolContext
from agent_session.tools.files import replace
from agent_session.tools.write import WRITE
from tests.tools.calls import call, shown


async def test_a_new_file_is_made_with_its_folders(folder: Path, context: ToolContext):
    result = await call(WRITE, context, path="a/b/c.txt", content="één\r\n")
    assert (folder / "a/b/c.txt").read_bytes() == "één\r\n".encode()
    assert shown(result) == "Created a/b/c.txt: 7 bytes"
    assert result.details == {"bytes": 7, "created": True}


async def test_a_new_file_has_the_mode_that_the_umask_leaves(folder: Path, context: ToolContext):
    before = os.umask(0o027)
    try:
        await call(WRITE, context, path="a.txt", content="")
    finally:
        os.umask(before)
    assert stat.S_IMODE((folder / "a.txt").stat().st_mode) == 0o640


# Mutation: `replace` without fchmod.
async def test_a_file_that_is_replaced_keeps_its_mode(folder: Path, context: ToolContext):
    script = folder / "run.sh"
    script.write_text("old")
    script.chmod(0o751)
    result = await call(WRITE, context, path="run.sh", content="new")
    assert script.read_text() == "new"
    assert stat.S_IMODE(script.stat().st_mode) == 0o751
    assert shown(result) == "Replaced run.sh: 3 bytes"


async def test_a_symlink_stays_one_and_its_target_is_written(folder: Path, context: ToolContext):
    (folder / "real.txt").write_text("old")
    (folder / "link.txt").symlink_to("real.txt")
    await call(WRITE, context, path="link.txt", content="new")
    assert (folder / "link.txt").is_symlink()
    assert (folder / "real.txt").read_text() == "new"


@pytest.mark.parametrize("path", ["../outside.txt", "link/new.txt", "/tmp/outside.txt"])
async def test_nothing_is_written_outside_of_the_folder(folder: Path, context: ToolContext, path: str):
    outside = folder.parent / "outside"
    outside.mkdir()
    (folder / "link").symlink_to(outside)
    with pytest.raises(ToolError, match="outside"):
        await call(WRITE, context, path=path, content="x")
    assert list(outside.iterdir()) == []


# Mutation: `_write` allows `context.blobs.folder` like `read`.
async def test_stored_output_cannot_be_overwritten(context: ToolContext):
    blob = context.blobs.put("full text")
    with pytest.raises(ToolError, match="outside"):
        await call(WRITE, context, path=str(blob), content="x")
    assert blob.read_text() == "full text"


# Mutation: `_writable` without its check of S_IWUSR.
async def test_a_read_only_file_is_refused(folder: Path, context: ToolContext):
    (folder / "a.txt").write_text("old")
    (folder / "a.txt").chmod(0o444)
    with pytest.raises(ToolError, match=r"a\.txt: read-only \(mode 0444\)"):
        await call(WRITE, context, path="a.txt", content="new")
    assert (folder / "a.txt").read_text() == "old"


async def test_a_folder_a_pipe_and_a_file_in_the_way_are_refused(folder: Path, context: ToolContext):
    (folder / "src").mkdir()
    os.mkfifo(folder / "pipe")
    (folder / "file").touch()
    with pytest.raises(ToolError, match="src: is a folder"):
        await call(WRITE, context, path="src", content="x")
    with pytest.raises(ToolError, match="pipe: is a pipe"):
        await call(WRITE, context, path="pipe", content="x")
    with pytest.raises(ToolError, match="file/new: Not a directory"):
        await call(WRITE, context, path="file/new", content="x")


# Mutation: `replace` without its `except BaseException`.
def test_a_write_that_fails_leaves_the_old_file_and_no_fragment(folder: Path, monkeypatch: pytest.MonkeyPatch):
    def full(descriptor: int, mode: int) -> None:
        raise OSError(28, "No space left on device")

    path = folder / "a.txt"
    path.write_text("old")
    monkeypatch.setattr(os, "fchmod", full)  # the system's fault, at the last step before the replacement
    with pytest.raises(OSError, match="No space left"):
        replace(path, b"new")
    assert [item.name for item in folder.iterdir()] == ["a.txt"]
    assert path.read_text() == "old"


async def test_lone_surrogates_are_written_as_replacement_characters(folder: Path, context: ToolContext):
    await call(WRITE, context, path="a.txt", content="ok \ud83d and \ud83d\ude00")
    assert (folder / "a.txt").read_text() == "ok \ufffd and 😀"
