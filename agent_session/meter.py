"""How full the context is: the one place that measures it, for decisions and for show."""

from __future__ import annotations

from dataclasses import dataclass

from typing_extensions import override

from agent_session.compaction.tokens import TokenLedger, estimate_fixed_request_tokens
from agent_session.compaction.trigger import budget_for, measure
from agent_session.compaction.types import Budget, Measurement
from agent_session.llm.client import ToolDefinition
from agent_session.model_state import ModelState
from agent_session.request_shape import RequestShape
from agent_session.settings import CompactionSettings
from session_store import SessionManager
from session_store.context import ProjectedMessage
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
        self._overhead: tuple[str, tuple[ToolDefinition, ...], int] | None = None
        self._budget: tuple[tuple[object, ...], Budget] | None = None

    @property
    def overhead(self) -> int:
        """Tokens of the system prompt and the tool definitions; counted once for as long as they stay."""
        prompt, tools = self._shape.system_prompt, self._shape.tools
        if self._overhead is None or self._overhead[0] is not prompt or self._overhead[1] is not tools:
            self._overhead = (prompt, tools, estimate_fixed_request_tokens(prompt, tools))
        return self._overhead[2]

    def context(self) -> list[ProjectedMessage]:
        return self._manager.build_context()

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

    def measure(self, context: list[ProjectedMessage] | None = None) -> Measurement:
        return measure(
            self.context() if context is None else context,
            self._manager.projection,
            self._models.model,
            overhead=self.overhead,
            ledger=self.ledger,
        )

    def usage(self, settings: CompactionSettings) -> ContextUsage:
        budget, measurement = self.budget(settings), self.measure()
        return ContextUsage(
            tokens=measurement.tokens,
            threshold=budget.threshold,
            window=budget.window,
            is_reported=measurement.is_reported,
        )
