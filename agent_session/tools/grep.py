"""`grep`: the lines that match a pattern, in the files of a folder."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import anyio.to_thread
from pydantic import BaseModel, ConfigDict, Field

from agent_session.search.requests import GrepRequest
from agent_session.tools.output import MAX_BYTES, MAX_LINES
from agent_session.tools.paths import existing, resolve
from agent_session.tools.searching import as_told, search
from agent_session.tools.types import Tool, ToolContext, ToolResult

DEFAULT_LIMIT = 100


class GrepArguments(BaseModel):
    model_config = ConfigDict(extra="forbid")

    pattern: Annotated[str, Field(description="A regular expression of Python's, matched against each line")]
    path: Annotated[str, Field(description="The folder or file to search, relative to the working folder")] = "."
    glob: Annotated[
        str | None, Field(description="Which files, such as *.py, src/**/*.{ts,tsx} or !*.lock; relative to path")
    ] = None
    ignore_case: bool = False
    literal: Annotated[bool, Field(description="Take the pattern as plain text")] = False
    context: Annotated[int, Field(ge=0, le=50, description="Lines to show before and after each match")] = 0
    limit: Annotated[int, Field(ge=1, le=10_000, description="How many matching lines to show at most")] = DEFAULT_LIMIT


async def _execute(arguments: GrepArguments, context: ToolContext) -> ToolResult:
    request = await anyio.to_thread.run_sync(partial(_request, arguments, context), abandon_on_cancel=True)
    found = await search(request)
    notes = []
    if found.is_limited:
        notes.append(f"the first {found.matches:,} matches; there are more: narrow path or glob, or raise limit")
    elif not found.matches:
        notes.append(f"no match in {found.searched:,} files" if found.searched != 1 else "no match in 1 file")
    return await as_told(found, context, notes=notes)


def _request(arguments: GrepArguments, context: ToolContext) -> GrepRequest:
    start = resolve(context.cwd, arguments.path, roots=(context.blobs.folder,))
    with existing(context.cwd, arguments.path, start):
        start.stat()
    return GrepRequest(
        root=str(resolve(context.cwd, ".")),
        start=str(start),
        pattern=arguments.pattern,
        is_literal=arguments.literal,
        ignores_case=arguments.ignore_case,
        glob=arguments.glob,
        context=arguments.context,
        limit=arguments.limit,
    )


GREP = Tool(
    name="grep",
    description=(
        "Search the contents of files, line by line; matches come as path:line: text. What git ignores, binary files "
        f"and very large ones are left out, unless path names them. Of more than {MAX_LINES} lines or "
        f"{MAX_BYTES // 1024} KB the beginning is shown, and all of it kept in a file."
    ),
    parameters=GrepArguments,
    execute=_execute,
)
