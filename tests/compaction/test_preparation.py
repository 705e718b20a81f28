"""What must hold for every compaction of every branch, ugly ones included."""

from __future__ import annotations

from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from agent_session.compaction.tokens import TokenLedger
from agent_session.compaction.types import CompactionPreparation
from session_store.boundary import check_boundary
from session_store.context import pairs_ok
from session_store.messages import (
    CompactionSummaryMessage,
    SystemMessage,
    TextContent,
    ToolResultMessage,
    UnknownMessage,
    UserMessage,
)
from tests.compaction.branches import Branch, budget, prepared, texts, words

# As many as the profile asks for, and enough to meet the rare shapes.
MANY = examples(max_examples=max(250, examples().max_examples))

SIZES = st.sampled_from([1, 5, 20, 80])
CALLS = st.lists(st.sampled_from(["c1", "c2", "c3"]), min_size=1, max_size=3, unique=True)

# One step is a kind with its numbers; what they refer to is taken modulo what there is.
STEPS = st.one_of(
    st.tuples(st.just("user"), SIZES),
    st.tuples(st.just("answer"), SIZES),
    st.tuples(st.just("batch"), CALLS),
    st.tuples(st.just("answered batch"), CALLS),
    st.tuples(st.just("failed batch"), CALLS),
    st.tuples(st.just("result"), st.sampled_from(["c1", "c2", "c3", "c4"])),
    st.tuples(st.sampled_from(["shell", "note", "branch"]), SIZES),
    st.tuples(st.sampled_from(["hidden", "empty", "excluded", "unknown", "system", "foreign summary"]), st.just(0)),
    st.tuples(st.sampled_from(["omit", "replace", "omit ahead", "replace ahead"]), st.integers(0, 30)),
    st.tuples(st.just("odd compaction"), st.integers(0, 30)),
)


def grow(branch: Branch, step: tuple[str, object]) -> None:
    kind, value = step
    number = value if isinstance(value, int) else 0
    name = f"m{len(branch.path)}"
    match kind:
        case "user":
            branch.user(words(name, number))
        case "answer":
            branch.answer(words(name, number))
        case "batch" | "answered batch" | "failed batch":
            assert isinstance(value, list)
            branch.answer(name, *value, stop_reason="error" if kind == "failed batch" else "toolUse")
            for call in value if kind == "answered batch" else ():
                branch.result(call, f"{name}-{call}")
        case "result":
            branch.result(str(value), name)
        case "shell":
            branch.shell(words(name, number))
        case "note":
            branch.custom_message(words(name, number))
        case "branch":
            branch.branch_summary(words(name, number))
        case "hidden":
            branch.invisible()
        case "empty":
            branch.answer(" ")
        case "excluded":
            branch.shell(name, exclude=True)
        case "unknown":
            branch.message(UnknownMessage(role="future", raw={}))
        case "system":
            branch.message(SystemMessage(content=(TextContent(name),)))
        case "omit" | "replace" if branch.path:
            branch.edit(branch.path[number % len(branch.path)].id, None if kind == "omit" else f"edited {name}")
        case "omit ahead" | "replace ahead":
            branch.edit(f"e{len(branch.path) + 1 + number % 4}", None if kind == "omit ahead" else f"edited {name}")
        case "foreign summary":
            branch.message(CompactionSummaryMessage(summary=name))
        case "odd compaction" if branch.path:
            branch.compaction(branch.path[number % len(branch.path)].id, f"odd {name}")
        case _:
            pass


def assert_sound(branch: Branch, plan: CompactionPreparation) -> None:
    """The compaction as planned is valid, loses nothing and leaves something."""
    before = branch.conversation
    check_boundary(branch.projection, plan.first_kept_entry_id)
    branch.compaction(plan.first_kept_entry_id, "planned")
    after = branch.conversation
    assert list(plan.dropped) + after == before
    assert after
    assert len(plan.dropped) >= 2
    assert not isinstance(after[0], (ToolResultMessage, CompactionSummaryMessage))
    assert pairs_ok(plan.messages_to_summarize)
    assert pairs_ok(plan.turn_prefix_messages)
    assert pairs_ok(branch.context)
    if not plan.is_split_turn:
        requests = [message for message in before if isinstance(message, UserMessage)]
        assert not requests or requests[-1] in after


# Mutations, each of them breaks it: a unit for each message; no ties; ties from the context only (a failed answer's
# result); no ties for edits that stand before their target; `<=` instead of `<` in `_untied`.
@MANY
@given(
    st.lists(STEPS, min_size=2, max_size=30), SIZES.map(lambda size: size * 3), st.sampled_from(["threshold", "manual"])
)
def test_a_compaction_of_any_branch_is_valid_and_loses_nothing(steps, keep, reason):
    branch = Branch()
    for step in steps:
        grow(branch, step)
    plan = prepared(branch, keep, reason=reason)
    if isinstance(plan, CompactionPreparation):
        assert_sound(branch, plan)


# Mutation: begin at the newest compaction instead of what it kept.
@MANY
@given(st.lists(st.lists(STEPS, min_size=1, max_size=8), min_size=2, max_size=6), SIZES.map(lambda size: size * 2))
def test_a_chain_of_compactions_is_valid_at_every_link(parts, keep):
    branch = Branch()
    for part in parts:
        for step in part:
            grow(branch, step)
        plan = prepared(branch, keep)
        if isinstance(plan, CompactionPreparation):
            assert_sound(branch, plan)


TURNS = st.lists(st.tuples(SIZES, st.integers(0, 4), st.booleans()), min_size=1, max_size=6)


# Mutation: leave the turn prefix out of `dropped`; or drop what the last compaction kept.
@MANY
@given(st.lists(TURNS, min_size=1, max_size=5), st.integers(0, 200))
def test_over_a_chain_every_message_is_summarised_once_or_still_there(parts, keep):
    branch = Branch()
    said: list[str] = []
    summarised: list[str] = []
    for part in parts:
        for size, calls, has_prompt in part:
            if has_prompt:
                branch.user(words(f"u{len(branch.path)}", size))
                said.append(texts(branch.conversation)[-1])
            ids = [f"{len(branch.path)}.{number}" for number in range(calls)]
            if ids:
                branch.answer("", *ids)
                said.append("+".join(ids))
                for call in ids:
                    branch.result(call, f"result of {call}")
                    said.append(f"result of {call}")
        plan = prepared(branch, keep)
        if isinstance(plan, CompactionPreparation):
            summarised += texts(plan.dropped)
            branch.compaction(plan.first_kept_entry_id)
    assert summarised + texts(branch.conversation) == said


# Mutation: let the kept tail grow by the whole span that crosses the budget.
@MANY
@given(st.lists(st.tuples(st.booleans(), st.sampled_from([5, 20, 40])), min_size=4, max_size=60))
def test_the_kept_tail_stays_within_the_budget_where_no_message_is_larger(messages):
    branch = Branch()
    for is_user, size in messages:
        name = f"m{len(branch.path)}"
        branch.user(words(name, size)) if is_user else branch.answer(words(name, size))
    plan = prepared(branch, 100)
    if isinstance(plan, CompactionPreparation):
        assert plan.kept_tokens <= 100


def test_planning_changes_nothing():
    branch = Branch()
    for number in range(20):
        branch.user(words(f"u{number}", 50))
    ledger = TokenLedger()
    projection = branch.projection
    before = (list(projection.entries), list(projection.messages))
    prepared(branch, 100)
    assert (list(projection.entries), list(projection.messages)) == before
    assert budget(100).keep_recent == 100
    assert len(ledger) == 0
