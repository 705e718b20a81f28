"""The values that a compaction is made of. All sizes are tokens, all times seconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from typing_extensions import override

from session_store.entries import CompactionEntry, ContextEditEntry
from session_store.messages import Content, Message, Usage
from session_store.showing import Brief, fields_of, table

CompactionReason: TypeAlias = Literal["threshold", "overflow", "manual"]
CompactionMethod: TypeAlias = Literal["model", "handler", "digest", "shrink"]
CompactionStatus: TypeAlias = Literal["applied", "vetoed", "aborted", "failed", "skipped", "preview"]
SkipReason: TypeAlias = Literal["too_little", "nothing_new"]

KEEP_NOTHING: Final = ""
"""A handler's `first_kept_entry_id` that keeps nothing verbatim: the summary stands alone."""

SMALL_SUMMARY_SHARE: Final = 8
"""A summary needs this part of the room between overhead and threshold at least."""

NOTHING_STORED: Final = "nothing was stored"
"""Why an aborted compaction came to nothing: there is no more to say of it."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class FileOps(Brief):
    """Paths that tools read and changed, each once, in order of first use; a modified one is not in `read`."""

    read: tuple[str, ...] = ()
    modified: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """The arithmetic of one model under one set of settings (`compaction.trigger.budget_for`).

    `limit` is the working limit: the smallest of window, input limit and what an overflow taught.
    `overhead` is the system prompt and the tool definitions. `warning` is set where a reserve had to be
    clamped, and says so. `is_overhead_too_large`: no history at all would fit.
    """

    window: int
    limit: int
    overhead: int
    reserve: int
    threshold: int
    keep_recent: int
    summary_max_tokens: int
    warning: str | None = None
    is_overhead_too_large: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """How large the next request is. `is_reported`: anchored on a provider's usage, the tail estimated."""

    tokens: int
    is_reported: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Shrink:
    """One giant item made smaller: `replacement` is its context edit's content, `full_text` goes to a side file."""

    entry_id: str
    replacement: tuple[Content, ...]
    full_text: str
    tokens_before: int
    tokens_after: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionPreparation:
    """What one compaction would do, worked out before anyone is asked.

    `messages_to_summarize` and, for a split turn, `turn_prefix_messages` are all that leaves the context,
    in order. `current_request` is the text of the user message that opens a split turn. `leaf_id` is the
    branch this was worked out on; `kept_entry_ids` are the entries from the boundary on, and `keep_tokens` is
    the budget they were chosen with. `kept_tokens` is their size after `shrinks`.

    `shrinks_alone` is set where no summary is needed (or none is possible): these edits do it by themselves.
    `scale` is what one estimated token counts for, by what the provider reported, or refused.
    """

    leaf_id: str
    first_kept_entry_id: str
    messages_to_summarize: tuple[Message, ...]
    turn_prefix_messages: tuple[Message, ...]
    dropped_entry_ids: tuple[str, ...]
    kept_entry_ids: tuple[str, ...]
    is_split_turn: bool
    current_request: str | None
    previous_summary: str | None
    file_ops: FileOps
    tokens_before: int
    keep_tokens: int
    kept_tokens: int
    shrinks: tuple[Shrink, ...]
    shrinks_alone: tuple[Shrink, ...]
    scale: float
    budget: Budget

    @property
    def ceiling(self) -> int:
        """The threshold in estimated tokens."""
        return round(self.budget.threshold / self.scale)

    @property
    def summary_room(self) -> int:
        """The most estimated tokens of a summary that leave the context under the threshold; at least a small one."""
        least = min(
            self.budget.summary_max_tokens, max(1, (self.ceiling - self.budget.overhead) // SMALL_SUMMARY_SHARE)
        )
        return max(least, self.ceiling - self.budget.overhead - self.kept_tokens)

    @property
    def dropped(self) -> tuple[Message, ...]:
        return self.messages_to_summarize + self.turn_prefix_messages


@dataclass(frozen=True, slots=True, kw_only=True)
class Skip:
    """Nothing to do, and why; `detail` says it in words."""

    why: SkipReason
    detail: str


@dataclass(frozen=True, slots=True, repr=False)
class CompactionResult(Brief):
    """A summary made by a handler, or by `event.summarize`. What is None defaults to what was prepared."""

    summary: str
    first_kept_entry_id: str | None = None
    tokens_before: int | None = None
    details: dict[str, Any] | None = None
    usage: Usage | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionRequest:
    """What sets a compaction off. `refused_tokens` is how large the provider said the context is that it refused.

    Raises:
        TypeError: instructions that are no text.
        ValueError: `keep_recent_tokens` is no number of tokens.
    """

    reason: CompactionReason
    instructions: str | None = None
    keep_recent_tokens: int | None = None
    model: str | None = None
    will_retry: bool = False
    refused_tokens: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.instructions, str | None):
            raise TypeError(f"compaction instructions are text, not {type(self.instructions).__name__}")
        keep: object = self.keep_recent_tokens
        if keep is not None and (not isinstance(keep, int) or keep < 0):
            raise ValueError(f"keep_recent_tokens is a whole number of tokens, not {keep!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionOutcome:
    """What became of a compaction.

    `applied`: `entry` is in the log (`method` shrink: `edits` only). `vetoed`, `aborted`, `failed`: the log
    is as before; `why` and `error` say more. `skipped` (nothing to do) and `preview` are returned, never
    announced. `usage` is what summaries cost, also where they came to nothing; `cost` is US dollars, None
    where a price is unknown. `duration` is seconds. In a preview `calls`, `usage`, `cost` and `tokens_after` are what
    is expected.
    """

    status: CompactionStatus
    reason: CompactionReason
    method: CompactionMethod | None = None
    entry: CompactionEntry | None = None
    edits: tuple[ContextEditEntry, ...] = ()
    summary: str | None = None
    tokens_before: int = 0
    tokens_after: int | None = None
    entries_summarized: int = 0
    calls: int | None = None
    usage: Usage | None = None
    cost: float | None = None
    duration: float = 0.0
    error: BaseException | None = None
    why: str | None = None

    @override
    def __str__(self) -> str:
        head = f"{self.status} ({', '.join(part for part in (self.reason, self.method) if part)})"
        if self.status == "applied":
            money = f", ${self.cost:.4f}" if self.cost is not None else ""
            entries = f", {self.entries_summarized} entries summarised" if self.entries_summarized else ""
            return f"{head}: {self.tokens_before:,} -> {self.tokens_after or 0:,} tokens{entries}{money}"
        if self.status == "preview":
            money = f", about ${self.cost:.4f}" if self.cost is not None else ""
            entries = f", {self.entries_summarized} entries to summarise" if self.entries_summarized else ""
            calls = f", {self.calls} call{'' if self.calls == 1 else 's'}"
            return f"{head}: {self.tokens_before:,} -> about {self.tokens_after or 0:,} tokens{entries}{calls}{money}"
        detail = self.why or (str(self.error) if self.error is not None else "")
        return f"{head}: {detail}" if detail else head

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return table("compaction", [("outcome", str(self)), *fields_of(self)])
