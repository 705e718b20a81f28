"""What is shown of a long text."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_session.tools.output import MAX_BYTES, MAX_LINES, bound, cut
from session_store.blobs import BlobStore


@pytest.fixture
def blobs(tmp_path: Path) -> BlobStore:
    return BlobStore(tmp_path)


def test_a_text_within_both_limits_comes_as_it_is_and_nothing_is_stored(blobs: BlobStore):
    text = "line\n" * MAX_LINES
    bounded = bound(text, blobs)
    assert (bounded.text, bounded.full_text, bounded.cut.is_cut) == (text, None, False)
    assert not blobs.folder.exists()


# Mutation: `_lines(window)[:max_lines]` for both, head and tail.
def test_the_tail_is_kept_with_a_line_before_it_that_names_the_full_text(blobs: BlobStore):
    text = "".join(f"line {number}\n" for number in range(1, 3001))
    bounded = bound(text, blobs, keep="tail")
    pointer, _, rest = bounded.text.partition("\n")
    assert rest == "".join(f"line {number}\n" for number in range(1001, 3001))
    assert "lines 1,001-3,000 of 3,000" in pointer
    assert bounded.full_text is not None
    assert str(bounded.full_text) in pointer
    assert bounded.full_text.read_text() == text


def test_the_head_is_kept_with_a_line_after_it_that_names_the_full_text(blobs: BlobStore):
    text = "".join(f"line {number}\n" for number in range(1, 3001))
    bounded = bound(text, blobs, keep="head")
    *lines, pointer = bounded.text.split("\n")
    assert lines == [f"line {number}" for number in range(1, 2001)]
    assert "lines 1-2,000 of 3,000" in pointer
    assert bounded.full_text is not None
    assert bounded.full_text.read_text() == text


def test_bytes_are_a_limit_too_and_whole_lines_are_kept():
    text = "x" * 30_000 + "\n" + "y" * 30_000 + "\n"
    assert cut(text, keep="head").text == "x" * 30_000 + "\n"
    assert cut(text, keep="tail").text == "y" * 30_000 + "\n"


def test_one_line_larger_than_the_limit_is_cut_inside_and_said_to_be(blobs: BlobStore):
    bounded = bound("start" + "x" * (12 * 1024 * 1024) + "end", blobs, keep="tail")
    assert len(bounded.text) < MAX_BYTES + 500
    assert bounded.text.endswith("xend")
    assert "the end of line 1 of 1 (12,582,920 bytes in all)" in bounded.text
    assert bounded.cut.is_line_divided


# Mutation: without the loops over `_is_continuation` in `_head` and `_tail`.
@given(st.text(alphabet="aé漢🎈\n", min_size=1, max_size=60), st.integers(4, 40), st.integers(1, 5))
def test_a_cut_never_divides_a_character_and_keeps_to_its_limits(text: str, max_bytes: int, max_lines: int):
    for keep in ("head", "tail"):
        part = cut(text, max_bytes=max_bytes, max_lines=max_lines, keep=keep)
        assert text.startswith(part.text) if keep == "head" else text.endswith(part.text)
        assert part.text
        assert len(part.text.encode()) <= max_bytes
        lines = [line for line in part.text.split("\n") if line or part.text != ""]
        assert part.last_line - part.first_line + 1 == len(lines) - (1 if part.text.endswith("\n") else 0) <= max_lines
        assert part.is_cut == (part.text != text)


# Mutation: `_lines` uses splitlines().
def test_lines_end_with_line_feeds_only():
    assert cut("a\rb\x0bc\u2028d\n" * 3, max_lines=2).text == "a\rb\x0bc\u2028d\n" * 2


# Mutation: `bound` without replace_surrogates.
def test_lone_surrogates_are_replaced(blobs: BlobStore):
    assert bound("ok \ud83d", blobs).text == "ok \ufffd"
    bounded = bound("\ud83d\n" * 3000, blobs)
    bounded.text.encode()
    assert bounded.full_text is not None
    assert bounded.full_text.read_text() == "\ufffd\n" * 3000
