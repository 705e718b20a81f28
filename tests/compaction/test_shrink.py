"""Giant items made smaller without a model: what is shrunk, to what, and that nothing is lost by it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_session.compaction.fitting import shrunk
from agent_session.compaction.shrink import LEAST_TOKENS, plan_shrinks
from agent_session.compaction.tokens import TokenLedger, estimate_message_tokens
from agent_session.compaction.types import Shrink
from session_store.blobs import BlobStore, bound_text
from session_store.context import build_context
from session_store.entries import ContextEditEntry
from session_store.messages import (
    Content,
    CustomMessage,
    ImageContent,
    TextContent,
    ToolResultMessage,
    text_of,
)
from session_store.projection import ProjectedMessage
from tests.compaction.branches import Branch

IMAGE = ImageContent("AAAA", "image/png")


def where(entry_id: str, text: str) -> str:
    return f"blobs/{entry_id}"


def context_of(branch: Branch) -> list[ProjectedMessage]:
    return build_context(branch.projection)


def planned(
    context: Sequence[ProjectedMessage],
    share: int,
    most: int | None = None,
    locate: Callable[[str, str], str] = where,
) -> tuple[Shrink, ...]:
    return plan_shrinks(context, share_tokens=share, most_tokens=most, ledger=TokenLedger(), locate=locate)


def applied(branch: Branch, shrinks: Sequence[Shrink]) -> None:
    """Append the context edits, as a compaction does."""
    for shrink in shrinks:
        branch.add(ContextEditEntry(**branch.next(), target_id=shrink.entry_id, replacement=shrink.replacement))


def total(context: Sequence[ProjectedMessage]) -> int:
    return sum(estimate_message_tokens(item.message) for item in context)


def lines(name: str, count: int) -> str:
    """`count` lines of nine tokens each, told apart by their numbers."""
    return "".join(f"{name} line {number:05} " + "w " * 4 + "\n" for number in range(count))


def with_results(*texts: str) -> Branch:
    branch = Branch()
    branch.user("look")
    branch.answer("", *(f"c{number}" for number in range(len(texts))))
    for number, text in enumerate(texts):
        branch.result(f"c{number}", text)
    return branch


# Mutations: shrink what is at the share; cut the tail away; keep no pointer; give a part as the full text.
def test_a_giant_becomes_head_pointer_and_tail_below_its_share():
    full = lines("giant", 2_000)
    branch = with_results("small", full)
    [shrink] = planned(context_of(branch), 3_000)
    assert shrink.entry_id == "e3"
    assert shrink.full_text == full
    [block] = shrink.replacement
    assert isinstance(block, TextContent)
    head, _, rest = block.text.partition("[… ")
    mark, _, tail = rest.partition(" …]\n")
    assert full.startswith(head)
    assert full.endswith(tail)
    assert min(len(head), len(tail)) > 2_500
    cut = len(full) - len(head) - len(tail)
    assert mark == f"{cut:,} of {len(full):,} bytes left out here; full text: blobs/e3"
    # Whole lines, since lines are near.
    assert head.endswith("\n")
    assert tail.startswith("giant line ")
    assert shrink.tokens_before > 15_000
    assert 1_500 < shrink.tokens_after <= 3_000
    [shown] = [item.message for item in shrunk(context_of(branch), [shrink]) if item.entry.id == "e3"]
    assert estimate_message_tokens(shown) == shrink.tokens_after
    assert isinstance(shown, ToolResultMessage)
    assert (shown.tool_call_id, shown.tool_name, shown.is_error) == ("c1", "read", False)


# Mutation: let head and tail follow the share alone.
def test_head_and_tail_are_sixteen_kibibytes_each_where_the_share_is_larger():
    [shrink] = planned(context_of(with_results(lines("giant", 20_000))), 50_000)
    text = text_of(shrink.replacement)
    head, _, rest = text.partition("[… ")
    tail = rest.partition(" …]\n")[2]
    assert 15 * 1024 < len(head) <= 16 * 1024
    assert 15 * 1024 < len(tail) <= 16 * 1024


# Mutation: measure the parts in characters.
@pytest.mark.parametrize(
    "text", ["漢字の文\n" * 9_000, "😀" * 9_000, "QUJDREVG0123" * 4_000, "é" * 60_000, "x" * 60_000]
)
def test_a_giant_in_any_script_ends_below_its_share_and_no_character_is_divided(text):
    for share in (300, 1_000, 4_000):
        [shrink] = planned(context_of(with_results(text)), share)
        assert shrink.tokens_after <= share
        assert shrink.tokens_after > share // 3
        text_of(shrink.replacement).encode()
        assert set(text_of(shrink.replacement).partition("\n[…")[0]) <= set(text)


# Mutation: let any of these through in `_shrinkable`.
def test_words_of_the_user_answers_summaries_commands_and_made_up_results_are_whole_or_not_at_all():
    giant = lines("giant", 2_000)
    branch = Branch()
    branch.user("before")
    kept = branch.user(giant)
    branch.compaction(kept, summary=giant)
    branch.answer(giant)
    branch.branch_summary(giant)
    branch.shell(giant)
    branch.answer("", "unanswered", code=giant)
    branch.user("more")
    context = context_of(branch)
    assert total(context) > 90_000
    assert planned(context, 100, 1_000) == ()


def test_messages_of_extensions_are_shrunk_however_they_were_recorded():
    branch = Branch()
    branch.user("look")
    sent = branch.custom_message(lines("sent", 2_000))
    said = branch.message(CustomMessage(custom_type="lint", content=(TextContent(lines("said", 2_000)),)))
    shrinks = planned(context_of(branch), 1_000)
    assert [shrink.entry_id for shrink in shrinks] == [sent, said]
    applied(branch, shrinks)
    assert all(estimate_message_tokens(item.message) <= 1_000 for item in context_of(branch))


# Mutation: replace the content by the text alone; or count an image's data as text.
def test_images_stay_and_what_is_large_by_its_images_is_left_alone():
    branch = with_results("")
    content: tuple[Content, ...] = (IMAGE, TextContent(lines("giant", 2_000)), IMAGE, TextContent("END"))
    branch.answer("", "c8", "c9")
    branch.message(ToolResultMessage(tool_call_id="c8", tool_name="shot", content=content))
    branch.message(ToolResultMessage(tool_call_id="c9", tool_name="shot", content=(IMAGE, IMAGE, TextContent("two"))))
    [shrink] = planned(context_of(branch), 3_000)
    first, *rest = shrink.replacement
    assert isinstance(first, TextContent)
    assert first.text.endswith("END")
    assert rest == [IMAGE, IMAGE]
    assert shrink.full_text == lines("giant", 2_000) + "\nEND"
    assert 2_400 < shrink.tokens_after <= 3_000
    asked: list[str] = []

    def locate(entry_id: str, text: str) -> str:
        asked.append(entry_id)
        return text[:5]

    planned(context_of(branch), 1_000, 100, locate)
    assert asked == [shrink.entry_id]


# Mutation: sign over other text.
def test_text_that_a_provider_signed_is_never_touched():
    branch = with_results("")
    branch.answer("", "c9")
    signed = (TextContent(lines("giant", 2_000), text_signature="s"),)
    branch.message(ToolResultMessage(tool_call_id="c9", tool_name="x", content=signed))
    assert planned(context_of(branch), 100, 100) == ()


# Mutations: shrink all of them; the smallest first; without a limit, more than the giants.
def test_where_the_giants_are_not_enough_the_largest_that_are_left_follow_until_it_fits():
    sizes = (300, 500, 400, 100, 20)
    branch = with_results(*(lines(f"result{number}", size) for number, size in enumerate(sizes)))
    context = context_of(branch)
    before = total(context)
    assert planned(context, 6_000) == planned(context, 6_000, before) == ()
    by_need = [planned(context, 6_000, before - less) for less in (500, 4_000, 6_000, 8_000)]
    assert [[shrink.entry_id for shrink in shrinks] for shrinks in by_need] == [
        ["e3"],
        ["e3", "e4"],
        ["e2", "e3", "e4"],
        ["e2", "e3", "e4"],
    ]
    for less, shrinks in zip((500, 4_000, 6_000, 8_000), by_need, strict=True):
        assert total(shrunk(context, shrinks)) <= before - less
    # Everything to its least, and still too large: all that can be done.
    least = planned(context, 6_000, 10)
    assert [shrink.entry_id for shrink in least] == ["e2", "e3", "e4", "e5"]
    assert all(LEAST_TOKENS // 2 < shrink.tokens_after <= LEAST_TOKENS for shrink in least)


# Mutation: sort without regard to age.
def test_of_two_that_are_equally_large_the_older_is_shrunk():
    context = context_of(with_results(lines("one", 300), lines("two", 300)))
    [shrink] = planned(context, 6_000, total(context) - 100)
    assert shrink.entry_id == "e2"


# Mutations: begin with what the item shows; plan an edit that changes nothing.
def test_shrinking_again_changes_nothing_and_a_smaller_share_begins_with_the_full_text():
    full = lines("giant", 5_000)
    branch = with_results(full, lines("other", 300))
    for most in (None, 1_500, 1_000, 700):
        shrinks = planned(context_of(branch), 4_000, most)
        assert all(shrink.full_text in (full, lines("other", 300)) for shrink in shrinks)
        applied(branch, shrinks)
        assert planned(context_of(branch), 4_000, most) == ()
    once = with_results(full)
    applied(once, planned(context_of(once), 4_000))
    [again] = planned(context_of(once), 800)
    [direct] = planned(context_of(with_results(full)), 800)
    assert (again.replacement, again.full_text) == (direct.replacement, full)
    assert again.tokens_before < direct.tokens_before


# Mutation: ask about every item.
def test_only_what_is_shrunk_is_located_and_only_once():
    asked: list[tuple[str, str]] = []

    def locate(entry_id: str, text: str) -> str:
        asked.append((entry_id, text))
        return "over\nthere"

    full = lines("giant", 5_000)
    [shrink] = planned(context_of(with_results(full, lines("small", 10))), 4_000, 500, locate)
    assert asked == [("e2", full)]
    assert "full text: over there …]" in text_of(shrink.replacement)


# Mutation: take the recorded text whatever the item shows.
def test_what_an_extension_has_edited_out_does_not_come_back():
    branch = with_results("SECRET\n" + lines("giant", 2_000))
    branch.edit("e2", "(redacted)\n" + lines("giant", 2_000))
    for share in (3_000, 500):
        [shrink] = planned(context_of(branch), share)
        assert "SECRET" not in shrink.full_text
        assert text_of(shrink.replacement).startswith("(redacted)\n")
        applied(branch, [shrink])
    branch.edit("e2", None)
    assert planned(context_of(branch), 100) == ()


# Mutation: lose the pointer of the text as it was recorded.
def test_the_text_that_a_recorded_text_was_cut_from_can_still_be_found(tmp_path):
    blobs = BlobStore(tmp_path)
    recorded = bound_text(lines("giant", 20_000), blobs)
    assert len(recorded) < 40_000
    branch = with_results(recorded)
    for share in (4_000, 1_000):
        [shrink] = planned(context_of(branch), share)
        assert f"; the longer text that this was recorded from: {blobs.path_of(lines('giant', 20_000))} …]" in text_of(
            shrink.replacement
        )
        assert shrink.tokens_after <= share
        applied(branch, [shrink])


# Mutation: plan whatever comes out of it.
def test_what_the_pointer_would_make_larger_is_not_shrunk():
    context = context_of(with_results(lines("short", 8)))
    assert planned(context, 60, 10, lambda entry_id, text: "a long way down " * 20) == ()
    assert [shrink.entry_id for shrink in planned(context, 60, 10)] == ["e2"]


# Mutation: cut to a head without a pointer where the pointer takes all the room.
def test_where_the_share_is_smaller_than_the_pointer_the_pointer_is_what_stays():
    [shrink] = planned(context_of(with_results(lines("giant", 500))), 20)
    assert text_of(shrink.replacement).strip().endswith("full text: blobs/e2 …]")
    assert shrink.tokens_after < 40


TEXTS = st.one_of(
    st.tuples(st.text(alphabet="ab 漢😀\n", min_size=1, max_size=30), st.integers(1, 400)).map(
        lambda pair: pair[0] * pair[1]
    ),
    st.integers(1, 600).map(lambda count: lines("x", count)),
    st.just("[… 1 of 2 bytes left out here; full text: nowhere …]\n" * 40),
)


# Mutations: any that makes an item larger, plans it twice, or forgets what it was made of.
@given(st.lists(TEXTS, min_size=1, max_size=6), st.integers(60, 5_000), st.one_of(st.none(), st.integers(100, 10_000)))
def test_whatever_the_items_are_shrinking_ends_small_enough_or_at_the_least_and_stays_there(texts, share, most):
    branch = with_results(*texts)
    context = context_of(branch)
    shrinks = planned(context, share, most)
    after = shrunk(context, shrinks)
    for shrink in shrinks:
        assert shrink.tokens_after < shrink.tokens_before
        assert shrink.full_text == texts[int(shrink.entry_id[1:]) - 2]
    # One that is hardly above its share stays as it is: an edit for a few tokens is not worth it.
    worth = max(1, min(64, share // 4))
    for item in after:
        assert not isinstance(item.message, ToolResultMessage) or estimate_message_tokens(item.message) < share + worth
    if most is not None and total(after) > most:
        results = [estimate_message_tokens(item.message) for item in after[2:]]
        assert max(results) <= max(LEAST_TOKENS, share // 2) + 64
    applied(branch, shrinks)
    assert [item.message for item in context_of(branch)] == [item.message for item in after]
    assert planned(context_of(branch), share, most) == ()
