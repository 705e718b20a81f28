"""The tool `read`."""

from __future__ import annotations

import base64
import os
from pathlib import Path

import anyio
import pytest

from agent_session.errors import ToolError
from agent_session.tools import ToolContext
from agent_session.tools.images import MAX_IMAGE_BYTES
from agent_session.tools.output import MAX_BYTES
from agent_session.tools.read import CHUNK_BYTES, READ
from session_store.messages import ImageContent
from tests.pictures import gif, jpeg, png, webp
from tests.tools.calls import call, open_descriptors, shown


async def test_a_small_file_comes_as_it_is(folder: Path, context: ToolContext):
    (folder / "a.txt").write_bytes("één\r\ntwo\u2028still two\n".encode())
    result = await call(READ, context, path="a.txt")
    assert shown(result) == "één\r\ntwo\u2028still two\n"
    assert result.details == {"lines": [1, 2], "totalLines": 2, "truncated": False}


async def test_offset_and_limit_count_lines_from_one(folder: Path, context: ToolContext):
    (folder / "a.txt").write_text("one\ntwo\nthree\nfour\nfive")
    assert shown(await call(READ, context, path="a.txt", offset=2, limit=2)) == (
        "two\nthree\n[lines 2-3 of 5; go on with offset=4]"
    )
    assert shown(await call(READ, context, path="a.txt", offset=4)) == "four\nfive"
    assert shown(await call(READ, context, path="a.txt", offset=5, limit=1)) == "five"


# Mutation: MAX_LINES is not applied to a given limit.
async def test_more_than_can_be_shown_is_cut_with_the_way_to_go_on(folder: Path, context: ToolContext):
    (folder / "a.txt").write_text("".join(f"{number}\n" for number in range(1, 5001)))
    result = await call(READ, context, path="a.txt", limit=4000)
    lines = shown(result).split("\n")
    assert lines[:2000] == [str(number) for number in range(1, 2001)]
    assert lines[2000:] == ["[lines 1-2000 of 5000; go on with offset=2001]"]


# Mutation: the loops in `_window` count from the chunk's start for every chunk (`range(first - 1)`).
async def test_going_on_where_a_read_said_gives_the_whole_file(folder: Path, context: ToolContext):
    # Lines of every length around the bounds: of a chunk, and of what is shown at once.
    text = "".join(f"{number} {'漢' * (number * 37 % 900)}\n" for number in range(1200))
    assert len(text.encode()) > CHUNK_BYTES
    (folder / "a.txt").write_text(text)
    whole, offset = "", 1
    while True:
        result = await call(READ, context, path="a.txt", offset=offset)
        part = shown(result)
        first, last = result.details["lines"]
        assert first == offset
        if last == result.details["totalLines"]:
            whole += part
            break
        part, _, pointer = part.rpartition("\n")
        assert f"offset={last + 1}]" in pointer
        whole += part + "\n"
        offset = last + 1
    assert whole == text


