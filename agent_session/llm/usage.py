"""Token counts as providers report them, made disjoint.

The parts of a `Usage` can be added: fresh input, cache reads, cache writes, output with its reasoning. Some
providers' input already includes what came from the cache, some providers' does not, and both use the same
names; where the numbers themselves show which it is, they decide. A report without input is no measurement and is
treated like none at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from session_store.messages import UNREPORTED, Usage


def usage_from(report: Mapping[str, Any] | None) -> Usage:
    """The usage in a provider's report, in disjoint parts; `UNREPORTED` where it says nothing.

    Takes the chat-completions shape (`prompt_tokens`), the responses shape (`input_tokens` with details) and
    Anthropic's (`input_tokens` beside `cache_read_input_tokens`).
    """
    if not report:
        return UNREPORTED
    if "prompt_tokens" in report:
        usage = _inclusive(
            report,
            given=_count(report, "prompt_tokens"),
            output=_count(report, "completion_tokens"),
            details=_section(report, "prompt_tokens_details"),
            output_details=_section(report, "completion_tokens_details"),
        )
    elif "input_tokens_details" in report:
        usage = _inclusive(
            report,
            given=_count(report, "input_tokens"),
            output=_count(report, "output_tokens"),
            details=_section(report, "input_tokens_details"),
            output_details=_section(report, "output_tokens_details"),
        )
    else:
        usage = Usage(
            input=_count(report, "input_tokens"),
            output=_count(report, "output_tokens"),
            cache_read=_count(report, "cache_read_input_tokens"),
            cache_write=_count(report, "cache_creation_input_tokens"),
        )
    if usage.input + usage.cache_read + usage.cache_write > 0:
        return usage
    return Usage(output=usage.output, estimated=True) if usage.output else UNREPORTED


def _inclusive(
    report: Mapping[str, Any],
    *,
    given: int,
    output: int,
    details: Mapping[str, Any],
    output_details: Mapping[str, Any],
) -> Usage:
    """A report whose input normally includes the cached part and whose output the reasoning."""
    total = _count(report, "total_tokens")
    read = (
        _count(details, "cached_tokens")
        or _count(report, "cache_read_input_tokens")
        or _count(report, "prompt_cache_hit_tokens")
    )
    written = (
        _count(details, "cache_write_tokens")
        or _count(details, "cache_creation_tokens")
        or _count(report, "cache_creation_input_tokens")
    )
    cached = read + written
    reasoning = _count(output_details, "reasoning_tokens")
    if reasoning and total == given + output + reasoning:
        output += reasoning
    is_beside = cached > given or (cached > 0 and total == given + cached + output)
    return Usage(
        input=given if is_beside else given - cached,
        output=output,
        cache_read=read,
        cache_write=written,
    )


def _count(report: Mapping[str, Any], key: str) -> int:
    """A count; 0 where it is absent, null, negative or no number."""
    value = report.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0
    return max(0, int(value))


def _section(report: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = report.get(key)
    return value if isinstance(value, Mapping) else {}
