"""What the runtime itself adds to a summary, a handler's too: pinned text, file lists, the current request.

Pure. The rule it keeps: each addition is in a summary once, however often it was summarised before, and pinned text
and the current request are there byte for byte. They follow the summary in this order, each made by one function:
`with_pinned`, `with_file_lists`, `with_current_request`; what a model repeated of an earlier one is taken out first,
but never from inside pinned text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agent_session.compaction.tokens import estimate_text_tokens
from agent_session.compaction.types import FileOps
from session_store.messages import AssistantMessage, Message, ToolCall, ToolResultMessage

CURRENT_REQUEST_HEADING = "## Current request"

READING_TOOLS = frozenset({"read"})
MODIFYING_TOOLS = frozenset({"write", "edit"})

MOST_LISTED_FILES = 200
"""A list in a summary shows this many, the latest; the entry's details have all of them."""

_LEAST_REQUEST_TOKENS = 32
_LISTS = re.compile(r"\n*<(read-files|modified-files)>\n.*?\n</\1>(?=\n|$)", re.DOTALL)
_PINNED_OPENING = re.compile(r'<pinned chars="(\d+)">\n')
_PINNED_CLOSING = "\n</pinned>"
_PINNED_REPEATED = re.compile(r'\n*<pinned(?: chars="\d+")?>\n.*?\n</pinned>(?=\n|$)', re.DOTALL)
_REQUEST = re.compile(rf"(?:^|\n+){re.escape(CURRENT_REQUEST_HEADING)}[ \t]*\n.*?(?=\n## |\n---\n|$(?!\n))", re.DOTALL)
_REQUEST_OPENING = f"\n\n{CURRENT_REQUEST_HEADING}\n\n"


def file_ops_of(messages: Sequence[Message], previous_details: object = None) -> FileOps:
    """Files that the calls in `messages` read and changed, after those the previous compaction listed.

    Calls of the tools `read`, `write` and `edit` by their `path`; a call whose result is an error did neither.
    `previous_details` is that entry's `details`, whoever wrote it.
    """
    read = _listed(previous_details, "readFiles")
    modified = _listed(previous_details, "modifiedFiles")
    for call in _calls_that_succeeded(messages):
        path = call.arguments.get("path")
        if isinstance(path, str) and path:
            if call.name in READING_TOOLS:
                read.append(path)
            elif call.name in MODIFYING_TOOLS:
                modified.append(path)
    changed = dict.fromkeys(modified)
    return FileOps(read=tuple(path for path in dict.fromkeys(read) if path not in changed), modified=tuple(changed))


def details_of(ops: FileOps, extra: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The entry's `details`: `extra`, with the cumulative lists."""
    return {**(extra or {}), "readFiles": list(ops.read), "modifiedFiles": list(ops.modified)}


def with_pinned(summary: str, pinned: Sequence[str]) -> str:
    """The summary with each pinned text after it, byte for byte; earlier pinned blocks are taken out."""
    text = without_pinned(summary)
    for block in dict.fromkeys(pinned):
        if block:
            text += f'\n\n<pinned chars="{len(block)}">\n{block}{_PINNED_CLOSING}'
    return text


def with_file_lists(summary: str, ops: FileOps) -> str:
    """The summary with `<read-files>` and `<modified-files>` after it, where there are any; earlier lists go."""
    text = without_file_lists(summary)
    for tag, paths in (("read-files", ops.read), ("modified-files", ops.modified)):
        if paths:
            lines = [_line(path) for path in paths[-MOST_LISTED_FILES:]]
            if len(paths) > MOST_LISTED_FILES:
                lines.insert(0, f"({len(paths) - MOST_LISTED_FILES:,} earlier ones not listed)")
            text += f"\n\n<{tag}>\n" + "\n".join(lines) + f"\n</{tag}>"
    return text


def with_current_request(summary: str, text: str, keep_recent_tokens: int) -> str:
    """The summary with `## Current request` at its very end, the text verbatim.

    A text above half of `keep_recent_tokens` is shortened to its head and tail, with a mark where they part.
    """
    return _outside_pinned(summary, _REQUEST).strip() + _REQUEST_OPENING + _bounded(text, keep_recent_tokens // 2)


def current_request_of(summary: str | None) -> str | None:
    """The request that `with_current_request` put at the end of a summary; None where there is none."""
    if summary is None:
        return None
    last_pinned = max((end for _, end in _pinned_blocks(summary)), default=0)
    start = summary.find(_REQUEST_OPENING, last_pinned)
    return summary[start + len(_REQUEST_OPENING) :] if start >= 0 else None


def without_pinned(summary: str) -> str:
    """The summary without pinned blocks: those that are whole, then what a model made of others."""
    pieces: list[str] = []
    position = 0
    for start, end in _pinned_blocks(summary):
        pieces.append(summary[position:start].rstrip("\n"))
        position = end
    pieces.append(summary[position:])
    return _PINNED_REPEATED.sub("", "".join(pieces)).rstrip()


def without_file_lists(summary: str) -> str:
    return _outside_pinned(summary, _LISTS).strip()


def _listed(details: object, key: str) -> list[str]:
    paths = details.get(key) if isinstance(details, Mapping) else None
    return [path for path in paths if isinstance(path, str) and path] if isinstance(paths, (list, tuple)) else []


def _calls_that_succeeded(messages: Sequence[Message]) -> list[ToolCall]:
    calls: list[ToolCall | None] = []
    latest: dict[str, int] = {}
    for message in messages:
        if isinstance(message, AssistantMessage):
            for call in message.tool_calls:
                latest[call.id] = len(calls)
                calls.append(call)
        elif isinstance(message, ToolResultMessage) and message.is_error and message.tool_call_id in latest:
            calls[latest[message.tool_call_id]] = None
    return [call for call in calls if call is not None]


def _line(path: str) -> str:
    """A path on one line, with nothing in it that could close the list."""
    return " ".join(path.splitlines()).replace("</", "<\\/")


def _pinned_blocks(summary: str) -> Iterator[tuple[int, int]]:
    """Where whole pinned blocks start and end. Their length is in them, so that no text inside can end one."""
    position = 0
    while (opening := _PINNED_OPENING.search(summary, position)) is not None:
        end = opening.end() + int(opening[1])
        if summary.startswith(_PINNED_CLOSING, end):
            position = end + len(_PINNED_CLOSING)
            yield opening.start(), position
        else:
            position = opening.end()


def _outside_pinned(summary: str, pattern: re.Pattern[str]) -> str:
    """`summary` with what matches taken out, pinned blocks left as they are."""
    pieces: list[str] = []
    position = 0
    for start, end in _pinned_blocks(summary):
        pieces += [pattern.sub("\n", summary[position:start]), summary[start:end]]
        position = end
    pieces.append(pattern.sub("\n", summary[position:]))
    return "".join(pieces)


def _bounded(text: str, most_tokens: int) -> str:
    tokens = estimate_text_tokens(text)
    most_tokens = max(most_tokens, _LEAST_REQUEST_TOKENS)
    if tokens <= most_tokens:
        return text
    chars = len(text)
    while True:
        # By proportion; a text of several scripts may take more than one step.
        chars = min(chars - 1, chars * most_tokens * 9 // (tokens * 10))
        head, tail = text[: chars - chars // 2], text[len(text) - chars // 2 :]
        tokens = estimate_text_tokens(head) + estimate_text_tokens(tail)
        if tokens <= most_tokens:
            mark = f"[… {len(text) - chars:,} characters left out here; search_history finds the whole message …]"
            return f"{head}\n{mark}\n{tail}"
