"""Where a compaction cuts, case by case. The properties over random branches are in test_preparation."""

from __future__ import annotations

import pytest

from agent_session.compaction.types import Skip
from session_store.context import pairs_ok
from session_store.messages import ImageContent, TextContent, ToolResultMessage, UserMessage
from tests.compaction.branches import Branch, plan_for, prepared, texts, words


def spans(count: int, tokens: int = 100) -> Branch:
    """`count` user messages with an answer each, both of `tokens`."""
    branch = Branch()
    for number in range(1, count + 1):
        branch.user(words(f"u{number}", tokens))
        branch.answer(words(f"a{number}", tokens))
    return branch


def names(branch_texts: list[str]) -> list[str]:
    return [text.split()[0] for text in branch_texts]


# Mutation: return the last fitting candidate instead of the first.
def test_as_many_whole_spans_are_kept_as_fit_the_budget():
    branch = spans(6)
    plan = plan_for(branch, 450)
    assert names(texts(plan.messages_to_summarize)) == ["u1", "a1", "u2", "a2", "u3", "a3", "u4", "a4"]
    assert plan.first_kept_entry_id == branch.path[8].id
    assert not plan.is_split_turn
    assert plan.current_request is None
    assert plan.kept_tokens <= 450


# Mutation: allow cuts inside every span, not only inside those above the budget.
def test_a_span_that_fits_by_itself_is_not_cut_inside():
    branch = spans(3)
    plan = plan_for(branch, 300)
    assert names(texts(plan.messages_to_summarize)) == ["u1", "a1", "u2", "a2"]
    assert plan.turn_prefix_messages == ()


# Mutation: cut a span larger than the budget at its user message.
def test_a_span_above_the_budget_is_cut_at_an_answer_and_its_request_survives():
    branch = spans(2)
    request = words("Please", 20)
    branch.user(request)
    for number in range(10):
        branch.answer("", f"c{number}")
        branch.result(f"c{number}", words(f"r{number}", 100))
    plan = plan_for(branch, 400)
    assert plan.is_split_turn
    assert names(texts(plan.messages_to_summarize)) == ["u1", "a1", "u2", "a2"]
    assert plan.turn_prefix_messages[0] == UserMessage(content=(TextContent(request),))
    assert plan.current_request == request
    assert texts(plan.turn_prefix_messages)[1::2] == [f"c{number}" for number in range(7)]
    assert plan.kept_tokens <= 400
    assert pairs_ok(plan.turn_prefix_messages)


# Mutation: prefer any start to an answer inside a span.
def test_inside_a_span_an_answer_is_preferred_to_shell_output():
    branch = Branch()
    branch.user(words("u", 10))
    branch.answer(words("a1", 200))
    branch.shell(words("s", 50))
    answer = branch.answer(words("a2", 50))
    plan = plan_for(branch, 190)
    assert plan.first_kept_entry_id == answer


# Mutation: never cut inside a span at anything but an answer.
def test_inside_a_span_without_a_fitting_answer_shell_output_is_a_start():
    branch = Branch()
    branch.user(words("u", 10))
    branch.answer(words("a", 50))
    for number in range(10):
        branch.shell(words(f"s{number}", 100))
    plan = plan_for(branch, 500)
    assert plan.first_kept_entry_id == branch.path[9].id
    assert plan.is_split_turn


# Mutation: let a unit be a single message.
@pytest.mark.parametrize("keep", [0, 1, 30])
def test_the_last_batch_is_kept_whole_however_little_may_be_kept(keep):
    branch = spans(2, tokens=10)
    branch.user("u3 go")
    branch.answer("", "c1", "c2", "c3", "c4")
    for call in ("c1", "c2", "c3", "c4"):
        branch.result(call, words("r", 20))
    plan = plan_for(branch, keep)
    kept = branch.conversation[len(plan.dropped) :]
    assert texts(kept)[0] == "c1+c2+c3+c4"
    assert len(kept) == 5
    assert plan.current_request == "u3 go"


