"""What the runtime itself adds to a summary, a handler's too: pinned text, file lists, the current request.

Pure. The rule it keeps: each addition is in a summary once, however often it was summarised before, and pinned text
and the current request are there byte for byte. They follow the summary in this order, each made by one function:
`with_pinned`, `with_file_lists`, `with_current_request`; what a model repeated of an earlier one is taken out first,
but never from inside pinned text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

from agent_session.compaction.cutting import head_within, tail_within
from agent_session.compaction.text_tokens import estimate_text_tokens
from agent_session.compaction.types import FileOps
from session_store.messages import AssistantMessage, Message, ToolCall, ToolResultMessage

CURRENT_REQUEST_HEADING = "## Current request"

READING_TOOLS = frozenset({"read"})
MODIFYING_TOOLS = frozenset({"write", "edit"})

MOST_LISTED_FILES = 200
"""A list in a summary shows this many, the latest; the entry's details have all of them."""

_LEAST_REQUEST_TOKENS = 32
_LEAST_COPY_CHARS = 32
"""A shorter line may well be the summary's own."""

_LISTS = re.compile(r"\n*<(read-files|modified-files)>\n.*?\n</\1>(?=\n|$)", re.DOTALL)
_PINNED_OPENING = re.compile(r'<pinned chars="(\d+)">\n')
_PINNED_CLOSING = "\n</pinned>"
_PINNED_REPEATED = re.compile(r'\n*<pinned(-\w+)?(?: chars="\d+")?>\n.*?\n</pinned(?(1)\1)>(?=\n|$)', re.DOTALL)
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
    """The summary with each pinned text after it, byte for byte; earlier pinned blocks are taken out, and so are copies
    of the texts that a model made without their tags, where they stand on lines of their own.
    """
    text = without_pinned(summary)
    for block in dict.fromkeys(pinned):
        if len(block) >= _LEAST_COPY_CHARS:
            text = re.sub(rf"(?<![^\n]){re.escape(block)}(?![^\n])", "", text)
    for block in dict.fromkeys(pinned):
        if block:
            text += f'\n\n<pinned chars="{len(block)}">\n{block}{_PINNED_CLOSING}'
    return text


def with_file_lists(summary: str, ops: FileOps, most_tokens: int | None = None) -> str:
    """The summary with `<read-files>` and `<modified-files>` after it, where there are any; earlier lists go.

    `most_tokens` is what the two may take together: the latest of those modified come first, then of those read.
    """
    modified = _file_list("modified-files", ops.modified, most_tokens)
    left = most_tokens if most_tokens is None else most_tokens - estimate_text_tokens(modified)
    return without_file_lists(summary) + _file_list("read-files", ops.read, left) + modified


def with_current_request(summary: str, text: str, keep_recent_tokens: int) -> str:
    """The summary with `## Current request` at its very end, the text verbatim.

    A text above half of `keep_recent_tokens` is shortened to its head and tail, with a mark where they part.
    """
    return _outside_pinned(summary, _REQUEST).strip() + _REQUEST_OPENING + _bounded(text, keep_recent_tokens // 2)


def current_request_of(summary: str | None) -> str | None:
    """The request that `with_current_request` put at the end of a summary; None where there is none."""
    start = _request_start(summary) if summary is not None else -1
    return summary[start + len(_REQUEST_OPENING) :] if summary is not None and start >= 0 else None


def without_current_request(summary: str) -> str:
    """The summary without the request at its end."""
    start = _request_start(summary)
    return summary[:start] if start >= 0 else summary


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


def _file_list(tag: str, paths: Sequence[str], most_tokens: int | None) -> str:
    """The latest paths between their tags, with the number of the others; "" where there are none, or no room."""
    listed = [_line(path) for path in paths[-MOST_LISTED_FILES:]]
    if most_tokens is not None:
        room = most_tokens - estimate_text_tokens(_between(tag, [_earlier(len(paths))])) - 1
        taken = accumulate(estimate_text_tokens(line) + 1 for line in reversed(listed))
        fitting = sum(tokens <= room for tokens in taken)
        if room < 0 or not fitting:
            return ""
        listed = listed[-fitting:]
    left_out = [_earlier(len(paths) - len(listed))] if len(paths) > len(listed) else []
    return _between(tag, left_out + listed) if listed else ""


def _between(tag: str, lines: Sequence[str]) -> str:
    return f"\n\n<{tag}>\n" + "\n".join(lines) + f"\n</{tag}>"


def _earlier(count: int) -> str:
    return f"({count:,} earlier ones not listed)"


def _line(path: str) -> str:
    """A path on one line, with nothing in it that could close the list."""
    return " ".join(path.splitlines()).replace("</", "<\\/")


def _request_start(summary: str) -> int:
    last_pinned = max((end for _, end in _pinned_blocks(summary)), default=0)
    return summary.find(_REQUEST_OPENING, last_pinned)


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
    most_tokens = max(most_tokens, _LEAST_REQUEST_TOKENS)
    if estimate_text_tokens(text) <= most_tokens:
        return text
    head = head_within(text, most_tokens - most_tokens // 2)
    tail = tail_within(text[len(head) :], most_tokens // 2)
    left_out = len(text) - len(head) - len(tail)
    mark = f"[… {left_out:,} characters left out here; search_history finds the whole message …]"
    return f"{head}\n{mark}\n{tail}"
