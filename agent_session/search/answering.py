"""From a request to its answer: the paths that a glob means, or the lines that a pattern is in."""

from __future__ import annotations

from pathlib import Path

from agent_session.search.globs import Glob
from agent_session.search.lines import LineSearch, NotTextError, opened
from agent_session.search.requests import FindRequest, Found, GrepRequest, RequestError
from agent_session.search.walk import Walk, as_shown

MAX_FILE_BYTES = 10 * 1024 * 1024
"""Larger files of a tree are left out: they are data, and each costs more than all the source. A file that is named is
searched whatever its size."""


def answer(request: FindRequest | GrepRequest) -> Found:
    """Search, to the end or the limit.

    Raises:
        RequestError: the pattern or glob is none, or the file that was named is not text.
    """
    if isinstance(request, FindRequest):
        return _find(request)
    if Path(request.start).is_dir():
        return _grep_tree(request)
    return _grep_file(request)


def _find(request: FindRequest) -> Found:
    glob = Glob(request.glob)
    walk = Walk(Path(request.start), Path(request.root))
    below = len(request.start.rstrip("/")) + 1
    lines: list[str] = []
    seen, is_limited = 0, False
    for entry in walk:
        seen += 1
        is_folder = entry.is_dir(follow_symlinks=False)
        if not glob.matches(entry.path[below:], is_folder=is_folder):
            continue
        if len(lines) == request.limit:
            is_limited = True
            break
        lines.append(as_shown(entry.path, request.root) + ("/" if is_folder else ""))
    return Found(
        lines=lines,
        matches=len(lines),
        searched=seen,
        is_limited=is_limited,
        ignored=walk.ignored,
        unreadable=walk.unreadable,
    )


def _grep_file(request: GrepRequest) -> Found:
    search = LineSearch(request)
    shown = as_shown(request.start, request.root)
    try:
        with opened(request.start) as file:
            search.look_into(file, shown)
    except NotTextError as error:
        raise RequestError(f"{shown}: a binary file") from error
    except OSError as error:
        raise RequestError(f"{shown}: {error.strerror or error}") from error
    return Found(lines=search.lines, matches=search.matches, searched=1, is_limited=search.is_limited)


def _grep_tree(request: GrepRequest) -> Found:
    search = LineSearch(request)
    glob = Glob(_below(request.glob)) if request.glob else None
    walk = Walk(Path(request.start), Path(request.root))
    below = len(request.start.rstrip("/")) + 1
    too_large: list[str] = []
    searched = unreadable = 0
    for entry in walk:
        if search.is_limited:
            break
        if not entry.is_file(follow_symlinks=False):
            continue
        if glob is not None and not glob.matches(entry.path[below:], is_folder=False):
            continue
        shown = as_shown(entry.path, request.root)
        try:
            if entry.stat(follow_symlinks=False).st_size > MAX_FILE_BYTES:
                too_large.append(shown)
                continue
            with opened(entry.path) as file:
                search.look_into(file, shown)
        except NotTextError:
            continue
        except OSError:
            unreadable += 1
            continue
        searched += 1
    return Found(
        lines=search.lines,
        matches=search.matches,
        searched=searched,
        is_limited=search.is_limited,
        too_large=too_large,
        ignored=walk.ignored,
        unreadable=walk.unreadable + unreadable,
    )


def _below(glob: str) -> str:
    """A folder, where only files can be meant, means what is below it."""
    return f"{glob}**" if glob.endswith("/") else glob