# Mutation: forget `ties_of` (a result that comes late does not bind its call).
def test_a_late_result_keeps_the_boundary_from_standing_between_it_and_its_call():
    branch = spans(2)
    branch.user("u3")
    call = branch.answer("", "late")
    branch.user(words("u4", 100))
    branch.answer(words("a4", 100))
    branch.result("late")
    branch.user(words("u5", 10))
    branch.answer("a5")
    plan = plan_for(branch, 250)
    positions = [entry.id for entry in branch.path]
    boundary = positions.index(plan.first_kept_entry_id)
    result = positions.index(branch.path[-3].id)
    assert not positions.index(call) < boundary <= result


# Mutation: count the calls of a failed answer as bound to nothing.
def test_the_recorded_result_of_a_failed_answer_is_not_parted_from_it():
    branch = spans(3)
    failed = branch.answer("", "x", stop_reason="aborted")
    branch.user(words("u4", 100))
    result = branch.result("x", is_error=True)
    branch.answer(words("a4", 20))
    branch.user(words("u5", 10))
    branch.answer("a5")
    for keep in range(0, 700, 10):
        plan = prepared(branch, keep)
        if not isinstance(plan, Skip):
            order = [entry.id for entry in branch.path]
            assert not order.index(failed) < order.index(plan.first_kept_entry_id) <= order.index(result)


# Mutation: treat every unanswered call as open.
def test_an_old_call_that_nobody_answered_does_not_stop_a_compaction():
    branch = Branch()
    branch.user("u1")
    branch.answer("", "never")
    for number in range(10):
        branch.user(words(f"later{number}", 100))
    plan = plan_for(branch, 100)
    assert isinstance(plan.messages_to_summarize[2], ToolResultMessage)
    assert pairs_ok(plan.messages_to_summarize)
    assert plan.first_kept_entry_id == branch.path[-1].id


# Mutation: drop down to an empty tail when nothing fits.
def test_a_single_giant_message_at_the_end_is_kept():
    branch = spans(2)
    branch.user(words("giant", 5_000))
    plan = plan_for(branch, 100)
    assert plan.first_kept_entry_id == branch.path[-1].id
    assert plan.kept_tokens > 5_000


# Mutation: take the earliest entry after the dropped ones as the boundary (an entry nobody sees).
def test_entries_that_no_model_sees_are_transparent():
    branch = spans(2)
    hidden = branch.invisible()
    last = branch.user("u3")
    branch.answer("a3")
    plan = plan_for(branch, 50)
    assert plan.first_kept_entry_id == last
    assert hidden not in plan.kept_entry_ids
    assert hidden not in plan.dropped_entry_ids
    assert plan.kept_entry_ids == (last, branch.path[-1].id)


# Mutation: ask for one message instead of two.
def test_fewer_than_two_messages_are_too_little():
    branch = spans(1)
    for reason in ("manual", "threshold", "overflow"):
        skip = prepared(branch, 0, reason=reason)
        assert isinstance(skip, Skip)
        assert skip.why == "too_little"
    assert isinstance(prepared(Branch(), 0), Skip)


# Mutation: drop the check for what came after the newest compaction.
def test_nothing_new_since_the_last_compaction_is_nothing_to_do():
    branch = spans(6)
    branch.compaction(branch.path[4].id)
    branch.invisible()
    skip = prepared(branch, 0, reason="manual")
    assert isinstance(skip, Skip)
    assert skip.why == "nothing_new"
    branch.user("something new")
    assert plan_for(branch, 0).previous_summary == "what happened"


# Mutation: count an undo as a compaction after which nothing is new.
def test_history_that_an_undo_brought_back_may_be_compacted_at_once():
    branch = spans(6)
    branch.compaction(branch.path[10].id)
    branch.compaction(branch.path[0].id, summary="", details={"undoes": "e12"})
    plan = plan_for(branch, 250)
    assert names(texts(plan.messages_to_summarize))[:2] == ["u1", "a1"]
    assert plan.previous_summary is None


