"""Calling a tool the way the runtime does: validated, executed, made a result."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio

from agent_session.tools import Tool, ToolContext, ToolResult, as_result, validate
from session_store.blobs import BlobStore
from session_store.messages import text_of


def context_in(folder: Path, *, report: Callable[[str], None] = lambda text: None, deps: Any = None) -> ToolContext:
    """A context with `folder` as the working folder and its blobs elsewhere."""
    blobs = BlobStore(folder.parent / f"{folder.name}-session")
    return ToolContext(call_id="call-1", cwd=folder, session_id="session-1", blobs=blobs, report=report, deps=deps)


async def call(tool: Tool, context: ToolContext, /, **arguments: Any) -> ToolResult:
    with anyio.fail_after(5):
        return as_result(await tool.execute(validate(tool, arguments), context))


def shown(result: ToolResult) -> str:
    return text_of(result.blocks)


def is_running(pid: int) -> bool:
    """A zombie has ended; only its parent has not yet asked how."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))
