"""Asking for a search, and telling a model what came of it.

The rule: a search runs in a process of its own. An expression that backtracks without end holds Python's lock, so in a
thread it would stop the whole session; a process is killed, by an abort at once and else when its time is over.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path

import anyio
import anyio.to_thread

from agent_session.errors import ToolError
from agent_session.search.requests import REQUESTS, FindRequest, Found, GrepRequest
from agent_session.tools.output import bound
from agent_session.tools.types import ToolContext, ToolResult

SEARCH_SECONDS = 30.0
"""What takes longer is asked for in smaller parts."""

NAMED_FILES = 5

# Without the site's packages the process starts in a fraction of the time. It needs two packages, and is told where.
_START = "import sys; sys.path += sys.argv[1:]; from agent_session.search.__main__ import main; main()"


async def search(request: FindRequest | GrepRequest, *, seconds: float = SEARCH_SECONDS) -> Found:
    """Answer the request; leaving early, by cancellation or for its time, kills the search.

    Raises:
        ToolError: a pattern that is none, a search that took longer than `seconds`, or one that failed.
    """
    kind = next(name for name, of in REQUESTS.items() if isinstance(request, of))
    # For a search that is left alone with itself: a little after it would have been killed, it ends.
    asked = json.dumps({"kind": kind, "request": asdict(request), "seconds": seconds + 1}).encode()
    command = await anyio.to_thread.run_sync(_command)
    with anyio.move_on_after(seconds):
        said, exit_code = await _run(command, asked)
        if exit_code != 0:
            last_words = said.decode("utf-8", "replace").strip().rpartition("\n")[2]
            raise ToolError(f"the search failed: {last_words or f'its process ended with {exit_code}'}")
        answer = json.loads(said)
        if "error" in answer:
            raise ToolError(answer["error"])
        return Found(**answer)
    raise ToolError(
        f"the search took more than {seconds:g} seconds and was stopped: search a smaller path, or with a simpler "
        f"pattern (repeats inside of repeats, such as (a+)+, may take for ever)"
    )


async def _run(command: Sequence[str], asked: bytes) -> tuple[bytes, int]:
    """What the process says, all of it, and how it ended. Cancelled, it is killed and gone when this returns."""
    # Shielded: a start that is cancelled half way leaves a process that nobody waits for.
    with anyio.CancelScope(shield=True):
        process = await anyio.open_process(command, stderr=subprocess.STDOUT, start_new_session=True)
    async with process:
        assert process.stdin is not None
        assert process.stdout is not None
        await process.stdin.send(asked)
        await process.stdin.aclose()
        said = b"".join([piece async for piece in process.stdout])
        return said, await process.wait()


async def as_told(found: Found, context: ToolContext, *, notes: Sequence[str] = ()) -> ToolResult:
    """What was found, bounded; then the notes, and a line for each kind of thing that was left out.

    Raises:
        ToolError: the full text could not be stored.
    """
    text = "\n".join(found.lines)
    try:
        shown = await anyio.to_thread.run_sync(bound, text, context.blobs)
    except OSError as error:
        raise ToolError(f"the full output could not be stored: {error}") from error
    remarks = (f"[{remark}]" for remark in (*notes, *_left_out(found)))
    return ToolResult(
        "\n".join((*([shown.text] if text else []), *remarks)),
        details={
            "matches": found.matches,
            "searched": found.searched,
            "limitReached": found.is_limited,
            "truncated": shown.cut.is_cut,
            "fullOutputPath": str(shown.full_text) if shown.full_text is not None else None,
        },
    )


def _left_out(found: Found) -> Iterator[str]:
    if found.too_large:
        more = len(found.too_large) - NAMED_FILES
        names = ", ".join(found.too_large[:NAMED_FILES]) + (f" and {more} more" if more > 0 else "")
        yield f"left out for their size: {names}; name one as path to search it"
    if found.ignored and not found.matches:
        yield f"left out {found.ignored:,} files and folders that git ignores; name one as path to search it"
    if found.unreadable:
        yield f"{found.unreadable:,} files or folders could not be read"


@cache
def _command() -> list[str]:
    """How the process is started. Looks at the disk: call it from a thread."""
    if not sys.executable:
        raise ToolError("cannot search: this program does not know its Python interpreter (sys.executable)")
    rules = importlib.util.find_spec("pathspec")
    assert rules is not None
    assert rules.origin is not None
    places = (Path(__file__).parents[2], Path(rules.origin).parents[1])
    return [sys.executable, "-I", "-S", "-X", "utf8", "-W", "ignore", "-c", _START, *map(str, places)]
