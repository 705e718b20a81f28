"""Reported tokens in disjoint parts."""

from typing import Any

import pytest

from agent_session.llm.usage import usage_from
from session_store.messages import UNREPORTED, Usage


# Mutation: leave the cached tokens in `input`.
def test_cached_tokens_that_the_input_includes_are_counted_once() -> None:
    usage = usage_from({"prompt_tokens": 500, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 490}})
    assert usage == Usage(input=10, cache_read=490, output=7)
    assert usage.total_tokens == 507


# Mutation: subtract the cached tokens here too.
def test_cached_tokens_beside_the_input_are_added() -> None:
    usage = usage_from({"input_tokens": 5, "cache_read_input_tokens": 950, "output_tokens": 3})
    assert usage == Usage(input=5, cache_read=950, output=3)


@pytest.mark.parametrize(
    ("report", "expected"),
    [
        pytest.param(
            {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120},
            Usage(input=100, output=20),
            id="plain",
        ),
        pytest.param(
            {
                "prompt_tokens": 100,
                "completion_tokens": 20,
                "prompt_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 30},
            },
            Usage(input=10, cache_read=60, cache_write=30, output=20),
            id="cache writes",
        ),
        pytest.param(
            {"prompt_tokens": 5, "completion_tokens": 3, "cache_read_input_tokens": 950},
            Usage(input=5, cache_read=950, output=3),
            id="more cached than given: they are beside it",
        ),
        pytest.param(
            {
                "prompt_tokens": 1000,
                "completion_tokens": 10,
                "total_tokens": 1210,
                "cache_read_input_tokens": 200,
            },
            Usage(input=1000, cache_read=200, output=10),
            id="the total says that they are beside it",
        ),
        pytest.param(
            {"prompt_tokens": 100, "completion_tokens": 9, "prompt_cache_hit_tokens": 64},
            Usage(input=36, cache_read=64, output=9),
            id="hits",
        ),
        pytest.param(
            {
                "prompt_tokens": 100,
                "completion_tokens": 50,
                "total_tokens": 150,
                "completion_tokens_details": {"reasoning_tokens": 40},
            },
            Usage(input=100, output=50),
            id="reasoning included",
        ),
        pytest.param(
            {
                "prompt_tokens": 100,
                "completion_tokens": 10,
                "total_tokens": 150,
                "completion_tokens_details": {"reasoning_tokens": 40},
            },
            Usage(input=100, output=50),
            id="reasoning beside",
        ),
        pytest.param(
            {"input_tokens": 100, "output_tokens": 4, "input_tokens_details": {"cached_tokens": 80}},
            Usage(input=20, cache_read=80, output=4),
            id="responses",
        ),
        pytest.param(
            {"input_tokens": 1, "output_tokens": 2, "cache_read_input_tokens": 3, "cache_creation_input_tokens": 4},
            Usage(input=1, output=2, cache_read=3, cache_write=4),
            id="anthropic",
        ),
    ],
)
def test_every_shape_gives_parts_that_can_be_added(report: dict[str, Any], expected: Usage) -> None:
    assert usage_from(report) == expected


# Mutation: return a `Usage` of zeros that is not marked as estimated.
@pytest.mark.parametrize(
    "report",
    [
        None,
        {},
        {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
        {"prompt_tokens": None, "completion_tokens": None},
        {"prompt_tokens": "many", "completion_tokens": -5},
        {"prompt_tokens": True},
        {"input_tokens": 0, "output_tokens": 0},
        {"prompt_tokens_details": None},
    ],
)
def test_absent_and_zero_and_nonsense_are_no_report(report: dict[str, Any] | None) -> None:
    assert usage_from(report) == UNREPORTED


# Mutation: take an output without an input for a measurement.
def test_an_output_without_any_input_is_kept_but_is_no_measurement() -> None:
    usage = usage_from({"prompt_tokens": 0, "completion_tokens": 12})
    assert usage.output == 12
    assert not usage.is_reported
