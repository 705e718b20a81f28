"""A session on the screen: one line for each event that matters, text as it streams.

The rule it keeps: everything shown of a session is told by its events. `console` says how wide and in which colours.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from agent_session.events import (
    AgentSettled,
    CompactionEnd,
    CompactionStart,
    Event,
    ExtensionFailed,
    MessageDiscarded,
    MessageStart,
    MessageUpdate,
    ModelSelect,
    QueueUpdate,
    RetryStart,
    SessionStart,
    ThinkingLevelSelect,
    ToolExecutionEnd,
    ToolExecutionStart,
    TurnEnd,
    Warning,
)
from agent_session.hooks import BeforeCompact, MessageEnd
from agent_session.llm.client import TextDelta, ThinkingDelta
from agent_session.meter import ContextUsage
from agent_session.terminal.console import printable, takes_unicode
from agent_session.terminal.flow import Flow
from agent_session.terminal.meter_bar import METER_CELLS, meter_bar
from session_store.messages import AssistantMessage, UserMessage, text_of

LABEL_WIDTH = 11
ARGUMENT_CHARS = 60
SUMMARY_CHARS = 90
OUTCOME_STYLES = {"applied": "green", "skipped": "dim", "vetoed": "yellow", "aborted": "yellow"}


class Screen:
    """Shows a session's events. `listen` is what `session.subscribe` takes; `usage` gives the session's context.

    `shows_answers`: the text of answers, as it streams. `shows_queue`: texts that wait, when they are queued.
    """

    def __init__(self, console: Console, *, shows_answers: bool = True, shows_queue: bool = False) -> None:
        self.console = console
        self.usage: Callable[[], ContextUsage] | None = None
        self._shows_answers = shows_answers
        self._shows_queue = shows_queue
        self._flow = Flow(console, indent=LABEL_WIDTH)
        self._arguments: dict[str, dict[str, Any]] = {}
        self._waiting: tuple[str, ...] = ()
        self._last_refusal: str | None = None

    def line(self, label: str, text: str | Text, *, style: str = "") -> None:
        """One labelled line; on a terminal a long one goes on below its own beginning."""
        self._flow.end()
        shown = text if isinstance(text, Text) else Text(printable(text), style)
        room = max(self.console.width - LABEL_WIDTH, LABEL_WIDTH)
        lines = shown.wrap(self.console, room) if self.console.is_terminal else [shown]
        label = f"{label:<{LABEL_WIDTH}}"
        for part in lines:
            part.rstrip()
            self.console.print(Text.assemble((label, "dim"), part))
            label = " " * LABEL_WIDTH

    def path(self, label: str, path: Path) -> None:
        """A path, never divided: a terminal that breaks the line still lets one copy it whole."""
        self._flow.end()
        self.console.print(Text.assemble((f"{label:<{LABEL_WIDTH}}", "dim"), str(path)), soft_wrap=True)

    def error(self, text: str) -> None:
        """What went wrong; of what the provider's refusal said already, only what goes beyond it."""
        rest = text.removeprefix(self._last_refusal or "").strip()
        if rest:
            self.line("error", rest, style="red")
        self._last_refusal = None

    def meter(self) -> None:
        """The context meter, with the threshold in it."""
        if self.usage is None:
            return
        usage = self.usage()
        room = self.console.width - LABEL_WIDTH - len(repr(usage)) - 3
        cells = METER_CELLS if not self.console.is_terminal else max(min(METER_CELLS, room), 10)
        bar = meter_bar(usage, cells=cells, unicode=takes_unicode(self.console))
        self.line("context", Text.assemble(bar, " ", (repr(usage), "dim")))

    def listen(self, event: Event) -> None:
        """Show an event."""
        match event:
            case MessageUpdate(delta=TextDelta(text=text)):
                self._stream("assistant", text, style="")
            case MessageUpdate(delta=ThinkingDelta(thinking=text)):
                self._stream("thinking", text, style="dim italic")
            case MessageStart():
                self._flow.end()
            case MessageEnd(message=UserMessage() as message):
                self.line("user", message.text, style="bold")
            case MessageEnd(message=AssistantMessage()):
                self._flow.end()
            case MessageDiscarded(reason=reason):
                self._last_refusal = reason
                self.line("refused", reason, style="red")
            case ToolExecutionStart(call_id=call_id, arguments=arguments):
                self._arguments[call_id] = arguments
            case ToolExecutionEnd():
                self._tool(event)
            case TurnEnd():
                self.meter()
            case _:
                self._notice(event)

    def _stream(self, label: str, text: str, *, style: str) -> None:
        if not self._shows_answers or not text:
            return
        if self._flow.label != label:
            self._flow.begin(label, style=style)
        self._flow.feed(text)

    def _notice(self, event: Event) -> None:
        """What is not part of the conversation: compactions, models, trouble."""
        match event:
            case BeforeCompact(decided_by=str() as owner):
                answer = f"vetoes: {event.veto.reason}" if event.veto is not None else "writes the summary itself"
                self.line("extension", f"{owner} {answer}", style="yellow")
            case CompactionStart() | CompactionEnd():
                self._compaction(event)
            case SessionStart(reason=reason):
                self.line("session", f"opened ({reason})")
            case ModelSelect(model=model):
                self.line("model", model)
            case ThinkingLevelSelect(thinking_level=level):
                self.line("thinking", level)
            case RetryStart(attempt=attempt, max_retries=most, delay=delay):
                self.line("retry", f"{attempt} of {most}, in {delay:.1f} s", style="yellow")
            case Warning(text=text):
                self.line("warning", text, style="yellow")
            case ExtensionFailed(owner=owner, why=why):
                self.line("failure", f"{owner}: {why}", style="red")
            case QueueUpdate():
                self._queued(event)
            case AgentSettled(aborted=True):
                self.line("run", "aborted", style="yellow")
            case _:
                pass

    def _compaction(self, event: CompactionStart | CompactionEnd) -> None:
        if isinstance(event, CompactionStart):
            limit = f", the threshold is {event.threshold:,}" if event.reason == "threshold" else ""
            before, messages = event.tokens_before, event.messages
            self.line("compaction", f"starts ({event.reason}): {before:,} tokens{limit}; {messages} messages leave")
            return
        outcome = event.outcome
        self.line("compaction", str(outcome), style=f"bold {OUTCOME_STYLES.get(outcome.status, 'red')}")
        if outcome.summary is not None:
            self.line("summary", shortened(_gist(outcome.summary), SUMMARY_CHARS), style="dim")
            self.meter()

    def _queued(self, event: QueueUpdate) -> None:
        waiting = event.steering + event.follow_up + event.next_turn
        if self._shows_queue:
            for text in waiting[len(self._waiting) :]:
                self.line("queued", shortened(text, SUMMARY_CHARS), style="cyan")
        self._waiting = waiting

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
        text = Text.assemble(
            printable(shortened(shown, ARGUMENT_CHARS)),
            "  ",
            (printable(outcome), "red" if event.is_error else "green"),
            (f", {event.duration:.2f} s", "dim"),
        )
        self.line(f"  {event.tool_name}", text)


def shortened(text: str, length: int) -> str:
    """On one line, its end left out where it is longer."""
    line = " ".join(text.split())
    return line if len(line) <= length else f"{line[: length - 3]}..."


def _gist(summary: str) -> str:
    """The first lines of a summary that are no headings."""
    return " / ".join([line for line in summary.splitlines() if line.strip() and not line.startswith("#")][:3])
