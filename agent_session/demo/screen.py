"""What a person sees of the demonstration: its sessions as the command line shows them, under headings, and the table.

The rule it keeps: everything shown of a session is told by its events. Its own characters are ASCII, so that no
encoding can refuse them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from agent_session.demo.account import Row
from agent_session.terminal.console import make_console as make_console
from agent_session.terminal.screen import Screen as SessionScreen

ID_CHARS = 8
OUTCOME_STYLES = {"applied": "green", "vetoed": "yellow", "killed": "red"}


class Screen(SessionScreen):
    """The command line's screen, with acts and a table. A console that records pictures only the acts in `pictured`."""

    def __init__(self, console: Console, *, pictured: Sequence[int] = ()) -> None:
        super().__init__(console)
        self._pictured = pictured

    def act(self, number: int, title: str) -> None:
        """A heading."""
        self.console.record = number in self._pictured
        self.console.print()
        self.console.rule(Text(f"{number}. {title}", style="bold"), characters="-", align="left", style="dim")

    def heading(self, text: str) -> None:
        """A heading at the end, where the acts are over."""
        self.console.print()
        self.console.print(Text(text, style="bold"))

    def table(self, rows: Iterable[Row], stored: Sequence[str]) -> None:
        """Every compaction: what set it off, what came of it, and the entry's id where it is in the file."""
        self.console.record = bool(self._pictured)
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
        self.console.print()
