"""What is under way and for how long, a compaction or tools, in one line that goes away when it ends."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Self

from rich.console import Console
from rich.text import Text

from agent_session.events import (
    AgentSettled,
    CompactionEnd,
    CompactionProgress,
    CompactionStart,
    Event,
    ToolExecutionEnd,
    ToolExecutionStart,
)

if TYPE_CHECKING:
    from rich.live import Live

REDRAWS_PER_SECOND = 8


class WorkClock:
    """What is known of the compaction and the tools under way, from their events. `line` is None while there are none.

    A compaction goes first: it is what Ctrl-C aborts.
    """

    def __init__(self) -> None:
        self._compacting_since: float | None = None
        self._step = ""
        self._tools: dict[str, tuple[str, float]] = {}

    def listen(self, event: Event) -> None:
        """Take note of an event."""
        match event:
            case CompactionStart():
                self._compacting_since = time.monotonic()
                self._step = "starting"
            case CompactionProgress():
                self._step = f"{event.phase} {event.chunk}/{event.chunks}"
            case CompactionEnd():
                self._compacting_since = None
            case ToolExecutionStart(call_id=call_id, tool_name=name):
                self._tools[call_id] = (name, time.monotonic())
            case ToolExecutionEnd(call_id=call_id):
                self._tools.pop(call_id, None)
            case AgentSettled():
                self._tools.clear()
            case _:
                pass

    @property
    def is_compacting(self) -> bool:
        return self._compacting_since is not None

    @property
    def is_running(self) -> bool:
        return self.is_compacting or bool(self._tools)

    @property
    def line(self) -> str | None:
        """`compacting: summarizing 1/3, 4 s`, or `bash and 2 more tools, 4 s`: since the first of them began."""
        now = time.monotonic()
        if self._compacting_since is not None:
            return f"compacting: {self._step}, {now - self._compacting_since:.0f} s"
        if not self._tools:
            return None
        (name, since), *others = self._tools.values()
        more = f" and {len(others)} more tool{'s' if len(others) > 1 else ''}" if others else ""
        return f"{name}{more}, {now - since:.0f} s"


class ProgressLine:
    """The line on a terminal that nothing else draws on: it moves by itself, and is gone when what it tells of ends.

    Not on dumb terminals and not in pipes: there the lines at start and end say enough.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._clock = WorkClock()
        self._shown: Live | None = None

    def listen(self, event: Event) -> None:
        """Show what is under way after an event."""
        self._clock.listen(event)
        if self._clock.is_running:
            self._show()
        else:
            self.close()

    def close(self) -> None:
        """Take the line away. Safe to call twice."""
        if self._shown is not None:
            shown, self._shown = self._shown, None
            shown.stop()

    @contextmanager
    def hidden(self) -> Iterator[None]:
        """Away for a block in which somebody types: it would be drawn over what is typed."""
        self.close()
        yield
        if self._clock.is_running:
            self._show()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _show(self) -> None:
        if self._shown is not None or not self._console.is_terminal or self._console.is_dumb_terminal:
            return
        from rich.live import Live  # noqa: PLC0415 - 0.05 s
        from rich.spinner import Spinner  # noqa: PLC0415 - see above

        spinner = Spinner("dots")

        def drawn() -> Spinner:
            aborts = "it" if self._clock.is_compacting else "the run"
            spinner.update(text=Text.assemble(self._clock.line or "", (f"  Ctrl-C aborts {aborts}", "dim")))
            return spinner

        self._shown = Live(
            get_renderable=drawn,
            console=self._console,
            transient=True,
            refresh_per_second=REDRAWS_PER_SECOND,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._shown.start()
