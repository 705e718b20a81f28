"""Messages that wait: accepted at any time, delivered once and in order, never dropped.

A message is `taken` while it is on its way into the log: it counts as waiting until `delivered` says it is
stored, and `restore` puts it back where it was. Three lanes: steering enters before the next request,
follow-ups when the run would end, next-turn messages with the next prompt.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from session_store.messages import CustomMessage, UserMessage

Lane: TypeAlias = Literal["steer", "follow_up", "next_turn"]
IfBusy: TypeAlias = Literal["raise", "wait", "steer", "follow_up"]


@dataclass(frozen=True, slots=True, eq=False)
class Queued:
    lane: Lane
    message: UserMessage | CustomMessage

    @property
    def text(self) -> str:
        return self.message.text


class MessageQueue:
    """`on_change` is called, synchronously, after every change."""

    def __init__(self, on_change: Callable[[], None]) -> None:
        self._lanes: dict[Lane, list[Queued]] = {"steer": [], "follow_up": [], "next_turn": []}
        self._taken: list[Queued] = []
        self._on_change = on_change

    def put(self, lane: Lane, message: UserMessage | CustomMessage) -> None:
        self._lanes[lane].append(Queued(lane, message))
        self._on_change()

    def waiting(self, lane: Lane) -> tuple[Queued, ...]:
        """What is still to be delivered, what is on its way included."""
        return (*(item for item in self._taken if item.lane == lane), *self._lanes[lane])

    @property
    def pending(self) -> tuple[str, ...]:
        """The texts in order of delivery."""
        return tuple(item.text for lane in self._lanes for item in self.waiting(lane))

    @property
    def starts_a_run(self) -> bool:
        """Whether something waits that wants an answer; next-turn messages wait for a prompt."""
        return bool(self._lanes["steer"] or self._lanes["follow_up"])

    def take(self, lane: Lane, limit: int | None = None) -> list[Queued]:
        """The next ones of a lane. Each must end in `delivered` or `restore`."""
        items, self._lanes[lane] = self._lanes[lane][:limit], self._lanes[lane][len(self._lanes[lane][:limit]) :]
        self._taken.extend(items)
        return items

    def delivered(self, item: Queued) -> None:
        self._taken.remove(item)
        self._on_change()

    def restore(self, items: list[Queued]) -> None:
        """Put back, in front and in order, those of `items` that were not delivered."""
        for item in reversed(items):
            if item in self._taken:
                self._taken.remove(item)
                self._lanes[item.lane].insert(0, item)

    def clear(self) -> list[str]:
        """Take everything out and hand back the texts. What is on its way into the log stays there."""
        return [item.text for item in self.withdraw()]

    def withdraw(self) -> list[Queued]:
        """`clear` for who may have to `reinstate` it."""
        items = [item for lane in self._lanes.values() for item in lane]
        if items:
            self._lanes = {"steer": [], "follow_up": [], "next_turn": []}
            self._on_change()
        return items

    def reinstate(self, items: list[Queued]) -> None:
        """Put back, in front and in order, what was withdrawn and could not be handed to anybody."""
        for item in reversed(items):
            self._lanes[item.lane].insert(0, item)
        if items:
            self._on_change()
