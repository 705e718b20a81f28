"""When to compact: the arithmetic of a window, and how full it is.

Pure. The rule it keeps: one set of numbers, made here, decides everywhere: the threshold, what is kept, how long a
summary and an answer may be. Usage that a provider reported is believed only where it still speaks of this context:
reported by the current model, in an answer that neither failed nor was aborted, after the newest compaction or
context edit on the branch. Everything else is estimated.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass

from agent_session.compaction.tokens import TokenLedger
from agent_session.compaction.types import Budget, Measurement
from agent_session.models import Model
from agent_session.settings import CompactionSettings
from session_store.entries import Entry
from session_store.messages import AssistantMessage
from session_store.projection import ProjectedMessage, Projection

_SUMMARY_TENTHS_OF_RESERVE = 8


def budget_for(
    model: Model,
    settings: CompactionSettings,
    thinking_level: str,
    *,
    overhead: int,
    learned_limit: int | None = None,
) -> Budget:
    """The numbers of one model under one set of settings, in tokens.

    `overhead` is what rides on every request; `learned_limit` is what an overflow error named, and only ever lowers
    the limit. A reserve (or `trigger_at`) that leaves no room for a conversation is set aside, and `warning` says so.
    """
    window = model.context_limit
    declared = min(window, model.max_input_tokens or window)
    limit = min(declared, learned_limit or declared)
    slack = min(1_000, limit // 16)
    own = settings.own_numbers(model)
    defaults = CompactionSettings.for_model(model, thinking_level)
    reserve = own.reserve_tokens or min(defaults.reserve_tokens or 0, limit // 4)
    # With an input limit of its own below the window, the answer has its room beside the input.
    has_output_room = limit == declared < window

    def threshold_with(reserve: int) -> int:
        floor = min(reserve, limit // 16) if has_output_room else reserve
        return min(limit - floor, window - reserve, limit - slack)

    threshold = threshold_with(reserve)
    if own.trigger_at is not None:
        wanted = own.trigger_at * limit if own.trigger_at < 1 else own.trigger_at
        threshold = min(int(wanted), limit - slack)
    least = overhead + 2 * slack
    warning: str | None = None
    if threshold <= least:
        clamped = min(reserve, limit // 4)
        if threshold_with(clamped) > least:
            warning = (
                f"{model.id}: a compaction threshold of {threshold:,} tokens leaves no room for a conversation "
                f"({overhead:,} are the system prompt and the tools, the limit is {limit:,}): a reserve of "
                f"{clamped:,} is used instead, a threshold of {threshold_with(clamped):,}"
            )
        reserve, threshold = clamped, threshold_with(clamped)
    keep_recent = defaults.keep_recent_tokens if own.keep_recent_tokens is None else own.keep_recent_tokens
    return Budget(
        window=window,
        limit=limit,
        overhead=overhead,
        reserve=reserve,
        threshold=threshold,
        keep_recent=max(0, min(keep_recent or 0, (threshold - overhead) // 2)),
        summary_max_tokens=settings.summary_max_tokens or max(1, reserve * _SUMMARY_TENTHS_OF_RESERVE // 10),
        warning=warning,
        is_overhead_too_large=threshold <= least,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """An answer with the usage that its provider reported, and the entry it stands in."""

    entry: Entry
    message: AssistantMessage


def measure(
    context: Sequence[ProjectedMessage],
    projection: Projection,
    model: Model,
    *,
    overhead: int,
    ledger: TokenLedger,
    ratio: float = 1.0,
    distrusted: Container[str] = (),
) -> Measurement:
    """How large the next request is: `context`, as built from `projection`, with the fixed overhead.

    The newest answer whose usage counts is the anchor; what was recorded after it is estimated. Without one all of it
    is estimated. `ratio` is what an estimated token counts for; the reports of `distrusted` entries do not count.
    """
    for number, item in reports(projection, model):
        if item.entry.id in distrusted:
            continue
        later = {other.entry.id for other in projection.messages[number + 1 :]}
        tail = [
            other.message
            for other in context
            # A synthetic result stands for the anchor's own entry, and was not in what the provider counted.
            if other.entry.id in later or (other.entry.id == item.entry.id and other.message is not item.message)
        ]
        tokens = item.message.usage.total_tokens + round(ledger.total(tail) * ratio)
        return Measurement(tokens=tokens, is_reported=True)
    estimated = overhead + ledger.total(item.message for item in context)
    return Measurement(tokens=round(estimated * ratio), is_reported=False)


def reports(projection: Projection, model: Model) -> Iterator[tuple[int, Report]]:
    """(place in `projection.messages`, answer) of those whose usage speaks of this context, the newest first."""
    for number in range(len(projection.messages) - 1, projection.messages_after_last_change - 1, -1):
        entry, message = projection.messages[number].entry, projection.messages[number].message
        if isinstance(message, AssistantMessage) and _is_anchor(message, model):
            yield number, Report(entry=entry, message=message)


def is_over(measurement: Measurement, budget: Budget) -> bool:
    """Whether the context is to be compacted."""
    return measurement.tokens > budget.threshold


def clamp_output_tokens(model: Model, budget: Budget, tokens: int) -> int:
    """The most output to ask for in a request of `tokens`: the model's own limit, or the room that is left.

    A margin is left, since the input is partly estimated; and never less than that margin is asked for, so that an
    estimate that is too high does not cut an answer to nothing.
    """
    total = budget.window if budget.limit == model.max_input_tokens else budget.limit
    margin = output_margin(budget)
    return min(model.output_limit, max(margin, total - tokens - margin))


def output_margin(budget: Budget) -> int:
    """The tokens of the limit that no context may take: without them nothing could be answered."""
    return max(1, min(1_000, budget.limit // 16))


def _is_anchor(message: AssistantMessage, model: Model) -> bool:
    return (
        (message.provider, message.model) == (model.provider, model.name)
        and not message.is_failed
        and message.usage.is_reported
    )
