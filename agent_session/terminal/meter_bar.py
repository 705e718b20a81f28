"""The context meter: a bar of the model's window, with the threshold of compaction marked in it."""

from __future__ import annotations

from rich.text import Text

from agent_session.meter import ContextUsage

METER_CELLS = 32
NEARLY_FULL = 0.8
"""Of the threshold: from here on the bar is yellow."""


def meter_bar(usage: ContextUsage, *, cells: int = METER_CELLS, unicode: bool = False) -> Text:
    """`[####----|--]`: filled up to the tokens of the next request, `|` where the session compacts.

    Green, yellow near the threshold, red above it.
    """
    full, empty, mark = ("\u2588", "\u2591", "\u2502") if unicode else ("#", "-", "|")
    filled = round(cells * usage.tokens / usage.window)
    threshold = min(cells - 1, cells * usage.threshold // usage.window)
    style = _style(usage)
    bar = Text("[", "dim")
    for cell in range(cells):
        if cell == threshold:
            bar.append(mark, "bold")
        elif cell < filled:
            bar.append(full, style)
        else:
            bar.append(empty, "dim")
    bar.append("]", "dim")
    return bar


def short_usage(usage: ContextUsage) -> str:
    """The meter in words for where there is little room: `21.9k of 128.0k, compacts above 111.6k`."""
    tokens, window, threshold = map(_short, (usage.tokens, usage.window, usage.threshold))
    return f"{tokens} of {window}, compacts above {threshold}"


def _style(usage: ContextUsage) -> str:
    if usage.tokens > usage.threshold:
        return "red"
    return "yellow" if usage.tokens > NEARLY_FULL * usage.threshold else "green"


def _short(tokens: int) -> str:
    return str(tokens) if tokens < 1_000 else f"{tokens / 1_000:.1f}k"
