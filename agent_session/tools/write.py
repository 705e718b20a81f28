"""`write`: a file with the given content, whole."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import anyio.to_thread
from pydantic import BaseModel, ConfigDict, Field

from agent_session.tools.files import locked, replace
from agent_session.tools.paths import resolve, told_to_model
from agent_session.tools.types import Tool, ToolContext, ToolResult
from session_store.json_lines import replace_surrogates


class WriteArguments(BaseModel):
    model_config = ConfigDict(extra="forbid")

    path: Annotated[str, Field(description="The file, relative to the working folder")]
    content: Annotated[str, Field(description="All of the file's text")]


async def _execute(arguments: WriteArguments, context: ToolContext) -> ToolResult:
    # Not abandoned when cancelled: a write is short, and whoever aborts then finds a file that stays as it is.
    return await anyio.to_thread.run_sync(partial(_write, arguments, context))


def _write(arguments: WriteArguments, context: ToolContext) -> ToolResult:
    path = resolve(context.cwd, arguments.path)
    data = replace_surrogates(arguments.content).encode()
    with locked(path), told_to_model(arguments.path):
        is_new = replace(path, data)
    verb = "Created" if is_new else "Replaced"
    return ToolResult(f"{verb} {arguments.path}: {len(data):,} bytes", details={"bytes": len(data), "created": is_new})


WRITE = Tool(
    name="write",
    description="Write a file whole. Makes it and its folders where they are missing, replaces what was there.",
    parameters=WriteArguments,
    execute=_execute,
)
