"""How a Claude model is asked to think: there are two ways, and the model's name says which it takes.

Models before 4.6 are given a budget in tokens. Those from 4.6 on decide themselves how much to think and take an
effort, which the newest accept as the only way; from 5 on they think also when nobody asks, so that the least is asked
for explicitly. A Claude name without a version is taken for a new one; any other name (a server that speaks this format
for a model of its own) for one that takes a budget. Pure.
"""

from __future__ import annotations

import re
from typing import Any, Final

from agent_session.llm.client import ThinkingLevel
from agent_session.models import Model

MIN_BUDGET_TOKENS: Final = 1_024
"""The smallest budget that is accepted."""

_BUDGET_TOKENS: Final[dict[ThinkingLevel, int]] = {
    "minimal": MIN_BUDGET_TOKENS,
    "low": 2_048,
    "medium": 8_192,
    "high": 16_384,
    "xhigh": 32_768,
    "max": 65_536,
}
_VERSION: Final = re.compile(r"claude-(?:[a-z]+-)*(\d)(?:[-.](\d{1,2}))?(?!\d)")
_NEWEST: Final = (5, 0)
_FIRST_ADAPTIVE: Final = (4, 6)


def thinking_fields(
    model: Model, level: ThinkingLevel, max_tokens: int, *, is_mid_turn_without: bool = False
) -> dict[str, Any]:
    """The payload's `thinking` and `output_config`, as far as this model needs them.

    Args:
        model: whose name decides; `reasoning=False` means none.
        level: how hard it should think.
        max_tokens: the limit of the whole answer. A budget takes at most three quarters of it, and is left out where
            even the smallest would not fit.
        is_mid_turn_without: the answer goes on with a turn whose calls have no thinking before them; a budget would be
            refused there.
    """
    if model.reasoning is False:
        return {}
    version = _version(model.name)
    if version is not None and version >= _FIRST_ADAPTIVE:
        if level == "off":
            return {"output_config": {"effort": "low"}} if version >= _NEWEST else {}
        return {
            "thinking": {"type": "adaptive", "display": "summarized"},
            "output_config": {"effort": _effort(level, has_xhigh=version > _FIRST_ADAPTIVE)},
        }
    if level == "off" or is_mid_turn_without:
        return {}
    budget = min(_BUDGET_TOKENS[level], max_tokens * 3 // 4)
    return {"thinking": {"type": "enabled", "budget_tokens": budget}} if budget >= MIN_BUDGET_TOKENS else {}


def _version(name: str) -> tuple[int, int] | None:
    """The version in a Claude model's name, the newest where it has none; None for any other model."""
    name = name.lower()
    if "claude" not in name:
        return None
    found = _VERSION.search(name)
    return (int(found.group(1)), int(found.group(2) or 0)) if found else _NEWEST


def _effort(level: ThinkingLevel, *, has_xhigh: bool) -> str:
    if level == "minimal":
        return "low"
    return "high" if level == "xhigh" and not has_xhigh else level
