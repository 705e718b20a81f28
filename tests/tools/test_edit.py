"""The tool `edit`."""

from __future__ import annotations

import threading
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from agent_session.errors import ToolError
from agent_session.tools import ToolContext
from agent_session.tools.edit import EDIT
from agent_session.tools.write import WRITE
from tests.tools.calls import call, context_in, shown


async def test_the_passage_is_replaced_and_the_rest_stays(folder: Path, context: ToolContext):
    (folder / "a.py").write_text("one\ntwo\nthree\n")
    result = await call(EDIT, context, path="a.py", old_text="two\n", new_text="2\n2b\n")
    assert (folder / "a.py").read_text() == "one\n2\n2b\nthree\n"
    assert shown(result) == "Replaced the passage at line 2 of a.py"
    assert result.details["firstChangedLine"] == 2
    assert result.details["diff"] == "--- a/a.py\n+++ b/a.py\n@@ -1,3 +1,4 @@\n one\n-two\n+2\n+2b\n three\n"


async def test_the_field_names_of_other_programs_are_understood(folder: Path, context: ToolContext):
    (folder / "a.py").write_text("one\n")
    await call(EDIT, context, path="a.py", oldText="one", newText="1")
    assert (folder / "a.py").read_text() == "1\n"


# Mutation: `_changed` goes on with places[0] when there are several.
async def test_a_passage_that_is_there_more_than_once_is_refused_with_the_lines(folder: Path, context: ToolContext):
    text = "x = 1\ny = 2\nx = 1\n"
    (folder / "a.py").write_text(text)
    with pytest.raises(ToolError, match=r"a\.py: old_text is there more than once, at lines 1, 3; give more"):
        await call(EDIT, context, path="a.py", old_text="x = 1", new_text="x = 2")
    (folder / "b.py").write_text("x\n" * 50)
    with pytest.raises(ToolError, match=r"at lines 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and more;"):
        await call(EDIT, context, path="b.py", old_text="x", new_text="y")
    assert (folder / "a.py").read_text() == text


# Mutation: `_places` goes on at match.end().
async def test_places_that_overlap_count_as_two(folder: Path, context: ToolContext):
    (folder / "a.py").write_text("}\n}\n}\n")
    with pytest.raises(ToolError, match="more than once, at lines 1, 2"):
        await call(EDIT, context, path="a.py", old_text="}\n}\n", new_text="}\n")


async def test_a_passage_that_is_not_there_is_refused_with_what_resembles_it(folder: Path, context: ToolContext):
    (folder / "a.py").write_text("import os\n\ndef f():\n    return 1\n\ndef g():\n    return 2\n")
    with pytest.raises(ToolError, match=r"not in the file, but at line 3 is one that differs in white space only"):
        await call(EDIT, context, path="a.py", old_text="def f():\n\treturn 1", new_text="x")
    with pytest.raises(ToolError, match=r"not in the file, though its first line is at line 6"):
        await call(EDIT, context, path="a.py", old_text="def g():\n    return 3", new_text="x")
    with pytest.raises(ToolError, match=r"a\.py: old_text is not in the file; read the file again"):
        await call(EDIT, context, path="a.py", old_text="nowhere", new_text="x")


@pytest.mark.parametrize(("old", "new", "why"), [("", "x", "old_text is empty"), ("a", "a", "are the same")])
async def test_an_edit_that_says_nothing_is_refused(folder: Path, context: ToolContext, old: str, new: str, why: str):
    (folder / "a.py").write_text("a")
    with pytest.raises(ToolError, match=why):
        await call(EDIT, context, path="a.py", old_text=old, new_text=new)


async def test_a_missing_file_names_what_comes_near(folder: Path, context: ToolContext):
    (folder / "parser.py").touch()
    with pytest.raises(ToolError, match=r"^parsr\.py: no such file\. Near it: parser\.py"):
        await call(EDIT, context, path="parsr.py", old_text="a", new_text="b")


# Mutation: `_changed` without `_has_carriage_returns`.
async def test_carriage_returns_and_byte_order_mark_are_kept(folder: Path, context: ToolContext):
    (folder / "a.txt").write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\nthree\r\n")
    await call(EDIT, context, path="a.txt", old_text="one\ntwo", new_text="1\n1b\n2")
    assert (folder / "a.txt").read_bytes() == b"\xef\xbb\xbf1\r\n1b\r\n2\r\nthree\r\n"
    await call(EDIT, context, path="a.txt", old_text="three", new_text="3\n4")
    assert (folder / "a.txt").read_bytes() == b"\xef\xbb\xbf1\r\n1b\r\n2\r\n3\r\n4\r\n"


# Mutation: `_normalised` without removeprefix: the mark in old_text is then replaced with it.
async def test_a_byte_order_mark_in_the_passage_is_not_taken_away(folder: Path, context: ToolContext):
    (folder / "a.txt").write_bytes(b"\xef\xbb\xbfone\n")
    await call(EDIT, context, path="a.txt", old_text="\ufeffone", new_text="1")
    assert (folder / "a.txt").read_bytes() == b"\xef\xbb\xbf1\n"


