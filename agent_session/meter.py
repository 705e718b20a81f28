"""How full the context is: the one place that measures it, for decisions and for show.

The rule it keeps: the context is built, and measured, once for each state of the log, however many ask.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from operator import is_not

from typing_extensions import override

from agent_session.calibration import Calibration
from agent_session.compaction.tokens import TokenLedger, estimate_fixed_request_tokens
from agent_session.compaction.trigger import budget_for, measure, reports
from agent_session.compaction.types import Budget, Measurement
from agent_session.llm.client import ToolDefinition
from agent_session.model_state import ModelState
from agent_session.request_shape import RequestShape
from agent_session.settings import CompactionSettings
from session_store import SessionManager
from session_store.messages import Message
from session_store.projection import ProjectedMessage, Projection
from session_store.showing import fields_of, table


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextUsage:
    """Tokens of the next request. `threshold`: above it the session compacts; `window`: the model's own.

    `is_reported` says that a provider's count is the base, and only what came after it is estimated.
    """

    tokens: int
    threshold: int
    window: int
    is_reported: bool

    @property
    def percent(self) -> float:
        """Of the window."""
        return 100 * self.tokens / self.window

    @override
    def __repr__(self) -> str:
        source = "reported" if self.is_reported else "estimated"
        return (
            f"{self.tokens:,} of {self.window:,} tokens ({self.percent:.0f} %, {source}), "
            f"compacts above {self.threshold:,}"
        )

    def _repr_html_(self) -> str:
        return table("context, in tokens", [*fields_of(self), ("percent of the window", f"{self.percent:.0f}")])


class ContextMeter:
    def __init__(self, manager: SessionManager, models: ModelState, shape: RequestShape) -> None:
        self._manager = manager
        self._models = models
        self._shape = shape
        self.ledger = TokenLedger()
        self.calibration = Calibration()
        self._overhead: tuple[str, tuple[ToolDefinition, ...], int] | None = None
        self._budget: tuple[tuple[object, ...], Budget] | None = None
        self._context: tuple[str | None, list[ProjectedMessage]] | None = None
        self._measured: tuple[tuple[object, ...], Measurement] | None = None
        self._sent: int | None = None  # estimated tokens of the request whose report is still to come
        self._trusted: str | None = None  # the entry with the newest report that was taken in
        self._distrusted: dict[str, tuple[int, int]] = {}  # entries with reports that were not: sent, counted

    @property
    def overhead(self) -> int:
        """Tokens of the system prompt and the tool definitions; counted once for as long as they stay."""
        prompt, tools = self._shape.system_prompt, self._shape.tools
        if self._overhead is None or self._overhead[0] is not prompt or self._overhead[1] is not tools:
            self._overhead = (prompt, tools, estimate_fixed_request_tokens(prompt, tools))
        return self._overhead[2]

    @property
    def ratio(self) -> float:
        """What an estimated token counts for with the session's model."""
        return self.calibration.ratio(self._models.model.id)

    def context(self) -> list[ProjectedMessage]:
        """What the next request sends; the same list until something is appended, so nobody changes it."""
        leaf_id = self._manager.leaf_id
        known = self._context
        if known is None or known[0] != leaf_id:
            # What a path says never changes, and every append is another leaf.
            known = self._context = (leaf_id, self._manager.build_context())
            self.ledger.forget_all_but([item.message for item in known[1]])
        return known[1]

    def budget(self, settings: CompactionSettings) -> Budget:
        models = self._models
        key = (models.model, settings, models.thinking_level, self.overhead, models.learned_limit)
        if self._budget is None or self._budget[0] != key:
            budget = budget_for(
                models.model,
                settings,
                models.thinking_level,
                overhead=self.overhead,
                learned_limit=models.learned_limit,
            )
            self._budget = (key, budget)
        return self._budget[1]

    def measure(self) -> Measurement:
        """The size of the next request, in tokens of the provider."""
        context, projection, model = self.context(), self._manager.projection, self._models.model
        self._learn(context, projection)
        key = (self._manager.leaf_id, model, self.overhead, self.ratio, len(self._distrusted))
        known = self._measured
        if known is None or known[0] != key:
            measured = measure(
                context,
                projection,
                model,
                overhead=self.overhead,
                ledger=self.ledger,
                ratio=self.ratio,
                distrusted=self._distrusted,
            )
            known = self._measured = (key, measured)
        return known[1]

    def sending(self, messages: Iterable[Message]) -> None:
        """A request with these messages goes out: its report, or its refusal, speaks of them."""
        self._sent = self._estimated(messages)

    def learn_refused(self, counted: int) -> None:
        """The provider refused what was sent, and said how many tokens it is."""
        if self._sent is not None:
            self.calibration.learn_refused(self._models.model.id, sent=self._sent, counted=counted)

    def distrusts(self, entry_id: str) -> tuple[int, int] | None:
        """(sent, counted) where the answer's report is far below what was sent, so that no decision builds on it."""
        self.measure()
        return self._distrusted.get(entry_id)

    def usage(self, settings: CompactionSettings) -> ContextUsage:
        budget, measurement = self.budget(settings), self.measure()
        return ContextUsage(
            tokens=measurement.tokens,
            threshold=budget.threshold,
            window=budget.window,
            is_reported=measurement.is_reported,
        )

    def _estimated(self, messages: Iterable[Message]) -> int:
        return self.overhead + self.ledger.total(messages)

    def _learn(self, context: list[ProjectedMessage], projection: Projection) -> None:
        """Take in the newest report, also of an answer that an earlier process got."""
        model = self._models.model
        for _, report in reports(projection, model):
            if report.entry.id == self._trusted:
                return
            if report.entry.id in self._distrusted:
                continue
            usage = report.message.usage
            counted = usage.input + usage.cache_read + usage.cache_write
            sent, self._sent = self._sent, None
            if sent is None:  # by an earlier process: what stood before the answer, as far as the log can tell
                before = takewhile(partial(is_not, report.message), (item.message for item in context))
                sent = self._estimated(before)
            if self.calibration.learn(model.id, sent=sent, reported=counted):
                self._trusted = report.entry.id
                return
            self._distrusted[report.entry.id] = (sent, counted)
