"""What one compaction would do, worked out before anybody is asked.

Pure. The rule it keeps: every message of the context is afterwards either in what is summarised or in what is kept,
exactly once. The context begins with the previous summary, which is updated and not summarised again; what the last
compaction kept is in this one's input or kept again. The cost follows the window, never the session's length.

Entries that no model sees stand where they stand: the boundary is the entry of the first message that is kept, so
those before it leave with what is dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from agent_session.compaction.cut_point import Unit, ties_of, units_of
from agent_session.compaction.file_ops import current_request_of, file_ops_of
from agent_session.compaction.fitting import Fit, Fitting, Locate, halvings
from agent_session.compaction.tokens import TokenLedger
from agent_session.compaction.types import Budget, CompactionPreparation, CompactionReason, Shrink, Skip
from session_store.context import build_context
from session_store.messages import CompactionSummaryMessage, ImageContent, Message, UserMessage
from session_store.projection import ProjectedMessage, Projection

LEAST_MESSAGES = 2
"""Fewer than this are not worth a summary, except where the provider has refused a giant: one among them, or the
summary itself."""

_MOST_SCALE: Final = 4.0


def prepare_compaction(
    projection: Projection,
    *,
    budget: Budget,
    tokens_before: int,
    ledger: TokenLedger,
    locate: Locate,
    ratio: float = 1.0,
    keep_recent_tokens: int | None = None,
    reason: CompactionReason = "threshold",
) -> CompactionPreparation | Skip:
    """Decide what stays, what goes and what shrinks, or say why there is nothing to do.

    `keep_recent_tokens` replaces the budget's; a manual compaction keeps at most half of the messages, and so does an
    automatic one that would otherwise find nothing to drop (its estimate is then far below what the provider counts).
    `tokens_before` is the measured size, `ratio` what an estimated token counts for; where the provider refused the
    context, its size says more than any report before. `locate` names the place of a shrunk item's full text.
    """
    context = build_context(projection)
    estimated = budget.overhead + ledger.total(item.message for item in context)
    positions = {entry.id: position for position, entry in enumerate(projection.entries)}
    previous_summary = _previous_summary(projection, context)
    if previous_summary is not None:
        context = context[1:]
    # The provider has just refused this very context: that nothing is new does not help it.
    if reason != "overflow" and (skip := _nothing_new(projection, context, positions)) is not None:
        return skip
    scale = ratio
    if reason == "overflow":
        scale = max(ratio, min(_MOST_SCALE, tokens_before / max(1, estimated)))
    units = units_of(context, positions, ledger)
    fitting = Fitting(
        context,
        positions,
        ties_of(projection, units, positions),
        budget=budget,
        scale=scale,
        ledger=ledger,
        locate=locate,
    )
    keep = budget.keep_recent if keep_recent_tokens is None else keep_recent_tokens
    half = min(keep, fitting.slim_tokens // 2)
    budgets = halvings(half) if reason == "manual" else [keep, *halvings(half)]
    summary_tokens = estimated - budget.overhead - ledger.total(item.message for item in context)
    is_summary_giant = reason == "overflow" and summary_tokens > fitting.share
    fit = fitting.best(
        budgets,
        least_dropped=1 if is_summary_giant else LEAST_MESSAGES,
        is_giant_enough=reason == "overflow",
    )
    # A refusal has just proved the estimate wrong, and there is one recovery: it needs room to spare.
    enough = (fitting.room // 2 if reason == "overflow" else fitting.room) - summary_tokens
    shrinks_alone: tuple[Shrink, ...] = ()
    if fit is None:
        shrinks_alone = fitting.without_cut(enough)
        if not shrinks_alone:
            return Skip(
                why="too_little",
                detail=f"fewer than {LEAST_MESSAGES} messages would be summarised; what is recent, open or one piece "
                "is kept",
            )
        fit = fitting.uncut(shrinks_alone)
    elif reason != "manual" and fitting.slim_tokens <= enough:
        shrinks_alone = fitting.giants
    return _preparation(
        projection,
        units,
        fit,
        positions,
        budget=budget,
        tokens_before=tokens_before,
        previous_summary=previous_summary or None,
        shrinks_alone=shrinks_alone,
        scale=scale,
    )


def request_cut_off(projection: Projection, first_kept_entry_id: str | None) -> str | None:
    """The text of the user message that a boundary parts from what is kept of its turn; None where it parts none.

    `None` as the boundary keeps nothing, and so parts nothing. For boundaries that somebody else chose.
    """
    if first_kept_entry_id is None:
        return None
    positions = {entry.id: position for position, entry in enumerate(projection.entries)}
    boundary = positions.get(first_kept_entry_id, 0)
    context = build_context(projection)
    previous_summary = _previous_summary(projection, context)
    shown = [item for item in context if item.entry is not projection.compaction]
    kept = [item.message for item in shown if positions[item.entry.id] >= boundary]
    if not kept or isinstance(kept[0], UserMessage):
        return None
    dropped = [item.message for item in shown if positions[item.entry.id] < boundary]
    openings = [message for message in dropped if isinstance(message, UserMessage)]
    return _request_text(openings[-1]) if openings else current_request_of(previous_summary)


def _preparation(
    projection: Projection,
    units: Sequence[Unit],
    fit: Fit,
    positions: dict[str, int],
    *,
    budget: Budget,
    tokens_before: int,
    previous_summary: str | None,
    shrinks_alone: tuple[Shrink, ...],
    scale: float,
) -> CompactionPreparation:
    cut = fit.cut
    dropped, kept = units[: cut.kept_from], units[cut.kept_from :]
    history, turn_prefix = dropped, dropped[:0]
    current_request: str | None = None
    if cut.is_inside_span:
        opening = units[cut.span_start].first
        if isinstance(opening, UserMessage):
            history, turn_prefix = dropped[: cut.span_start], dropped[cut.span_start :]
            current_request = _request_text(opening)
        else:
            # The span was opened before the last boundary: what was dropped of it then is in the summary that is
            # updated now, and so is the request.
            current_request = current_request_of(previous_summary)
    details: Any = projection.compaction.details if projection.compaction is not None else None
    return CompactionPreparation(
        leaf_id=projection.leaf_id or "",
        first_kept_entry_id=kept[0].items[0].entry.id,
        messages_to_summarize=_messages(history),
        turn_prefix_messages=_messages(turn_prefix),
        dropped_entry_ids=tuple(
            sorted({item.entry.id for unit in dropped for item in unit.items}, key=positions.__getitem__)
        ),
        kept_entry_ids=tuple(entry.id for entry in projection.entries[kept[0].position :]),
        is_split_turn=bool(turn_prefix) or current_request is not None,
        current_request=current_request,
        previous_summary=previous_summary,
        file_ops=file_ops_of(_messages(dropped), details),
        tokens_before=tokens_before,
        keep_tokens=fit.keep_tokens,
        kept_tokens=fit.kept_tokens,
        shrinks=fit.shrinks,
        shrinks_alone=shrinks_alone,
        scale=scale,
        budget=budget,
    )


def _previous_summary(projection: Projection, context: Sequence[ProjectedMessage]) -> str | None:
    """The summary that the context begins with; None where there is none, or an edit took it out."""
    if context and context[0].entry is projection.compaction:
        message = context[0].message
        return message.summary if isinstance(message, CompactionSummaryMessage) else None
    return None


def _nothing_new(projection: Projection, context: Sequence[ProjectedMessage], positions: dict[str, int]) -> Skip | None:
    compaction = projection.compaction
    if compaction is None or compaction.is_undo:
        # An undo brings history back: no reason not to compact that.
        return None
    if any(positions[item.entry.id] > positions[compaction.id] for item in context):
        return None
    return Skip(why="nothing_new", detail="nothing was added since the last compaction")


def _messages(units: Sequence[Unit]) -> tuple[Message, ...]:
    return tuple(message for unit in units for message in unit.messages)


def _request_text(opening: UserMessage) -> str:
    images = sum(isinstance(block, ImageContent) for block in opening.content)
    notes = [f"[{images} image{'s' if images > 1 else ''}, no longer shown]"] if images else []
    return "\n\n".join(part for part in (opening.text, *notes) if part)
