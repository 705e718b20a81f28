"""`edit`: one passage of a file, replaced.

The rule: bytes outside of the passage stay what they are, whatever the file's encoding, byte order mark and
line ends. The passage is found with either line end; its replacement takes that of the passage, or else of
the file. A passage that is not there, or there more than once, changes nothing.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from functools import partial
from typing import Annotated

import anyio.to_thread
from pydantic import AliasChoices, BaseModel, ConfigDict, Field

from agent_session.errors import ToolError
from agent_session.tools.files import locked, opened, replace
from agent_session.tools.output import cut
from agent_session.tools.paths import existing, resolve, told_to_model
from agent_session.tools.types import Tool, ToolContext, ToolResult
from session_store.json_lines import replace_surrogates

CONTEXT_LINES = 3
NAMED_PLACES = 10

_BYTE_ORDER_MARK = "\ufeff"
_HUNK = re.compile(r"^@@ -(\d+)(,\d+)? \+(\d+)(,\d+)? @@\n")


class EditArguments(BaseModel):
    model_config = ConfigDict(extra="forbid")

    path: Annotated[str, Field(description="The file, relative to the working folder")]
    old_text: Annotated[
        str,
        Field(
            validation_alias=AliasChoices("old_text", "oldText"),
            description="The passage to replace, exactly as in the file; it must be there once",
        ),
    ]
    new_text: Annotated[
        str,
        Field(validation_alias=AliasChoices("new_text", "newText"), description="What stands in its place"),
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Change:
    data: bytes
    first_line: int
    diff: str


async def _execute(arguments: EditArguments, context: ToolContext) -> ToolResult:
    # Not abandoned when cancelled: an edit is short, and is then either done or not done.
    return await anyio.to_thread.run_sync(partial(_edit, arguments, context))


def _edit(arguments: EditArguments, context: ToolContext) -> ToolResult:
    shown = arguments.path
    path = resolve(context.cwd, shown)
    old = _normalised(arguments.old_text)
    new = _normalised(arguments.new_text)
    if not old:
        raise ToolError(f"{shown}: old_text is empty; to make a file or replace all of it use the tool write")
    if old == new:
        raise ToolError(f"{shown}: old_text and new_text are the same; nothing was changed")
    with locked(path):
        with existing(context.cwd, shown, path), opened(path) as file:
            before = file.read()
        change = _changed(shown, before, old, new)
        with told_to_model(shown):
            replace(path, change.data)
    return ToolResult(
        f"Replaced the passage at line {change.first_line} of {shown}",
        details={"diff": change.diff, "firstChangedLine": change.first_line},
    )


def _normalised(text: str) -> str:
    """As `read` shows a file: without its byte order mark, and to be found with either line end."""
    return replace_surrogates(text).removeprefix(_BYTE_ORDER_MARK).replace("\r\n", "\n")


def _changed(shown: str, before: bytes, old: str, new: str) -> _Change:
    """Raises: ToolError, the passage is not there once."""
    places = _places(before, old)
    if not places:
        raise ToolError(f"{shown}: old_text is not in the file{_resembling(before, old)}; read the file again")
    if len(places) > 1:
        lines = [str(_line_at(before, start)) for start, _ in places[:NAMED_PLACES]]
        more = " and more" if len(places) > NAMED_PLACES else ""
        raise ToolError(
            f"{shown}: old_text is there more than once, at lines {', '.join(lines)}{more}; "
            f"give more of the text around the one you mean"
        )
    start, end = places[0]
    replacement = new.encode()
    if _has_carriage_returns(before, before[start:end]):
        replacement = replacement.replace(b"\n", b"\r\n")
    after = before[:start] + replacement + before[end:]
    return _Change(
        data=after,
        first_line=_line_at(before, start),
        diff=_diff(shown, before, after, start, end),
    )


def _places(data: bytes, text: str) -> list[tuple[int, int]]:
    """Where the text is, up to one place more than are named. Places that overlap count: it would be a guess too."""
    line_end = rb"(?:\r\n|(?<!\r)\n)"
    pattern = re.compile(line_end.join(re.escape(line) for line in text.encode().split(b"\n")))
    found: list[tuple[int, int]] = []
    match = pattern.search(data)
    while match and len(found) <= NAMED_PLACES:
        found.append(match.span())
        match = pattern.search(data, match.start() + 1)
    return found


def _has_carriage_returns(data: bytes, passage: bytes) -> bool:
    """Whether lines end with CR LF: in the passage, or where it is within one line, in most of the file."""
    judged = passage if b"\n" in passage else data
    return judged.count(b"\r\n") * 2 > judged.count(b"\n")


def _resembling(data: bytes, text: str) -> str:
    """Where the same words stand with other spaces between them, or the passage's first line."""
    words = text.encode().split()
    if not words:
        return ""
    if match := re.search(rb"\s+".join(map(re.escape, words)), data):
        return f", but at line {_line_at(data, match.start())} is one that differs in white space only"
    first = next(line for line in text.encode().split(b"\n") if line.strip()).strip()
    at = data.find(first)
    return f", though its first line is at line {_line_at(data, at)}" if at >= 0 else ""


def _line_at(data: bytes, position: int) -> int:
    return data.count(b"\n", 0, position) + 1


def _diff(shown: str, before: bytes, after: bytes, start: int, end: int) -> str:
    """A unified diff, made of the changed lines and those next to them: the rest of the file is known to be equal."""
    top = start
    for _ in range(CONTEXT_LINES + 1):
        top = before.rfind(b"\n", 0, max(top, 0))
    top += 1
    old_lines = _text_lines(before[top : _bottom(before, end)])
    new_lines = _text_lines(after[top : _bottom(after, end + len(after) - len(before))])
    skipped = before.count(b"\n", 0, top)
    lines = difflib.unified_diff(old_lines, new_lines, f"a/{shown}", f"b/{shown}", n=CONTEXT_LINES)
    return cut("".join(_shifted(line, skipped) for line in lines)).text


def _bottom(data: bytes, position: int) -> int:
    for _ in range(CONTEXT_LINES + 1):
        found = data.find(b"\n", position)
        if found < 0:
            return len(data)
        position = found + 1
    return position


def _text_lines(data: bytes) -> list[str]:
    r"""Split after "\n" only, each line with its own."""
    return re.findall(r"[^\n]*\n|[^\n]+", data.decode("utf-8", "replace"))


def _shifted(line: str, skipped: int) -> str:
    """A hunk's head with the numbers of the whole file; a last line that has no end, marked as patch wants it."""
    hunk = _HUNK.match(line)
    if hunk is not None:
        old, old_count, new, new_count = hunk.groups(default="")
        return f"@@ -{int(old) + skipped}{old_count} +{int(new) + skipped}{new_count} @@\n"
    return line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"


EDIT = Tool(
    name="edit",
    description=(
        "Replace one passage of a file. old_text must be in the file exactly once, white space included; "
        "give enough of it to be unique."
    ),
    parameters=EditArguments,
    execute=_execute,
)
