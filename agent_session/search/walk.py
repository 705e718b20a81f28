"""Walking a tree: files and folders below a folder, in the order of their names, without what is ignored.

The rule: no symlink is followed. What is inside of the searched folder is found at its own place, and what is outside
is not searched.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from agent_session.search.ignoring import GIT_FOLDER, rules_in, with_rules_of


class Walk:
    """Iterate it once. `ignored` and `unreadable` count what was left out so far; `start` is real and absolute."""

    def __init__(self, start: Path, root: Path) -> None:
        self.ignored = 0
        self.unreadable = 0
        self._start = str(start)
        self._rules = rules_in(start, root)

    def __iter__(self) -> Iterator[os.DirEntry[str]]:
        """Each folder comes before what is in it."""
        waiting = [(iter(self._listed(self._start)), self._rules)]
        while waiting:
            entries, rules = waiting[-1]
            entry = next(entries, None)
            if entry is None:
                waiting.pop()
                continue
            if entry.name == GIT_FOLDER:
                continue
            try:
                is_folder = entry.is_dir(follow_symlinks=False)
            except OSError:  # a file system that does not say so in its listing, and was asked
                self.unreadable += 1
                continue
            if rules is not None and rules.is_ignored(entry.path, is_folder=is_folder):
                self.ignored += 1
                continue
            yield entry
            if is_folder:
                waiting.append((iter(self._listed(entry.path)), with_rules_of(entry.path, rules)))

    def _listed(self, folder: str) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(folder) as found:
                return sorted(found, key=lambda entry: entry.name)
        except OSError:
            self.unreadable += 1
            return []


def as_shown(path: str, root: str) -> str:
    """The path as it is told: relative to `root` where it is below it, and in one line whatever is in it."""
    inside = root.rstrip("/") + "/"
    return printable(path.removeprefix(inside) if path.startswith(inside) else path)


def printable(name: str) -> str:
    """The name with control characters and bytes that are no text written out: a name could hold a newline."""
    if name.isprintable():
        return name
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in name)
