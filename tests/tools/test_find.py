"""The tool `find`: globs, ignore rules, order."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from time import perf_counter

import anyio
import pytest

from agent_session.errors import ToolError
from agent_session.search.globs import Glob
from agent_session.search.requests import RequestError
from agent_session.tools import ToolContext
from agent_session.tools.find import FIND
from tests.tools.calls import call, shown


def touch(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


async def find(context: ToolContext, pattern: str, **arguments: object) -> list[str]:
    return shown(await call(FIND, context, pattern=pattern, **arguments)).split("\n")


async def test_files_and_folders_come_in_order_each_folder_before_what_is_in_it(folder: Path, context: ToolContext):
    # Mutation: drop `sorted` in `Walk._listed`; or the slash behind folders.
    touch(folder, "b/c.py", "b/a/x.py", "a.py", "z.txt", ".hidden.py", *(f"m/{number:02}.py" for number in range(30)))
    assert await find(context, "*") == [
        ".hidden.py", "a.py", "b/", "b/a/", "b/a/x.py", "b/c.py", "m/", *(f"m/{number:02}.py" for number in range(30)),
        "z.txt",
    ]  # fmt: skip
    assert await find(context, "*.py", path="b") == ["b/a/x.py", "b/c.py"]


@pytest.mark.parametrize(
    ("pattern", "meant", "not_meant"),
    [
        ("*.py", ["a.py", "x/y/a.py"], ["a.pyc", "a.py/b"]),
        ("test_?.py", ["test_1.py"], ["test_12.py"]),
        ("[a-c]*", ["b", "x/cc"], ["d"]),
        ("[!a-c]*", ["d"], ["b"]),
        ("src/*.py", ["src/a.py"], ["a.py", "src/x/a.py", "x/src/a.py"]),
        ("src/**/*.py", ["src/a.py", "src/x/y/a.py"], ["x/src/a.py"]),
        ("**/test/**", ["test/a", "x/test/y/z"], ["test", "x/test"]),
        ("**", ["a", "a/b"], []),
        ("./src/a", ["src/a"], ["x/src/a"]),
        ("*.{ts,tsx}", ["a.ts", "b.tsx"], ["a.js"]),
        ("{src,lib}/{a,b*}.py", ["src/a.py", "lib/bb.py"], ["src/c.py"]),
        ("{a,b{1,2}}", ["a", "b1", "b2"], ["b", "b{1,2}"]),
        ("{a}", ["{a}"], ["a"]),
        ("!*.py", ["a.js"], ["a.py", "x/a.py"]),
        ("A.py", ["A.py"], ["a.py"]),
        ("a.b", ["a.b"], ["axb"]),
        ("*", [".a", "a\nb"], []),
    ],
)
def test_a_glob_means(pattern: str, meant: list[str], not_meant: list[str]):
    # Mutation: let `*` match a slash; let `**` match one segment only; expand braces from the left.
    glob = Glob(pattern)
    assert [path for path in meant if not glob.matches(path, is_folder=False)] == []
    assert [path for path in not_meant if glob.matches(path, is_folder=False)] == []


def test_a_glob_that_ends_in_a_slash_means_folders():
    # Mutation: strip the slash and forget it.
    assert Glob("build/").matches("x/build", is_folder=True)
    assert not Glob("build/").matches("x/build", is_folder=False)


@pytest.mark.parametrize("pattern", ["", "/", "!", "/etc/*", "../*", "a/../../b", "{a,b}" * 9])
def test_a_glob_that_leads_out_says_nothing_or_far_too_much_is_refused(pattern: str):
    with pytest.raises(RequestError):
        Glob(pattern)


@pytest.mark.parametrize("pattern", ["*a" * 60 + "b", "**/a/" * 30 + "b", "[a]*" * 60 + "b"])
def test_a_glob_takes_no_time_that_grows_without_bounds(pattern: str):
    # Mutation: one expression for the whole path, with `.*` for each star.
    began = perf_counter()
    assert not Glob(pattern).matches("/".join(["a" * 200] * 20 + ["a"] * 20), is_folder=False)
    assert perf_counter() - began < 2


# Ignore rules --------------------------------------------------------------------------------------


@pytest.mark.skipif(shutil.which("git") is None, reason="compares with git")
async def test_ignore_rules_leave_out_what_git_leaves_out(folder: Path, context: ToolContext):
    # Mutation: let the rules of outer folders win; or look at `.gitignore` of the top only; or forget info/exclude.
    git = ["git", "-C", str(folder), "-c", "core.excludesFile=/dev/null"]
    await anyio.run_process([*git, "init", "-q"])
    rules = {
        ".git/info/exclude": "*.private\n",
        ".gitignore": "# made\n*.log\n/dist/\nbuild/\n!keep.log\r\ndocs/*.html\n!docs/index.html\n\\#x\nsp ace \n!\n",
        "src/.gitignore": "!important.log\ngenerated\n/only_here.txt\n",
        "src/deep/.gitignore": "*\n!kept.py\n!.gitignore\n",
    }
    touch(
        folder,
        *rules,
        *("a.log", "keep.log", "x.private", "dist/a.js", "src/dist/a.js", "src/build/b.js", "build", "docs/a.html"),
        *("docs/index.html", "docs/sub/a.html", "#x", "sp ace", "src/important.log", "src/a.log", "src/generated/x"),
        *("src/only_here.txt", "src/sub/only_here.txt", "src/deep/kept.py", "src/deep/other.py", "src/deep/in/kept.py"),
    )
    for name, text in rules.items():
        (folder / name).write_text(text)
    listed = await anyio.run_process([*git, "ls-files", "-z", "--others", "--exclude-standard"])
    by_git = {os.fsdecode(name) for name in listed.stdout.split(b"\0") if name}
    assert len(by_git) > 8
    assert {path for path in await find(context, "*") if not path.endswith("/")} == by_git


async def test_the_rules_of_the_repository_around_the_working_folder_count(tmp_path: Path, context: ToolContext):
    # Mutation: begin with the rules of the working folder.
    (tmp_path / ".git").mkdir()
    (tmp_path / ".gitignore").write_text("*.log\n/project/out\n")
    touch(context.cwd, "a.log", "a.py", "out/b.py", "sub/out/c.py")
    assert await find(context, "*.*") == ["a.py", "sub/out/c.py"]


async def test_rules_outside_of_the_working_folder_count_in_a_repository_only(tmp_path: Path, context: ToolContext):
    # Mutation: look for rules up to the root of the file system.
    (tmp_path / ".gitignore").write_text("*.py\n")
    touch(context.cwd, "a.py")
    assert await find(context, "*") == ["a.py"]


async def test_a_folder_that_ignores_itself_is_left_out_and_shown_where_named(folder: Path, context: ToolContext):
    # Mutation: in `rules_in` take the folder's own rules whatever they say; or leave the "\r" at the ends of lines.
    touch(folder, "venv/lib/a.py", "a.py")
    (folder / "venv" / ".gitignore").write_bytes(b"# Made by a tool.\r\n*\r\n")
    assert await find(context, "*.py") == ["a.py"]
    assert await find(context, "*.py", path="venv") == ["venv/lib/a.py"]


async def test_the_folder_of_git_is_never_walked_into(folder: Path, context: ToolContext):
    # Mutation: leave the check of the name out of `Walk`.
    touch(folder, ".git/config", "sub/.git/config", "a/config")
    assert await find(context, "config") == ["a/config"]


# What is refused, and bounds -----------------------------------------------------------------------


async def test_symlinks_are_listed_and_not_followed(folder: Path, context: ToolContext):
    # Mutation: `follow_symlinks=True` in `Walk`.
    touch(folder.parent / "outside", "secret.py")
    touch(folder, "src/a.py")
    (folder / "out").symlink_to(folder.parent / "outside")
    (folder / "src" / "circle").symlink_to(folder)
    assert await find(context, "*") == ["out", "src/", "src/a.py", "src/circle"]
    with pytest.raises(ToolError, match="outside of the working folder"):
        await find(context, "*", path="out")


async def test_at_the_limit_it_says_that_there_is_more_and_only_then(folder: Path, context: ToolContext):
    # Mutation: say so when the limit is reached, whether or not there is more.
    touch(folder, "a.py", "b.py", "c.py")
    assert await find(context, "*.py", limit=3) == ["a.py", "b.py", "c.py"]
    assert await find(context, "*.py", limit=2) == [
        "a.py", "b.py", "[the first 2 paths; there are more: narrow path or pattern, or raise limit]",
    ]  # fmt: skip


async def test_nothing_found_says_among_how_many(folder: Path, context: ToolContext):
    # Mutation: say only that nothing was found.
    touch(folder, "a.py", "b/c.py")
    assert await find(context, "*.js") == ["[no match among 3 files and folders]"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
async def test_a_folder_that_may_not_be_read_is_counted(folder: Path, context: ToolContext):
    # Mutation: let the error end the search.
    touch(folder, "a.py", "closed/b.py")
    (folder / "closed").chmod(0)
    try:
        assert await find(context, "*.py") == ["a.py", "[1 files or folders could not be read]"]
    finally:
        (folder / "closed").chmod(0o755)


async def test_a_tree_deeper_than_the_longest_path_ends_with_a_count(folder: Path, context: ToolContext):
    # Mutation: let the error end the search; or walk by recursion.
    touch(folder, "a.py")
    inside = os.open(folder, os.O_RDONLY)
    for _ in range(30):
        os.mkdir("d" * 200, dir_fd=inside)
        deeper = os.open("d" * 200, os.O_RDONLY, dir_fd=inside)
        os.close(inside)
        inside = deeper
    os.close(inside)
    assert await find(context, "*.py") == ["a.py", "[1 files or folders could not be read]"]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"pattern": ""}, "is empty"),
        ({"pattern": "../*"}, "leads out of the folder"),
        ({"pattern": "*", "path": "a.py"}, r"a\.py: is a file, not a folder"),
        ({"pattern": "*", "path": "scr"}, "scr: no such file. Near it: src"),
        ({"pattern": "*", "path": ".."}, "outside of the working folder"),
    ],
)
async def test_what_cannot_be_searched_is_refused(
    folder: Path, context: ToolContext, arguments: dict[str, str], why: str
):
    touch(folder, "a.py", "src/b.py")
    with pytest.raises(ToolError, match=why):
        await call(FIND, context, **arguments)