# Mutation: use the budget's keep-recent for a manual compaction as it is.
def test_a_manual_compaction_keeps_at_most_half_of_the_messages():
    branch = spans(4)
    plan = plan_for(branch, 700, reason="manual")
    assert names(texts(plan.messages_to_summarize)) == ["u1", "a1", "u2", "a2"]


# Mutation: no second try with half for automatic compactions.
@pytest.mark.parametrize("reason", ["threshold", "overflow"])
def test_an_automatic_compaction_whose_estimate_is_far_too_low_still_drops_half(reason):
    branch = spans(4)
    plan = plan_for(branch, 100_000, reason=reason)
    assert names(texts(plan.messages_to_summarize)) == ["u1", "a1", "u2", "a2"]


# Mutation: return a cut at the first possible place although everything fits.
def test_an_explicit_budget_replaces_the_usual_one():
    branch = spans(6)
    assert len(plan_for(branch, 450, keep_recent_tokens=250).messages_to_summarize) == 10


# Mutation: start from the newest compaction instead of its boundary.
def test_what_one_compaction_kept_the_next_keeps_or_summarises():
    branch = spans(6)
    first = plan_for(branch, 450)
    assert names(texts(first.dropped)) == ["u1", "a1", "u2", "a2", "u3", "a3", "u4", "a4"]
    branch.compaction(first.first_kept_entry_id, "summary one")
    branch.user("u7")
    branch.answer("a7")
    second = plan_for(branch, 50)
    assert names(texts(second.dropped)) == ["u5", "a5", "u6", "a6"]
    assert second.previous_summary == "summary one"
    branch.compaction(second.first_kept_entry_id, "summary two")
    assert texts(branch.context) == ["summary two", "u7", "a7"]


# Mutation: forget the request when the span is cut a second time.
def test_the_request_is_carried_through_every_compaction_of_its_span():
    from agent_session.compaction.file_ops import with_current_request

    branch = spans(1)
    branch.user("Build the parser")
    summaries = 0
    for number in range(40):
        branch.answer("", f"c{number}")
        branch.result(f"c{number}", words("r", 100))
        plan = prepared(branch, 300)
        if number % 8 == 7:
            assert not isinstance(plan, Skip)
            assert plan.is_split_turn
            assert plan.current_request == "Build the parser"
            summary = with_current_request(f"summary {summaries}", plan.current_request, 300)
            assert summary.endswith("## Current request\n\nBuild the parser")
            branch.compaction(plan.first_kept_entry_id, summary)
            summaries += 1
            if summaries > 1:
                assert plan.turn_prefix_messages == ()
    branch.user("Something else")
    plan = plan_for(branch, 10)
    assert plan.current_request is None
    assert not plan.is_split_turn


# Mutation: take the text blocks only and say nothing of images.
def test_a_request_with_images_says_that_they_are_gone():
    branch = Branch()
    branch.message(UserMessage(content=(TextContent("Like this?"), ImageContent("AAAA", "image/png"))))
    branch.answer(words("a1", 300))
    branch.answer(words("a2", 300))
    plan = plan_for(branch, 310)
    assert plan.current_request == "Like this?\n\n[1 image, no longer shown]"


# Mutation: keep the order of the entries' own `details` out of the lists.
def test_file_lists_go_on_from_the_last_compaction():
    branch = Branch()
    for path in ("a.py", "b.py"):
        branch.user(words("u", 100))
        branch.answer("", f"c{path}", path=path)
        branch.result(f"c{path}")
    branch.compaction(branch.path[3].id, details={"readFiles": ["old.py"], "modifiedFiles": ["b.py"]})
    for _ in range(3):
        branch.user(words("u", 100))
    plan = plan_for(branch, 110)
    assert plan.file_ops.read == ("old.py",)
    assert plan.file_ops.modified == ("b.py",)
