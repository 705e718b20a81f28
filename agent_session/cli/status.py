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
from agent_session.terminal.progress import WorkClock
from agent_session.terminal.wording import shortened

QUEUE_LINES = 5
TEXT_CHARS = 70
BAR_CELLS = 16
_LEAST_IMPORTANT_FIRST = ("threshold", "bar", "hint", "model", "usage")
"""What leaves a narrow line; what is going on stays."""
_GAPS = {("activity", "hint"): " ", ("bar", "usage"): " ", ("usage", "threshold"): ", "}
_CHANGES_CONTEXT = (SessionStart, MessageEnd, TurnEnd, CompactionEnd, ModelSelect, SessionTree)


class Status:
    """Follows a session's events. What it measures is looked up when an event may have changed it."""

    def __init__(self) -> None:
        self._session: AgentSession | None = None
        self._usage: ContextUsage | None = None
        self._model = ""
        self._since: float | None = None
        self._queue: tuple[tuple[str, str], ...] = ()
        self._clock = WorkClock()

    def follow(self, session: AgentSession) -> None:
        """Show another session from now on."""
        self._session = session
        self._since = None
        self._queue = ()
        self._clock = WorkClock()

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

    def line(self, *, unicode: bool, columns: int) -> Text:
        """What fits into `columns`, in whole fields; the one that matters least goes first."""
        fields = {name: text for name, text in self._fields(unicode=unicode).items() if text.plain}
        for name in _LEAST_IMPORTANT_FIRST:
            if _joined(fields).cell_len <= columns:
                break
            fields.pop(name, None)
        return _joined(fields)

    def _fields(self, *, unicode: bool) -> dict[str, Text]:
        """In the order in which they stand."""
        activity, hint = self._activity()
        fields = {"activity": activity, "hint": hint}
        if self._usage is not None:
            fields["bar"] = meter_bar(self._usage, cells=BAR_CELLS, unicode=unicode)
            tokens, _, threshold = short_usage(self._usage).partition(", ")
            fields |= {"usage": Text(tokens), "threshold": Text(threshold)}
        return {**fields, "model": Text(self._model, "dim")}

    def _activity(self) -> tuple[Text, Text]:
        """What it is doing, and what Ctrl-C does about it."""
        work = self._clock.line
        if work is not None and self._clock.is_compacting:
            return Text(work, "bold magenta"), Text("(Ctrl-C aborts it)", "dim")
        if self._since is not None:
            work = work or f"running {time.monotonic() - self._since:.0f} s"
            return Text(work, "bold cyan"), Text("(Ctrl-C aborts)", "dim")
        return Text("ready", "dim"), Text("")


def _joined(fields: dict[str, Text]) -> Text:
    line = Text()
    before = ""
    for name, text in fields.items():
        line.append(_GAPS.get((before, name), "  ") if before else "")
        line.append_text(text)
        before = name
    return line
