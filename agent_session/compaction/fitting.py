"""How much to keep, and what to make smaller, so that a compaction ends under the threshold.

Pure. The rule it keeps: the most is kept that fits beside a summary. Giant items are shrunk before anything is
measured; where the tail of the first choice does not fit all the same, its next largest are, and only then is less
kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from agent_session.compaction.cut_point import Cut, Unit, find_cut, units_of
from agent_session.compaction.shrink import plan_shrinks
from agent_session.compaction.tokens import TokenLedger
from agent_session.compaction.types import SMALL_SUMMARY_SHARE, Budget, Shrink
from session_store.messages import CustomMessage, ToolResultMessage
from session_store.projection import ProjectedMessage

SHARE_OF_ROOM = 4
"""An item above this part of the room between overhead and threshold is a giant."""

MOST_HALVINGS = 3

Locate: TypeAlias = Callable[[str, str], str]
"""(entry id, full text) -> words that say where the full text can be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """A cut with what is shrunk of the tail it keeps. `kept_tokens` is the tail's size after that."""

    cut: Cut
    keep_tokens: int
    kept_tokens: int
    shrinks: tuple[Shrink, ...]
    is_enough: bool


class Fitting:
    """One context, without its leading summary, under one budget. `scale` is what an estimated token counts for."""

    def __init__(
        self,
        context: Sequence[ProjectedMessage],
        positions: dict[str, int],
        ties: Iterable[tuple[int, int]],
        *,
        budget: Budget,
        scale: float,
        ledger: TokenLedger,
        locate: Locate,
    ) -> None:
        self._context = context
        self._ties = list(ties)
        self._ledger = ledger
        self._locate = locate
        self.room = max(1, round(budget.threshold / scale) - budget.overhead)
        """Estimated tokens that messages and a summary may take together."""
        self.share = max(1, self.room // SHARE_OF_ROOM)
        """Above this an item is a giant, and so is the summary that the context begins with."""
        self._least_summary = min(budget.summary_max_tokens, max(1, self.room // SMALL_SUMMARY_SHARE))
        self.giants = self._plan(context, None)
        slim = shrunk(context, self.giants)
        self.slim_tokens = ledger.total(item.message for item in slim)
        self.units: list[Unit] = units_of(slim, positions, ledger)

    def best(self, budgets: Iterable[int], *, least_dropped: int, is_giant_enough: bool) -> Fit | None:
        """The cut of the first budget that is enough; else the one that keeps least; None where too little goes.

        Fewer messages than `least_dropped` are too little, except, with `is_giant_enough`, for a giant among them.
        """
        found: Fit | None = None
        for keep_tokens in budgets:
            cut = find_cut(self.units, self._ties, keep_tokens=keep_tokens)
            dropped = self.units[: cut.kept_from]
            has_giant = is_giant_enough and any(unit.tokens > self.share for unit in dropped)
            if sum(len(unit.items) for unit in dropped) < least_dropped and not has_giant:
                continue
            fit = self._fit(cut, keep_tokens)
            if fit.is_enough:
                return fit
            if found is None or fit.kept_tokens < found.kept_tokens:
                found = fit
        return found

    def without_cut(self, most_tokens: int) -> tuple[Shrink, ...]:
        """What to shrink where nothing can be dropped: the giants, and as much more as brings all of it to fit."""
        if self.slim_tokens <= most_tokens:
            return self.giants
        return self._plan(self._context, most_tokens)

    def uncut(self, shrinks: tuple[Shrink, ...]) -> Fit:
        """Everything is kept, some of it shrunk."""
        kept = self._ledger.total(item.message for item in shrunk(self._context, shrinks))
        return Fit(
            cut=Cut(kept_from=0, span_start=0), keep_tokens=kept, kept_tokens=kept, shrinks=shrinks, is_enough=True
        )

    def _plan(self, context: Sequence[ProjectedMessage], most_tokens: int | None) -> tuple[Shrink, ...]:
        return plan_shrinks(
            context, share_tokens=self.share, most_tokens=most_tokens, ledger=self._ledger, locate=self._locate
        )

    def _fit(self, cut: Cut, keep_tokens: int) -> Fit:
        kept = self.units[cut.kept_from :]
        kept_ids = {item.entry.id for unit in kept for item in unit.items}
        shrinks = tuple(shrink for shrink in self.giants if shrink.entry_id in kept_ids)
        tokens = sum(unit.tokens for unit in kept)
        most = self.room - self._least_summary
        if tokens > most:
            tail = [item for item in self._context if item.entry.id in kept_ids]
            shrinks = self._plan(tail, most)
            tokens = self._ledger.total(item.message for item in shrunk(tail, shrinks))
        return Fit(cut=cut, keep_tokens=keep_tokens, kept_tokens=tokens, shrinks=shrinks, is_enough=tokens <= most)


def shrunk(context: Iterable[ProjectedMessage], shrinks: Iterable[Shrink]) -> list[ProjectedMessage]:
    """The context as it will show once the edits are appended."""
    replacements: Mapping[str, Shrink] = {shrink.entry_id: shrink for shrink in shrinks}
    result: list[ProjectedMessage] = []
    for item in context:
        shrink, message = replacements.get(item.entry.id), item.message
        # A synthetic result stands for another message's entry, and no edit reaches it.
        if shrink is not None and isinstance(message, ToolResultMessage | CustomMessage):
            item = ProjectedMessage(item.entry, replace(message, content=shrink.replacement))
        result.append(item)
    return result


def halvings(keep_tokens: int) -> list[int]:
    """The budget, and the smaller ones for a tail that does not fit; the last keeps what must be kept, no more."""
    return [*(keep_tokens >> times for times in range(MOST_HALVINGS)), 0]
