"""The one pipeline of compaction, for all three triggers; read it from top to bottom.

    prepare -> before_compact -> compaction_start -> summary -> session_compact -> validate, append -> compaction_end

Rules. Preparing is pure and announces nothing. From `before_compact` on there is exactly one `compaction_end`, whatever
happened, the caller's own cancellation included. The append is the commit point: no await and no cancellation between
the last answer and it; before it the log is as it was, after it the outcome is `applied`. What attempts cost that came
to nothing is owed to the log, not lost.
"""

from __future__ import annotations

import time
from dataclasses import replace

import anyio

from agent_session.compaction.file_ops import details_of, with_current_request, with_file_lists, with_pinned
from agent_session.compaction.prepare import prepare_compaction, request_cut_off
from agent_session.compaction.types import (
    KEEP_NOTHING,
    NOTHING_STORED,
    CompactionOutcome,
    CompactionPreparation,
    CompactionRequest,
    CompactionResult,
    Skip,
)
from agent_session.compaction_attempt import Attempt, AttemptServices, summarized
from agent_session.errors import AgentSessionError, CompactionError
from agent_session.events import CompactionEnd, CompactionStart
from agent_session.hooks import BeforeCompact, CompactionScope, SessionCompact, Summarize
from agent_session.parts import Parts
from agent_session.recorder import add_usage
from agent_session.summarizer import Summarizer, SummaryOrder
from session_store.entries import CompactionEntry
from session_store.errors import SessionStoreError
from session_store.ids import new_id, now_iso
from session_store.messages import CompactionSummaryMessage, Usage


