"""One compaction under way: its state, its summary, and what its handlers may ask of it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from agent_session.activity import Activity
from agent_session.compaction.prompts import join_split
from agent_session.compaction.types import (
    CompactionMethod,
    CompactionOutcome,
    CompactionPreparation,
    CompactionRequest,
    CompactionResult,
    CompactionStatus,
)
from agent_session.events import CompactionProgress
from agent_session.extending.clock import paused
from agent_session.parts import Parts
from agent_session.summarizer import Spending, Summarizer, SummaryOrder
from session_store.boundary import check_boundary
from session_store.entries import Entry
from session_store.ids import new_id
from session_store.messages import Message, Usage


@dataclass(slots=True)
class Attempt:
    """One compaction under way. `outcome` is set at the commit point, so that nothing later can take it back;
    `method` is None until a summary is being made. `why` says why it is another than was wanted;
    `digest_halvings` is how many times less than its share a digest may take.
    """

    request: CompactionRequest
    plan: CompactionPreparation
    activity: Activity
    started: float
    id: str = field(default_factory=new_id)
    spending: Spending = field(default_factory=Spending)
    method: CompactionMethod | None = None
    model: str | None = None
    why: str | None = None
    digest_halvings: int = 0
    outcome: CompactionOutcome | None = None

    def ended(self, status: CompactionStatus, *, usage: Usage | None = None, **facts: Any) -> CompactionOutcome:
        """The outcome. `usage` is given where more was spent than the runtime knows of."""
        usage = usage or self.spending.usage
        return CompactionOutcome(
            status=status,
            reason=self.request.reason,
            method=self.method,
            tokens_before=self.plan.tokens_before,
            usage=usage,
            cost=usage.cost.total if usage is not None and usage.cost is not None else None,
            duration=time.monotonic() - self.started,
            **facts,
        )


async def summarized(
    parts: Parts,
    summarizer: Summarizer,
    attempt: Attempt,
    order: SummaryOrder,
    turn_prefix: Sequence[Message] = (),
    *,
    kept_from: str | None = None,
) -> CompactionResult:
    """The history's summary, then, where a turn is split, that of its beginning. What it cost is the attempt's.

    With `kept_from`, the text that opens what stays, it is asked for in the live conversation first, whole.
    """

    async def progress(chunk: int, chunks: int) -> None:
        seconds = time.monotonic() - attempt.started
        await parts.dispatcher.notify(
            CompactionProgress(phase="summarizing", chunk=chunk, chunks=chunks, seconds=seconds)
        )

    if kept_from is not None:
        live = await summarizer.summarize_live(order, kept_from, attempt.spending, progress=progress)
        if live is not None:
            attempt.model = parts.models.model.id
            return CompactionResult(live)
    summary = order.previous_summary or ""
    for part in orders_of(order, turn_prefix):
        text, attempt.model = await summarizer.summarize(part, attempt.spending, progress=progress)
        summary = join_split(summary, text) if part.kind == "turn_prefix" else text
    return CompactionResult(summary)


def orders_of(order: SummaryOrder, turn_prefix: Sequence[Message]) -> list[SummaryOrder]:
    """The summaries to ask for, one after the other: the history's, then that of a split turn's beginning."""
    history = [replace(order, calls_kept_back=1 if turn_prefix else 0)] if order.messages else []
    beginning = [replace(order, messages=turn_prefix, kind="turn_prefix", previous_summary=None)] if turn_prefix else []
    return [*history, *beginning]


class AttemptServices:
    """What a handler may ask of a compaction under way (`hooks.CompactionServices`)."""

    def __init__(self, parts: Parts, summarizer: Summarizer, attempt: Attempt) -> None:
        self._parts = parts
        self._summarizer = summarizer
        self._attempt = attempt

    async def summarize(
        self,
        *,
        instructions: str | None,
        prompt: str | None,
        model: str | None,
        max_tokens: int | None,
        messages: Sequence[Message] | None,
    ) -> CompactionResult:
        attempt, plan = self._attempt, self._attempt.plan
        asked = "\n".join(text for text in (attempt.request.instructions, instructions) if text) or None
        order = SummaryOrder(
            messages=plan.messages_to_summarize if messages is None else tuple(messages),
            previous_summary=plan.previous_summary,
            instructions=asked,
            prompt=prompt,
            model=model or attempt.request.model,
            max_tokens=max_tokens,
        )
        prefix = plan.turn_prefix_messages if messages is None else ()
        # The model's time is not the handler's own.
        with paused():
            return await summarized(self._parts, self._summarizer, attempt, order, prefix)

    def text(self, messages: Sequence[Message] | None) -> str:
        return self._summarizer.text(self._attempt.plan.dropped if messages is None else messages)

    def check_boundary(self, first_kept_entry_id: str) -> None:
        check_boundary(self._parts.manager.projection, first_kept_entry_id)

    def branch_entries(self) -> Sequence[Entry]:
        return self._parts.manager.get_branch(self._attempt.plan.leaf_id)

    def cancel(self) -> None:
        self._attempt.activity.abort()

    @property
    def cancel_called(self) -> bool:
        return self._attempt.activity.scope.cancel_called
