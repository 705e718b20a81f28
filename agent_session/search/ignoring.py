"""Ignore rules: what git would not look at below a folder.

The rules of a folder are its `.gitignore`; those nearer to a path win. They are looked for from the top of the
repository down, and `.git/info/exclude` of the repository counts. `.git` itself is always ignored.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

GIT_FOLDER = ".git"
RULES_FILE = ".gitignore"
MAX_RULES_BYTES = 1024 * 1024


class IgnoreRules:
    """The rules of one folder, in front of those of the folders above it. `folder` is an absolute path."""

    def __init__(self, folder: str, lines: list[str], above: IgnoreRules | None = None) -> None:
        self._spec = _spec(lines)
        self._above = above
        self._prefix = len(folder.rstrip("/")) + 1

    def is_ignored(self, path: str, *, is_folder: bool) -> bool:
        """Whether the absolute path, somewhere below the folder, is ignored. Its parents are taken not to be."""
        rules: IgnoreRules | None = self
        while rules is not None:
            decision = rules._spec.check_file(path[rules._prefix :] + ("/" if is_folder else "")).include
            if decision is not None:
                return decision
            rules = rules._above
        return False


def rules_in(start: Path, root: Path) -> IgnoreRules | None:
    """The rules for what is in `start`, the folder that was named, from the top of its repository on; where it is in
    none, from `root` on, if that is above.

    Who names a folder that is ignored wants to see what is in it: then the rules above it do not count, nor its own if
    all they say is that everything is ignored, as those of virtual environments and caches do.
    """
    rules = _rules_above(start, root)
    return rules if set(_lines(start / RULES_FILE)) == {"*"} else with_rules_of(str(start), rules)


def _rules_above(start: Path, root: Path) -> IgnoreRules | None:
    top = next((folder for folder in (start, *start.parents) if (folder / GIT_FOLDER).exists()), None)
    if top is None:
        top = root if start.is_relative_to(root) else start
    rules: IgnoreRules | None = None
    if excluded := _lines(top / GIT_FOLDER / "info" / "exclude"):
        rules = IgnoreRules(str(top), excluded)
    folder = top
    for name in start.relative_to(top).parts:
        rules = with_rules_of(str(folder), rules)
        folder /= name
        if name == GIT_FOLDER or (rules is not None and rules.is_ignored(str(folder), is_folder=True)):
            return None
    return rules


def with_rules_of(folder: str, above: IgnoreRules | None) -> IgnoreRules | None:
    """The rules for what is in the folder: its own in front of those above it."""
    lines = _lines(Path(folder, RULES_FILE))
    return IgnoreRules(folder, lines, above) if lines else above


def _lines(file: Path) -> list[str]:
    """The lines that say something, of a file that is there and of a sane size."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return []
    try:
        with os.fdopen(descriptor, "rb") as opened:
            text = opened.read(MAX_RULES_BYTES).decode("utf-8-sig", "surrogateescape")
    except OSError:
        return []
    return [line for line in (line.removesuffix("\r") for line in text.split("\n")) if line and line[0] != "#"]


def _spec(lines: list[str]) -> GitIgnoreSpec:
    # 35 ms that a tree without rules does not need. The plain backend: which others are installed changes nothing.
    from pathspec import GitIgnoreSpec  # noqa: PLC0415

    try:
        return GitIgnoreSpec.from_lines(lines, backend="simple")
    except ValueError:
        return GitIgnoreSpec.from_lines(list(_valid(lines)), backend="simple")


def _valid(lines: list[str]) -> Iterator[str]:
    """As git does, a line that is no pattern is passed over and the others count."""
    from pathspec import GitIgnoreSpec  # noqa: PLC0415 - see `_spec`

    for line in lines:
        try:
            GitIgnoreSpec.from_lines([line], backend="simple")
        except ValueError:
            continue
        yield line
