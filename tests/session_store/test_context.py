"""What a request sends of a projection: always valid, whatever the log has."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from session_store.context import (
    NO_RESULT_TEXT,
    ContextRepair,
    build_context,
    build_projection,
    dangling_calls,
    paired,
    pairs_ok,
)
from session_store.entries import Entry
from session_store.messages import (
    AssistantMessage,
    Message,
    TextContent,
    ThinkingContent,
    ToolCall,
    ToolResultMessage,
    UnknownMessage,
)
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
    shown_ids,
    system,
    user,
)


def context_of(*entries: Entry) -> list[Message]:
    return [item.message for item in build_context(build_projection(chain(*entries)))]


def ids_of(*entries: Entry) -> list[str]:
    return shown_ids(build_context(build_projection(chain(*entries))))


def repairs_of(*entries: Entry) -> list[ContextRepair]:
    repairs: list[ContextRepair] = []
    build_context(build_projection(chain(*entries)), on_repair=repairs.append)
    return repairs


def results_of(messages: list[Message]) -> list[tuple[str, bool]]:
    """Call id, and whether the result is a synthetic one, of each result."""
    return [
        (item.tool_call_id, item.is_error and item.text == NO_RESULT_TEXT)
        for item in messages
        if isinstance(item, ToolResultMessage)
    ]


def test_system_messages_unknown_roles_and_excluded_shell_output_are_not_sent():
    # Mutation: `is_sent` returning True for any of the three.
    unknown = message("x", UnknownMessage(role="oracle", raw={}))
    assert ids_of(system("y"), user("u"), shell("s1"), shell("s2", excluded=True), unknown) == ["u", "s1"]


@pytest.mark.parametrize("stop_reason", ["error", "aborted"])
def test_failed_answers_leave_with_their_calls_and_their_results(stop_reason: str):
    # Mutation: dropping the answer only.
    entries = [user("u"), answer("a", "call", stop_reason=stop_reason), result("r", "call"), user("v")]
    assert ids_of(*entries) == ["u", "v"]
    assert repairs_of(*entries) == []


def test_a_failed_answers_result_is_not_given_to_an_earlier_call_of_the_same_id():
    # Mutation: not noting the calls of failed answers.
    entries = [answer("a", "call"), user("u"), answer("b", "call", stop_reason="error"), result("r", "call")]
    assert results_of(context_of(*entries)) == [("call", True)]


@pytest.mark.parametrize(
    ("content", "is_sent"),
    [
        ((), False),
        ((TextContent("  \n"),), False),
        ((ThinkingContent(" "), TextContent("")), False),
        ((ThinkingContent("", thinking_signature="sig"),), True),
        ((TextContent("", text_signature="sig"),), True),
        ((TextContent("yes"),), True),
        ((ToolCall("call", "read", {}),), True),
    ],
)
def test_answers_that_say_nothing_are_not_sent(content: tuple[TextContent, ...], is_sent: bool):
    # Mutation: looking at the number of blocks only.
    shown = ids_of(user("u"), message("a", AssistantMessage(content=content)), user("v"))
    assert ("a" in shown) == is_sent


def test_blank_summaries_are_sent_so_that_the_context_starts_with_a_user_message():
    assert ids_of(user("u"), answer("a"), compaction("c", "a", "")) == ["c", "a"]


def test_an_unanswered_call_in_the_middle_gets_a_synthetic_result_next_to_it():
    # Mutation: putting synthetic results at the end of the context.
    context = context_of(answer("a", "c1", "c2"), result("r", "c2"), user("u"))
    assert results_of(context) == [("c2", False), ("c1", True)]
    assert [type(item).__name__ for item in context[:4]] == [
        "AssistantMessage",
        "ToolResultMessage",
        "ToolResultMessage",
        "UserMessage",
    ]


def test_a_synthetic_result_carries_the_entry_of_its_call():
    context = build_context(build_projection(chain(answer("a", "c1"), user("u"))))
    assert shown_ids(context) == ["a", "a", "u"]


def test_late_results_are_moved_to_their_call():
    # Mutation: leaving results where they stand.
    assert ids_of(answer("a", "c1"), user("u"), custom_message("m"), result("r", "c1")) == ["a", "r", "u", "m"]


def test_results_come_in_the_order_of_the_calls():
    # Mutation: keeping the order in which the tools finished.
    entries = [answer("a", "slow", "fast"), result("r1", "fast"), result("r2", "slow")]
    assert ids_of(*entries) == ["a", "r2", "r1"]


def test_a_result_without_a_call_is_dropped_and_reported():
    # Mutation: sending orphans.
    entries = [user("u"), result("r", "gone"), answer("a")]
    assert ids_of(*entries) == ["u", "a"]
    assert repairs_of(*entries) == [ContextRepair(kind="orphan_result", entry_id="r", call_id="gone")]


def test_a_second_result_of_a_call_is_dropped_and_reported():
    # Mutation: letting a batch take any number of results.
    entries = [answer("a", "c1"), result("r1", "c1"), result("r2", "c1"), user("u")]
    assert ids_of(*entries) == ["a", "r1", "u"]
    assert repairs_of(*entries) == [ContextRepair(kind="duplicate_result", entry_id="r2", call_id="c1")]


def test_a_result_belongs_to_the_latest_call_of_its_id():
    # Mutation: pairing by the first call with an id.
    entries = [answer("a", "c0"), user("u"), answer("b", "c0"), result("r", "c0")]
    assert ids_of(*entries) == ["a", "a", "u", "b", "r"]


def test_one_answer_may_use_an_id_twice():
    assert ids_of(answer("a", "c0", "c0"), result("r1", "c0"), result("r2", "c0")) == ["a", "r1", "r2"]


def test_a_call_that_was_edited_away_takes_its_result_along():
    assert ids_of(answer("a", "c1"), result("r", "c1"), edit("e", "a", "text"), user("u")) == ["a", "u"]


def test_calls_that_are_still_open_at_the_end_are_answered_too():
    # Mutation: leaving out the last batch.
    context = context_of(answer("a", "c1"), user("u"), answer("b", "c1", "c2"))
    assert results_of(context) == [("c1", True), ("c1", True), ("c2", True)]


def test_a_call_parted_from_its_result_by_two_compactions_leaves_no_orphan():
    # Mutation: sending every result that the window has.
    entries: list[Entry] = [
        user("u"),
        answer("a", "x"),
        compaction("c1", "u"),
        result("r", "x"),
        answer("b"),
        compaction("c2", "r"),
    ]
    context = context_of(*entries)
    assert pairs_ok(context)
    assert results_of(context) == []
    assert results_of(context_of(*entries[:-1])) == [("x", False)]


def test_dangling_calls_are_those_of_the_last_batch_that_nobody_answered():
    # Mutation: returning answered calls too.
    entries = chain(user("u"), answer("a", "c1", "c2", "c3"), result("r", "c2"))
    assert [call.id for call in dangling_calls(build_projection(entries))] == ["c1", "c3"]


@pytest.mark.parametrize(
    ("last", "is_dangling"),
    [
        (custom("x"), True),
        (system("x"), True),
        (shell("x", excluded=True), True),
        (answer("x", stop_reason="error"), True),
        (answer("x", "other", stop_reason="aborted"), True),
        (branch_summary("x", ""), True),
        (edit("x", "u", "new"), True),
        (compaction("x", "a"), True),
        (user("x"), False),
        (shell("x"), False),
        (custom_message("x"), False),
        (answer("x"), False),
        (branch_summary("x", "left"), False),
        (compaction("x", None), False),
        (edit("x", "a", None), False),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, bool) else str(value),
)
def test_a_batch_is_the_last_thing_while_only_what_no_model_sees_stands_after_it(last: Entry, is_dangling: bool):
    # Mutation: stopping at the first entry that is no result, or at none.
    projection = build_projection(chain(user("u"), answer("a", "c1"), last))
    assert [call.id for call in dangling_calls(projection)] == (["c1"] if is_dangling else [])


def test_calls_of_a_failed_answer_at_the_leaf_do_not_dangle():
    # Mutation: not asking `is_sent` of the answer.
    assert dangling_calls(build_projection(chain(user("u"), answer("a", "c1", stop_reason="aborted")))) == []


def test_a_failed_answers_result_leaves_an_earlier_call_of_its_id_dangling():
    # Mutation: counting every result behind a call as its own.
    path = chain(answer("a", "c1"), answer("b", "c1", stop_reason="error"), result("r", "c1"))
    assert [call.id for call in dangling_calls(build_projection(path))] == ["c1"]


@pytest.mark.parametrize(
    ("entries", "is_ok"),
    [
        ([], True),
        ([user("u"), answer("a")], True),
        ([answer("a", "c"), result("r", "c")], True),
        ([answer("a", "c", "d"), result("r", "d"), result("s", "c")], True),
        ([answer("a", "c")], False),
        ([answer("a", "c"), result("r", "d")], False),
        ([answer("a", "c"), user("u"), result("r", "c")], False),
        ([result("r", "c"), answer("a", "c")], False),
        ([answer("a", "c"), result("r", "c"), result("s", "c")], False),
        ([answer("a", "c"), answer("b", "c"), result("r", "c")], False),
        ([answer("a", "c", "c"), result("r", "c")], False),
        ([answer("a", "c"), result("r", "c"), answer("b", "c"), result("s", "c")], True),
    ],
)
def test_pairs_are_ok_where_each_call_is_followed_by_exactly_its_results(entries: list[Entry], is_ok: bool):
    # Mutation: dropping any of the three conditions in `pairs_ok`.
    assert pairs_ok(item.message for item in build_projection(chain(*entries)).messages) == is_ok


CALL_IDS = st.sampled_from(["c1", "c2", "c3"])
KINDS: list[st.SearchStrategy[Callable[[str], Entry]]] = [
    st.just(user),
    st.builds(
        lambda calls, text, stop: lambda entry_id: answer(entry_id, *calls, text=text, stop_reason=stop),
        st.lists(CALL_IDS, max_size=3),
        st.sampled_from(["", "text"]),
        st.sampled_from(["stop", "toolUse", "error", "aborted", "length"]),
    ),
    st.builds(lambda call: lambda entry_id: result(entry_id, call), CALL_IDS),
    st.builds(lambda excluded: lambda entry_id: shell(entry_id, excluded=excluded), st.booleans()),
    st.just(system),
]


@given(st.lists(st.one_of(*KINDS), max_size=12))
def test_the_context_of_any_branch_is_a_valid_request(makers: list[Callable[[str], Entry]]):
    # Mutation: any of those above.
    path = chain(*[make(f"e{number}") for number, make in enumerate(makers)])
    context = [item.message for item in build_context(build_projection(path))]
    assert pairs_ok(context)
    # Without a log, and done twice, it is the same.
    assert paired(item.message for item in build_projection(path).messages) == paired(context) == context


@given(st.lists(st.one_of(*KINDS), max_size=12))
def test_dangling_calls_once_answered_dangle_no_more(makers: list[Callable[[str], Entry]]):
    # Mutation: not counting the results at the end of the branch.
    path = chain(*[make(f"e{number}") for number, make in enumerate(makers)])
    calls = dangling_calls(build_projection(path))
    answered = chain(*path, *[result(f"r{number}", call.id) for number, call in enumerate(calls)])
    assert dangling_calls(build_projection(answered)) == []
    synthetic = [
        item
        for item in build_context(build_projection(answered))
        if isinstance(item.message, ToolResultMessage) and item.entry.id.startswith("r")
    ]
    assert len(synthetic) == len(calls)
