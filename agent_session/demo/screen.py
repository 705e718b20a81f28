"""What a person sees: one line for each event that matters, as it comes, and the table at the end.

The rule it keeps: everything shown of a session is told by its events. On a terminal it takes the terminal's width and,
unless NO_COLOR is set, its colours; into a pipe or a file go plain lines without control codes. Its own characters are
ASCII, so that no encoding can refuse them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from agent_session.demo.account import Row
from agent_session.events import (
    CompactionEnd,
    CompactionStart,
    Event,
    ExtensionFailed,
    MessageDiscarded,
    MessageStart,
    MessageUpdate,
    ModelSelect,
    RetryStart,
    SessionStart,
    ToolExecutionEnd,
    ToolExecutionStart,
    TurnEnd,
    Warning,
)
from agent_session.hooks import BeforeCompact, MessageEnd
from agent_session.llm.client import TextDelta
from agent_session.meter import ContextUsage
from session_store.messages import AssistantMessage, UserMessage, text_of

PIPED_WIDTH = 120
LABEL_WIDTH = 11
METER_CELLS = 32
ARGUMENT_CHARS = 60
SUMMARY_CHARS = 90
ID_CHARS = 8
OUTCOME_STYLES = {"applied": "green", "vetoed": "yellow", "killed": "red"}


def make_console() -> Console:
    """Standard output. A pipe has no width of its own; the usual 80 columns would break the table."""
    console = Console(highlight=False, emoji=False, markup=False)
    return (
        console
        if console.is_terminal
        else Console(highlight=False, emoji=False, markup=False, width=PIPED_WIDTH, soft_wrap=True)
    )


class Screen:
    """Shows a session's events. `listen` is what `session.subscribe` takes; `usage` gives the session's context."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.usage: Callable[[], ContextUsage] | None = None
        self._flow = _Flow(console, indent=LABEL_WIDTH)
        self._arguments: dict[str, dict[str, Any]] = {}

    def act(self, number: int, title: str) -> None:
        """A heading."""
        self.console.print()
        self.console.rule(Text(f"{number}. {title}", style="bold"), characters="-", align="left", style="dim")

    def heading(self, text: str) -> None:
        """A heading at the end, where the acts are over."""
        self.console.print()
        self.console.print(Text(text, style="bold"))

    def line(self, label: str, text: str, *, style: str = "") -> None:
        """One labelled line; on a terminal a long one goes on below its own beginning."""
        self._flow.end()
        room = max(self.console.width - LABEL_WIDTH, LABEL_WIDTH)
        lines = Text(text, style).wrap(self.console, room) if self.console.is_terminal else [Text(text, style)]
        label = f"{label:<{LABEL_WIDTH}}"
        for part in lines:
            part.rstrip()
            self.console.print(Text.assemble((label, "dim"), part))
            label = " " * LABEL_WIDTH

    def path(self, label: str, path: Path) -> None:
        """A path, never divided: a terminal that breaks the line still lets one copy it whole."""
        self.console.print(Text.assemble((f"{label:<{LABEL_WIDTH}}", "dim"), str(path)), soft_wrap=True)

    def listen(self, event: Event) -> None:
        """Show an event."""
        match event:
            case MessageUpdate(delta=TextDelta(text=text)):
                self._flow.feed(text)
            case MessageStart():
                self._flow.begin("assistant")
            case MessageEnd(message=UserMessage() as message):
                self.line("user", message.text, style="bold")
            case MessageEnd(message=AssistantMessage()):
                self._flow.end()
            case MessageDiscarded(reason=reason):
                self.line("refused", reason, style="red")
            case ToolExecutionStart(call_id=call_id, arguments=arguments):
                self._arguments[call_id] = arguments
            case ToolExecutionEnd():
                self._tool(event)
            case TurnEnd():
                self._meter()
            case _:
                self._notice(event)

    def table(self, rows: Iterable[Row], stored: Sequence[str]) -> None:
        """Every compaction: what set it off, what came of it, and the entry's id where it is in the file."""
        gap, space = (2, " ") if self.console.width >= 100 else (1, "\n")
        table = Table(box=None, padding=(0, gap, 0, 0), pad_edge=False, header_style="bold")
        for heading in ("act", "when", "reason", "method", "outcome"):
            table.add_column(heading, no_wrap=True)
        for heading in (f"tokens{space}before", f"tokens{space}after", "entries"):
            table.add_column(heading, justify="right")
        table.add_column(f"log{space}entry", overflow="fold")
        for row in rows:
            table.add_row(
                str(row.act),
                row.moment,
                row.reason,
                row.method or "-",
                Text(row.outcome, style=OUTCOME_STYLES.get(row.outcome, "red")),
                f"{row.before:,}",
                f"{row.after:,}" if row.after is not None else "-",
                str(row.entries) if row.entries else "-",
                row.entry_id[:ID_CHARS] if row.entry_id is not None and row.entry_id in stored else "-",
            )
        self.console.print()
        self.console.print(table, soft_wrap=False)

    def _notice(self, event: Event) -> None:
        """What is not part of the conversation: compactions, models, trouble."""
        match event:
            case BeforeCompact(decided_by=str() as owner):
                answer = f"vetoes: {event.veto.reason}" if event.veto is not None else "writes the summary itself"
                self.line("extension", f"{owner} {answer}", style="yellow")
            case CompactionStart(reason=reason, tokens_before=before, messages=messages):
                limit = f", the threshold is {event.threshold:,}" if reason == "threshold" else ""
                self.line("compaction", f"starts ({reason}): {before:,} tokens{limit}; {messages} messages leave")
            case CompactionEnd(outcome=outcome):
                style = OUTCOME_STYLES.get(outcome.status, "red")
                self.line("compaction", str(outcome), style=f"bold {style}")
                if outcome.summary is not None:
                    self.line("summary", shortened(_gist(outcome.summary), SUMMARY_CHARS), style="dim")
                    self._meter()
            case SessionStart(reason=reason):
                self.line("session", f"opened ({reason})")
            case ModelSelect(model=model):
                self.line("model", model)
            case Warning(text=text) | RetryStart(error=text):
                self.line("warning", text, style="yellow")
            case ExtensionFailed(owner=owner, why=why):
                self.line("failure", f"{owner}: {why}", style="red")
            case _:
                pass

    def _tool(self, event: ToolExecutionEnd) -> None:
        arguments = self._arguments.pop(event.call_id, {})
        said = text_of(event.content).splitlines()
        outcome = "failed" if event.is_error else "ok"
        if event.tool_name == "bash" and said:
            outcome += f", {said[-1].strip('[]')}"
        elif event.is_error and said:
            outcome += f", {shortened(said[0], ARGUMENT_CHARS)}"
        elif event.tool_name == "read":
            outcome += f", {len(said)} lines"
        shown = " ".join(f"{name}={value!r}" for name, value in arguments.items())
        self.line(f"  {event.tool_name}", f"{shortened(shown, ARGUMENT_CHARS)}  {outcome}, {event.duration:.2f} s")

    def _meter(self) -> None:
        if self.usage is None:
            return
        usage = self.usage()
        filled = min(METER_CELLS, round(METER_CELLS * usage.tokens / usage.window))
        threshold = min(METER_CELLS - 1, METER_CELLS * usage.threshold // usage.window)
        cells = ["#" if cell < filled else "-" for cell in range(METER_CELLS)]
        cells[threshold] = "|"
        self.line("context", f"[{''.join(cells)}] {usage!r}", style="dim")


class _Flow:
    """Text as it streams, broken between words at the console's width, indented under its label."""

    def __init__(self, console: Console, *, indent: int) -> None:
        self._console = console
        self._indent = indent
        self._label = ""
        self._column = 0
        self._gap = ""
        self._word = ""

    def begin(self, label: str) -> None:
        """Nothing is shown before there is text: an answer may be tool calls alone."""
        self.end()
        self._label = label

    def feed(self, text: str) -> None:
        *whole, self._word = re.split(r"(?<=\s)(?=\S)|(?<=\S)(?=\s)", self._word + text)
        for piece in whole:
            self._put(piece)

    def end(self) -> None:
        if self._word:
            self._put(self._word)
        if self._column:
            self._console.out()
        self._label = self._gap = self._word = ""
        self._column = 0

    def _put(self, piece: str) -> None:
        if piece.isspace():
            self._gap = piece if "\n" in piece or "\n" not in self._gap else self._gap
            return
        if not self._column:
            self._console.out(f"{self._label:<{self._indent}}", end="", style="dim", highlight=False)
            self._column = self._indent
        elif "\n" in self._gap or self._column + len(self._gap) + len(piece) > self._console.width:
            self._console.out(f"\n{' ' * self._indent}", end="", highlight=False)
            self._column = self._indent
        elif self._gap:
            piece = f" {piece}"
        self._gap = ""
        self._console.out(piece, end="", highlight=False)
        self._column += len(piece)


def shortened(text: str, length: int) -> str:
    """On one line, its end left out where it is longer."""
    line = " ".join(text.split())
    return line if len(line) <= length else f"{line[: length - 3]}..."


def _gist(summary: str) -> str:
    """The first lines of a summary that are no headings."""
    return " / ".join([line for line in summary.splitlines() if line.strip() and not line.startswith("#")][:3])
