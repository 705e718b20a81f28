"""Where a compaction may begin to keep."""

from __future__ import annotations

import pytest

from session_store.boundary import check_boundary
from session_store.context import build_projection
from session_store.entries import Entry
from session_store.errors import InvalidBoundaryError
from session_store.messages import BranchSummaryMessage, CompactionSummaryMessage
from tests.session_store.branch_building import (
    answer,
    branch_summary,
    chain,
    compaction,
    custom,
    custom_message,
    edit,
    message,
    result,
    shell,
    system,
    user,
)


def refusal(boundary: str | None, *entries: Entry) -> str | None:
    """Why the boundary is refused on that branch; None where it is not."""
    try:
        check_boundary(build_projection(chain(*entries)), boundary)
    except InvalidBoundaryError as error:
        return error.why
    return None


@pytest.mark.parametrize(
    "start",
    [
        user("x"),
        answer("x"),
        answer("x", stop_reason="error"),
        shell("x"),
        custom_message("x"),
        branch_summary("x", "left"),
        message("x", BranchSummaryMessage(summary="left")),
        custom("x"),
        edit("x", "u", "new"),
    ],
    ids=lambda entry: type(entry).__name__,
)
def test_what_can_open_a_conversation_or_is_seen_by_no_model_may_be_a_boundary(start: Entry):
    assert refusal("x", user("u"), start, user("v")) is None


def test_nothing_kept_is_always_possible():
    assert refusal(None, user("u"), answer("a", "c1")) is None


def test_an_unknown_boundary_is_refused():
    # Mutation: returning where the boundary is not found.
    assert refusal("nowhere", user("u")) == "it is not on this branch after the previous boundary"


def test_a_boundary_before_the_previous_one_is_refused():
    # Mutation: looking it up on the full path.
    assert refusal("u1", user("u1"), user("u2"), compaction("c", "u2"), user("u3")) is not None


def test_the_previous_boundary_itself_is_refused():
    # Mutation: leaving that comparison out.
    why = refusal("u2", user("u1"), user("u2"), compaction("c", "u2"), user("u3"))
    assert why == "it is the previous boundary: a compaction must move forward"


def test_what_the_previous_compaction_kept_may_be_a_boundary_and_so_may_that_compaction():
    entries: list[Entry] = [user("u1"), user("u2"), user("u3"), compaction("c", "u2"), user("u4")]
    for boundary in ("u3", "c", "u4"):
        assert refusal(boundary, *entries) is None


def test_a_tool_result_is_refused_also_without_a_call():
    # Mutation: refusing only results whose call is there.
    assert refusal("r", user("u"), result("r", "gone")) == "it is a tool result, which cannot open what is kept"


def test_a_system_message_or_a_recorded_summary_is_refused():
    assert refusal("s", user("u"), system("s")) is not None
    assert refusal("s", user("u"), message("s", CompactionSummaryMessage(summary="x"))) is not None


@pytest.mark.parametrize("boundary", ["m", "k", "r2"])
def test_a_boundary_between_a_call_and_one_of_its_results_is_refused(boundary: str):
    # Mutation: checking only that the boundary is no result.
    entries: list[Entry] = [
        user("u"),
        answer("a", "c1", "c2"),
        result("r1", "c1"),
        custom_message("m"),
        custom("k"),
        result("r2", "c2"),
        user("v"),
    ]
    assert refusal(boundary, *entries) is not None
    assert refusal("a", *entries) is None
    assert refusal("v", *entries) is None


def test_a_boundary_behind_a_call_that_is_still_open_is_refused():
    # Mutation: not asking for dangling calls.
    entries: list[Entry] = [user("u"), answer("a", "c1"), custom("k")]
    assert refusal("k", *entries) == "it stands between the call 'c1' and the result of that call"
    assert refusal("a", *entries) is None


def test_a_call_that_nobody_will_answer_does_not_block():
    # Mutation: treating every unanswered call as open.
    assert refusal("v", user("u"), answer("a", "c1"), user("v")) is None


def test_a_call_id_that_is_used_again_belongs_to_the_later_call():
    # Mutation: not forgetting an id that a kept answer uses again.
    entries = [answer("a", "c1"), user("u"), answer("b", "c1"), result("r", "c1")]
    assert refusal("u", *entries) is None
    assert refusal("b", *entries) is None


def test_an_answer_that_uses_an_id_twice_is_kept_together_with_both_results():
    # Mutation: remembering the ids of unanswered calls in a set.
    entries: list[Entry] = [user("u"), answer("a", "c1", "c1"), result("r1", "c1"), custom("k"), result("r2", "c1")]
    assert refusal("k", *entries, user("v")) is not None
    assert refusal("v", *entries, user("v")) is None


def test_calls_and_results_that_were_edited_away_do_not_count():
    entries = [answer("a", "c1"), user("u"), result("r", "c1")]
    assert refusal("u", *entries) is not None
    assert refusal("u", *entries, edit("e1", "a", None), edit("e2", "r", None)) is None
