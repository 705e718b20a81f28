"""What stands under the input while somebody types: the meter, the model, and what the session is doing."""

from __future__ import annotations

import time

from rich.text import Text

from agent_session.events import (
    AgentSettled,
    AgentStart,
    CompactionEnd,
    Event,
    ModelSelect,
    QueueUpdate,
    SessionStart,
    SessionTree,
    TurnEnd,
)
from agent_session.hooks import MessageEnd
from agent_session.meter import ContextUsage
from agent_session.session import AgentSession
from agent_session.terminal.meter_bar import meter_bar, short_usage
from agent_session.terminal.progress import CompactionClock
from agent_session.terminal.screen import shortened

QUEUE_LINES = 5
TEXT_CHARS = 70
BAR_CELLS = 16
_CHANGES_CONTEXT = (SessionStart, MessageEnd, TurnEnd, CompactionEnd, ModelSelect, SessionTree)


class Status:
    """Follows a session's events. What it measures is looked up when an event may have changed it."""

    def __init__(self) -> None:
        self._session: AgentSession | None = None
        self._usage: ContextUsage | None = None
        self._model = ""
        self._since: float | None = None
        self._queue: tuple[tuple[str, str], ...] = ()
        self._clock = CompactionClock()

    def follow(self, session: AgentSession) -> None:
        """Show another session from now on."""
        self._session = session
        self._since = None
        self._queue = ()
        self._clock = CompactionClock()

    def listen(self, event: Event) -> None:
        """Take note of an event."""
        self._clock.listen(event)
        match event:
            case AgentStart():
                self._since = self._since or time.monotonic()
            case AgentSettled():
                self._since = None
            case QueueUpdate(steering=steering, follow_up=follow_up, next_turn=next_turn):
                lanes = (("steering", steering), ("follow-up", follow_up), ("next turn", next_turn))
                self._queue = tuple((lane, text) for lane, texts in lanes for text in texts)
            case _:
                pass
        if self._session is not None and isinstance(event, _CHANGES_CONTEXT):
            self._usage = self._session.context_usage()
            self._model = self._session.model.id

    @property
    def is_busy(self) -> bool:
        """Whether the seconds shown must move."""
        return self._since is not None or self._clock.is_running

    def queue_lines(self) -> list[Text]:
        """What waits for the model, in order of delivery."""
        lines = [
            Text.assemble((f"queued     {shortened(text, TEXT_CHARS)}", "cyan"), (f"  ({lane})", "dim"))
            for lane, text in self._queue[:QUEUE_LINES]
        ]
        rest = len(self._queue) - QUEUE_LINES
        return [*lines, Text(f"queued     and {rest} more", "dim")] if rest > 0 else lines

    def line(self, *, unicode: bool) -> Text:
        """What matters most comes first: the right end of a narrow terminal is cut off."""
        parts = [self._activity()]
        if self._usage is not None:
            parts.append(Text.assemble(meter_bar(self._usage, cells=BAR_CELLS, unicode=unicode), " "))
            parts[-1].append(short_usage(self._usage))
        parts.append(Text(self._model, "dim"))
        return Text("  ").join(part for part in parts if part.plain)

    def _activity(self) -> Text:
        compaction = self._clock.line
        if compaction is not None:
            return Text.assemble((compaction, "bold magenta"), (" (Ctrl-C aborts it)", "dim"))
        if self._since is not None:
            seconds = time.monotonic() - self._since
            return Text.assemble((f"running {seconds:.0f} s", "bold cyan"), (" (Ctrl-C aborts)", "dim"))
        return Text("ready", "dim")
