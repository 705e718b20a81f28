"""Cutting texts by tokens: within the limit in any script, near the most that fits, nothing lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import override

from agent_session.compaction.cutting import head_within, tail_within
from agent_session.compaction.serialize import pieces_of
from agent_session.compaction.text_tokens import estimate_text_tokens

SCRIPTS = {
    "english": "The quick brown fox jumps over the lazy dog. " * 400,
    "chinese": "天地玄黃宇宙洪荒日月盈昃辰宿列張" * 400,
    "emoji": "😀👩‍👩‍👧" * 400,
    "base64": "TWFuIGlzIGRpc3Rpbmd1aXNoZWQsIG5vdCBvbmx5" * 200,
    "one symbol": "=" * 20_000,
    "uneven": "plain text " * 800 + "漢字" * 2_000 + "plain text " * 800,
}
TEXTS = st.one_of(
    st.text(max_size=400),
    st.text(alphabet="a \n漢😀0f\r", max_size=2_000),
    st.tuples(st.sampled_from(sorted(SCRIPTS)), st.integers(0, 3_000)).map(lambda pair: SCRIPTS[pair[0]][: pair[1]]),
    st.just("\ud800x" * 300),
)


# Mutations: allow one token more; or take a part that is not at the end.
@given(TEXTS, st.integers(0, 500), st.one_of(st.none(), st.integers(0, 300)))
def test_head_and_tail_are_within_the_limit_and_are_what_they_are_called(text, most, most_bytes):
    for part, is_end in ((head_within, text.startswith), (tail_within, text.endswith)):
        kept = part(text, most, most_bytes=most_bytes)
        assert is_end(kept)
        assert estimate_text_tokens(kept) <= most
        size = len(text.encode("utf-8", "surrogatepass"))
        assert most_bytes is None or len(kept.encode("utf-8", "surrogatepass")) <= most_bytes
        if estimate_text_tokens(text) <= most and size <= (size if most_bytes is None else most_bytes):
            assert kept == text


# Mutation: stop the search after its first guess.
@pytest.mark.parametrize("text", SCRIPTS.values(), ids=SCRIPTS)
def test_nearly_as_much_is_kept_as_fits(text):
    for most in (50, 400, 2_000):
        for part in (head_within, tail_within):
            assert estimate_text_tokens(part(text, most)) >= min(most, estimate_text_tokens(text)) * 31 // 32 - 2


class CountedText(str):
    """Text that notes each part of it that is looked at."""

    __slots__ = ()
    looked_at = 0

    @override
    def __getitem__(self, key):
        CountedText.looked_at += 1
        return CountedText(super().__getitem__(key))


# Mutations: guess by less than the proportion; end the search only where the very last character is found.
@pytest.mark.parametrize("text", SCRIPTS.values(), ids=SCRIPTS)
def test_a_cut_is_found_in_a_few_estimates(text):
    for most in (400, 1_000):
        for part in (head_within, tail_within):
            CountedText.looked_at = 0
            part(CountedText(text), most)
            # The window, the part that comes out, the whole of the window; a guess takes two.
            assert CountedText.looked_at <= 3 + 2 * 6


# Mutations: look further back than the last quarter, or less far.
def test_a_line_end_is_near_in_the_last_quarter_of_a_head_and_in_the_first_of_a_tail():
    def broken(at: int) -> str:
        return "".join("\n" if number == at else "ab "[number % 3] for number in range(1_200))

    whole = len(head_within(broken(1_199), 100))
    near, far = whole * 3 // 4 + 8, whole * 3 // 4 - 12
    assert head_within(broken(near), 100) == broken(near)[: near + 1]
    assert not head_within(broken(far), 100).endswith("\n")
    size = len(tail_within(broken(0), 100))
    near, far = 1_200 - size + size // 4 - 8, 1_200 - size + size // 4 + 12
    assert tail_within(broken(near), 100) == broken(near)[near + 1 :]
    assert "\n" in tail_within(broken(far), 100)


# Mutations: look for a line end anywhere; or nowhere.
def test_a_cut_is_at_the_end_of_a_line_where_one_is_near():
    text = "".join(f"line {number:04} is a line\n" for number in range(1_000))
    for most in (100, 101, 103):
        assert head_within(text, most).endswith("\n")
        assert tail_within(text, most).startswith("line ")
    far = "first\n" + "x" * 1_000 + "\nlast"
    assert len(head_within(far, 100)) > 350
    assert len(tail_within(far, 100)) > 350
    assert head_within("one\ntwo", 2, most_bytes=4) == "one\n"
    assert tail_within("one\ntwo", 2, most_bytes=3) == "two"


# Mutations: skip the character at a cut; or put a line end back twice.
@given(TEXTS, st.integers(3, 300))
def test_pieces_are_within_the_limit_and_joined_they_are_the_text(text, most):
    pieces = pieces_of(text, most)
    assert "".join(pieces) == text
    assert all(pieces)
    assert all(estimate_text_tokens(piece) <= most for piece in pieces)


# Mutation: cut pieces to a fixed number of characters.
@pytest.mark.parametrize("text", SCRIPTS.values(), ids=SCRIPTS)
def test_there_are_few_pieces(text):
    tokens = estimate_text_tokens(text)
    assert len(pieces_of(text, 500)) <= tokens / 480 + 2
    assert pieces_of(text, tokens) == [text]


def test_pieces_end_with_lines_and_a_limit_that_nothing_fits_still_ends():
    text = "".join(f"line {number:04}\n" for number in range(1_000))
    assert all(piece.endswith("\n") for piece in pieces_of(text, 200))
    assert pieces_of("😀😀", 1) == ["😀", "😀"]
    assert pieces_of("ab", 0) == ["a", "b"]
    assert pieces_of("", 10) == []
