"""`find`: the files and folders whose names match a glob."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import anyio.to_thread
from pydantic import BaseModel, ConfigDict, Field

from agent_session.search.requests import FindRequest
from agent_session.tools.paths import existing_folder, resolve
from agent_session.tools.searching import as_told, search
from agent_session.tools.types import Tool, ToolContext, ToolResult

DEFAULT_LIMIT = 1_000


class FindArguments(BaseModel):
    model_config = ConfigDict(extra="forbid")

    pattern: Annotated[
        str, Field(description="A glob: *.py is for names in any folder, src/**/test_*.{ts,tsx} for paths below path")
    ]
    path: Annotated[str, Field(description="The folder to search, relative to the working folder")] = "."
    limit: Annotated[int, Field(ge=1, le=100_000, description="How many paths to show at most")] = DEFAULT_LIMIT


async def _execute(arguments: FindArguments, context: ToolContext) -> ToolResult:
    request = await anyio.to_thread.run_sync(partial(_request, arguments, context), abandon_on_cancel=True)
    found = await search(request)
    notes = []
    if found.is_limited:
        notes.append(f"the first {found.matches:,} paths; there are more: narrow path or pattern, or raise limit")
    elif not found.matches:
        notes.append(f"no match among {found.searched:,} files and folders")
    return await as_told(found, context, notes=notes)


def _request(arguments: FindArguments, context: ToolContext) -> FindRequest:
    return FindRequest(
        root=str(resolve(context.cwd, ".")),
        start=str(existing_folder(context.cwd, arguments.path)),
        glob=arguments.pattern,
        limit=arguments.limit,
    )


FIND = Tool(
    name="find",
    description=(
        "Find files and folders by name; folders end in a slash. What git ignores is left out, unless path names it."
    ),
    parameters=FindArguments,
    execute=_execute,
)
