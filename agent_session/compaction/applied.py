"""What a compaction leaves: the size of the context with it applied, and what of it is largest.

Pure. The rule it keeps: before and after are measured on one scale, so that "smaller" means smaller to the provider.
"""

from __future__ import annotations

from collections.abc import Sequence

from agent_session.compaction.fitting import shrunk
from agent_session.compaction.tokens import TokenLedger
from agent_session.compaction.types import CompactionPreparation, Shrink
from session_store.entries import CompactionEntry
from session_store.messages import CompactionSummaryMessage
from session_store.projection import ProjectedMessage, Projection


def estimated_after(
    context: Sequence[ProjectedMessage],
    projection: Projection,
    entry: CompactionEntry | None,
    shrinks: Sequence[Shrink],
    *,
    overhead: int,
    ledger: TokenLedger,
) -> int:
    """Estimated tokens of the context once `shrinks` and `entry` are applied; without an entry nothing leaves."""
    kept = list(context)
    tokens = overhead
    if entry is not None:
        ids = [projected.id for projected in projection.entries]
        boundary = entry.first_kept_entry_id
        after = set(ids[ids.index(boundary) :]) if boundary in ids else set()
        # The summary that is replaced stands among what is kept, and leaves all the same.
        kept = [item for item in context if item.entry.id in after and item.entry is not projection.compaction]
        tokens += ledger.count(CompactionSummaryMessage(summary=entry.summary, tokens_before=entry.tokens_before))
    return tokens + ledger.total(item.message for item in shrunk(kept, shrinks))


def largest_items(context: Sequence[ProjectedMessage], ledger: TokenLedger, count: int = 3) -> list[tuple[str, int]]:
    """(what it is, estimated tokens) of the largest messages, results by the tool they came from."""
    largest = sorted(context, key=lambda item: -ledger.count(item.message))[:count]
    return [
        (str(getattr(item.message, "tool_name", type(item.message).__name__)), ledger.count(item.message))
        for item in largest
    ]


def in_words(items: Sequence[tuple[str, int]]) -> str:
    return "; ".join(f"{what} ({tokens:,} tokens)" for what, tokens in items)


def record_of_loss(plan: CompactionPreparation) -> dict[str, object]:
    """What a digest's entry says of the messages that no summariser has read. Its size does not grow with them."""
    ids = plan.dropped_entry_ids
    return {"digestOf": {"messages": len(plan.dropped), "firstEntryId": ids[0], "lastEntryId": ids[-1]}} if ids else {}
