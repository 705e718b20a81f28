"""How full the context is: which reported usage counts, and what is estimated beside it."""

from __future__ import annotations

import pytest

from agent_session.compaction.tokens import TokenLedger
from agent_session.compaction.trigger import measure
from agent_session.compaction.types import Measurement
from agent_session.models import Model
from session_store.context import build_context
from session_store.messages import Usage
from tests.compaction.branches import Branch, words

SCRIPTED = Model("openai/scripted", context_window=10_000)
OVERHEAD = 500


def measured(branch: Branch, model: Model = SCRIPTED) -> Measurement:
    projection = branch.projection
    ledger = TokenLedger()
    return measure(build_context(projection), projection, model, overhead=OVERHEAD, ledger=ledger)


def estimate(branch: Branch) -> int:
    return OVERHEAD + TokenLedger().total(branch.context)


# Mutation: add the overhead to reported usage; or leave a part of the usage out.
def test_reported_usage_counts_each_part_once_and_holds_the_overhead():
    branch = Branch()
    branch.user("hello")
    branch.answer("hi", usage=Usage(input=5, cache_read=950, cache_write=20, output=25))
    assert measured(branch) == Measurement(tokens=1_000, is_reported=True)


# Mutation: no tail; or a tail from the start.
def test_what_came_after_the_answer_is_estimated():
    branch = Branch()
    branch.user(words("u1", 300))
    branch.answer("hi", usage=Usage(input=900, output=100))
    branch.user(words("u2", 200))
    branch.custom_message(words("note", 100))
    assert measured(branch) == Measurement(tokens=1_000 + 204 + 104, is_reported=True)


# Mutation: sum the usage of several answers.
def test_only_the_last_answer_is_the_anchor():
    branch = Branch()
    for number in range(1, 4):
        branch.user("go on")
        branch.answer("ok", usage=Usage(input=100 * number, output=10))
    assert measured(branch).tokens == 310


# Mutation: take zeros, or an estimate, for a report.
@pytest.mark.parametrize("usage", [Usage(), Usage(input=90, output=9, estimated=True)])
def test_unreported_usage_means_an_estimate_of_everything_with_the_overhead(usage):
    branch = Branch()
    branch.user(words("u1", 3_000))
    branch.answer("hi", usage=usage)
    assert measured(branch) == Measurement(tokens=estimate(branch), is_reported=False)
    assert measured(branch).tokens > 3_500


# Mutation: count from the start of the projection instead of after the newest change.
@pytest.mark.parametrize("change", ["compaction", "edit"])
def test_usage_from_before_the_newest_compaction_or_edit_says_nothing(change):
    branch = Branch()
    first = branch.user("u1")
    branch.answer("a1", usage=Usage(input=9_000, output=100))
    last = branch.user("u2")
    branch.answer("a2", usage=Usage(input=9_400, output=100))
    branch.compaction(last) if change == "compaction" else branch.edit(first, None)
    branch.custom_message("note")
    assert measured(branch) == Measurement(tokens=estimate(branch), is_reported=False)
    branch.user("u3")
    branch.answer("a3", usage=Usage(input=1_200, output=10))
    assert measured(branch) == Measurement(tokens=1_210, is_reported=True)


# Mutation: believe failed answers; or those of any model.
@pytest.mark.parametrize("stop_reason", ["error", "aborted"])
def test_failed_answers_are_no_anchor(stop_reason):
    branch = Branch()
    branch.user("u1")
    branch.answer("a1", usage=Usage(input=900, output=100))
    branch.user("u2")
    branch.answer("half", stop_reason=stop_reason, usage=Usage(input=7_000, output=100))
    found = measured(branch)
    assert found.is_reported
    assert 1_000 < found.tokens < 1_010


# Mutation: compare the name without the provider.
@pytest.mark.parametrize("model", ["openai/other", "azure/scripted"])
def test_usage_of_another_model_is_no_anchor(model):
    branch = Branch()
    branch.user("u1")
    branch.answer("a1", usage=Usage(input=900, output=100))
    assert not measured(branch, Model(model, context_window=10_000)).is_reported


# Mutation: estimate only what stands after the anchor in the context's order.
def test_a_result_that_came_later_than_the_answer_is_counted():
    branch = Branch()
    branch.user("u1")
    branch.answer("", "slow")
    branch.user("u2")
    branch.answer("a2", usage=Usage(input=900, output=100))
    branch.result("slow", words("r", 400))
    assert measured(branch) == Measurement(tokens=1_404, is_reported=True)


# Mutation: leave out what stands for the anchor's own entry.
def test_a_synthetic_result_of_the_anchor_is_counted():
    branch = Branch()
    branch.user("u1")
    branch.answer("", "open", usage=Usage(input=900, output=100))
    assert measured(branch).tokens > 1_000


# Mutation: leave the ratio out of the tail, or of an estimate of everything; or scale what was reported.
def test_what_is_estimated_counts_by_the_ratio_and_what_was_reported_as_it_is():
    branch = Branch()
    branch.user(words("u1", 300))
    projection = branch.projection
    everything = measure(
        build_context(projection), projection, SCRIPTED, overhead=OVERHEAD, ledger=TokenLedger(), ratio=1.5
    )
    assert everything == Measurement(tokens=round((OVERHEAD + 304) * 1.5), is_reported=False)
    branch.answer("hi", usage=Usage(input=900, output=100))
    branch.user(words("u2", 200))
    projection = branch.projection
    anchored = measure(
        build_context(projection), projection, SCRIPTED, overhead=OVERHEAD, ledger=TokenLedger(), ratio=1.5
    )
    assert anchored == Measurement(tokens=1_000 + round(204 * 1.5), is_reported=True)


# Mutation: anchor on a distrusted report; or, with one, on none that is older.
def test_a_distrusted_report_is_no_anchor_and_an_older_one_is():
    branch = Branch()
    branch.user("u1")
    branch.answer("a1", usage=Usage(input=900, output=100))
    branch.user(words("u2", 400))
    cut = branch.answer("a2", usage=Usage(input=300, output=4))
    projection = branch.projection
    found = measure(
        build_context(projection), projection, SCRIPTED, overhead=OVERHEAD, ledger=TokenLedger(), distrusted={cut}
    )
    assert found.is_reported
    assert 1_400 < found.tokens < 1_420
