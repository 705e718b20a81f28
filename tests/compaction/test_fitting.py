"""How much is kept: the most that fits beside a summary, giants made smaller first, in exact numbers."""

from __future__ import annotations

from typing import Any

import pytest

from agent_session.compaction.fitting import Fitting, halvings, shrunk
from agent_session.compaction.tokens import TokenLedger, estimate_message_tokens
from agent_session.compaction.types import Budget
from session_store.context import build_context
from tests.compaction.branches import Branch, words

KEEP = 1 << 20


def budget(*, threshold: int = 1_000, overhead: int = 0, summary_max_tokens: int = 50) -> Budget:
    return Budget(
        window=2 * threshold,
        limit=2 * threshold,
        threshold=threshold,
        reserve=threshold,
        keep_recent=threshold,
        summary_max_tokens=summary_max_tokens,
        overhead=overhead,
    )


def fitting(branch: Branch, *, scale: float = 1.0, **numbers: int) -> Fitting:
    projection = branch.projection
    return Fitting(
        build_context(projection),
        {entry.id: position for position, entry in enumerate(projection.entries)},
        [],
        budget=budget(**numbers),
        scale=scale,
        ledger=TokenLedger(),
        locate=lambda entry_id, text: f"aside for {entry_id}",
    )


def turns(*sizes: int) -> Branch:
    """A user message of each size."""
    branch = Branch()
    for number, size in enumerate(sizes):
        branch.user(words(f"m{number}", size))
    return branch


def batch(branch: Branch, *sizes: int) -> Branch:
    """A question, an answer with one call for each size, and a result of that size for each."""
    branch.user("Look.")
    calls = [f"c{number}" for number in range(len(sizes))]
    branch.answer("", *calls)
    for call, size in zip(calls, sizes, strict=True):
        branch.result(call, words(call, size))
    return branch


def weight(size: int) -> int:
    """Of a user message of that size."""
    [message] = turns(size).context
    return estimate_message_tokens(message)


# Mutations: add the overhead, multiply by the scale, or leave one of the two out.
def test_the_room_is_what_the_threshold_leaves_beside_the_overhead_in_estimated_tokens():
    assert fitting(turns(10)).room == 1_000
    assert fitting(turns(10), overhead=300).room == 700
    assert fitting(turns(10), scale=2.0, overhead=300).room == 200
    assert fitting(turns(10), scale=4.0, overhead=300).room == 1
    assert fitting(turns(10), overhead=300).share == 175
    assert fitting(turns(10), threshold=1_003).share == 250
    assert fitting(turns(10), scale=4.0, overhead=300).share == 1


# Mutations: shift the other way; end with one.
def test_a_tail_that_does_not_fit_is_halved_and_at_last_nothing_is_kept_of_choice():
    assert halvings(800) == [800, 400, 200, 0]


# Mutations: give the first budget, or the last, whatever fits.
def test_the_first_budget_that_fits_is_taken():
    whole = fitting(turns(*[100] * 12))
    fit = whole.best([KEEP, 800, 400, 0], least_dropped=2, is_giant_enough=False)
    assert fit is not None
    assert (fit.keep_tokens, fit.is_enough) == (800, True)
    assert fit.kept_tokens == (12 - fit.cut.kept_from) * weight(100)
    assert fit.kept_tokens <= 800 < fit.kept_tokens + weight(100)


# Mutations: in `best` take the last that was tried, or the first; keep the larger of two; require less than `most`.
def test_where_nothing_fits_what_keeps_least_is_taken_and_of_two_alike_the_first():
    whole = fitting(turns(100, 100, 500, 500, 700), threshold=600)
    fit = whole.best([1_300, 700, 350, 350], least_dropped=2, is_giant_enough=False)
    assert fit is not None
    assert (fit.keep_tokens, fit.is_enough, fit.kept_tokens) == (700, False, weight(700))
    again = whole.best([350, 1_300, 700], least_dropped=2, is_giant_enough=False)
    assert again is not None
    assert (again.keep_tokens, again.kept_tokens) == (350, weight(700))


