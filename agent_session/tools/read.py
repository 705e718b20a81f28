"""`read`: a file's lines, or an image."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, BinaryIO

import anyio.to_thread
from pydantic import BaseModel, ConfigDict, Field

from agent_session.errors import ToolError
from agent_session.image_format import image_type
from agent_session.tools.files import opened
from agent_session.tools.images import MAX_IMAGE_BYTES, image_content
from agent_session.tools.output import MAX_BYTES, MAX_LINES, cut
from agent_session.tools.paths import existing, resolve
from agent_session.tools.types import Tool, ToolContext, ToolResult
from session_store.messages import TextContent

CHUNK_BYTES = 1024 * 1024
SNIFFED_BYTES = 8 * 1024


class ReadArguments(BaseModel):
    model_config = ConfigDict(extra="forbid")

    path: Annotated[str, Field(description="The file, relative to the working folder")]
    offset: Annotated[int | None, Field(ge=1, description="The first line to read, counted from 1")] = None
    limit: Annotated[int | None, Field(ge=1, description="How many lines to read at most")] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Window:
    """Some lines of a file. `data` may end before the last of them where the bytes allowed were used up."""

    data: bytes
    total_lines: int


async def _execute(arguments: ReadArguments, context: ToolContext) -> ToolResult:
    # Reading changes nothing, so a cancelled call need not wait for a slow disk.
    return await anyio.to_thread.run_sync(partial(_read, arguments, context), abandon_on_cancel=True)


def _read(arguments: ReadArguments, context: ToolContext) -> ToolResult:
    path = resolve(context.cwd, arguments.path, roots=(context.blobs.folder,))
    with existing(context.cwd, arguments.path, path), opened(path) as file:
        start = file.read(SNIFFED_BYTES)
        if mime_type := image_type(start):
            return _image(arguments.path, file, mime_type)
        if b"\0" in start:
            raise ToolError(
                f"{arguments.path}: a binary file ({os.fstat(file.fileno()).st_size:,} bytes); "
                f"only text and png, jpeg, gif or webp images can be read"
            )
        return _text(arguments, path, file)


def _image(shown: str, file: BinaryIO, mime_type: str) -> ToolResult:
    file.seek(0)
    data = file.read(MAX_IMAGE_BYTES + 1)
    try:
        image = image_content(data)
    except ValueError as error:
        raise ToolError(f"{shown}: {error}") from error
    return ToolResult((TextContent(f"{shown}: {mime_type}, {len(data):,} bytes"), image))


def _text(arguments: ReadArguments, path: Path, file: BinaryIO) -> ToolResult:
    first = arguments.offset or 1
    limit = min(arguments.limit or MAX_LINES, MAX_LINES)
    window = _window(file, first, limit)
    if first > max(window.total_lines, 1):
        raise ToolError(f"{arguments.path}: offset {first} is beyond the end, the file has {window.total_lines} lines")
    if not window.total_lines:
        return ToolResult("(the file is empty)", details={"lines": [0, 0], "totalLines": 0})
    data = window.data.removeprefix(b"\xef\xbb\xbf") if first == 1 else window.data
    shown = cut(data.decode("utf-8", "replace"), max_lines=limit, max_bytes=MAX_BYTES)
    last = first + max(shown.last_line, 1) - 1
    text = shown.text
    if shown.is_line_divided:
        rest = f" Go on with offset={last + 1}." if last < window.total_lines else ""
        text += (
            f"\n[line {last} is longer than {MAX_BYTES:,} bytes and was cut; for the next part of it run "
            f"`sed -n {last}p {shlex.quote(str(path))} | cut -b {MAX_BYTES + 1}-{2 * MAX_BYTES}`.{rest}]"
        )
    elif last < window.total_lines:
        text = text.removesuffix("\n") + (
            f"\n[lines {first}-{last} of {window.total_lines}; go on with offset={last + 1}]"
        )
    return ToolResult(
        text,
        details={"lines": [first, last], "totalLines": window.total_lines, "truncated": shown.is_cut},
    )


def _window(file: BinaryIO, first: int, limit: int) -> _Window:
    """The lines from `first` on, `limit` of them or a little more than can be shown; and how many there are.

    Reads the file once, a chunk at a time: memory does not grow with the file, nor with a line's length.
    """
    file.seek(0)
    kept = bytearray()
    line = 1  # the line in which the next chunk begins
    ends_open = False
    while chunk := file.read(CHUNK_BYTES):
        newlines = chunk.count(b"\n")
        if first <= line + newlines and line < first + limit:
            position = 0
            for _ in range(first - line):
                position = chunk.index(b"\n", position) + 1
            end = len(chunk)
            if line + newlines >= first + limit:
                end = position
                for _ in range(first + limit - max(line, first)):
                    end = chunk.index(b"\n", end) + 1
            kept += chunk[position:end][: MAX_BYTES + 4 - len(kept)]  # 4: so that `cut` sees whether more follows
        line += newlines
        ends_open = not chunk.endswith(b"\n")
    return _Window(data=bytes(kept), total_lines=line if ends_open else line - 1)


READ = Tool(
    name="read",
    description=(
        f"Read a file. Text comes as it is, at most {MAX_LINES} lines or {MAX_BYTES // 1024} KB at a time: go on with "
        "offset and limit. png, jpeg, gif and webp files are shown as images."
    ),
    parameters=ReadArguments,
    execute=_execute,
)
