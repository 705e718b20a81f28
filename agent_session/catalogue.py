"""What is known of models: limits, prices and abilities, from the data file that litellm ships.

The file is found and read without importing litellm, which would cost seconds, and never fetched. Only numbers that it
says are used: it has no total window, so the input limit stands for it unless the total is known otherwise
(`TOTAL_WINDOWS`). What a user gave is never overridden.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import orjson

from agent_session.models import Model, ModelCost

_FILE = "model_prices_and_context_window_backup.json"

TOTAL_WINDOWS: Mapping[str, int] = {
    f"{provider}/{name}": 400_000
    for provider in ("azure", "openai")
    for name in ("gpt-5", "gpt-5-codex", "gpt-5-mini", "gpt-5-nano", "gpt-5.1", "gpt-5.1-codex", "gpt-5.2")
}
"""Tokens of input and output together, where a provider documents a total beside its input limit."""


def completed(model: Model) -> Model:
    """The model with what the catalogue knows in place of what is None. The first call for a model reads a file."""
    if None not in (model.context_window, model.max_output_tokens, model.reasoning, model.images, model.cost):
        return model
    record = _record(model.id)
    if record is None:
        return model
    max_input = model.max_input_tokens or _tokens(record, "max_input_tokens")
    known: dict[str, Any] = {
        "max_input_tokens": max_input,
        "context_window": model.context_window or TOTAL_WINDOWS.get(model.id) or max_input,
        "max_output_tokens": model.max_output_tokens or _tokens(record, "max_output_tokens"),
        "reasoning": bool(record.get("supports_reasoning")) if model.reasoning is None else model.reasoning,
        "images": bool(record.get("supports_vision")) if model.images is None else model.images,
        "cost": model.cost or _cost(record),
    }
    return replace(model, **known)


def _tokens(record: Mapping[str, Any], key: str) -> int | None:
    value = record.get(key)
    return int(value) if isinstance(value, int | float) and value > 0 else None


def _cost(record: Mapping[str, Any]) -> ModelCost | None:
    """Dollars for a million tokens; None where the file has no price for plain input and output."""

    def price(key: str) -> float | None:
        value = record.get(key)
        return round(float(value) * 1_000_000, 6) if isinstance(value, int | float) else None

    fresh, answer = price("input_cost_per_token"), price("output_cost_per_token")
    if fresh is None or answer is None:
        return None
    read, write = price("cache_read_input_token_cost"), price("cache_creation_input_token_cost")
    # A provider that names no price of its own for the cache bills it as input.
    return ModelCost(
        input=fresh,
        output=answer,
        cache_read=fresh if read is None else read,
        cache_write=fresh if write is None else write,
    )


@cache
def _record(model_id: str) -> Mapping[str, Any] | None:
    """The model's entry: under its whole id, else under its plain name where that is this provider's.

    Some providers' entries are parted by what they are reached through, as in `vertex_ai-anthropic_models`.

    The file is parsed for each model anew and let go of: kept, it would take some 30 MB for a handful of numbers.
    """
    found = importlib.util.find_spec("litellm")
    if found is None or found.origin is None:
        return None
    try:
        records = orjson.loads((Path(found.origin).parent / _FILE).read_bytes())
    except (OSError, orjson.JSONDecodeError):
        return None
    provider, _, name = model_id.partition("/")
    record = records.get(model_id)
    if record is None:
        record = records.get(name)
        owner = str(record.get("litellm_provider")) if isinstance(record, dict) else ""
        if owner != provider and not owner.startswith((f"{provider}_", f"{provider}-")):
            return None
    return record if isinstance(record, dict) else None
