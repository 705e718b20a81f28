"""What a search is asked and what it answers: the values that travel between the two processes, as JSON."""

from __future__ import annotations

from dataclasses import dataclass, field


class RequestError(Exception):
    """The request cannot be answered, whatever is in the files: a pattern that is none. The text is for the model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FindRequest:
    """`root` is the working folder, which paths are shown relative to; `start`, the folder to search. Both are real."""

    root: str
    start: str
    glob: str
    limit: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GrepRequest:
    """`start` is a folder or one file; `glob` chooses among a folder's files; `context` and `limit` count lines."""

    root: str
    start: str
    pattern: str
    is_literal: bool = False
    ignores_case: bool = False
    glob: str | None = None
    context: int = 0
    limit: int


REQUESTS: dict[str, type[FindRequest | GrepRequest]] = {"find": FindRequest, "grep": GrepRequest}


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """`lines` are to be shown as they are. `matches` of a find are paths, of a grep lines; `searched` says of how many.

    `is_limited`: there are more matches than were asked for. `too_large` are the shown paths of files left out for
    their size; `ignored` counts files and folders left out by ignore rules, `unreadable` those that the system refused.
    """

    lines: list[str] = field(default_factory=list)
    matches: int = 0
    searched: int = 0
    is_limited: bool = False
    too_large: list[str] = field(default_factory=list)
    ignored: int = 0
    unreadable: int = 0
