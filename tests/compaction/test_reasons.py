"""What is prepared depends on why: the same branch at the threshold, after a refusal, and for a person who asks."""

from __future__ import annotations

from typing import Any

import pytest

from agent_session.compaction.prepare import prepare_compaction, request_cut_off
from agent_session.compaction.tokens import TokenLedger, estimate_message_tokens
from agent_session.compaction.types import Budget, CompactionPreparation, Skip
from session_store.messages import ImageContent, TextContent, UserMessage
from tests.compaction.branches import Branch, words

OVERHEAD = 100


def budget(*, threshold: int = 1_100, keep: int = 300) -> Budget:
    return Budget(
        window=1_500,
        limit=1_400,
        threshold=threshold,
        reserve=400,
        keep_recent=keep,
        summary_max_tokens=200,
        overhead=OVERHEAD,
    )


def plan(branch: Branch, reason: str, *, tokens_before: int = 1_200, **options: Any) -> CompactionPreparation | Skip:
    numbers = options.pop("budget", budget())
    return prepare_compaction(
        branch.projection,
        budget=numbers,
        tokens_before=tokens_before,
        ledger=TokenLedger(),
        locate=lambda entry_id, text: f"aside for {entry_id}",
        reason=reason,  # type: ignore[arg-type]
        **options,
    )


def made(branch: Branch, reason: str, **options: Any) -> CompactionPreparation:
    prepared = plan(branch, reason, **options)
    assert isinstance(prepared, CompactionPreparation), prepared
    return prepared


def turns(*sizes: int) -> Branch:
    branch = Branch()
    for number, size in enumerate(sizes):
        branch.user(words(f"m{number}", size))
    return branch


def estimated(branch: Branch) -> int:
    return OVERHEAD + sum(map(estimate_message_tokens, branch.context))


# Mutations: forget one of them.
def test_a_plan_says_for_what_it_was_made():
    numbers = budget()
    prepared = made(turns(*[100] * 8), "threshold", budget=numbers, tokens_before=1_234)
    assert (prepared.leaf_id, prepared.tokens_before, prepared.budget) == ("e7", 1_234, numbers)
    assert (prepared.scale, prepared.shrinks, prepared.shrinks_alone) == (1.0, (), ())
    assert prepared.keep_tokens == 300
    assert made(turns(*[100] * 8), "threshold", ratio=1.5).scale == 1.5
    by_default = prepare_compaction(
        turns(*[100] * 8).projection,
        budget=numbers,
        tokens_before=1_234,
        ledger=TokenLedger(),
        locate=lambda entry_id, text: "",
    )
    assert by_default == prepared


# Mutations: order them by their text; leave one out.
def test_what_is_dropped_is_named_in_the_order_of_the_branch():
    dropped = made(turns(*[60] * 14), "threshold").dropped_entry_ids
    assert dropped == tuple(f"e{number}" for number in range(len(dropped)))
    assert len(dropped) > 10 - 1


# Mutations: scale by what we count over what was said, or without a bound; scale at the threshold too.
@pytest.mark.parametrize(
    ("told", "ratio", "scale"), [(2.0, 1.0, 2.0), (2.0, 3.0, 3.0), (9.0, 1.0, 4.0), (0.5, 1.0, 1.0)]
)
def test_after_a_refusal_everything_weighs_what_the_provider_said(told: float, ratio: float, scale: float):
    branch = turns(*[40] * 8)
    tokens = round(told * estimated(branch))
    assert made(branch, "overflow", tokens_before=tokens, ratio=ratio).scale == pytest.approx(scale, rel=0.01)
    assert made(branch, "threshold", tokens_before=tokens, ratio=ratio).scale == ratio


# Mutations: skip whatever the reason; count the summary itself as something new.
def test_nothing_new_since_a_compaction_is_skipped_but_after_a_refusal():
    branch = turns(100, 100, 100)
    branch.compaction("e1", "what happened")
    for reason in ("threshold", "manual"):
        skip = plan(branch, reason)
        assert isinstance(skip, Skip)
        assert (skip.why, skip.detail) == ("nothing_new", "nothing was added since the last compaction")
    assert made(branch, "overflow").dropped_entry_ids == ("e1",)


# Mutations: begin with the whole budget for a person too; halve it for everybody.
def test_a_person_who_asks_keeps_half_at_most_and_the_runtime_what_the_settings_say():
    branch = turns(*[50] * 6)
    numbers = budget(keep=250)
    assert made(branch, "threshold", budget=numbers).keep_tokens == 250
    assert made(branch, "manual", budget=numbers).keep_tokens == (estimated(branch) - OVERHEAD) // 2
    assert made(branch, "manual", budget=numbers, keep_recent_tokens=60).keep_tokens == 60


