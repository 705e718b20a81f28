from __future__ import annotations

import hashlib
import os
import re
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from session_store.blobs import BlobStore, bound_text, path_in_mark

POINTER = re.compile(r"\n\[\.\.\. ([\d,]+) of ([\d,]+) bytes are left out here; the full text is in (.+) \.\.\.\]\n")


def parts(bounded: str) -> tuple[str, str, str, Path]:
    """Head, tail, what was said to be cut, and the path of the full text."""
    found = POINTER.search(bounded)
    assert found is not None
    return bounded[: found.start()], bounded[found.end() :], found[1], Path(found[3])


def test_a_blob_is_named_by_its_content_and_comes_back(tmp_path: Path):
    store = BlobStore(tmp_path)
    path = store.put(b"\x00content")
    sha = hashlib.sha256(b"\x00content").hexdigest()
    assert path == tmp_path / "blobs" / sha
    assert store.get(sha) == b"\x00content"


def test_text_is_stored_as_utf8_without_lone_surrogates(tmp_path: Path):
    assert BlobStore(tmp_path).put("ä\ud83d").read_bytes() == "ä\ufffd".encode()


# Mutation: create the folder in the constructor.
def test_nothing_is_created_before_the_first_blob(tmp_path: Path):
    store = BlobStore(tmp_path / "sessions")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(FileNotFoundError):
        store.get("0" * 64)
    assert list(tmp_path.iterdir()) == []


def test_blobs_are_private(tmp_path: Path):
    previous = os.umask(0)
    try:
        path = BlobStore(tmp_path / "sessions").put("x")
    finally:
        os.umask(previous)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(path.parent.parent.stat().st_mode) == 0o700


def test_the_same_content_is_stored_once(tmp_path: Path):
    first = BlobStore(tmp_path).put("same")
    before = first.stat()
    assert BlobStore(tmp_path).put(b"same") == first
    after = first.stat()
    # Mutation: write again; the inode changes under a reader.
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert list(first.parent.iterdir()) == [first]


def test_a_blob_that_cannot_be_written_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    store = BlobStore(tmp_path)

    def refuse(fd: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as fault:
        fault.setattr(os, "fsync", refuse)
        with pytest.raises(OSError, match="No space left"):
            store.put("x")
    # Mutation: write under the final name at once, or leave the draft.
    assert list((tmp_path / "blobs").iterdir()) == []
    assert store.put("x").read_bytes() == b"x"


@pytest.mark.parametrize("sha", ["../s.jsonl", "", "A" * 64, "0" * 63, "0" * 64 + "\n"])
def test_what_is_no_hash_is_refused_before_the_disk_is_asked(tmp_path: Path, sha: str):
    with pytest.raises(ValueError, match="SHA-256"):
        BlobStore(tmp_path).get(sha)


def test_text_up_to_the_limit_is_left_alone(tmp_path: Path):
    store = BlobStore(tmp_path)
    for text in ("", "short", "x" * (256 * 1024), "ä" * (128 * 1024)):
        assert bound_text(text, store) is text
    assert list(tmp_path.iterdir()) == []
    # Mutation: count characters instead of bytes.
    assert bound_text("ä" * (128 * 1024) + "x", store) != "ä" * (128 * 1024) + "x"


def test_a_result_of_twelve_megabytes_becomes_head_tail_and_a_pointer(tmp_path: Path):
    text = "first\n" + "0123456789" * 1_200_000 + "\nlast"
    bounded = bound_text(text, BlobStore(tmp_path))
    assert len(bounded.encode()) < 40 * 1024
    head, tail, cut, path = parts(bounded)
    assert text.startswith(head)
    assert text.endswith(tail)
    assert len(head) == len(tail) == 16 * 1024
    assert cut == f"{len(text) - 32 * 1024:,}"
    assert path.read_text() == text
    assert bound_text(bounded, BlobStore(tmp_path)) == bounded


# Mutation: cut the encoded text without `errors="ignore"`, or the text by its characters.
@given(st.text(st.characters(exclude_categories=()), min_size=30, max_size=120), st.integers(0, 9), st.integers(0, 9))
def test_cuts_go_through_no_character_and_lose_nothing(
    tmp_path_factory: pytest.TempPathFactory, text: str, head: int, tail: int
):
    folder = tmp_path_factory.getbasetemp() / "cut"
    bounded = bound_text(text, BlobStore(folder), limit=29, head=head, tail=tail)
    bounded.encode()
    first, last, cut, path = parts(bounded)
    full = path.read_bytes().decode()
    assert full.startswith(first)
    assert full.endswith(last)
    assert head - 4 < len(first.encode()) <= head
    assert tail - 4 < len(last.encode()) <= tail
    assert int(cut.replace(",", "")) == len(full.encode()) - len(first.encode()) - len(last.encode())


# Mutation: in `path_in_mark` take the end of the mark for a part of the path.
def test_the_full_text_can_be_found_from_what_was_bounded(tmp_path: Path):
    store = BlobStore(tmp_path / "with spaces ...")
    bounded = bound_text("head" + "x" * 100 + "tail", store, limit=29, head=4, tail=4)
    assert path_in_mark(bounded) == str(store.put("head" + "x" * 100 + "tail"))
    assert path_in_mark("head\n[... 1 of 2 bytes are left out here]\ntail") is None
