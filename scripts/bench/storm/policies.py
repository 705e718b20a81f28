"""The policies that a storm compares: what a user may turn, each as a section of the settings.

Pure. Numbers that must fit a window are shares of it, so that one policy means the same in every session.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from scripts.bench.storm.plans import Plan

Numbers = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """`compaction` gives the section of the settings for one session.

    `is_yardstick`: what the default costs is held against it. Its summaries are by the same model at the same prices:
    not by a cheaper one, nor mostly read from a cache, which is a matter of the provider's and not of the policy.
    """

    name: str
    says: str
    compaction: Callable[[Plan], Numbers]
    is_yardstick: bool = True


def _window(plan: Plan) -> int:
    return plan.window or 128_000


POLICIES: Final[Mapping[str, Policy]] = {
    policy.name: policy
    for policy in (
        Policy(name="default", says="summaries by the model, from text", compaction=lambda plan: {}),
        Policy(
            name="prefix",
            says="summaries by the model, asked at the end of the live conversation",
            compaction=lambda plan: {"summary_input": "prefix"},
            is_yardstick=False,
        ),
        Policy(
            name="digest",
            says="no model: the digest alone",
            compaction=lambda plan: {"summarizer": "digest"},
            is_yardstick=False,
        ),
        Policy(
            name="small-model",
            says="summaries by a model with half the window at a tenth of the price",
            compaction=lambda plan: {"summary_model": "storm/small"},
            is_yardstick=False,
        ),
        Policy(
            name="keep-little",
            says="a twentieth of the window kept verbatim",
            compaction=lambda plan: {"keep_recent_tokens": _window(plan) // 20},
        ),
        Policy(
            name="keep-much",
            says="a third of the window kept verbatim",
            compaction=lambda plan: {"keep_recent_tokens": _window(plan) // 3},
        ),
        Policy(
            name="naive",
            says="everything summarised at four fifths of the window, nothing kept: what simple agents do",
            compaction=lambda plan: {"trigger_at": 0.8, "keep_recent_tokens": 0},
        ),
        Policy(name="early", says="compaction at half of the limit", compaction=lambda plan: {"trigger_at": 0.5}),
        Policy(name="late", says="compaction at nine tenths of it", compaction=lambda plan: {"trigger_at": 0.9}),
    )
}
