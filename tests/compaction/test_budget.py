"""The arithmetic of windows, reserves and thresholds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_session.compaction.trigger import budget_for, clamp_output_tokens, is_over
from agent_session.compaction.types import Budget, Measurement
from agent_session.models import Model
from agent_session.settings import (
    COMPACTION_RESERVE_TOKENS,
    DEFAULT_COMPACTION_SETTINGS,
    NON_REASONING_KEEP_RECENT_TOKENS,
    REASONING_COMPACTION_RESERVE_TOKENS,
    REASONING_KEEP_RECENT_TOKENS,
    CompactionOverride,
    CompactionSettings,
)


def model(window: int | None = 200_000, **limits: int | bool) -> Model:
    return Model("openai/scripted", context_window=window, **limits)  # type: ignore[arg-type]


def budget(
    of: Model, level: str = "off", *, overhead: int = 0, learned_limit: int | None = None, **numbers: object
) -> Budget:
    settings = CompactionSettings.model_validate(numbers)
    return budget_for(of, settings, level, overhead=overhead, learned_limit=learned_limit)


# Mutations: a default reserve without the quarter; `floor` always `reserve`, or never; a threshold without
# `window - reserve`; no clamped second try.
@pytest.mark.parametrize(
    ("of", "numbers", "without", "with_thinking"),
    [
        (model(8_192), {}, 6_144, 6_144),
        (model(32_768), {}, 24_576, 24_576),
        (model(200_000), {}, 183_616, 152_000),
        (model(1_000_000), {}, 983_616, 952_000),
        (model(400_000, max_input_tokens=272_000), {}, 255_616, 255_000),
        (model(280_000, max_input_tokens=272_000), {}, 255_616, 232_000),
        (model(1_000_000), {"reserve_tokens": 800_000}, 200_000, 200_000),
        (model(8_192), {"reserve_tokens": 16_384}, 6_144, 6_144),
        (model(1_000), {"reserve_tokens": 100}, 900, 900),
        (model(None), {}, 128_000 - 16_384, 128_000 - 32_000),
    ],
)
def test_thresholds(of, numbers, without, with_thinking):
    assert budget(of, "off", **numbers).threshold == without
    assert budget(of, "high", **numbers).threshold == with_thinking


# Mutation: let a declared input limit that is the window itself count as room for output.
def test_an_input_limit_that_is_the_whole_window_leaves_no_room_beside_it():
    assert budget(model(None, max_input_tokens=200_000)).threshold == 183_616
    assert budget(model(200_000, max_input_tokens=200_000)).threshold == 183_616
    assert budget(model(200_000, max_input_tokens=300_000)).limit == 200_000


# Mutation: let what was learned raise the limit.
def test_a_learned_limit_only_lowers():
    learned = budget(model(200_000), learned_limit=100_000)
    assert (learned.window, learned.limit, learned.threshold) == (200_000, 100_000, 83_616)
    assert budget(model(200_000), learned_limit=500_000) == budget(model(200_000))
    # It is a limit of input and output together: the input limit's own rule is then not in force.
    assert budget(model(400_000, max_input_tokens=272_000), learned_limit=100_000).threshold == 83_616


# Mutation: `own.trigger_at <= 1`, or no `limit - slack`.
@pytest.mark.parametrize(
    ("trigger_at", "threshold"), [(0.5, 100_000), (50_000, 50_000), (0.9999, 199_000), (500_000, 199_000)]
)
def test_trigger_at_is_tokens_or_a_fraction_and_leaves_some_slack(trigger_at, threshold):
    assert budget(model(200_000), trigger_at=trigger_at).threshold == threshold


# Mutation: no warning; or a warning for defaults that fit.
def test_a_reserve_that_leaves_no_room_is_set_aside_with_one_warning():
    clamped = budget(model(8_192), reserve_tokens=16_384)
    assert clamped.reserve == 2_048
    assert clamped.warning is not None
    assert "2,048" in clamped.warning
    assert not clamped.is_overhead_too_large
    assert budget(model(8_192), reserve_tokens=4_096, overhead=4_096 - 2 * 512).threshold == 6_144
    assert budget(model(8_192), reserve_tokens=4_096, overhead=4_096 - 2 * 512 - 1).threshold == 4_096
    for window in (8_192, 32_768, 200_000, 1_000_000):
        assert budget(model(window)).warning is None
    assert budget(model(1_000_000), reserve_tokens=800_000).warning is None


# Mutation: keep `trigger_at` in the second try.
def test_a_trigger_below_the_overhead_is_set_aside_too():
    low = budget(model(200_000), trigger_at=4_000, overhead=5_000)
    assert low.threshold == 183_616
    assert low.warning is not None


# Mutation: `threshold < least`; or a slack counted once.
def test_an_overhead_that_leaves_no_room_is_said_to_be_too_large():
    assert budget(model(1_000), reserve_tokens=100, overhead=900).is_overhead_too_large
    assert budget(model(8_192), overhead=6_144 - 2 * 512).is_overhead_too_large
    fits = budget(model(8_192), overhead=6_144 - 2 * 512 - 1)
    assert not fits.is_overhead_too_large
    assert budget(model(8_192), overhead=100_000).keep_recent == 0


# Mutation: keep-recent without the half of what is free.
def test_keep_recent_is_at_most_half_of_what_the_overhead_leaves():
    assert budget(model(200_000)).keep_recent == 30_000
    assert budget(model(200_000), "low").keep_recent == 20_000
    assert budget(model(32_768), overhead=4_576).keep_recent == 10_000
    assert budget(model(200_000), keep_recent_tokens=0).keep_recent == 0
    assert budget(model(200_000), keep_recent_tokens=5_000).keep_recent == 5_000


# Mutation: the general number before the model's own.
def test_numbers_for_one_model_come_before_the_general_ones():
    settings = CompactionSettings(
        reserve_tokens=10_000,
        keep_recent_tokens=7_000,
        model_overrides={"openai/scripted": CompactionOverride(reserve_tokens=20_000)},
    )
    own = budget_for(model(), settings, "off", overhead=0)
    assert (own.reserve, own.keep_recent) == (20_000, 7_000)
    other = budget_for(Model("openai/other", context_window=200_000), settings, "off", overhead=0)
    assert other.reserve == 10_000


# Mutation: 0.8 of another number; or the setting ignored.
def test_a_summary_may_take_most_of_the_reserve():
    assert budget(model()).summary_max_tokens == 13_107
    assert budget(model(), "high").summary_max_tokens == 38_400
    assert budget(model(), summary_max_tokens=1_000).summary_max_tokens == 1_000


# Mutation: thinking reserve for a model that does not think.
def test_the_defaults_by_model():
    thinking = CompactionSettings.for_model("openai/o9", "high")
    assert thinking.reserve_tokens == REASONING_COMPACTION_RESERVE_TOKENS == 48_000
    assert thinking.keep_recent_tokens == REASONING_KEEP_RECENT_TOKENS == 20_000
    for plain in (
        CompactionSettings.for_model("openai/o9", "off"),
        CompactionSettings.for_model(model(reasoning=False), "high"),
    ):
        assert plain.reserve_tokens == COMPACTION_RESERVE_TOKENS == 16_384
        assert plain.keep_recent_tokens == NON_REASONING_KEEP_RECENT_TOKENS == 30_000
    assert CompactionSettings() == DEFAULT_COMPACTION_SETTINGS


# Mutation: `for_model` builds its result with the constructor, as if a user had set the numbers.
@pytest.mark.parametrize("window", [8_192, 64_000, 200_000])
@pytest.mark.parametrize("level", ["off", "high"])
def test_settings_by_model_are_still_fitted_to_the_window(window, level):
    by_model = CompactionSettings.for_model(model(window), level)
    assert budget_for(model(window), by_model, level, overhead=0) == budget(model(window), level)
    own = by_model.model_copy(update={"reserve_tokens": 5_000})
    assert budget_for(model(window), own, level, overhead=0).reserve == 5_000


# Mutation: `>=`.
def test_over_is_above_the_threshold():
    numbers = budget(model(1_000), reserve_tokens=100)
    assert not is_over(Measurement(tokens=900, is_reported=True), numbers)
    assert is_over(Measurement(tokens=901, is_reported=True), numbers)


# Mutation: the model's limit without the room; or no margin.
def test_the_requested_output_is_clamped_to_the_room_that_is_left():
    large = model(200_000, max_output_tokens=64_000)
    numbers = budget(large)
    assert clamp_output_tokens(large, numbers, 10_000) == 64_000
    assert clamp_output_tokens(large, numbers, 150_000) == 49_000
    assert clamp_output_tokens(large, numbers, 250_000) == 1_000


# Mutation: room within the input limit; or room in a window that an error has disproved.
def test_an_input_limit_of_its_own_leaves_the_output_its_room():
    split = model(400_000, max_input_tokens=272_000, max_output_tokens=128_000)
    assert clamp_output_tokens(split, budget(split), 250_000) == 128_000
    learned = budget(split, learned_limit=100_000)
    assert clamp_output_tokens(split, learned, 80_000) == 19_000


LIMITS = st.integers(1_000, 2_000_000)


# Mutation: drop the second try; or `keep_recent` without its bound.
@given(
    window=LIMITS,
    input_limit=st.none() | LIMITS,
    learned=st.none() | LIMITS,
    reserve=st.none() | LIMITS,
    keep=st.none() | st.integers(0, 1_000_000),
    overhead=st.integers(0, 50_000),
    level=st.sampled_from(["off", "high"]),
)
def test_every_budget_is_consistent(*, window, input_limit, learned, reserve, keep, overhead, level):
    limits = {} if input_limit is None else {"max_input_tokens": input_limit}
    numbers = budget(
        model(window, **limits),
        level,
        overhead=overhead,
        learned_limit=learned,
        reserve_tokens=reserve,
        keep_recent_tokens=keep,
    )
    slack = min(1_000, numbers.limit // 16)
    assert numbers.limit == min(window, input_limit or window, learned or window)
    assert numbers.threshold <= numbers.limit - slack
    assert numbers.is_overhead_too_large == (numbers.threshold <= overhead + 2 * slack)
    assert numbers.keep_recent >= 0
    assert numbers.summary_max_tokens > 0
    if not numbers.is_overhead_too_large:
        assert overhead + 2 * numbers.keep_recent <= numbers.threshold
        assert numbers.threshold > 0
