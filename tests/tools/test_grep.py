"""The tool `grep`, and the process that searches."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from agent_session.errors import ToolError
from agent_session.events import ToolExecutionStart
from agent_session.search.answering import MAX_FILE_BYTES
from agent_session.search.lines import CHUNK_BYTES, SHOWN_CHARACTERS
from agent_session.search.requests import GrepRequest
from agent_session.testing import call as calls
from agent_session.testing import reply
from agent_session.tools import ToolContext
from agent_session.tools.grep import GREP
from agent_session.tools.read import READ
from agent_session.tools.searching import _command, search
from session_store.messages import ToolResultMessage
from tests.session.scene import results, scene
from tests.tools.calls import call, is_running, open_descriptors, shown

ENDLESS = "(a+)+$"
"""An expression that takes years on `BAIT`, and does not let go of Python's lock."""

BAIT = "a" * 60 + "b\n"


def write(folder: Path, files: Mapping[str, str | bytes]) -> None:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)


async def grep(context: ToolContext, /, pattern: str, **arguments: Any) -> list[str]:
    return shown(await call(GREP, context, pattern=pattern, **arguments)).split("\n")


def request(folder: Path, pattern: str) -> GrepRequest:
    return GrepRequest(root=str(folder), start=str(folder), pattern=pattern, limit=10)


# What is found -------------------------------------------------------------------------------------


async def test_matches_come_with_path_and_line_in_the_order_of_names(folder: Path, context: ToolContext):
    # Mutation: walk the folders in the order the system lists them (drop `sorted` in `Walk._listed`).
    names = ["z.py", "b/c.py", "a.py", "b/a/x.py", "B.py", *(f"many/{number:02}.py" for number in range(30))]
    write(folder, dict.fromkeys(reversed(names), "one\ndef parse():\n"))
    found = await grep(context, "def p")
    assert found == [f"{name}:2: def parse():" for name in sorted(names, key=lambda name: name.split("/"))]


async def test_the_pattern_is_an_expression_matched_line_by_line(folder: Path, context: ToolContext):
    # Mutation: match the whole text at once (`^` and `$` then mean its ends).
    write(folder, {"a.txt": "first 12\nsecond 34 \n56 third\r\nno number\n"})
    assert await grep(context, r"^\d+|\d+$") == ["a.txt:1: first 12", "a.txt:3: 56 third"]
    assert await grep(context, r"third$") == ["a.txt:3: 56 third"]


async def test_case_and_special_characters_count_unless_said_otherwise(folder: Path, context: ToolContext):
    # Mutation: drop `re.escape`, or `re.IGNORECASE`; or look for the plain text before the lines whatever the case.
    write(folder, {"a.txt": "f(x)\nF(X)\nfx\n"})
    assert await grep(context, "f(x)") == ["a.txt:3: fx"]
    assert await grep(context, "f(x)", literal=True) == ["a.txt:1: f(x)"]
    assert await grep(context, "f(x)", literal=True, ignore_case=True) == ["a.txt:1: f(x)", "a.txt:2: F(X)"]
    assert await grep(context, "FX", ignore_case=True) == ["a.txt:3: fx"]


async def test_lines_around_a_match_are_shown_once_and_gaps_are_marked(folder: Path, context: ToolContext):
    # Mutation: show a line again that the match before has shown; or mark the gap between neighbours.
    write(folder, {"a.txt": "hit\n2\nhit\n4\n5\n6\n7\nhit\n", "b.txt": "1\n2\nhit"})
    assert await grep(context, "hit", context=1) == [
        "a.txt:1: hit",
        "a.txt-2- 2",
        "a.txt:3: hit",
        "a.txt-4- 4",
        "--",
        "a.txt-7- 7",
        "a.txt:8: hit",
        "--",
        "b.txt-2- 2",
        "b.txt:3: hit",
    ]
    assert "--" not in await grep(context, "hit", context=2, path="a.txt")


