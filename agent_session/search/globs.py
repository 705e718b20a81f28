"""Glob patterns: `*`, `?`, `[a-z]`, `{a,b}` and `**`.

The rule: matching takes time in proportion to pattern and path, whatever is in them. Each segment is `fnmatch`'s, whose
expressions do not backtrack; segments are matched as a set of states.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from agent_session.search.requests import RequestError

MAX_ALTERNATIVES = 256

_Segment: TypeAlias = Callable[[str], Any] | None  # None is `**`: any number of segments


class Glob:
    """A pattern without a slash is for names in any folder; one with a slash for the path from the searched folder.

    A slash at the end means folders only, `!` in front everything else.
    """

    def __init__(self, pattern: str) -> None:
        """Raises: RequestError: the pattern is empty, leads out of the folder, or has too many alternatives."""
        self.is_negated = pattern.startswith("!")
        alternatives = [_without_dots(text, pattern) for text in _expanded(pattern.removeprefix("!"))]
        self._alternatives = [(_segments(text.rstrip("/")), text.endswith("/")) for text in alternatives]

    def matches(self, path: str, *, is_folder: bool) -> bool:
        """Whether the path, relative to the searched folder, is one of those meant."""
        parts = path.split("/")
        return self.is_negated != any(
            (is_folder or not folders_only) and _match(segments, parts) for segments, folders_only in self._alternatives
        )


def _without_dots(text: str, pattern: str) -> str:
    while text.startswith("./"):
        text = text[2:]
    if text.startswith("/") or ".." in text.split("/"):
        raise RequestError(
            f"the glob {pattern!r} leads out of the folder: name the folder as path, and a glob below it"
        )
    if not text.strip("/"):
        raise RequestError(f"the glob {pattern!r} is empty: give one such as *.py or src/**/*.py")
    return text


def _segments(text: str) -> list[_Segment]:
    parts = text.split("/")
    if len(parts) == 1:
        parts = ["**", *parts]
    if parts[-1] == "**":  # what is below the folder, and not the folder
        parts.append("*")
    return [None if part == "**" else re.compile(fnmatch.translate(part)).match for part in parts if part]


def _match(segments: list[_Segment], parts: list[str]) -> bool:
    states = _with_skipped({0}, segments)
    for part in parts:
        following: set[int] = set()
        for state in states:
            if state == len(segments):
                continue
            segment = segments[state]
            if segment is None:
                following.add(state)
            elif segment(part):
                following.add(state + 1)
        states = _with_skipped(following, segments)
        if not states:
            return False
    return len(segments) in states


def _with_skipped(states: Iterable[int], segments: list[_Segment]) -> set[int]:
    """The states, and those that are reached where a `**` stands for nothing."""
    reached: set[int] = set()
    for state in states:
        reached.add(state)
        while state < len(segments) and segments[state] is None:
            state += 1
            reached.add(state)
    return reached


def _expanded(pattern: str) -> list[str]:
    """The pattern without braces, once for each way to read them. Braces without a comma are plain characters."""
    patterns, done = [pattern], list[str]()
    while patterns:
        text = patterns.pop()
        found = _innermost(text)
        if found is None:
            done.append(text)
        else:
            start, end = found
            patterns += [text[:start] + choice + text[end + 1 :] for choice in text[start + 1 : end].split(",")]
        if len(patterns) + len(done) > MAX_ALTERNATIVES:
            raise RequestError(
                f"the glob has more than {MAX_ALTERNATIVES} alternatives in braces: use several simpler ones"
            )
    return done


def _innermost(text: str) -> tuple[int, int] | None:
    """Where the first pair of braces with a comma and no pair inside begins and ends."""
    start = -1
    for position, character in enumerate(text):
        if character == "{":
            start = position
        elif character == "}" and start >= 0:
            if "," in text[start:position]:
                return start, position
            start = -1
    return None