async def test_a_line_longer_than_can_be_shown_says_how_to_see_more_of_it(folder: Path, context: ToolContext):
    (folder / "a b.txt").write_text("first\n" + "漢" * 100_000 + "\nlast\n")
    result = shown(await call(READ, context, path="a b.txt", offset=2))
    line, _, pointer = result.partition("\n")
    assert line == "漢" * (MAX_BYTES // 3)
    assert f"sed -n 2p '{folder}/a b.txt'" in pointer
    assert "offset=3" in pointer


# Mutation: `_window` keeps whole chunks (without the slice by MAX_BYTES).
async def test_memory_does_not_grow_with_the_file(folder: Path, context: ToolContext):
    import tracemalloc

    with (folder / "big.txt").open("wb") as file:
        for _ in range(12):
            file.write(b"x" * 1024 * 1024)
        file.write(b"\nlast\n")
    tracemalloc.start()
    try:
        assert shown(await call(READ, context, path="big.txt", offset=2)) == "last\n"
        await call(READ, context, path="big.txt")
        assert tracemalloc.get_traced_memory()[1] < 6 * 1024 * 1024
    finally:
        tracemalloc.stop()


async def test_an_offset_beyond_the_end_is_refused_with_the_number_of_lines(folder: Path, context: ToolContext):
    (folder / "a.txt").write_text("one\ntwo\n")
    with pytest.raises(ToolError, match=r"a\.txt: offset 3 is beyond the end, the file has 2 lines"):
        await call(READ, context, path="a.txt", offset=3)


async def test_an_empty_file_says_so(folder: Path, context: ToolContext):
    (folder / "a.txt").write_text("")
    assert shown(await call(READ, context, path="a.txt")) == "(the file is empty)"


async def test_a_byte_order_mark_is_not_shown(folder: Path, context: ToolContext):
    (folder / "a.txt").write_bytes(b"\xef\xbb\xbfone\n")
    assert shown(await call(READ, context, path="a.txt")) == "one\n"


async def test_bytes_that_are_no_utf8_are_shown_as_replacement_characters(folder: Path, context: ToolContext):
    (folder / "a.txt").write_bytes(b"caf\xe9\n\xed\xa0\xbd\n")
    text = shown(await call(READ, context, path="a.txt"))
    assert text.startswith("caf\ufffd\n")
    text.encode()


@pytest.mark.parametrize(
    ("data", "mime_type"),
    [(png(), "image/png"), (jpeg(), "image/jpeg"), (gif(), "image/gif"), (webp(), "image/webp")],
)
async def test_an_image_is_known_by_its_bytes_and_shown_as_one(
    folder: Path, context: ToolContext, data: bytes, mime_type: str
):
    data += bytes(range(256))
    (folder / "picture.txt").write_bytes(data)
    _, image = (await call(READ, context, path="picture.txt")).blocks
    assert image == ImageContent(base64.b64encode(data).decode(), mime_type)


# Mutation: in `_image` make the block without `image_content`.
@pytest.mark.parametrize(
    ("data", "why"),
    [
        (png() + bytes(MAX_IMAGE_BYTES), "larger than 3,750,000 bytes"),
        (png(9_000, 10), "no side may be longer than 8,000"),
        (png()[:12], "a damaged image/png"),
    ],
)
async def test_an_image_that_providers_refuse_is_refused(folder: Path, context: ToolContext, data: bytes, why: str):
    (folder / "a.png").write_bytes(data)
    with pytest.raises(ToolError, match=rf"^a\.png: .*{why}"):
        await call(READ, context, path="a.png")


# Mutation: without the check for null bytes.
async def test_a_binary_file_is_refused(folder: Path, context: ToolContext):
    (folder / "a.bin").write_bytes(b"\x7fELF\0\0\1")
    with pytest.raises(ToolError, match=r"a\.bin: a binary file \(7 bytes\)"):
        await call(READ, context, path="a.bin")


async def test_a_missing_file_names_what_comes_near(folder: Path, context: ToolContext):
    (folder / "src").mkdir()
    (folder / "src" / "Parser.py").touch()
    (folder / "src" / "other.txt").touch()
    with pytest.raises(ToolError, match=r"^src/parsers\.py: no such file\. Near it: src/Parser\.py$"):
        await call(READ, context, path="src/parsers.py")
    with pytest.raises(ToolError, match=r"^sr/Parser\.py: no such file\. Near it: src$"):
        await call(READ, context, path="sr/Parser.py")
    with pytest.raises(ToolError, match=r"no such file, and nothing like 'zzzz' in the working folder"):
        await call(READ, context, path="zzzz")
    with pytest.raises(ToolError, match=r"no such file\. Near it: src/other\.txt"):
        await call(READ, context, path="src/other.txt/deeper")


async def test_a_folder_is_refused(folder: Path, context: ToolContext):
    (folder / "src").mkdir()
    with pytest.raises(ToolError, match="src: is a folder"):
        await call(READ, context, path="src")


# Mutation: `opened` does not close what it refuses.
async def test_a_refusal_leaves_no_descriptor_open(folder: Path, context: ToolContext):
    os.mkfifo(folder / "pipe")
    before = open_descriptors()
    for path in (".", "pipe", "missing") * 5:
        with pytest.raises(ToolError):
            await call(READ, context, path=path)
    assert open_descriptors() <= before


# Mutation: `opened` without O_NONBLOCK, or without `_check_regular`.
async def test_a_pipe_is_refused_and_not_waited_for(folder: Path, context: ToolContext):
    os.mkfifo(folder / "pipe")
    with anyio.fail_after(5), pytest.raises(ToolError, match="pipe: is a pipe"):
        await call(READ, context, path="pipe")


async def test_a_symlink_out_of_the_folder_is_refused(folder: Path, context: ToolContext):
    (folder / "link").symlink_to("/etc/hostname")
    with pytest.raises(ToolError, match="outside"):
        await call(READ, context, path="link")


# Mutation: `resolve` in `_read` without `roots`.
async def test_the_full_text_of_cut_output_can_be_read_though_it_is_outside(folder: Path, context: ToolContext):
    blob = context.blobs.put("one\ntwo\n")
    assert not blob.is_relative_to(folder)
    assert shown(await call(READ, context, path=str(blob), offset=2)) == "two\n"
    with pytest.raises(ToolError, match="outside"):
        await call(READ, context, path=str(blob.parent.parent / "session.jsonl"))
