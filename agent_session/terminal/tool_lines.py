"""What is shown of a tool's call: what it is asked for, what came of it, and the lines worth seeing of its result.

The rule it keeps: whatever a model or a tool says, a call takes a bounded number of lines; what is left out is said.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.text import Text

from agent_session.events import ToolExecutionEnd
from agent_session.terminal.console import printable
from agent_session.terminal.wording import bounded, counted
from session_store.messages import text_of

SUBJECT_CHARS = 1_000
SUBJECT_LINES = 8
VALUE_CHARS = 200
OUTPUT_LINES = 5
DIFF_LINES = 12
REASON_CHARS = 300

_PATH_TOOLS = ("read", "write", "edit")
_DIFF_STYLES = {"+": "green", "-": "red", "@": "cyan"}


def subject(tool_name: str, arguments: Mapping[str, Any]) -> str:
    """What the call is about, bounded: the whole command, the file, or each argument by its name."""
    rest = dict(arguments)
    first = ""
    if tool_name == "bash" and isinstance(rest.get("command"), str):
        first = rest.pop("command").strip()
    elif tool_name in _PATH_TOOLS and isinstance(rest.get("path"), str):
        first = rest.pop("path")
        # What is written is shown by its size, what is replaced by its diff.
        for name in ("content", "old_text", "new_text", "oldText", "newText"):
            rest.pop(name, None)
    others = " ".join(f"{name}={bounded(repr(value), VALUE_CHARS)}" for name, value in rest.items())
    return _first_lines(printable("  ".join(part for part in (first, others) if part)))


def outcome(event: ToolExecutionEnd) -> Text:
    """How it ended, and in how many seconds."""
    said = text_of(event.content).strip().splitlines()
    details = event.details if isinstance(event.details, dict) else {}
    facts = ["failed" if event.is_error else "ok"]
    if event.tool_name == "bash" and said:
        facts.append(said[-1].strip("[]"))
    elif event.is_error:
        facts.append(" ".join(said))
    elif event.tool_name == "edit" and isinstance(details.get("diff"), str):
        changes = _changes(details["diff"])
        facts.append(f"+{sum(line[0] == '+' for line in changes)} -{sum(line[0] == '-' for line in changes)} lines")
    elif event.tool_name == "write" and isinstance(details.get("bytes"), int):
        facts.append(f"{details['bytes']:,} bytes {'created' if details.get('created') else 'replaced'}")
    elif event.tool_name == "read":
        facts.append(counted(len(said), "line"))
    words = bounded(printable(", ".join(fact for fact in facts if fact)).replace("\n", " "), REASON_CHARS)
    return Text.assemble((words, "red" if event.is_error else "green"), (f", {event.duration:.2f} s", "dim"))


def result_lines(event: ToolExecutionEnd) -> list[Text]:
    """The end of what a command printed, or what an edit changed; a line of the screen each."""
    if event.tool_name == "bash":
        printed = [line for line in text_of(event.content).splitlines()[:-1] if line.strip()]
        left_out = len(printed) - OUTPUT_LINES
        note = [Text(f"... {counted(left_out, 'line')} before", "dim")] if left_out > 0 else []
        return [*note, *(Text(printable(line), "dim") for line in printed[-OUTPUT_LINES:])]
    details = event.details if isinstance(event.details, dict) else {}
    if event.tool_name == "edit" and isinstance(details.get("diff"), str):
        changes = _changes(details["diff"])
        left_out = len(changes) - DIFF_LINES
        note = [Text(f"... {counted(left_out, 'line')} more", "dim")] if left_out > 0 else []
        return [*(Text(printable(line), _DIFF_STYLES.get(line[0], "dim")) for line in changes[:DIFF_LINES]), *note]
    return []


def _changes(diff: str) -> Sequence[str]:
    """The lines of a unified diff that are taken away or added, and where."""
    body = diff.splitlines()[2:]  # after the names of the file
    return [line for line in body if line[:1] in _DIFF_STYLES]


def _first_lines(text: str) -> str:
    shown = bounded(text, SUBJECT_CHARS)
    lines = shown.splitlines()
    left_out = len(lines) - SUBJECT_LINES
    return "\n".join([*lines[:SUBJECT_LINES], f"... {counted(left_out, 'line')} more"]) if left_out > 0 else shown