@pytest.mark.parametrize("lines_before_the_border", [0, 1, 2, 3, 4])
async def test_lines_around_a_match_are_shown_across_the_blocks_of_a_large_file(
    folder: Path, context: ToolContext, lines_before_the_border: int
):
    # Mutation: drop `carried` in `look_into`; or show the lines after a match in its own block only.
    around = [b"1\n", b"2\n", b"HIT\n", b"4\n", b"5\n"]
    before = b"".join(around[:lines_before_the_border])
    filling = b"x" * (CHUNK_BYTES - len(before) - 2) + b"\n\n"
    write(folder, {"a.txt": filling + b"".join(around) + filling})
    assert await grep(context, "HIT", path="a.txt", context=2) == [
        "a.txt-3- 1", "a.txt-4- 2", "a.txt:5: HIT", "a.txt-6- 4", "a.txt-7- 5",
    ]  # fmt: skip


async def test_of_a_long_line_the_part_around_the_match_is_shown(folder: Path, context: ToolContext):
    # Mutation: show the line's start instead.
    write(folder, {"a.min.js": "x" * 100_000 + "needle" + "y" * 100_000})
    (line,) = await grep(context, "needle")
    assert "xneedley" in line
    assert line.startswith("a.min.js:1: …x")
    assert line.endswith("y…")
    assert len(line) < SHOWN_CHARACTERS + 30


async def test_a_file_may_be_named_and_so_may_the_full_text_of_cut_output(folder: Path, context: ToolContext):
    # Mutation: `resolve` without `roots`.
    write(folder, {"src/a.py": "hit\n", "src/b.py": "hit\n"})
    assert await grep(context, "hit", path="src/b.py") == ["src/b.py:1: hit"]
    blob = context.blobs.put("one\nhit\n")
    assert await grep(context, "hit", path=str(blob)) == [f"{blob}:2: hit"]


async def test_a_glob_chooses_among_the_files_below_the_path(folder: Path, context: ToolContext):
    # Mutation: match the glob against the path from the working folder.
    write(folder, dict.fromkeys(["src/a.py", "src/a.ts", "src/lib/b.ts", "src/lib/c.tsx", "d.ts"], "hit\n"))
    assert await grep(context, "hit", path="src", glob="*.{ts,tsx}") == [
        "src/a.ts:1: hit", "src/lib/b.ts:1: hit", "src/lib/c.tsx:1: hit",
    ]  # fmt: skip
    assert await grep(context, "hit", path="src", glob="lib/*.ts") == ["src/lib/b.ts:1: hit"]
    assert await grep(context, "hit", path="src", glob="lib/") == ["src/lib/b.ts:1: hit", "src/lib/c.tsx:1: hit"]
    assert await grep(context, "hit", glob="!*.ts*") == ["src/a.py:1: hit"]


# What is left out ----------------------------------------------------------------------------------


async def test_what_git_ignores_is_left_out_unless_it_is_named(folder: Path, context: ToolContext):
    # Mutation: in `rules_in` keep the rules above a folder that they ignore.
    write(
        folder,
        dict.fromkeys(["build/out.js", "node_modules/x/i.js", "node_modules/x/skip.log", "a.js"], "hit\n")
        | {".gitignore": "node_modules/\n/build\n", "node_modules/x/.gitignore": "*.log\n"},
    )
    assert await grep(context, "hit") == ["a.js:1: hit"]
    assert await grep(context, "hit", path="node_modules") == ["node_modules/x/i.js:1: hit"]
    assert await grep(context, "hit", path="build") == ["build/out.js:1: hit"]
    assert await grep(context, "hit", path="build/out.js") == ["build/out.js:1: hit"]


async def test_where_nothing_is_found_it_says_in_how_much_and_what_was_left_out(folder: Path, context: ToolContext):
    # Mutation: leave the note of ignored files out.
    write(folder, {"a.py": "x\n", "b.py": "x\n", "dist/c.py": "hit\n", ".gitignore": "dist\n"})
    assert await grep(context, "hit") == [
        "[no match in 3 files]",
        "[left out 1 files and folders that git ignores; name one as path to search it]",
    ]
    assert await grep(context, "hit", path="a.py") == ["[no match in 1 file]"]


async def test_binary_files_are_passed_over_and_refused_where_named(folder: Path, context: ToolContext):
    # Mutation: drop the check for null bytes.
    write(folder, {"a.bin": b"hit\n\0", "b.txt": "hit\n"})
    assert await grep(context, "hit") == ["b.txt:1: hit"]
    with pytest.raises(ToolError, match=r"^a\.bin: a binary file"):
        await grep(context, "hit", path="a.bin")


