"""The entry of one compaction: planned, summarised by a model, a handler or without either, and measured.

The rule it keeps: what is stored makes the context smaller, or nothing is. A summary that leaves too much is followed
by one that keeps less, and is cut where that does not help; a model that cannot be used is replaced by a digest where
the context does not fit.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from agent_session.compaction.applied import estimated_after, largest_items, record_of_loss
from agent_session.compaction.digest import digest, shortened_summary
from agent_session.compaction.file_ops import details_of, with_current_request, with_file_lists, with_pinned
from agent_session.compaction.fitting import halvings
from agent_session.compaction.prepare import prepare_compaction, request_cut_off
from agent_session.compaction.text_tokens import estimate_text_tokens
from agent_session.compaction.tokens import LABEL_TOKENS
from agent_session.compaction.types import (
    KEEP_NOTHING,
    CompactionOutcome,
    CompactionPreparation,
    CompactionRequest,
    CompactionResult,
    Shrink,
    Skip,
)
from agent_session.compaction_attempt import Attempt, orders_of, summarized
from agent_session.errors import CompactionError, ContextCannotFitError, ModelError
from agent_session.hooks import Summarize
from agent_session.parts import Parts
from agent_session.recorder import add_usage
from agent_session.summarizer import MOST_EXCESS, Summarizer, SummaryOrder
from session_store.entries import CompactionEntry
from session_store.ids import new_id, now_iso
from session_store.messages import Usage

_DIGEST_SHARE_OF_LIMIT = 4

_PINNED_SHARE_OF_LIMIT = 4
"""Pinned text above this part of the limit is named where a compaction does not make the context smaller."""

_SHORT_RECORD_TOKENS = 1_000
"""What is replaced by a summary of the usual form would be hardly longer: the model is told how long it may be."""

_WORDS_PER_TOKEN = 0.5
"""Of what is replaced, so that the labels around the summary find room as well."""

_LEAST_SUMMARY_TOKENS = 64
"""A summary is not cut to less than this; it would say nothing."""


class EntryMaker:
    def __init__(self, parts: Parts, summarizer: Summarizer) -> None:
        self._parts = parts
        self._summarizer = summarizer

    def largest_items(self, count: int = 3) -> list[tuple[str, int]]:
        """(what, tokens) of the largest messages of the context, results by the tool they came from."""
        return largest_items(self._parts.meter.context(), self._parts.meter.ledger, count)

    def cannot_fit(self, why: str, *more: tuple[str, int]) -> ContextCannotFitError:
        """The error that names what is too large; `more` than is in the context, in tokens."""
        budget = self._parts.meter.budget(self._parts.settings().compaction)
        items = [*self.largest_items(), *more, ("system prompt and tool definitions", budget.overhead)]
        items.sort(key=lambda item: -item[1])
        return ContextCannotFitError(why, limit=budget.limit, largest_items=items)

    # The plan ---------------------------------------------------------------------------------------

    def prepare(
        self, request: CompactionRequest, *, keep_recent_tokens: int | None = None
    ) -> CompactionPreparation | Skip:
        parts = self._parts
        budget = parts.meter.budget(parts.settings().compaction)
        tokens = parts.meter.measure().tokens
        if request.reason == "overflow":
            # Refused for size, the context is at its limit at least, whatever the estimate says; and where the provider
            # does not say how large it is, the larger of what was reported and what we count is nearer.
            counted = budget.overhead + parts.meter.ledger.total(item.message for item in parts.meter.context())
            tokens = max(tokens, budget.limit, request.refused_tokens or counted)
        return prepare_compaction(
            parts.manager.projection,
            budget=budget,
            tokens_before=tokens,
            ratio=parts.meter.ratio,
            ledger=parts.meter.ledger,
            locate=parts.recorder.place_of,
            keep_recent_tokens=request.keep_recent_tokens if keep_recent_tokens is None else keep_recent_tokens,
            reason=request.reason,
        )

    async def preview(self, request: CompactionRequest) -> CompactionOutcome:
        """What `Compactor.run` would do and cost, as far as that can be said: nothing is sent or appended."""
        plan = self.prepare(request)
        if isinstance(plan, Skip):
            return CompactionOutcome(status="skipped", reason=request.reason, why=plan.detail)
        facts = CompactionOutcome(status="preview", reason=request.reason, tokens_before=plan.tokens_before)
        if plan.shrinks_alone:
            tokens_after = self.tokens_after(plan, None, plan.shrinks_alone)
            return replace(facts, method="shrink", tokens_after=tokens_after, calls=0)
        facts = replace(facts, entries_summarized=len(plan.dropped_entry_ids))
        kept = plan.budget.overhead + plan.kept_tokens
        if self._parts.settings().compaction.summarizer == "digest":
            summary = self._digest(plan).summary
            entry = self._stored_form(plan, request, CompactionResult(summary))
            tokens_after = self.tokens_after(plan, entry, plan.shrinks)
            return replace(facts, method="digest", tokens_after=tokens_after, calls=0)
        order = self._order(request, plan, Summarize())
        is_live = self._kept_from(plan, request) is not None and await self._summarizer.takes_live(order)
        orders = [order] if is_live else orders_of(order, plan.turn_prefix_messages)
        forecast = await self._summarizer.forecast(orders, is_live=is_live)
        return replace(
            facts,
            method="model",
            tokens_after=round((kept + forecast.usage.output) * plan.scale),
            calls=forecast.calls,
            usage=forecast.usage,
            cost=forecast.usage.cost.total if forecast.usage.cost is not None else None,
        )

    # The summary --------------------------------------------------------------------------------

    async def made(self, attempt: Attempt, extra: Summarize) -> CompactionEntry:
        """The entry with the runtime's own summary: by the model, or by a digest where that is the setting, or the
        model keeps failing, or fails now although the context does not fit.
        """
        parts, plan = self._parts, attempt.plan
        is_automatic = attempt.request.reason != "manual"
        if parts.settings().compaction.summarizer == "digest" or (is_automatic and parts.backoff.is_digest_next):
            attempt.method = "digest"
            return await self._fitting_entry(attempt, extra)
        attempt.method = "model"
        try:
            self._require_worth(attempt, extra)
            return await self._fitting_entry(attempt, extra)
        except (ModelError, CompactionError) as error:
            if plan.tokens_before < plan.budget.limit:
                raise
            parts.log.warning("compaction.digest", compaction_id=attempt.id, error=str(error))
            attempt.why = f"without the model, since it gave no summary: {error}"
            attempt.plan, attempt.method, attempt.model = plan, "digest", None
            return await self._fitting_entry(attempt, extra)

    def _require_worth(self, attempt: Attempt, extra: Summarize) -> None:
        """No paid call where what leaves takes less than what is put around every summary.

        Raises:
            CompactionError: no progress, whatever the summary says.
        """
        try:
            self.entry(attempt, CompactionResult(""), extra)
        except CompactionError as error:
            raise CompactionError(f"{error} (with an empty summary: no model was asked)") from None

    async def _fitting_entry(self, attempt: Attempt, extra: Summarize) -> CompactionEntry:
        """A summary by `attempt.method`. Where that leaves too much, less is kept, at most three times, and what is too
        long all the same is cut to the room there is; after a refusal a digest is halved each time as well.

        Raises:
            ContextCannotFitError: it is too large for the window all the same.
            CompactionError: no progress.
        """
        request, budget = attempt.request, attempt.plan.budget
        result, made = await self._tried(attempt, extra)
        is_digest_of_refused = attempt.method == "digest" and request.reason == "overflow"
        for keep_tokens in halvings(attempt.plan.keep_tokens)[1:]:
            before = attempt.plan
            if isinstance(made, CompactionEntry) and (made.tokens_after or 0) <= budget.threshold:
                return made
            attempt.digest_halvings += is_digest_of_refused
            plan = self.prepare(request, keep_recent_tokens=keep_tokens)
            if not isinstance(plan, Skip) and len(plan.dropped) > len(before.dropped):
                attempt.plan = plan
            elif not is_digest_of_refused:
                continue
            result, made = await self._tried(attempt, extra, after=(before, result))
        if isinstance(made, CompactionError):
            raise made
        made = self._cut_to_room(attempt, result, made, extra)
        if (made.tokens_after or 0) < budget.limit or (attempt.method == "digest" and request.reason != "overflow"):
            return made
        # What is dropped may have weighed more than we count, and what is kept not.
        if round((made.tokens_after or 0) / attempt.plan.scale) < budget.limit and attempt.method == "digest":
            return made
        raise self.cannot_fit(
            f"with all that can be summarised the context has {made.tokens_after:,} tokens, and "
            f"{budget.limit:,} is all that fits"
        )

    def _cut_to_room(
        self, attempt: Attempt, result: CompactionResult, made: CompactionEntry, extra: Summarize
    ) -> CompactionEntry:
        """The entry with as much of its summary as leaves the context under the threshold, or else under the limit."""
        budget = attempt.plan.budget
        for most_in_all in (budget.threshold, budget.limit - 1):
            excess = round(((made.tokens_after or 0) - most_in_all) / attempt.plan.scale)
            if excess <= 0:
                break
            most_tokens = estimate_text_tokens(result.summary) - excess - 1
            if most_tokens >= _LEAST_SUMMARY_TOKENS:
                return self.entry(attempt, _shortened(result, most_tokens), extra)
        return made

    async def _tried(
        self,
        attempt: Attempt,
        extra: Summarize,
        *,
        after: tuple[CompactionPreparation, CompactionResult] | None = None,
    ) -> tuple[CompactionResult, CompactionEntry | CompactionError]:
        """A summary and its entry, or why a digest makes no progress. One of a model's that makes progress, and was
        written without regard to its limit, is cut to that.

        Raises:
            CompactionError: a model's makes none, which is paid for once.
        """
        result = await self._result(attempt, extra, after=after)
        try:
            made = self.entry(attempt, result, extra)
        except CompactionError as error:
            if attempt.method == "digest":
                return result, error
            raise
        most_tokens = _most_summary_tokens(attempt.plan)
        if attempt.method == "model" and estimate_text_tokens(result.summary) > most_tokens * MOST_EXCESS:
            result = _shortened(result, most_tokens)
            made = self.entry(attempt, result, extra)
        return result, made

    async def _result(
        self,
        attempt: Attempt,
        extra: Summarize,
        *,
        after: tuple[CompactionPreparation, CompactionResult] | None = None,
    ) -> CompactionResult:
        """The summary of what the plan drops; `after` a narrower one, only of what has come to it since."""
        plan = attempt.plan
        if attempt.method == "digest":
            return self._digest(plan, attempt.digest_halvings)
        order = self._order(attempt.request, plan, extra)
        if after is None:
            kept_from = self._kept_from(plan, attempt.request)
            return await summarized(
                self._parts, self._summarizer, attempt, order, plan.turn_prefix_messages, kept_from=kept_from
            )
        before, summary = after
        seen = {id(message) for message in before.dropped}
        rest = tuple(message for message in plan.dropped if id(message) not in seen)
        order = replace(order, messages=rest, previous_summary=summary.summary)
        return await summarized(self._parts, self._summarizer, attempt, order)

    def _order(self, request: CompactionRequest, plan: CompactionPreparation, extra: Summarize) -> SummaryOrder:
        instructions = "\n".join(text for text in (request.instructions, extra.instructions) if text) or None
        replaced = self._replaced_tokens(plan)
        return SummaryOrder(
            messages=plan.messages_to_summarize,
            previous_summary=plan.previous_summary,
            instructions=instructions,
            pinned=tuple(extra.pinned),
            model=extra.model or request.model,
            max_tokens=_most_summary_tokens(plan),
            most_words=round(replaced * _WORDS_PER_TOKEN) if replaced < _SHORT_RECORD_TOKENS else None,
        )

    def _kept_from(self, plan: CompactionPreparation, request: CompactionRequest) -> str | None:
        """What opens the messages that stay, where the live conversation may be the summary's input."""
        if self._parts.settings().compaction.summary_input != "prefix" or request.reason == "overflow":
            return None
        opening = next(
            (item.message for item in self._parts.meter.context() if item.entry.id == plan.first_kept_entry_id), None
        )
        return getattr(opening, "text", "")

    def _digest(self, plan: CompactionPreparation, halvings: int = 0) -> CompactionResult:
        """In a quarter of the limit at most, in the room there is, and in less than what it replaces."""
        request = (
            with_current_request("", plan.current_request, plan.budget.keep_recent) if plan.current_request else ""
        )
        worth = self._replaced_tokens(plan) - LABEL_TOKENS - estimate_text_tokens(request) - 1
        most_tokens = min(plan.budget.limit // _DIGEST_SHARE_OF_LIMIT, plan.summary_room) >> halvings
        text = digest(
            plan.dropped,
            previous_summary=plan.previous_summary,
            file_ops=plan.file_ops,
            most_tokens=min(most_tokens, max(worth, _LEAST_SUMMARY_TOKENS)),
        )
        return CompactionResult(text, details=record_of_loss(plan))

    def _replaced_tokens(self, plan: CompactionPreparation) -> int:
        return self._parts.meter.ledger.total(plan.dropped) + estimate_text_tokens(plan.previous_summary or "")

    # The entry ----------------------------------------------------------------------------------

    def entry(self, attempt: Attempt, result: CompactionResult, extra: Summarize) -> CompactionEntry:
        """The finished entry, measured.

        Raises:
            CompactionError: no progress.
            ContextCannotFitError: none is possible with what is pinned, and the provider has refused the context.
        """
        entry = self._stored_form(attempt.plan, attempt.request, result, extra.pinned)
        entry = replace(
            entry,
            usage=_total(attempt.spending.usage, result.usage),
            from_hook=attempt.method == "handler",
            method=attempt.method,
            model=attempt.model,
            duration_ms=round((time.monotonic() - attempt.started) * 1000),
        )
        try:
            return self.measured(attempt, entry)
        except CompactionError as error:
            pinned = estimate_text_tokens(with_pinned("", tuple(extra.pinned)))
            if pinned * _PINNED_SHARE_OF_LIMIT < attempt.plan.budget.limit:
                raise
            # What is pinned stays byte for byte, or nothing is stored: no rule of the user's leaves without a word.
            why = f"{error}; the text that extensions pin takes {pinned:,} tokens of it, pin less"
            if attempt.request.reason == "overflow":
                raise self.cannot_fit(why, ("pinned text", pinned)) from None
            raise CompactionError(why) from None

    def _stored_form(
        self,
        plan: CompactionPreparation,
        request: CompactionRequest,
        result: CompactionResult,
        pinned: Sequence[str] = (),
    ) -> CompactionEntry:
        """The entry with what the runtime adds to every summary, a handler's included."""
        boundary = plan.first_kept_entry_id if result.first_kept_entry_id is None else result.first_kept_entry_id
        return CompactionEntry(
            id=new_id(),
            parent_id=plan.leaf_id,
            timestamp=now_iso(),
            summary=with_file_lists(with_pinned(result.summary, tuple(pinned)), plan.file_ops),
            first_kept_entry_id=boundary if boundary != KEEP_NOTHING else None,
            tokens_before=plan.tokens_before if result.tokens_before is None else result.tokens_before,
            details=details_of(plan.file_ops, result.details),
            reason=request.reason,
            instructions=request.instructions,
        )

    def measured(self, attempt: Attempt, entry: CompactionEntry) -> CompactionEntry:
        """The entry with the request that its boundary cuts off at the end of its summary, and its size.

        Raises:
            CompactionError: the context would not be smaller, "no progress".
        """
        request = request_cut_off(self._parts.manager.projection, entry.first_kept_entry_id)
        if request is not None:
            summary = with_current_request(entry.summary, request, attempt.plan.budget.keep_recent)
            entry = replace(entry, summary=summary)
        return replace(entry, tokens_after=self.tokens_after(attempt.plan, entry, attempt.plan.shrinks))

    def tokens_after(
        self, plan: CompactionPreparation, entry: CompactionEntry | None, shrinks: Sequence[Shrink]
    ) -> int:
        """The context's size with all of it applied, on the scale of `tokens_before`.

        Raises:
            CompactionError: not smaller than before, "no progress".
        """
        meter = self._parts.meter
        context, overhead = meter.context(), plan.budget.overhead
        before = overhead + meter.ledger.total(item.message for item in context)
        projection = self._parts.manager.projection
        after = estimated_after(context, projection, entry, shrinks, overhead=overhead, ledger=meter.ledger)
        if after >= before:
            raise CompactionError(f"no progress: the context would have {after:,} tokens instead of {before:,}")
        return round(after * plan.scale)


def _most_summary_tokens(plan: CompactionPreparation) -> int:
    return min(plan.budget.summary_max_tokens, plan.summary_room)


def _shortened(result: CompactionResult, most_tokens: int) -> CompactionResult:
    """The result with its summary in at most so many tokens; as it is where it is short enough."""
    if estimate_text_tokens(result.summary) <= most_tokens:
        return result
    return replace(result, summary=shortened_summary(result.summary, most_tokens))


def _total(spent: Usage | None, reported: Usage | None) -> Usage | None:
    """What the runtime spent, and what a handler says it spent itself."""
    if spent is None or reported is None:
        return reported if spent is None else spent
    return add_usage(spent, reported)
