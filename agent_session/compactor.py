"""The one pipeline of compaction, for all three triggers; read it from top to bottom.

    prepare -> before_compact -> compaction_start -> shrink, summary or digest -> session_compact -> validate, append
    -> compaction_end

Rules. Preparing is pure and announces nothing. From `before_compact` on there is exactly one `compaction_end`, whatever
happened, the caller's own cancellation included. The append is the commit point: no await and no cancellation between
the last answer and it; before it the log is as it was, after it the outcome is `applied`. What attempts cost that came
to nothing is owed to the log, not lost. What makes the context smaller without a model is tried before what is paid
for, and stands in where the model fails and the context does not fit.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import anyio

from agent_session.compaction.applied import in_words
from agent_session.compaction.types import (
    NOTHING_STORED,
    CompactionOutcome,
    CompactionRequest,
    Shrink,
    Skip,
)
from agent_session.compaction_attempt import Attempt, AttemptServices
from agent_session.compaction_entry import EntryMaker
from agent_session.errors import AgentSessionError, CompactionError
from agent_session.events import CompactionEnd, CompactionStart
from agent_session.hooks import BeforeCompact, CompactionScope, SessionCompact, Summarize
from agent_session.parts import Parts
from agent_session.summarizer import Summarizer
from session_store.errors import SessionStoreError
from session_store.messages import Content


class Compactor:
    """`last_outcome` is what the newest compaction came to, also where cancellation kept `run` from returning it."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._summarizer = Summarizer(parts)
        self.maker = EntryMaker(parts, self._summarizer)
        self.last_outcome: CompactionOutcome | None = None

    async def run(self, request: CompactionRequest) -> CompactionOutcome:
        """Compact, inside the activity that holds the gate. A failure is an outcome, never an exception.

        Cancelling the compaction's own scope (`abort_compaction`) gives the outcome `aborted`; cancelling an outer one
        ends it the same way, leaves the outcome in `last_outcome` and goes on its way.
        """
        parts = self._parts
        self.last_outcome = None
        # What needs no model needs no await either: without this it would be applied to a run that was aborted.
        await anyio.lowlevel.checkpoint_if_cancelled()
        plan = self.maker.prepare(request)
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

    # The pipeline -------------------------------------------------------------------------------

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
        extra = before.summarize_answer or Summarize()
        if before.result is not None:
            attempt.method = "handler"
            entry = self.maker.entry(attempt, before.result, extra)
        elif plan.shrinks_alone:
            attempt.method = "shrink"
            await anyio.lowlevel.checkpoint_if_cancelled()
            return await self._commit_shrinks(attempt)
        else:
            self._refuse_hopeless(attempt)
            entry = await self.maker.made(attempt, extra)
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
        # A handler that cancelled, or aborted the run, and then answered meant the end.
        await anyio.lowlevel.checkpoint_if_cancelled()
        return await self._commit(attempt, ready)

    def _refuse_hopeless(self, attempt: Attempt) -> None:
        """No paid call for an automatic compaction that cannot help: what is kept alone is too large.

        Raises:
            ContextCannotFitError: the provider has refused the context, and no part of it can go.
            CompactionError: it fits the window, and would not get much smaller.
        """
        plan, budget, reason = attempt.plan, attempt.plan.budget, attempt.request.reason
        floor = round((budget.overhead + plan.kept_tokens) * plan.scale)
        must = f"what must be kept takes {floor:,} tokens"
        if reason == "overflow" and floor >= budget.limit:
            raise self.maker.cannot_fit(f"{must}, and {budget.limit:,} is all that fits")
        if reason == "threshold" and floor >= budget.threshold and floor >= plan.tokens_before // 2:
            raise CompactionError(
                f"no progress: {must}, and {budget.threshold:,} is the threshold; "
                f"largest: {in_words(self.maker.largest_items())}"
            )

    # The commit point ---------------------------------------------------------------------------

    async def _commit(self, attempt: Attempt, ready: SessionCompact) -> CompactionOutcome:
        """Validate against the branch as it is now, append in one write, and tell."""
        parts = self._parts
        self._require_same_branch(attempt)
        entry = self.maker.measured(attempt, ready.entry)
        changes = self._edits(attempt.plan.shrinks)
        tools = parts.shape.active_tools
        stored, edits = parts.recorder.commit(
            lambda log: log.append_compaction_entry(entry, changes, active_tools=tools)
        )
        attempt.outcome = attempt.ended(
            "applied",
            usage=stored.usage,
            entry=stored,
            edits=edits,
            summary=stored.summary,
            tokens_after=stored.tokens_after,
            entries_summarized=len(attempt.plan.dropped_entry_ids),
            why=attempt.why,
        )
        with anyio.CancelScope(shield=True):
            await parts.recorder.announce(*((edit, ()) for edit in edits), (stored, ()))
            await parts.dispatcher.tell(replace(ready, entry=stored))
            await parts.recorder.flush()
        return attempt.outcome

    async def _commit_shrinks(self, attempt: Attempt) -> CompactionOutcome:
        """The edits alone, in one write: there is no entry, and so nothing to ask `session_compact` about."""
        parts, plan = self._parts, attempt.plan
        self._require_same_branch(attempt)
        tokens_after = self.maker.tokens_after(plan, None, plan.shrinks_alone)
        changes = self._edits(plan.shrinks_alone)
        edits = parts.recorder.commit(lambda log: log.append_context_edits(changes))
        attempt.outcome = attempt.ended("applied", edits=edits, tokens_after=tokens_after)
        with anyio.CancelScope(shield=True):
            await parts.recorder.announce(*((edit, ()) for edit in edits))
            await parts.recorder.flush()
        return attempt.outcome

    def _require_same_branch(self, attempt: Attempt) -> None:
        on_branch = {entry.id for entry in self._parts.manager.projection.entries}
        if attempt.plan.leaf_id not in on_branch:
            raise CompactionError("the branch moved while its summary was made; nothing was stored")

    def _edits(self, shrinks: Sequence[Shrink]) -> tuple[tuple[str, tuple[Content, ...] | None], ...]:
        """The context edits of the items that are made smaller, their full texts stored first."""
        for shrink in shrinks:
            self._parts.recorder.store_aside(shrink.full_text)
        return tuple((shrink.entry_id, shrink.replacement) for shrink in shrinks)

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
