"""Random sessions on the disk: written by the real writer, then by others, then damaged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
from hypothesis import strategies as st

from session_store import SessionManager
from session_store.entries import UnknownEntry
from session_store.errors import InvalidBoundaryError
from session_store.ids import new_id
from session_store.messages import (
    AssistantMessage,
    Content,
    Cost,
    SystemMessage,
    TextContent,
    ToolCall,
    ToolResultMessage,
    Usage,
    UserMessage,
    as_content,
)
from session_store.undo import plan_undo
from tests.session_store.branch_building import TIMESTAMP, compaction

Step = tuple[str, int, int]

_KINDS = (
    *("user", "answer", "result", "answer", "result") * 3,
    *("compact", "compact", "shrink", "foreign", "undo"),
    *("edit", "branch", "summary", "label", "name", "custom", "large", "message", "model", "level", "usage"),
    *("system", "unknown"),
)
NUMBER = st.integers(min_value=0, max_value=8) | st.integers(min_value=0, max_value=200)
STEPS = st.lists(st.tuples(st.sampled_from(_KINDS), NUMBER, NUMBER), min_size=1, max_size=60)


def write(path: Path, steps: list[Step]) -> None:
    """A session with those steps, under `path`."""
    with SessionManager.create(path.parent, session_dir=path.parent) as manager:
        manager.append_message(UserMessage(content=as_content("begin")))
        for kind, first, second in steps:
            take(manager, kind, first, second)
        assert manager.path is not None
        written = manager.path
    written.rename(path)


def as_pi_writes(path: Path, which: Callable[[int], bool]) -> None:
    """Some lines with their keys in another order: the same bytes, and no head in the exact form."""
    header, *lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(header + b"".join(_reordered(line) if which(n) else line for n, line in enumerate(lines)))


def _reordered(line: bytes) -> bytes:
    data = orjson.loads(line)
    moved = orjson.dumps({key: data[key] for key in ("type", *(k for k in reversed(data) if k != "type"))}) + b"\n"
    return moved if len(moved) == len(line) else line


def take(manager: SessionManager, kind: str, first: int, second: int) -> None:
    """One step."""
    ids = [entry.id for entry in manager.get_branch()]
    everywhere = [entry.id for entry in manager]
    here, anywhere = ids[-1 - first % len(ids)], everywhere[-1 - second % len(everywhere)]
    text = "word " * (first + second)
    usage = Usage(input=first, output=second, cost=Cost(total=first / 4) if second % 3 else None)
    match kind:
        case "user":
            manager.append_message(UserMessage(content=as_content(text)))
        case "answer":
            calls = [ToolCall(f"c{number}", "read", {}) for number in range(second % 3)]
            content: tuple[Content, ...] = (TextContent(text), *calls)
            stop = "aborted" if first % 7 == 0 else "stop"
            manager.append_message(
                AssistantMessage(
                    content=content, provider="acme", model=f"m{second % 2}", usage=usage, stop_reason=stop
                )
            )
        case "result":
            manager.append_message(
                ToolResultMessage(tool_call_id=f"c{first % 3}", tool_name="read", content=as_content(text))
            )
        case "compact" | "shrink":
            edits = [(anywhere, as_content("smaller")), (here, None)] if kind == "shrink" else []
            boundary = None if second % 5 == 0 else here
            entry = replace(compaction(new_id(), boundary), usage=usage)
            try:
                manager.append_compaction_entry(entry, edits)
            except InvalidBoundaryError:
                manager.append_compaction_entry(replace(entry, first_kept_entry_id=None), edits)
        case "foreign":
            boundary = [None, here, anywhere, "nowhere", "itself"][second % 5]
            is_itself = boundary == "itself" and boundary not in manager
            foreign = compaction("itself" if is_itself else new_id(), boundary)
            manager._append([replace(foreign, parent_id=manager.leaf_id, timestamp=TIMESTAMP)])
        case "undo":
            planned = plan_undo(manager)
            if planned is not None:
                manager.append_undo(planned)
        case "edit":
            manager.append_context_edit(anywhere, None if first % 2 else text)
        case "branch":
            manager.branch(anywhere)
        case "summary":
            manager.append_branch_summary(manager.leaf_id, text, parent_id=anywhere)
        case "label":
            manager.append_label(anywhere, f"label {first}" if first % 3 else None)
        case "name":
            manager.set_name(f"name {first}" if first % 4 else "")
        case "custom":
            manager.append_custom(f"state {second % 3}", {"n": first})
        case "large":
            manager.append_custom(f"state {second % 3}", "x" * 5_000)
        case "message":
            manager.append_custom_message("note", text)
        case "model":
            manager.append_model_change("acme", f"model {first}")
        case "level":
            manager.append_thinking_level_change(["off", "low", "high"][first % 3])
        case "usage":
            manager.append_usage("compaction", "acme", "small", usage)
        case "system":
            manager.append_message(SystemMessage(content=as_content(text)))
        case _:
            raw: dict[str, Any] = {"payload": first}
            entry_of_tomorrow = UnknownEntry(
                id=new_id(), parent_id=manager.leaf_id, timestamp=TIMESTAMP, type="from_tomorrow", raw=raw
            )
            manager._append([entry_of_tomorrow])
