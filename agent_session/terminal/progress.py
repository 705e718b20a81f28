"""How far a compaction is: phase, chunk and seconds, in one line that goes away when it ends."""

from __future__ import annotations

import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

from rich.console import Console

from agent_session.events import CompactionEnd, CompactionProgress, CompactionStart, Event

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


class CompactionClock:
    """What is known of the compaction under way, from its events. `line` is None while there is none."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._step = ""

    def listen(self, event: Event) -> None:
        """Take note of an event."""
        match event:
            case CompactionStart():
                self._since = time.monotonic()
                self._step = "starting"
            case CompactionProgress():
                self._step = f"{event.phase} {event.chunk}/{event.chunks}"
            case CompactionEnd():
                self._since = None
            case _:
                pass

    @property
    def is_running(self) -> bool:
        return self._since is not None

    @property
    def step(self) -> str:
        """`summarizing 1/3`."""
        return self._step

    @property
    def line(self) -> str | None:
        """`compacting: summarizing 1/3, 4 s`."""
        if self._since is None:
            return None
        return f"compacting: {self._step}, {time.monotonic() - self._since:.0f} s"


class ProgressLine:
    """The line on a terminal that nothing else draws on: it moves by itself, and is gone when the compaction ends.

    Not on dumb terminals and not in pipes: there the lines at start and end say enough.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._clock = CompactionClock()
        self._shown: tuple[Progress, TaskID] | None = None

    def listen(self, event: Event) -> None:
        """Show an event of a compaction; any other is ignored."""
        self._clock.listen(event)
        if not self._clock.is_running:
            self.close()
        elif isinstance(event, CompactionStart | CompactionProgress):
            self._show()

    def close(self) -> None:
        """Take the line away. Safe to call twice."""
        if self._shown is not None:
            progress, _ = self._shown
            self._shown = None
            progress.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _show(self) -> None:
        if not self._console.is_terminal or self._console.is_dumb_terminal:
            return
        if self._shown is not None:
            progress, task = self._shown
            progress.update(task, description=self._clock.step)
            return
        from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn  # noqa: PLC0415 - 0.05 s

        progress = Progress(
            SpinnerColumn(),
            TextColumn("compacting: {task.description}"),
            TimeElapsedColumn(),
            TextColumn("Ctrl-C aborts it", style="dim"),
            console=self._console,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._shown = (progress, progress.add_task(self._clock.step, total=None))
        progress.start()
