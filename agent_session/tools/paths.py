"""Where a tool may go: the session's folder, and nowhere else unless it is said.

The rule: a path is judged after every `~`, `..` and symlink in it was followed, and the judged path is the
one that is used. A refusal is a `ToolError` with the path as the model wrote it.
"""

from __future__ import annotations

import difflib
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

from agent_session.errors import ToolError

NEAR_MATCHES = 5
SEARCHED_NAMES = 5_000


def resolve(cwd: Path, path: str, *, roots: Sequence[Path] = ()) -> Path:
    """The real, absolute path. It need not exist. Looks at the disk: call it from a thread.

    `roots` are further folders that are allowed.

    Raises:
        ToolError: the path is empty, or no path at all, or lies outside of `cwd` and of all `roots`.
    """
    if not path.strip():
        raise ToolError("the path is empty: give a file's path, relative to the working folder")
    try:
        real = Path(os.path.realpath(cwd / Path(path).expanduser()))
    except (ValueError, RuntimeError) as error:  # a null byte, a character no name can have, an unknown ~user
        raise ToolError(f"{path!r} is not a path: {error}") from error
    allowed = [Path(os.path.realpath(root)) for root in (cwd, *roots)]
    if not any(real.is_relative_to(root) for root in allowed):
        leads = f" (it leads to {real})" if real != Path(os.path.normpath(cwd / path)) else ""
        raise ToolError(f"{path}{leads} is outside of the working folder {allowed[0]}, where tools may not go")
    return real


@contextmanager
def told_to_model(path: str) -> Iterator[None]:
    """What the system refuses (no right, disk full, a folder where a file should be) becomes a `ToolError`."""
    try:
        yield
    except OSError as error:
        raise ToolError(f"{path}: {error.strerror or error}") from error


@contextmanager
def existing(cwd: Path, path: str, real: Path) -> Iterator[None]:
    """`told_to_model`, and a file that is not there is answered with the names that come near to it."""
    try:
        with told_to_model(path):
            yield
    except ToolError as error:
        if isinstance(error.__cause__, (FileNotFoundError, NotADirectoryError)):
            raise ToolError(f"{path}: no such file{_whereabouts(cwd, real)}") from error.__cause__
        raise


def existing_folder(cwd: Path, path: str) -> Path:
    """The real path of a folder that is there. Looks at the disk: call it from a thread.

    Raises:
        ToolError: see `resolve` and `existing`; or it is no folder.
    """
    real = resolve(cwd, path)
    with existing(cwd, path, real):
        if not stat.S_ISDIR(real.stat().st_mode):
            raise ToolError(f"{path}: is a file, not a folder")
    return real


def _whereabouts(cwd: Path, real: Path) -> str:
    """What there is in the deepest folder of the path that exists."""
    folder, wanted = real.parent, real.name
    while not folder.is_dir():
        folder, wanted = folder.parent, folder.name
    where = os.path.relpath(folder, os.path.realpath(cwd))
    if near := _near(folder, wanted):
        return f". Near it: {', '.join(os.path.normpath(Path(where, name)) for name in near)}"
    place = "the working folder" if where == "." else where
    return f", and nothing like {wanted!r} in {place}"


def _near(folder: Path, wanted: str) -> list[str]:
    try:
        with os.scandir(folder) as found:
            names = [item.name for item in islice(found, SEARCHED_NAMES)]
    except OSError:
        return []
    by_folded = {name.casefold(): name for name in sorted(names)}
    return [by_folded[name] for name in difflib.get_close_matches(wanted.casefold(), by_folded, n=NEAR_MATCHES)]