class Compactor:
    """`last_outcome` is what the newest compaction came to, also where cancellation kept `run` from returning it."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._summarizer = Summarizer(parts)
        self.last_outcome: CompactionOutcome | None = None

    async def run(self, request: CompactionRequest) -> CompactionOutcome:
        """Compact, inside the activity that holds the gate. A failure is an outcome, never an exception.

        Cancelling the compaction's own scope (`abort_compaction`) gives the outcome `aborted`; cancelling an outer one
        ends it the same way, leaves the outcome in `last_outcome` and goes on its way.
        """
        parts = self._parts
        self.last_outcome = None
        plan = self._prepare(request)
        if isinstance(plan, Skip):
            self.last_outcome = CompactionOutcome(status="skipped", reason=request.reason, why=plan.detail)
            return self.last_outcome
        with parts.gate.nest("compaction") as activity:
            attempt = Attempt(request, plan, activity, time.monotonic())
            outcome: CompactionOutcome | None = None
            try:
                with activity.scope:
                    outcome = await self._attempt(attempt)
            except (AgentSessionError, SessionStoreError) as error:
                outcome = attempt.outcome or attempt.ended("failed", error=error, why=str(error))
            except Exception as error:
                parts.log.exception("compaction.failed")
                outcome = attempt.outcome or attempt.ended(
                    "failed", error=error, why=f"{type(error).__name__}: {error}"
                )
            finally:
                # Here also when the caller's own task is being cancelled.
                if outcome is None:
                    activity.begin_grace()
                outcome = attempt.outcome or outcome or attempt.ended("aborted", why=NOTHING_STORED)
                self.last_outcome = outcome
                with anyio.CancelScope(shield=True):
                    await self._end(attempt, outcome)
            return outcome

    def largest_items(self, count: int = 3) -> str:
        """The largest messages of the context, with the tools they came from, for a person."""
        ledger = self._parts.meter.ledger
        context = sorted(self._parts.meter.context(), key=lambda item: -ledger.count(item.message))
        return "; ".join(
            f"{getattr(item.message, 'tool_name', type(item.message).__name__)} ({ledger.count(item.message):,} tokens)"
            for item in context[:count]
        )

    # The pipeline -------------------------------------------------------------------------------

    def _prepare(self, request: CompactionRequest) -> CompactionPreparation | Skip:
        parts = self._parts
        return prepare_compaction(
            parts.manager.projection,
            budget=parts.meter.budget(parts.settings().compaction),
            tokens_before=parts.meter.measure().tokens,
            ledger=parts.meter.ledger,
            keep_recent_tokens=request.keep_recent_tokens,
            reason=request.reason,
        )

    async def _attempt(self, attempt: Attempt) -> CompactionOutcome:
        parts, request, plan = self._parts, attempt.request, attempt.plan
        budget = plan.budget
        scope = CompactionScope(AttemptServices(self._parts, self._summarizer, attempt))
        before = BeforeCompact(
            reason=request.reason,
            instructions=request.instructions,
            will_retry=request.will_retry,
            model=parts.models.model.id,
            settings=parts.settings().compaction,
            tokens_before=plan.tokens_before,
            threshold=budget.threshold,
            messages_to_summarize=plan.messages_to_summarize,
            turn_prefix_messages=plan.turn_prefix_messages,
            is_split_turn=plan.is_split_turn,
            previous_summary=plan.previous_summary,
            file_ops=plan.file_ops,
            first_kept_entry_id=plan.first_kept_entry_id,
            scope=scope,
        )
        try:
            before = await parts.dispatcher.decide(before, tell=False)
        finally:
            # Told also where an abort cut its handlers off, since its end will be.
            parts.dispatcher.report(before)
        if before.veto is not None:
            return attempt.ended("vetoed", why=f"{before.decided_by}: {before.veto.reason}")
        await parts.dispatcher.notify(
            CompactionStart(
                reason=request.reason,
                tokens_before=plan.tokens_before,
                threshold=budget.threshold,
                messages=len(plan.dropped),
                will_retry=request.will_retry,
            )
        )
        parts.log.info(
            "compaction.start", compaction_id=attempt.id, reason=request.reason, tokens_before=plan.tokens_before
        )
        if before.result is not None:
            attempt.method = "handler"
            result = before.result
        else:
            attempt.method = "model"
            self._refuse_hopeless(attempt)
            result = await self._summary(attempt, before.summarize_answer or Summarize())
        entry = self._entry(attempt, result, before.summarize_answer)
        ready = await parts.dispatcher.decide(
            SessionCompact(
                reason=request.reason,
                entry=entry,
                from_hook=entry.from_hook,
                will_retry=request.will_retry,
                scope=scope,
            ),
            tell=False,
        )
        if ready.veto is not None:
            await parts.dispatcher.tell(ready)
            return attempt.ended("vetoed", why=f"{ready.decided_by}: {ready.veto.reason}")
        if attempt.activity.scope.cancel_called:
            # A handler that cancelled and then answered meant the cancellation.
            await anyio.lowlevel.checkpoint()
        return await self._commit(attempt, ready)

    def _refuse_hopeless(self, attempt: Attempt) -> None:
        """No paid call for an automatic compaction that cannot help: what is kept alone is too large."""
        plan = attempt.plan
        if attempt.request.reason == "manual":
            return
        floor = plan.budget.overhead + plan.kept_tokens
        ceiling = plan.budget.limit if attempt.request.reason == "overflow" else plan.budget.threshold
        if floor >= ceiling and floor >= plan.tokens_before // 2:
            raise CompactionError(
                f"no progress: what must be kept takes {floor:,} tokens, and {ceiling:,} is the most there may be; "
                f"largest: {self.largest_items()}"
            )

    async def _summary(self, attempt: Attempt, extra: Summarize) -> CompactionResult:
        """The default summary: the history first, then, where a turn is split, its beginning."""
        request, plan = attempt.request, attempt.plan
        instructions = "\n".join(text for text in (request.instructions, extra.instructions) if text) or None
        order = SummaryOrder(
            messages=plan.messages_to_summarize,
            previous_summary=plan.previous_summary,
            instructions=instructions,
            pinned=tuple(extra.pinned),
            model=extra.model or request.model,
        )
        return await summarized(self._parts, self._summarizer, attempt, order, plan.turn_prefix_messages)

    def _entry(self, attempt: Attempt, result: CompactionResult, extra: Summarize | None) -> CompactionEntry:
        """The finished entry, with what the runtime adds to every summary, a handler's included."""
        request, plan = attempt.request, attempt.plan
        summary = with_pinned(result.summary, tuple(extra.pinned) if extra is not None else ())
        summary = with_file_lists(summary, plan.file_ops)
        boundary = plan.first_kept_entry_id if result.first_kept_entry_id is None else result.first_kept_entry_id
        entry = CompactionEntry(
            id=new_id(),
            parent_id=plan.leaf_id,
            timestamp=now_iso(),
            summary=summary,
            first_kept_entry_id=boundary if boundary != KEEP_NOTHING else None,
            tokens_before=plan.tokens_before if result.tokens_before is None else result.tokens_before,
            details=details_of(plan.file_ops, result.details),
            usage=_total(attempt.spending.usage, result.usage),
            from_hook=attempt.method == "handler",
            reason=request.reason,
            method=attempt.method,
            model=attempt.model,
            duration_ms=round((time.monotonic() - attempt.started) * 1000),
            instructions=request.instructions,
        )
        return self._completed(attempt, entry)

    def _completed(self, attempt: Attempt, entry: CompactionEntry) -> CompactionEntry:
        """The entry with the request that its boundary cuts off at the end of its summary, and its size measured."""
        request = request_cut_off(self._parts.manager.projection, entry.first_kept_entry_id)
        if request is not None:
            summary = with_current_request(entry.summary, request, attempt.plan.budget.keep_recent)
            entry = replace(entry, summary=summary)
        return replace(entry, tokens_after=self._tokens_after(attempt, entry))

    def _tokens_after(self, attempt: Attempt, entry: CompactionEntry) -> int:
        """The context's size with `entry` applied, on the scale of `tokens_before`.

        Raises:
            CompactionError: not smaller than before, "no progress".
        """
        parts, plan = self._parts, attempt.plan
        ledger, overhead = parts.meter.ledger, plan.budget.overhead
        context = parts.meter.context()
        projection = parts.manager.projection
        ids = [projected.id for projected in projection.entries]
        boundary = entry.first_kept_entry_id
        after = set(ids[ids.index(boundary) :]) if boundary in ids else set()
        # The summary that is replaced stands among what is kept, and leaves all the same.
        kept = [item for item in context if item.entry.id in after and item.entry is not projection.compaction]
        estimated_before = overhead + ledger.total([item.message for item in context])
        summary = CompactionSummaryMessage(summary=entry.summary, tokens_before=entry.tokens_before)
        estimated_after = overhead + ledger.count(summary) + ledger.total([item.message for item in kept])
        if estimated_after >= estimated_before:
            raise CompactionError(
                f"no progress: the context would have {estimated_after:,} tokens instead of {estimated_before:,}"
            )
        scale = min(2.0, max(0.5, plan.tokens_before / estimated_before))
        return round(estimated_after * scale)

    async def _commit(self, attempt: Attempt, ready: SessionCompact) -> CompactionOutcome:
        """Validate against the branch as it is now, append in one write, and tell."""
        parts = self._parts
        on_branch = {entry.id for entry in parts.manager.projection.entries}
        if attempt.plan.leaf_id not in on_branch:
            raise CompactionError("the branch moved while its summary was made; nothing was stored")
        entry = self._completed(attempt, ready.entry)
        stored, edits, untold = parts.recorder.append_compaction(entry, (), parts.shape.active_tools)
        attempt.outcome = attempt.ended(
            "applied",
            usage=stored.usage,
            entry=stored,
            edits=edits,
            summary=stored.summary,
            tokens_after=stored.tokens_after,
            entries_summarized=len(attempt.plan.dropped_entry_ids),
        )
        with anyio.CancelScope(shield=True):
            await parts.recorder.announce(*untold)
            await parts.dispatcher.tell(replace(ready, entry=stored))
            await parts.recorder.flush()
        return attempt.outcome

    async def _end(self, attempt: Attempt, outcome: CompactionOutcome) -> None:
        parts = self._parts
        if outcome.status != "applied":
            for model, usage in attempt.spending.by_model.items():
                parts.recorder.owe(model, usage)
        parts.backoff.record(outcome)
        parts.log.info(
            "compaction.end",
            compaction_id=attempt.id,
            reason=outcome.reason,
            status=outcome.status,
            method=outcome.method,
            tokens_before=outcome.tokens_before,
            tokens_after=outcome.tokens_after,
            seconds=round(outcome.duration, 3),
            why=outcome.why,
        )
        await parts.dispatcher.notify(
            CompactionEnd(
                reason=outcome.reason,
                outcome=outcome,
                aborted=outcome.status in ("aborted", "vetoed"),
                will_retry=attempt.request.will_retry and outcome.status == "applied",
                from_hook=attempt.method == "handler",
            )
        )


def _total(spent: Usage | None, reported: Usage | None) -> Usage | None:
    """What the runtime spent, and what a handler says it spent itself."""
    if spent is None or reported is None:
        return reported if spent is None else spent
    return add_usage(spent, reported)
