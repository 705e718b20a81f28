"""What the log says about a branch: each rule of the projection by itself, and advancing against rebuilding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from operator import getitem

import pytest

from session_store.context import build_projection
from session_store.entries import (
    Entry,
    LabelEntry,
    MessageEntry,
    ModelChangeEntry,
    ThinkingLevelChangeEntry,
    UnknownEntry,
)
from session_store.messages import (
    AssistantMessage,
    BranchSummaryMessage,
    CompactionSummaryMessage,
    CustomMessage,
    SystemMessage,
    TextContent,
    UnknownMessage,
    as_content,
)
from session_store.projection import Projection
from tests.session_store.branch_building import (
    TIMESTAMP,
    TIMESTAMP_MS,
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


def refuse_path() -> Sequence[Entry]:
    raise AssertionError("the full path was asked for")


def advanced(path: Sequence[Entry]) -> Projection:
    projection = Projection()
    for length, entry in enumerate(path, start=1):
        projection.advance(entry, partial(getitem, path, slice(length)))
    return projection


def state(projection: Projection) -> tuple[object, ...]:
    return (
        projection.leaf_id,
        projection.compaction,
        projection.entries,
        projection.messages,
        projection.provider,
        projection.model_id,
        projection.thinking_level,
        projection.messages_after_last_change,
        projection.unresolved_boundary,
    )


def test_without_a_compaction_every_message_of_the_path_shows_in_path_order():
    path = chain(user("u"), custom("c"), answer("a"), shell("s"), custom_message("m"), branch_summary("b", "left"))
    projection = build_projection(path)
    assert shown_ids(projection) == ["u", "a", "s", "m", "b"]
    assert [entry.id for entry in projection.entries] == ["u", "c", "a", "s", "m", "b"]
    assert projection.leaf_id == "b"
    assert projection.compaction is None


def test_the_newest_compaction_comes_first_then_what_it_keeps_then_what_follows():
    # Mutation: showing the compaction at its own place on the path.
    projection = build_projection(chain(user("u1"), user("u2"), answer("a2"), compaction("c", "u2"), user("u3")))
    assert shown_ids(projection) == ["c", "u2", "a2", "u3"]
    assert projection.messages[0].message == CompactionSummaryMessage(summary="summary c", timestamp=TIMESTAMP_MS)
    assert [entry.id for entry in projection.entries] == ["u2", "a2", "c", "u3"]


@pytest.mark.parametrize("boundary", ["c", None, "unknown", "u3"], ids=["own id", "null", "unknown", "descendant"])
def test_a_boundary_that_is_no_ancestor_keeps_nothing(boundary: str | None):
    # Mutation: keeping everything where the boundary is not found.
    projection = build_projection(chain(user("u1"), user("u2"), compaction("c", boundary), user("u3")))
    assert shown_ids(projection) == ["c", "u3"]
    assert projection.unresolved_boundary == (boundary if boundary in ("unknown", "u3") else None)


def test_older_compactions_in_the_kept_range_show_nothing_and_their_boundaries_are_not_followed():
    # Mutation: showing every compaction of the window.
    path = chain(user("u1"), user("u2"), compaction("old", "u1"), user("u3"), compaction("new", "u2"), user("u4"))
    projection = build_projection(path)
    assert shown_ids(projection) == ["new", "u2", "u3", "u4"]
    assert projection.compaction is not None
    assert projection.compaction.id == "new"


def test_the_id_of_an_older_compaction_works_as_a_boundary():
    path = chain(user("u1"), compaction("old", "u1"), user("u2"), compaction("new", "old"))
    assert shown_ids(build_projection(path)) == ["new", "u2"]


def test_a_compaction_shows_its_system_message_before_its_summary():
    replay = SystemMessage(content=as_content("be brief"))
    projection = build_projection(chain(user("u"), compaction("c", None, system_message=replay)))
    assert [item.message for item in projection.messages] == [
        replay,
        CompactionSummaryMessage(summary="summary c", timestamp=TIMESTAMP_MS),
    ]


def test_system_messages_show_except_in_the_kept_range_and_are_never_among_the_entries():
    # Mutation: not skipping system messages of the kept range.
    path = chain(system("s1"), user("u1"), system("s2"), user("u2"), compaction("c", "u1"), system("s3"), user("u3"))
    assert shown_ids(build_projection(path[:4])) == ["s1", "u1", "s2", "u2"]
    assert [entry.id for entry in build_projection(path[:4]).entries] == ["u1", "u2"]
    assert shown_ids(build_projection(path)) == ["c", "u1", "u2", "s3", "u3"]
    assert [entry.id for entry in build_projection(path).entries] == ["u1", "u2", "c", "u3"]


def test_a_system_message_can_be_named_as_a_boundary_by_others():
    path = chain(user("u1"), system("s"), user("u2"), compaction("c", "s"), user("u3"))
    assert shown_ids(build_projection(path)) == ["c", "u2", "u3"]
    assert state(advanced(path)) == state(build_projection(path))


def test_an_edit_with_null_omits_its_target():
    projection = build_projection(chain(user("u"), answer("a"), edit("e", "a", None)))
    assert shown_ids(projection) == ["u"]


def test_an_edit_replaces_the_content_of_user_answer_result_and_custom_messages_and_of_nothing_else():
    # Mutation: replacing only the messages of message entries.
    note = message("x", CustomMessage(custom_type="note", content=as_content("x")))
    targets: list[Entry] = [
        user("u"),
        answer("a"),
        result("r", "call"),
        note,
        custom_message("m"),
        shell("s"),
        system("y"),
    ]
    edits = [edit(f"e{target.id}", target.id, "new") for target in targets]
    projection = build_projection(chain(*targets, *edits))
    new = (TextContent("new"),)
    assert [getattr(item.message, "content", None) for item in projection.messages] == [
        *([new] * 5),
        None,
        (TextContent("y"),),
    ]


def test_the_last_edit_in_path_order_wins():
    # Mutation: letting the first edit of a target win.
    projection = build_projection(chain(user("u"), edit("e1", "u", None), edit("e2", "u", "second")))
    assert [item.message for item in projection.messages] == [user("u", "second").message]


def test_an_edit_counts_even_where_it_stands_before_its_target():
    # Mutation: remembering only edits whose target was already seen.
    path = chain(user("u1"), edit("e", "u2", None), user("u2"), user("u3"))
    assert shown_ids(build_projection(path)) == ["u1", "u3"]


def test_an_edit_that_was_cut_away_by_a_compaction_counts_no_more():
    # Mutation: collecting edits from the whole path.
    path = chain(user("u1"), edit("e", "u2", None), user("u2"), compaction("c", "u2"))
    assert shown_ids(build_projection(path)) == ["c", "u2"]


def test_a_compaction_that_is_edited_away_loses_summary_and_system_message_but_not_its_boundary():
    replay = SystemMessage(content=as_content("be brief"))
    path = chain(user("u1"), user("u2"), compaction("c", "u2", system_message=replay), edit("e", "c", None))
    projection = build_projection(path)
    assert shown_ids(projection) == ["u2"]
    assert projection.compaction is not None


def test_failed_and_empty_answers_excluded_shell_output_and_unknown_roles_stay_in_the_projection():
    unknown = message("x", UnknownMessage(role="oracle", raw={"role": "oracle"}))
    path = chain(answer("a", stop_reason="error"), answer("b", text=""), shell("s", excluded=True), unknown)
    assert shown_ids(build_projection(path)) == ["a", "b", "s", "x"]


def test_a_branch_summary_without_text_shows_nothing_but_a_compaction_without_text_does():
    # Mutation: treating both alike.
    assert shown_ids(build_projection(chain(user("u"), branch_summary("b", "")))) == ["u"]
    assert shown_ids(build_projection(chain(user("u"), compaction("c", None, "")))) == ["c"]
    shown = build_projection(chain(branch_summary("b", "left"))).messages[0].message
    assert shown == BranchSummaryMessage(summary="left", from_id="gone", timestamp=TIMESTAMP_MS)


def test_model_and_thinking_level_come_from_the_full_path_also_from_before_the_boundary():
    # Mutation: reading them from the window only.
    level = ThinkingLevelChangeEntry(id="t", parent_id=None, timestamp=TIMESTAMP, thinking_level="high")
    change = ModelChangeEntry(id="m", parent_id=None, timestamp=TIMESTAMP, provider="other", model_id="small")
    path = chain(answer("a"), level, change, user("u"), compaction("c", "u"))
    projection = build_projection(path)
    assert (projection.provider, projection.model_id, projection.thinking_level) == ("other", "small", "high")
    after = build_projection(chain(*path, answer("b", stop_reason="error")))
    assert (after.provider, after.model_id) == ("acme", "large")
    assert (build_projection([]).provider, build_projection([]).thinking_level) == (None, "off")


def test_unknown_entry_types_stay_on_the_path_and_show_nothing():
    future = UnknownEntry(id="f", parent_id=None, timestamp=TIMESTAMP, type="future", raw={"x": 1})
    label = LabelEntry(id="l", parent_id=None, timestamp=TIMESTAMP, target_id="u", label="here")
    projection = build_projection(chain(user("u"), future, label, answer("a")))
    assert shown_ids(projection) == ["u", "a"]
    assert [entry.id for entry in projection.entries] == ["u", "f", "l", "a"]


def test_messages_after_the_last_change_are_those_behind_the_newest_compaction_or_edit():
    # Mutation: counting what a compaction keeps as standing after it.
    path = chain(user("u1"), answer("a1"), compaction("c", "a1"), user("u2"), edit("e", "u1", None), answer("a2"))
    for length, after in [(2, ["u1", "a1"]), (3, []), (4, ["u2"]), (5, []), (6, ["a2"])]:
        projection = build_projection(path[:length])
        assert shown_ids(projection.messages[projection.messages_after_last_change :]) == after


def test_unedited_messages_are_the_entries_own_objects():
    path = chain(user("u"), answer("a"))
    projection = build_projection(path)
    for item in projection.messages:
        assert isinstance(item.entry, MessageEntry)
        assert item.message is item.entry.message


def test_advancing_does_not_ask_for_the_path_while_the_boundary_is_in_the_window():
    # Mutation: rebuilding from the path at every compaction or edit.
    path = chain(
        user("u1"),
        user("u2"),
        edit("e1", "u2", "shorter"),
        compaction("c1", "u2"),
        user("u3"),
        edit("e2", "c1", None),
        edit("e3", "c1", "back"),
        compaction("c2", "u3"),
        compaction("c3", None),
    )
    projection = Projection()
    for length, entry in enumerate(path, start=1):
        projection.advance(entry, refuse_path)
        assert state(projection) == state(build_projection(path[:length]))


def test_advancing_asks_for_the_path_where_a_boundary_lies_before_the_window():
    # Mutation: keeping nothing where the window does not have the boundary.
    path = chain(user("u1"), user("u2"), compaction("c1", "u2"), user("u3"), compaction("c2", "u1"), user("u4"))
    assert shown_ids(advanced(path)) == ["c2", "u1", "u2", "u3", "u4"]
    assert state(advanced(path)) == state(build_projection(path))


def test_an_edit_taken_back_by_a_later_one_shows_its_target_at_its_old_place():
    # Mutation: appending what an edit brings back at the end.
    path = chain(user("u1"), user("u2"), user("u3"), edit("e1", "u2", None), edit("e2", "u2", "again"))
    assert shown_ids(advanced(path)) == ["u1", "u2", "u3"]
    assert state(advanced(path)) == state(build_projection(path))


def test_advancing_refuses_an_entry_that_is_no_child_of_the_leaf():
    projection = build_projection(chain(user("u1")))
    with pytest.raises(ValueError, match="not under the leaf"):
        projection.advance(user("u2"), refuse_path)


def test_an_answer_without_a_model_does_not_change_the_model():
    nameless = message("b", AssistantMessage(content=as_content("b")))
    assert build_projection(chain(answer("a"), nameless)).model_id == "large"


@pytest.mark.parametrize("timestamp", ["", "yesterday", "2025-13-45T00:00:00Z"])
def test_a_time_that_is_none_counts_as_zero(timestamp: str):
    shown = build_projection([replace(compaction("c", None), timestamp=timestamp)]).messages[0].message
    assert isinstance(shown, CompactionSummaryMessage)
    assert shown.timestamp == 0