# Mutations: in `_fit` compare with `<`, with the room alone, or add the summary to it.
@pytest.mark.parametrize(("spare", "is_enough"), [(0, True), (-1, False)])
def test_what_is_kept_fits_where_it_leaves_room_for_a_short_summary(spare: int, is_enough: bool):
    kept = weight(400)
    threshold = kept + 50 + spare
    whole = fitting(turns(100, 100, 400), threshold=threshold, summary_max_tokens=50)
    fit = whole.best([0], least_dropped=1, is_giant_enough=False)
    assert fit is not None
    assert (fit.kept_tokens, fit.is_enough) == (kept, is_enough)


# Mutations: count what is kept; compare with `<=`; let a giant be enough always, or never.
def test_too_few_messages_leave_unless_a_giant_is_among_them():
    small, large = fitting(turns(240, 100)), fitting(turns(260, 100))
    assert small.best([0], least_dropped=2, is_giant_enough=True) is None
    assert large.best([0], least_dropped=2, is_giant_enough=False) is None
    fit = large.best([0], least_dropped=2, is_giant_enough=True)
    assert fit is not None
    assert fit.cut.kept_from == 1
    exact = fitting(turns(260, 100), threshold=4 * weight(260))
    assert exact.best([0], least_dropped=2, is_giant_enough=True) is None


def shrinks(fit: Any) -> list[str]:
    return [shrink.entry_id for shrink in fit.shrinks]


# Mutations: in `_fit` keep the giants of what is dropped, or none; measure without what they become.
def test_of_the_giants_only_those_that_are_kept_are_made_smaller():
    branch = batch(batch(batch(Branch(), 400), 40, 500), 30)
    whole = fitting(branch)
    assert [shrink.entry_id for shrink in whole.giants] == ["e2", "e6"]
    fit = whole.best([KEEP, 350, 0], least_dropped=2, is_giant_enough=False)
    assert fit is not None
    assert shrinks(fit) == ["e6"]
    assert fit.is_enough
    context = [item for item in build_context(branch.projection) if int(item.entry.id[1:]) > 2]
    measured = sum(estimate_message_tokens(item.message) for item in shrunk(context, fit.shrinks))
    assert fit.kept_tokens == measured
    assert fit.shrinks[0].full_text == words("c1", 500)
    assert "aside for e6" in getattr(fit.shrinks[0].replacement[0], "text", "")


# Mutations: in `_fit` plan for the whole context, without a limit, or measure something else than what is planned.
def test_where_the_tail_does_not_fit_its_next_largest_are_made_smaller_too():
    branch = batch(batch(Branch(), 30, 30), *[240] * 5)
    whole = fitting(branch)
    assert whole.giants == ()
    fit = whole.best([0], least_dropped=2, is_giant_enough=False)
    assert fit is not None
    assert fit.is_enough
    assert set(shrinks(fit)) < {"e6", "e7", "e8", "e9", "e10"}
    assert shrinks(fit)
    tail = [item for item in build_context(branch.projection) if int(item.entry.id[1:]) > 4]
    assert fit.kept_tokens == sum(estimate_message_tokens(item.message) for item in shrunk(tail, fit.shrinks))
    assert 950 - 240 < fit.kept_tokens <= 950


# Mutations: in `without_cut` shrink more than was asked for, compare with `<`, or forget the rest.
def test_without_a_cut_giants_are_enough_where_they_bring_it_under_the_limit():
    branch = batch(Branch(), 400, 200, 200)
    whole = fitting(branch)
    assert [shrink.entry_id for shrink in whole.giants] == ["e2"]
    assert whole.without_cut(whole.slim_tokens) == whole.giants
    more = whole.without_cut(whole.slim_tokens - 1)
    assert len(more) > 1
    assert all(shrink.entry_id in ("e2", "e3", "e4") for shrink in more)
    after = shrunk(build_context(branch.projection), more)
    assert sum(estimate_message_tokens(item.message) for item in after) < whole.slim_tokens


# Mutations: in `uncut` keep nothing, or measure without what is shrunk.
def test_without_a_cut_everything_is_kept_as_it_shows_then():
    whole = fitting(batch(Branch(), 400, 20))
    fit = whole.uncut(whole.giants)
    assert (fit.cut.kept_from, fit.is_enough, fit.shrinks) == (0, True, whole.giants)
    assert fit.kept_tokens == fit.keep_tokens == whole.slim_tokens
    assert whole.uncut(()).kept_tokens > whole.slim_tokens