async def test_very_large_files_are_left_out_by_name_and_searched_where_named(folder: Path, context: ToolContext):
    # Mutation: drop the check of the size; or apply it to a file that was named.
    write(folder, {"big.log": b"x" * MAX_FILE_BYTES + b"\nhit\n", "b.txt": "hit\n"})
    assert await grep(context, "hit") == [
        "b.txt:1: hit",
        "[left out for their size: big.log; name one as path to search it]",
    ]
    assert await grep(context, "hit", path="big.log") == ["big.log:2: hit"]


async def test_bytes_that_are_no_utf8_hide_no_line(folder: Path, context: ToolContext):
    # Mutation: decode strictly.
    write(folder, {"a.txt": b"\xef\xbb\xbfhit\ncaf\xe9 hit\n"})
    assert await grep(context, "^hit|caf.") == ["a.txt:1: hit", "a.txt:2: caf\ufffd hit"]


async def test_a_line_without_an_end_does_not_fill_the_memory(folder: Path, context: ToolContext):
    # Mutation: in `_blocks` collect chunks until a line ends, however many.
    with (folder / "endless").open("wb") as file:
        for _ in range(3):
            file.write(b"x" * CHUNK_BYTES)
    with pytest.raises(ToolError, match="a binary file"):
        await grep(context, "hit", path="endless")


async def test_symlinks_are_not_followed_out_of_the_folder_nor_in_a_circle(folder: Path, context: ToolContext):
    # Mutation: `follow_symlinks=True` in `Walk`, or in `_grep_tree`.
    outside = folder.parent / "outside"
    write(outside, {"secret.txt": "hit\n"})
    write(folder, {"src/a.txt": "hit\n"})
    (folder / "folder").symlink_to(outside)
    (folder / "file").symlink_to(outside / "secret.txt")
    (folder / "src" / "circle").symlink_to(folder)
    assert await grep(context, "hit") == ["src/a.txt:1: hit"]
    for path in ("folder", "file", "../outside", "src/../.."):
        with pytest.raises(ToolError, match="outside of the working folder"):
            await grep(context, "hit", path=path)


async def test_a_pipe_is_not_waited_for(folder: Path, context: ToolContext):
    # Mutation: open whatever is no folder.
    os.mkfifo(folder / "pipe")
    write(folder, {"a.txt": "hit\n"})
    assert await grep(context, "hit") == ["a.txt:1: hit"]
    with pytest.raises(ToolError, match="pipe: not a file"):
        await grep(context, "hit", path="pipe")


async def test_a_name_with_a_line_break_stays_on_its_line(folder: Path, context: ToolContext):
    # Mutation: show names as they are.
    write(folder, {"a\n[no match]\x1b": "hit\n"})
    os.close(os.open(os.fsencode(folder) + b"/caf\xe9", os.O_CREAT))
    assert await grep(context, "hit") == ["a\\n[no match]\\x1b:1: hit"]


# Bounds and refusals -------------------------------------------------------------------------------


async def test_at_the_limit_it_says_that_there_is_more_and_only_then(folder: Path, context: ToolContext):
    # Mutation: say so when the limit is reached, whether or not there is more.
    write(folder, {"a.txt": "hit\nhit\n", "b.txt": "hit\n"})
    assert len(await grep(context, "hit", limit=3)) == 3
    result = await call(GREP, context, pattern="hit", limit=2)
    assert shown(result).split("\n")[2:] == [
        "[the first 2 matches; there are more: narrow path or glob, or raise limit]"
    ]
    assert result.details["limitReached"]


