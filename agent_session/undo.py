"""Taking the newest compaction back: `undo_compaction`.

Rule: whether the result fits is known before anything is written, and then all of it is written at once. No model and
no handler is asked.
"""

from __future__ import annotations

import time
from dataclasses import replace

import anyio

from agent_session.compaction.applied import largest_items
from agent_session.compaction.trigger import output_margin
from agent_session.compaction.types import CompactionOutcome
from agent_session.errors import ContextCannotFitError
from agent_session.parts import Parts
from session_store.context import build_context
from session_store.entries import CompactionEntry, ContextEditEntry
from session_store.undo import Undo, plan_undo

NOTHING_TO_UNDO = "there is no compaction on this branch"


async def undo_compaction(parts: Parts) -> CompactionOutcome:
    """Take back the newest compaction of the branch; `skipped` where there is none.

    Raises:
        ContextCannotFitError: the model does not take what would come back; nothing was appended.
    """
    started = time.monotonic()
    undo = plan_undo(parts.manager)
    if undo is None:
        return CompactionOutcome(status="skipped", reason="manual", why=NOTHING_TO_UNDO)
    # From the plan to the append there is no await: the branch is still the one that it was made for.
    undo = _measured(undo, parts)
    tools = parts.shape.active_tools
    stored = parts.recorder.commit(lambda log: log.append_undo(undo, active_tools=tools))
    parts.backoff.reset()
    before, after = undo.entry.tokens_before, undo.entry.tokens_after
    parts.log.info("compaction.undone", undone=undo.undone.id, tokens_before=before, tokens_after=after)
    with anyio.CancelScope(shield=True):
        await parts.recorder.announce(*((entry, ()) for entry in stored))
        await parts.recorder.flush()
    return CompactionOutcome(
        status="applied",
        reason="manual",
        entry=next(entry for entry in stored if isinstance(entry, CompactionEntry)),
        edits=tuple(entry for entry in stored if isinstance(entry, ContextEditEntry)),
        tokens_before=before,
        tokens_after=after,
        duration=time.monotonic() - started,
    )


def _measured(undo: Undo, parts: Parts) -> Undo:
    """The same with the sizes of the context before and after it.

    What providers reported says nothing of a context that they have not seen: the size after it is an estimate, on the
    scale of their reports.
    """
    budget = parts.meter.budget(parts.settings().compaction)
    context = build_context(undo.projection)
    estimated = budget.overhead + parts.meter.ledger.total(item.message for item in context)
    after = round(estimated * parts.meter.ratio)
    most = budget.limit - output_margin(budget)
    if after > most:
        raise ContextCannotFitError(
            f"without this compaction the context would take {after:,} tokens, and {parts.models.model.id} takes "
            f"{most:,} and an answer",
            limit=budget.limit,
            largest_items=largest_items(context, parts.meter.ledger),
        )
    entry = replace(undo.entry, tokens_before=parts.meter.measure().tokens, tokens_after=after)
    return replace(undo, entry=entry)