# Mutations: take the summary for a giant at the threshold as well, or never; compare with `>=`.
def test_after_a_refusal_one_message_may_leave_with_a_giant_summary_or_as_a_giant():
    share = (1_100 - OVERHEAD) // 4
    branch = turns(20, 20)
    branch.compaction("e1", words("summary", share + 60))
    branch.user(words("next", 20))
    numbers: dict[str, Any] = {"keep_recent_tokens": 0, "tokens_before": estimated(branch)}
    assert isinstance(plan(branch, "threshold", **numbers), Skip)
    assert made(branch, "overflow", **numbers).dropped_entry_ids == ("e1",)
    small = turns(20, 20)
    small.compaction("e1", words("summary", 40))
    small.user(words("next", 20))
    assert isinstance(plan(small, "overflow", **numbers), Skip)
    giant = turns(share + 60, 20)
    assert made(giant, "overflow", **numbers).dropped_entry_ids == ("e0",)
    skip = plan(giant, "threshold", **numbers)
    assert isinstance(skip, Skip)
    assert skip.why == "too_little"
    assert skip.detail == "fewer than 2 messages would be summarised; what is recent, open or one piece is kept"


def batch(branch: Branch, *sizes: int) -> Branch:
    branch.user("Look.")
    calls = [f"c{len(branch.path)}_{number}" for number in range(len(sizes))]
    branch.answer("", *calls)
    for call, size in zip(calls, sizes, strict=True):
        branch.result(call, words(call, size))
    return branch


# Mutations: shrink alone for a person too; after a refusal with as little room as at the threshold; never.
def test_giants_alone_are_made_smaller_where_that_is_enough_and_nobody_asked_for_more():
    def branch() -> Branch:
        return batch(batch(Branch(), 40, 40), 900, 40)

    threshold = made(branch(), "threshold")
    assert [shrink.entry_id for shrink in threshold.shrinks_alone] == ["e6"]
    assert made(branch(), "manual").shrinks_alone == ()
    assert [shrink.entry_id for shrink in made(branch(), "manual").shrinks] == ["e6"]
    # Beside it as much is kept as fits at the threshold, and is too much right after a refusal.
    full = batch(batch(batch(Branch(), 150, 150), 150), 900)
    assert made(full, "threshold").shrinks_alone != ()
    assert made(full, "overflow").shrinks_alone == ()
    assert "aside for" in getattr(threshold.shrinks_alone[0].replacement[0], "text", "")


# Mutations: leave the summary out of what must fit; make nothing smaller where nothing can be dropped.
def test_where_nothing_can_be_dropped_what_can_be_made_smaller_is():
    branch = batch(Branch(), 900)
    prepared = made(branch, "threshold")
    assert prepared.dropped_entry_ids == ()
    assert [shrink.entry_id for shrink in prepared.shrinks_alone] == ["e2"]
    assert prepared.shrinks == prepared.shrinks_alone
    assert prepared.kept_tokens < 900


# Mutations: say "image" of several, or nothing of them.
def test_a_request_whose_images_leave_says_how_many_they_were():
    def with_images(count: int) -> str | None:
        branch = Branch()
        images = tuple(ImageContent("", "image/png") for _ in range(count))
        branch.message(UserMessage(content=(TextContent("See?"), *images)))
        branch.answer("yes")
        return request_cut_off(branch.projection, "e1")

    assert with_images(0) == "See?"
    assert with_images(1) == "See?\n\n[1 image, no longer shown]"
    assert with_images(2) == "See?\n\n[2 images, no longer shown]"
    assert with_images(3) == "See?\n\n[3 images, no longer shown]"


# Mutations: look at what is kept; take the first question; forget what the summary before carried.
def test_a_boundary_in_the_middle_of_a_turn_parts_its_request_and_one_before_a_question_none():
    branch = Branch()
    branch.user("First?")
    branch.answer("one")
    branch.user("Second?")
    branch.answer("two", "c1")
    branch.result("c1")
    branch.answer("three")
    assert request_cut_off(branch.projection, None) is None
    assert request_cut_off(branch.projection, "e0") is None
    assert request_cut_off(branch.projection, "e2") is None
    assert request_cut_off(branch.projection, "e1") == "First?"
    assert request_cut_off(branch.projection, "e3") == "Second?"
    assert request_cut_off(branch.projection, "e5") == "Second?"
    branch.compaction("e3", "So far.\n\n## Current request\n\nSecond?")
    branch.answer("four")
    assert request_cut_off(branch.projection, "e5") == "Second?"