# Mutation: the file is normalised as a whole before the replacement.
async def test_other_line_ends_and_other_encodings_of_the_file_stay_as_they_are(folder: Path, context: ToolContext):
    (folder / "a.txt").write_bytes(b"caf\xe9\r\nunix\nmac\rtarget\n\xff\xfe\r\n")
    await call(EDIT, context, path="a.txt", old_text="target\n", new_text="é\n")
    assert (folder / "a.txt").read_bytes() == b"caf\xe9\r\nunix\nmac\r\xc3\xa9\n\xff\xfe\r\n"


async def test_carriage_returns_given_by_the_model_do_not_reach_a_file_without_them(folder: Path, context: ToolContext):
    (folder / "a.txt").write_bytes(b"one\ntwo\n")
    await call(EDIT, context, path="a.txt", old_text="one\r\ntwo\r\n", new_text="1\r\n2\r\n")
    assert (folder / "a.txt").read_bytes() == b"1\n2\n"


# Mutation: `_shifted` without `+ skipped`.
@pytest.mark.parametrize("end", ["\n", ""])
async def test_the_diff_in_the_details_is_one_that_patch_applies(folder: Path, context: ToolContext, end: str):
    before = "\n".join(f"line {number}" for number in range(1, 101)) + end
    (folder / "a.txt").write_text(before)
    (folder / "copy.txt").write_text(before)
    for number in (1, 50, 100):
        result = await call(
            EDIT,
            context,
            path="a.txt",
            old_text=f"line {number}" + "\n" * (number == 1),
            new_text=f"number {number}\n!\n",
        )
        diff = result.details["diff"]
        assert len(diff.splitlines()) < 15
        applied = await anyio.run_process(["patch", str(folder / "copy.txt")], input=diff.encode())
        assert b"offset" not in applied.stdout
        assert (folder / "copy.txt").read_bytes() == (folder / "a.txt").read_bytes()


# Mutation: `_edit` without `locked`.
async def test_parallel_edits_of_one_file_do_not_undo_one_another(folder: Path, context: ToolContext):
    names = [f"name{number:02}" for number in range(60)]
    (folder / "a.txt").write_text("\n".join(names) + "\n" + "filler\n" * 200_000)
    (folder / "link.txt").symlink_to("a.txt")

    async def edit(path: str, name: str) -> None:
        await call(EDIT, context, path=path, old_text=name, new_text=f"<{name}>")

    async with anyio.create_task_group() as group:
        for number, name in enumerate(names):
            path = "link.txt" if number % 2 else "./a.txt"
            group.start_soon(edit, path, name)
    assert (folder / "a.txt").read_text().split("\n")[:60] == [f"<{name}>" for name in names]


# Mutation: `_edit` without `locked`; a lock that belongs to one event loop would be none here.
def test_sessions_in_several_event_loops_do_not_undo_one_anothers_edits(folder: Path):
    names = [f"name{number:02}" for number in range(20)]
    (folder / "a.txt").write_text("\n".join(names) + "\n" + "filler\n" * 200_000)

    def session(name: str) -> None:
        async def edit() -> None:
            await call(EDIT, context_in(folder), path="a.txt", old_text=name, new_text=f"<{name}>")

        anyio.run(edit)

    threads = [threading.Thread(target=session, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(5)
    assert (folder / "a.txt").read_text().split("\n")[:20] == [f"<{name}>" for name in names]


async def test_a_cancelled_edit_is_done_or_not_done(folder: Path, context: ToolContext):
    (folder / "a.txt").write_text("old\n" + "filler\n" * 500_000)
    async with anyio.create_task_group() as group:
        group.start_soon(lambda: call(EDIT, context, path="a.txt", old_text="old", new_text="new"))
        await anyio.lowlevel.checkpoint()
        group.cancel_scope.cancel()
    assert (await anyio.Path(folder / "a.txt").read_text())[3:] == "\n" + "filler\n" * 500_000
    assert [item.name async for item in anyio.Path(folder).iterdir()] == ["a.txt"]
    await call(WRITE, context, path="a.txt", content="the lock is free")


async def test_the_mode_is_kept(folder: Path, context: ToolContext):
    (folder / "run.sh").write_text("echo a")
    (folder / "run.sh").chmod(0o755)
    await call(EDIT, context, path="run.sh", old_text="a", new_text="b")  # "a" is not in "echo"
    assert (folder / "run.sh").stat().st_mode & 0o777 == 0o755


async def test_a_passage_in_a_large_file_is_found_quickly(folder: Path, context: ToolContext):
    (folder / "a.txt").write_bytes(b"line of text\r\n" * 900_000 + b"\r\nneedle\r\n")
    await call(EDIT, context, path="a.txt", old_text="\nneedle\n", new_text="\nfound\n")
    assert (folder / "a.txt").read_bytes().endswith(b"text\r\n\r\nfound\r\n")
