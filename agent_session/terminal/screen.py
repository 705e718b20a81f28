"""A session on the screen: one line for each event that matters, text as it streams.

The rule it keeps: everything shown of a session is told by its events. `console` says how wide and in which colours.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

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
from agent_session.terminal import tool_lines
from agent_session.terminal.console import printable, takes_unicode
from agent_session.terminal.flow import Flow
from agent_session.terminal.meter_bar import METER_CELLS, meter_bar, short_usage
from agent_session.terminal.wording import shortened
from session_store.messages import AssistantMessage, UserMessage

LABEL_WIDTH = 11
ABOUT_CHARS = 60
SUMMARY_CHARS = 90
FEWEST_CELLS = 10
METER_STEP = 0.05
"""Of the window: what the context must have changed by to be shown between two turns."""
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
        self._calls: dict[str, str] = {}
        self._newest_call: str | None = None
        self._waiting: tuple[str, ...] = ()
        self._discarded: str | None = None
        self._metered = 0

    def line(self, label: str, text: str | Text, *, style: str = "") -> None:
        """One labelled line; on a terminal a long one goes on below its own beginning."""
        self._flow.pause()
        self._newest_call = None
        shown = text if isinstance(text, Text) else Text(printable(text), style)
        room = max(self.console.width - LABEL_WIDTH, LABEL_WIDTH)
        lines = shown.wrap(self.console, room) if self.console.is_terminal else shown.split()
        label = f"{label:<{LABEL_WIDTH}}"
        for part in lines:
            part.rstrip()
            self.console.print(Text.assemble((label, "dim"), part))
            label = " " * LABEL_WIDTH

    def path(self, label: str, path: Path) -> None:
        """A path, never divided: a terminal that breaks the line still lets one copy it whole."""
        self._flow.pause()
        self.console.print(Text.assemble((f"{label:<{LABEL_WIDTH}}", "dim"), str(path)), soft_wrap=True)

    def error(self, text: str) -> None:
        """What went wrong with something that was asked for."""
        self.line("error", text, style="red")

    def failed(self, text: str) -> None:
        """The last line of a prompt that failed: that it did, and why."""
        self.line("run", f"failed: {text}", style="red")

    def meter(self) -> None:
        """The context meter, with the threshold in it."""
        if self.usage is None:
            return
        usage = self.usage()
        self._metered = usage.tokens
        room = self.console.width - LABEL_WIDTH - FEWEST_CELLS - 3
        words = repr(usage) if not self.console.is_terminal or len(repr(usage)) <= room else short_usage(usage)
        cells = max(min(METER_CELLS, room + FEWEST_CELLS - len(words)), FEWEST_CELLS)
        bar = meter_bar(
            usage, cells=cells if self.console.is_terminal else METER_CELLS, unicode=takes_unicode(self.console)
        )
        self.line("context", Text.assemble(bar, " ", (words, "dim")))

    def _meter_after(self, turn: TurnEnd) -> None:
        """After the last answer, and between tools where the context has grown enough to be seen."""
        if self.usage is None or turn.message is None or turn.message.is_failed:
            return
        usage = self.usage()
        if not turn.tool_results or abs(usage.tokens - self._metered) >= usage.window * METER_STEP:
            self.meter()

    def listen(self, event: Event) -> None:
        """Show an event."""
        match event:
            case MessageUpdate(delta=TextDelta(text=text)):
                self._stream("assistant", text, style="")
            case MessageUpdate(delta=ThinkingDelta(thinking=text)):
                self._stream("thinking", text, style="dim italic")
            case MessageStart():
                self._flow.end()
                self._tell_discarded("failed")
            case MessageEnd(message=UserMessage() as message):
                self.line("user", message.text, style="bold")
            case MessageEnd(message=AssistantMessage()):
                self._flow.end()
            case MessageDiscarded(reason=reason):
                # Told with what comes of it: a retry and a failed run say it themselves, an abort needs no reason.
                self._flow.end()
                self._discarded = reason
            case ToolExecutionStart() | ToolExecutionEnd():
                self._tool(event)
            case TurnEnd():
                self._meter_after(event)
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
            case Warning(text=text):
                self.line("warning", text, style="yellow")
            case ExtensionFailed(event="load"):
                pass  # who asked for it gets the error
            case ExtensionFailed(owner=owner, why=why):
                self.line("failure", f"{owner}: {why}", style="red")
            case QueueUpdate():
                self._queued(event)
            case RetryStart() | AgentSettled():
                self._ended(event)
            case _:
                pass

    def _ended(self, event: RetryStart | AgentSettled) -> None:
        """An attempt, with what comes next, or all of it."""
        self._discarded = None
        if isinstance(event, RetryStart):
            next_one = f"{event.attempt} of {event.max_retries}, in {event.delay:.1f} s"
            self.line("retry", f"{next_one}: {event.error}", style="yellow")
        elif event.aborted:
            self.line("run", "aborted", style="yellow")

    def _compaction(self, event: CompactionStart | CompactionEnd) -> None:
        if isinstance(event, CompactionStart):
            self._tell_discarded("refused")  # for its size, or there would be no compaction
            limit = f", the threshold is {event.threshold:,}" if event.reason == "threshold" else ""
            before, messages = event.tokens_before, event.messages
            self.line("compaction", f"starts ({event.reason}): {before:,} tokens{limit}; {messages} messages leave")
            return
        outcome = event.outcome
        self.line("compaction", str(outcome), style=f"bold {OUTCOME_STYLES.get(outcome.status, 'red')}")
        if outcome.summary is not None:
            self.line("summary", shortened(_gist(outcome.summary), SUMMARY_CHARS), style="dim")
            self.meter()

    def _tell_discarded(self, label: str) -> None:
        if self._discarded is not None:
            reason, self._discarded = self._discarded, None
            self.line(label, reason, style="red")

    def _queued(self, event: QueueUpdate) -> None:
        waiting = event.steering + event.follow_up + event.next_turn
        if self._shows_queue:
            for text in waiting[len(self._waiting) :]:
                self.line("queued", shortened(text, SUMMARY_CHARS), style="cyan")
        self._waiting = waiting

    def _tool(self, event: ToolExecutionStart | ToolExecutionEnd) -> None:
        """A call's line when it begins; what came of it stands below, or names the call where others came between."""
        label = f"  {event.tool_name}"
        if isinstance(event, ToolExecutionStart):
            about = self._calls[event.call_id] = tool_lines.subject(event.tool_name, event.arguments)
            self.line(label, about)
            self._newest_call = event.call_id
            return
        about = shortened(self._calls.pop(event.call_id, ""), ABOUT_CHARS)
        ended = tool_lines.outcome(event)
        if self._newest_call == event.call_id:
            label = ""
        elif about:
            ended = Text.assemble(about, "  ", ended)
        for shown in tool_lines.result_lines(event):
            self._result_line(label, shown)
            label = ""
        self.line(label, ended)

    def _result_line(self, label: str, shown: Text) -> None:
        """One line of the screen, whatever its length."""
        self._flow.pause()
        shown.truncate(self.console.width - LABEL_WIDTH, overflow="crop")
        self.console.print(Text.assemble((f"{label:<{LABEL_WIDTH}}", "dim"), shown))


def _gist(summary: str) -> str:
    """The first lines of a summary that are no headings."""
    return " / ".join([line for line in summary.splitlines() if line.strip() and not line.startswith("#")][:3])
