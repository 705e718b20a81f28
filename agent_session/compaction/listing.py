"""The lists of a digest: what somebody said, one item each, made to fit the room there is.

Pure. The rule it keeps: an item begins with `- ` and all of its other lines are indented, so that whatever it says, it
is one item of its list when it is read again. Items get equal shares, the oldest one line where room is short, and
those that find no room at all are counted in one line that later counts are added to.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from agent_session.compaction.cutting import head_within, tail_within
from agent_session.compaction.text_tokens import MOST_CHARS_PER_TOKEN, estimate_text_tokens
from session_store.json_lines import replace_surrogates
from session_store.showing import printable

_LINES: Final = (40, 24, 14)
"""What an item takes that is shown in one line: the longest with which all of them fit, else the shortest."""

_SHARE_TOKENS: Final = 120
"""A smaller share than this is one line instead, so that a little room is not spread over everything."""

_OPENING_CHARS = 40
_CUT = "[…]"
_LEFT_OUT = re.compile(r"\(([\d,]+) more left out\)")
_LINES_LEFT_OUT = re.compile(r"\(([\d,]+) more lines? left out\)")

# Tags that a summary is put between, or that the runtime finds its own additions by.
_OWN_TAGS = re.compile(
    r"<(?=/?(?:pinned|read-files|modified-files|conversation-summary|branch-summary)\b)", re.IGNORECASE
)


@dataclass(slots=True)
class ItemList:
    """Items oldest first, as `item_of` gave them, and how many more there were."""

    items: list[str] = field(default_factory=list)
    left_out: int = 0
    _costs: dict[str, int] = field(default_factory=dict, repr=False, compare=False)

    @property
    def tokens(self) -> int:
        """What all of it takes; 0 for nothing."""
        return sum(map(self._cost, self.items)) + _cost_of_count(self.left_out)

    @property
    def least_tokens(self) -> int:
        """What it takes with each item in one short line, and a count."""
        lines = sum(min(self._cost(item), _LINES[-1]) for item in self.items)
        return lines + _cost_of_count(self.left_out + len(self.items))

    def keep_latest(self, most: int) -> None:
        """Count all but the latest `most`."""
        self.left_out += max(0, len(self.items) - most)
        self.items = self.items[-most:]

    def written(self, most_tokens: int, *, keeps_first: bool = False) -> str:
        """The list in at most `most_tokens`. `keeps_first`: the first item is treated like the latest."""
        if self.tokens <= most_tokens:
            return _written([f"- {item}" for item in self.items], self.left_out)
        room = most_tokens - _cost_of_count(self.left_out + len(self.items))
        shares = self._shares(room, keeps_first=keeps_first)
        shown = [f"- {self._shown(i, tokens)}" for i, tokens in sorted(shares.items())]
        return _written(shown, self.left_out + len(self.items) - len(shares))

    def _shares(self, room: int, *, keeps_first: bool) -> dict[int, int]:
        """Tokens by item: as many as can be in one line, the latest of them in more, each in as much as the others."""
        costs = [self._cost(item) for item in self.items]
        order = list(range(len(costs) - 1, -1, -1))
        if keeps_first and len(order) > 2:
            order.insert(1, order.pop())
        line = min(room, next((line for line in _LINES if sum(min(cost, line) for cost in costs) <= room), _LINES[-1]))
        shares: dict[int, int] = {}
        for i in order:
            if line < 2 or min(costs[i], line) > room:
                break
            room -= min(costs[i], line)
            shares[i] = line
        roomy: list[int] = []
        for i in shares:
            more = min(costs[i], _SHARE_TOKENS) - min(costs[i], line)
            if more > room:
                break
            room -= more
            roomy.append(i)
        level = _level([costs[i] for i in roomy], room + sum(min(costs[i], _SHARE_TOKENS) for i in roomy))
        return shares | dict.fromkeys(roomy, level)

    def _cost(self, item: str) -> int:
        """With its dash and the end of its line; estimated once."""
        if item not in self._costs:
            self._costs[item] = estimate_text_tokens(f"- {item}") + 1
        return self._costs[item]

    def _shown(self, i: int, tokens: int) -> str:
        item = self.items[i]
        if self._cost(item) <= tokens:
            return item
        # The dash and the end of the line take two at most.
        return _within(" ".join(item.split()) if tokens < _SHARE_TOKENS else item, tokens - 2)


def item_of(text: str, most_tokens: int) -> str:
    """What somebody said as an item: blank lines left out, tags of the runtime's own broken; "" where nothing is left.

    Of a text that can never fit into `most_tokens` no more is looked at than could be shown.
    """
    chars = (
        max(1, most_tokens) * MOST_CHARS_PER_TOKEN
    )  # more than head and tail of it could be, each half of the tokens
    if len(text) > 2 * chars:
        text = f"{text[:chars]}\n{_CUT}\n{text[len(text) - chars :]}"
    lines = [printable(line).rstrip() for line in replace_surrogates(text).splitlines()]
    return defused("\n  ".join(line for line in lines if line).strip())


def items_of(text: str) -> ItemList:
    """A list as `ItemList.written` wrote it, or as somebody has rewritten it since."""
    left_out = 0
    items: list[list[str]] = []
    for line in text.split("\n"):
        if (count := _LEFT_OUT.fullmatch(line)) is not None:
            left_out += _number(count[1])
        elif line.startswith("- ") or (line.strip() and not items):
            items.append([line.removeprefix("- ")])
        elif line.strip():
            items[-1].append(line.removeprefix("  "))
    return ItemList(["\n  ".join(lines) for lines in items], left_out)


def opening_of(item: str) -> str:
    """How it begins, for telling whether it is said already."""
    return " ".join(item.split())[:_OPENING_CHARS]


def text_within(text: str, most_tokens: int) -> str:
    """Head and tail of a text, with the number of lines between them, those that were left out before counted in."""
    if estimate_text_tokens(text) <= most_tokens:
        return text
    lines = text.split("\n")
    counts = [_number(count[1]) for line in lines if (count := _LINES_LEFT_OUT.fullmatch(line))]
    lines = [line for line in lines if not _LINES_LEFT_OUT.fullmatch(line)]
    room = most_tokens - estimate_text_tokens(_lines_left_out(sum(counts) + len(lines))) - 2
    body = "\n".join(lines)
    head = head_within(body, room - room // 2)
    tail = tail_within(body[len(head) :], room // 2)
    shown = sum(part.rstrip("\n").count("\n") + 1 for part in (head, tail) if part)
    mark = _lines_left_out(sum(counts) + max(1, len(lines) - shown))
    return "\n".join(part for part in (head.rstrip("\n"), mark, tail) if part)


def defused(text: str) -> str:
    """The text with nothing in it that a reader could take for a tag of the runtime's own."""
    return _OWN_TAGS.sub(r"<\\", text)


def _written(items: Sequence[str], left_out: int) -> str:
    return "\n".join([*([_left_out(left_out)] if left_out else []), *items])


def _within(item: str, most_tokens: int) -> str:
    room = most_tokens - estimate_text_tokens(f" {_CUT} ") - 1
    if room < 4:
        return head_within(item, most_tokens).rstrip()
    head, tail = head_within(item, room - room // 2), tail_within(item, room // 2)
    return f"{head.rstrip()} {_CUT} {tail.lstrip()}"


def _level(sizes: Sequence[int], room: int) -> int:
    """The size to which all that are larger are cut, so that together they take `room`."""
    for position, size in enumerate(sorted(sizes)):
        others = len(sizes) - position
        if size * others >= room:
            return room // others
        room -= size
    return max(sizes, default=0)


def _cost_of_count(count: int) -> int:
    return estimate_text_tokens(_left_out(count)) + 1 if count else 0


def _left_out(count: int) -> str:
    return f"({count:,} more left out)"


def _lines_left_out(count: int) -> str:
    return f"({count:,} more line{'' if count == 1 else 's'} left out)"


def _number(digits: str) -> int:
    return int(digits.replace(",", "") or "0")
