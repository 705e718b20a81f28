"""Which model, and what it takes and costs."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from session_store.messages import Cost, Usage
from session_store.showing import Brief

DEFAULT_CONTEXT_WINDOW = 128_000
"""Tokens assumed for a model nobody knows; the session warns once."""

DEFAULT_MAX_OUTPUT_TOKENS = 8_192


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ModelCost(Brief):
    """US dollars for a million tokens."""

    input: float = 0.0
    output: float = 0.0
    cache_read: float = 0.0
    cache_write: float = 0.0


@dataclass(frozen=True, slots=True, repr=False)
class Model(Brief):
    """A model by its `provider/name`, with its limits in tokens.

    A limit that is None is not known: `context_limit`, `output_limit` then give the documented defaults.
    A plain string works wherever a `Model` does (`Model.of`).

    Raises:
        ValueError: the id has no provider part, or a limit is not positive.
    """

    id: str
    context_window: int | None = field(default=None, kw_only=True)
    max_input_tokens: int | None = field(default=None, kw_only=True)
    max_output_tokens: int | None = field(default=None, kw_only=True)
    reasoning: bool | None = field(default=None, kw_only=True)
    images: bool | None = field(default=None, kw_only=True)
    cost: ModelCost | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if not isinstance(self.id, str):
            raise TypeError(f"a model is 'provider/name' or a Model, not {type(self.id).__name__}")
        provider, slash, name = self.id.partition("/")
        if not (provider and slash and name):
            raise ValueError(f"model id {self.id!r} is not `provider/name`, for example openai/gpt-5-mini")
        for limit in ("context_window", "max_input_tokens", "max_output_tokens"):
            value = getattr(self, limit)
            if value is not None and value <= 0:
                raise ValueError(f"model {self.id}: {limit} must be above 0, not {value!r}")

    @classmethod
    def of(cls, model: str | Model) -> Model:
        """The model itself, or one made of its id.

        Raises:
            ValueError: the id is not `provider/name`.
        """
        return model if isinstance(model, Model) else cls(model)

    @property
    def provider(self) -> str:
        return self.id.partition("/")[0]

    @property
    def name(self) -> str:
        """The id without its provider: what is sent to the provider."""
        return self.id.partition("/")[2]

    @property
    def is_claude(self) -> bool:
        """Whether Anthropic's rules hold, whoever serves it: for images, thinking, and what its cache keeps."""
        return self.provider == "anthropic" or "claude" in self.name.lower()

    @property
    def is_window_known(self) -> bool:
        return self.context_window is not None or self.max_input_tokens is not None

    @property
    def context_limit(self) -> int:
        return self.context_window or self.max_input_tokens or DEFAULT_CONTEXT_WINDOW

    @property
    def output_limit(self) -> int:
        return self.max_output_tokens or DEFAULT_MAX_OUTPUT_TOKENS

    def priced(self, usage: Usage) -> Usage:
        """The same usage with its cost; unchanged where the price is unknown or the cost was reported."""
        if self.cost is None or usage.cost is not None:
            return usage
        fresh, answer, read, write = (
            getattr(usage, part) * getattr(self.cost, part) / 1_000_000
            for part in ("input", "output", "cache_read", "cache_write")
        )
        return replace(usage, cost=Cost(fresh, answer, read, write, fresh + answer + read + write))
