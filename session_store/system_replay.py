"""One system message that says what several said, one after the other.

Other programs keep the system prompt and the tools in the log; this library never does. A compaction on a
branch that has such messages carries their replay, because readers drop them from what it keeps. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from session_store.messages import Json, SystemMessage, TextContent, text_of


def replay_system_messages(messages: Iterable[SystemMessage]) -> SystemMessage | None:
    """The state after the last message; None where there is none.

    Contents are joined by blank lines. `sections` are patched by name, a null takes one out. Of each message
    first the removed, then the added tools apply, by name; a tool added again keeps its place.
    """
    texts: list[str] = []
    sections: Json = {}
    tools: dict[str, Any] = {}
    last: SystemMessage | None = None
    for last in messages:
        text = text_of(last.content)
        if text:
            texts.append(text)
        for name, section in (last.sections or {}).items():
            if section is None:
                sections.pop(name, None)
            else:
                sections[name] = section
        for tool in last.tools_removed:
            tools.pop(_tool_name(tool), None)
        for tool in last.tools_added:
            tools[_tool_name(tool)] = tool
    if last is None:
        return None
    return SystemMessage(
        content=(TextContent("\n\n".join(texts)),) if texts else (),
        sections=sections or None,
        tools_added=tuple(tools.values()),
        timestamp=last.timestamp,
    )


def _tool_name(tool: object) -> str:
    return str(tool.get("name", "")) if isinstance(tool, dict) else str(tool)
