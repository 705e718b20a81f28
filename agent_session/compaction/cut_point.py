"""Where to cut: which of the context stays verbatim.

Pure. The rule it keeps: an answer and the results of its calls are one unit and are never parted, no result stands
first in what is kept, and what is kept is never empty: so a batch that is not over yet, the last there is, stays.

The user's own messages divide the context into spans. A cut stands where a span opens, with as many whole spans kept
as fit the budget. Only a span that is larger than the budget by itself is cut inside, at an answer (elsewhere only if
no answer fits): so the latest user message is kept unless its own span does not fit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from agent_session.compaction.tokens import TokenLedger
from session_store.entries import ContextEditEntry
from session_store.messages import (
    AssistantMessage,
    CompactionSummaryMessage,
    Message,
    ToolResultMessage,
    UserMessage,
)
from session_store.projection import ProjectedMessage, Projection


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """What is kept or dropped together: one message, or an answer with the results of its calls.

    `position` is where its first entry stands in the projection's entries; units ascend by it.
    """

    items: tuple[ProjectedMessage, ...]
    position: int
    tokens: int

    @property
    def first(self) -> Message:
        return self.items[0].message

    @property
    def messages(self) -> tuple[Message, ...]:
        return tuple(item.message for item in self.items)

    @property
    def opens_span(self) -> bool:
        return isinstance(self.first, UserMessage)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """`kept_from` is the first unit that stays; 0 drops nothing. `span_start` is the unit that opens its span."""

    kept_from: int
    span_start: int

    @property
    def is_inside_span(self) -> bool:
        return self.kept_from != self.span_start


def units_of(context: Sequence[ProjectedMessage], positions: dict[str, int], ledger: TokenLedger) -> list[Unit]:
    """The context in units. `positions` is where each entry stands; `context` is without the leading summary."""
    starts = [i for i, item in enumerate(context) if not isinstance(item.message, ToolResultMessage)]
    units: list[Unit] = []
    for start, end in pairwise([*starts, len(context)]):
        items = tuple(context[start:end])
        tokens = ledger.total(item.message for item in items)
        units.append(Unit(items=items, position=positions[items[0].entry.id], tokens=tokens))
    return units


def ties_of(projection: Projection, units: Iterable[Unit], positions: dict[str, int]) -> list[tuple[int, int]]:
    """Positions (first, last) that a boundary must not come between: it may not be in `first + 1 ... last`.

    A call and its result, wherever that stands, also those of an answer that failed and is in no unit; and an edit
    that stands before its target, which would show again as it was.
    """
    ties = [(unit.position, positions[item.entry.id]) for unit in units for item in unit.items[1:]]
    owners: dict[str, int] = {}
    for item in projection.messages:
        message = item.message
        if isinstance(message, AssistantMessage):
            owners.update((call.id, positions[item.entry.id]) for call in message.tool_calls)
        elif isinstance(message, ToolResultMessage) and message.tool_call_id in owners:
            ties.append((owners.pop(message.tool_call_id), positions[item.entry.id]))
    ties += [
        (position, positions.get(entry.target_id, -1))
        for position, entry in enumerate(projection.entries)
        if isinstance(entry, ContextEditEntry)
    ]
    return ties


def find_cut(units: Sequence[Unit], ties: Iterable[tuple[int, int]], *, keep_tokens: int) -> Cut:
    """The cut that keeps the most within `keep_tokens`, or, where nothing possible fits, the least.

    Nothing is dropped where all of it fits.
    """
    tails = list(accumulate((unit.tokens for unit in reversed(units)), initial=0))[::-1]
    if tails[0] <= keep_tokens:
        return Cut(kept_from=0, span_start=0)
    span_starts, span_tokens = _spans(units)
    possible = [
        kept_from
        for kept_from in _untied(units, ties)
        if not isinstance(units[kept_from].first, CompactionSummaryMessage)
    ]
    opening = [kept_from for kept_from in possible if span_starts[kept_from] == kept_from]
    inside = [
        kept_from
        for kept_from in possible
        if span_starts[kept_from] != kept_from and span_tokens[kept_from] > keep_tokens
    ]
    at_answers = [kept_from for kept_from in inside if isinstance(units[kept_from].first, AssistantMessage)]
    best = 0
    for candidates in (opening + at_answers, opening + inside):
        if candidates:
            fitting = [kept_from for kept_from in candidates if tails[kept_from] <= keep_tokens]
            best = min(fitting) if fitting else max(candidates)
            if fitting:
                break
    return Cut(kept_from=best, span_start=span_starts[best])


def _spans(units: Sequence[Unit]) -> tuple[list[int], list[int]]:
    """For each unit, the unit that opens its span, and the span's tokens.

    What comes before the first user message is a span as well.
    """
    starts: list[int] = []
    totals = [0] * len(units)
    for i, unit in enumerate(units):
        starts.append(i if unit.opens_span or not starts else starts[-1])
        totals[starts[-1]] += unit.tokens
    return starts, [totals[start] for start in starts]


def _untied(units: Sequence[Unit], ties: Iterable[tuple[int, int]]) -> list[int]:
    """The units at which a boundary parts nothing that is tied."""
    waiting = sorted(ties, reverse=True)
    reach = -1
    free: list[int] = []
    for i, unit in enumerate(units):
        while waiting and waiting[-1][0] < unit.position:
            reach = max(reach, waiting.pop()[1])
        if reach < unit.position:
            free.append(i)
    return free