async def test_more_than_can_be_shown_is_cut_and_all_of_it_can_be_read(folder: Path, context: ToolContext):
    # Mutation: give the lines without `bound`.
    write(folder, {"a.txt": "hit\n" * 5_000})
    result = await call(GREP, context, pattern="hit", limit=10_000)
    assert result.details["truncated"]
    assert "lines 1-2,000 of 5,000" in shown(result)
    last = await call(READ, context, path=result.details["fullOutputPath"], offset=5_000)
    assert shown(last) == "a.txt:5000: hit"


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"pattern": "(a"}, r"'\(a' is no regular expression of Python's: missing \).*; literal=true"),
        ({"pattern": ""}, "the pattern is empty"),
        ({"pattern": "a\nb"}, "more than one line"),
        ({"pattern": "a" * 10 + "{1,99999999999999999999}"}, "is no regular expression"),
        ({"pattern": "a", "path": "srcc"}, "srcc: no such file. Near it: src"),
        ({"pattern": "a", "glob": "../*"}, "leads out of the folder"),
    ],
)
async def test_what_cannot_be_searched_for_is_refused(
    folder: Path, context: ToolContext, arguments: dict[str, Any], why: str
):
    (folder / "src").mkdir()
    with pytest.raises(ToolError, match=why):
        await call(GREP, context, **arguments)


# The process ---------------------------------------------------------------------------------------


def children() -> set[int]:
    found: set[int] = set()
    for task in Path("/proc/self/task").iterdir():
        found.update(int(pid) for pid in (task / "children").read_text().split())
    return {pid for pid in found if is_running(pid)}


async def test_an_expression_without_end_is_stopped_when_its_time_is_over(folder: Path):
    # Mutation: run the search in a thread (the session's own loop then stands still).
    write(folder, {"a.txt": BAIT})
    before = children()
    with anyio.fail_after(5), pytest.raises(ToolError, match=r"more than 0\.3 seconds and was stopped.*simpler"):
        await search(request(folder, ENDLESS), seconds=0.3)
    assert children() <= before


async def test_an_abort_ends_a_search_without_end_at_once(tmp_path: Path):
    # Mutation: shield the search in `search`; or the start not in `_run` (it may then live on when this looks).
    write(tmp_path, {"a.txt": BAIT})
    before, descriptors = children(), open_descriptors()
    async with scene(tmp_path, [calls("grep", pattern=ENDLESS), reply("Done.")], tools=["grep"]) as stage:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: stage.session.prompt("Search."))
            with anyio.fail_after(5):
                while not (stage.of(ToolExecutionStart) and children() - before):
                    await anyio.lowlevel.checkpoint()
                await stage.session.abort()
        assert children() <= before
        await stage.session.prompt("Go on.")
        (result,) = results(stage.session.messages)
        assert isinstance(result, ToolResultMessage)
        assert result.is_error
    assert open_descriptors() <= descriptors + 1


def test_a_search_that_is_left_alone_ends_by_itself(folder: Path, context: ToolContext):
    # Mutation: leave the timer out of the process.
    write(folder, {"a.txt": BAIT})
    asked = {
        "kind": "grep",
        "request": {"root": str(folder), "start": str(folder), "pattern": ENDLESS, "limit": 1},
        "seconds": 0.2,
    }
    done = subprocess.run(_command(), input=json.dumps(asked).encode(), capture_output=True, timeout=5, check=False)
    assert done.returncode == -signal.SIGALRM


def test_the_process_loads_nothing_that_takes_long(folder: Path):
    # Mutation: import pydantic, anyio or the tools in `agent_session.search`.
    heavy = ["pydantic", "anyio", "orjson", "httpx", "session_store", "agent_session.tools", "asyncio", "pathspec"]
    *command, program = _command()[:9]
    program += f"; print([name for name in {heavy!r} if name in sys.modules])"
    asked = {"kind": "grep", "request": {"root": str(folder), "start": str(folder), "pattern": "x", "limit": 1}}
    done = subprocess.run(
        [*command, program, *_command()[9:]],
        input=json.dumps({**asked, "seconds": 5}).encode(), capture_output=True, timeout=5, check=True,
    )  # fmt: skip
    assert done.stdout.decode().endswith("}[]\n")


async def test_a_search_that_dies_is_told_with_its_last_words(folder: Path):
    # Mutation: take any output for an answer.
    with pytest.raises(ToolError, match=r"^the search failed: .*unexpected keyword argument"):
        await search(_Wrong(root=str(folder), start=str(folder), pattern="x", limit=1))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wrong(GrepRequest):
    """Says more than the process understands."""

    more: bool = True
