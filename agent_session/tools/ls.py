"""`ls`: what is in one folder."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Annotated

import anyio.to_thread
from pydantic import BaseModel, ConfigDict, Field

from agent_session.search.walk import printable
from agent_session.tools.output import bound
from agent_session.tools.paths import existing_folder, told_to_model
from agent_session.tools.types import Tool, ToolContext, ToolResult

DEFAULT_LIMIT = 500


class LsArguments(BaseModel):
    model_config = ConfigDict(extra="forbid")

    path: Annotated[str, Field(description="The folder, relative to the working folder")] = "."
    limit: Annotated[int, Field(ge=1, le=100_000, description="How many names to show at most")] = DEFAULT_LIMIT


async def _execute(arguments: LsArguments, context: ToolContext) -> ToolResult:
    # Looking changes nothing, so a cancelled call need not wait for a slow disk.
    return await anyio.to_thread.run_sync(partial(_list, arguments, context), abandon_on_cancel=True)


def _list(arguments: LsArguments, context: ToolContext) -> ToolResult:
    folder = existing_folder(context.cwd, arguments.path)
    with told_to_model(arguments.path):
        with os.scandir(folder) as found:
            entries = sorted(found, key=lambda entry: entry.name)
        lines = [_shown(entry) for entry in entries[: arguments.limit]]
        shown = bound("\n".join(lines), context.blobs)
    text = shown.text or "(the folder is empty)"
    if len(entries) > len(lines):
        text += f"\n[{len(lines):,} of {len(entries):,} names; raise limit to see more]"
    return ToolResult(
        text,
        details={
            "entries": len(entries),
            "limitReached": len(entries) > len(lines),
            "truncated": shown.cut.is_cut,
            "fullOutputPath": str(shown.full_text) if shown.full_text is not None else None,
        },
    )


def _shown(entry: os.DirEntry[str]) -> str:
    """A folder with a slash, a symlink with what it says; hidden names and ignored ones like any other."""
    name = printable(entry.name)
    if entry.is_symlink():
        return f"{name} -> {printable(str(Path(entry.path).readlink()))}"
    return f"{name}/" if entry.is_dir(follow_symlinks=False) else name


LS = Tool(
    name="ls",
    description="List a folder: its names in order, hidden ones too; folders end in a slash.",
    parameters=LsArguments,
    execute=_execute,
)
