"""Images of a prompt: given as paths, bytes or blocks, looked at before they are recorded."""

from __future__ import annotations

import base64
import os
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from agent_session import AgentSession, SessionBusyError
from agent_session.image_format import image_size
from agent_session.testing import hang, reply
from agent_session.tools.images import MAX_IMAGE_BYTES, ImageSource, image_content
from session_store.messages import ImageContent
from tests.pictures import gif, jpeg, png, webp, webp_extended, webp_without_loss
from tests.session.scene import scene

stage_for = partial(scene, window=50_000)  # an image counts as more than a thousand tokens


def block(data: bytes, mime_type: str) -> ImageContent:
    return ImageContent(base64.b64encode(data).decode(), mime_type)


def sent_images(request: Any) -> list[str]:
    """The images of the last message of a request, as they were sent."""
    content = request.messages[-1]["content"]
    return [part["image_url"]["url"] for part in content if part["type"] == "image_url"] if content else []


def url(data: bytes, mime_type: str) -> str:
    return f"data:{mime_type};base64,{base64.b64encode(data).decode()}"


@asynccontextmanager
async def no_thread_free() -> AsyncIterator[None]:
    """Whatever wants a thread waits until the block is left."""
    limiter = anyio.to_thread.current_default_thread_limiter()
    before, limiter.total_tokens = limiter.total_tokens, 1
    await limiter.acquire()
    try:
        yield
    finally:
        limiter.release()
        limiter.total_tokens = before


# The two ways in -----------------------------------------------------------------------------------


async def test_paths_bytes_and_blocks_are_sent_in_the_order_given(tmp_path: Path):
    # Mutation: take `sources` sorted in `read_images`, or take every type for image/png.
    (tmp_path / "a.png").write_bytes(png())
    (tmp_path / "not what its name says.png").write_bytes(jpeg())
    async with stage_for(tmp_path, [reply("Four.")]) as stage:
        images: list[ImageSource] = [
            "a.png",
            tmp_path / "not what its name says.png",
            gif(),
            block(webp(), "image/webp"),
        ]
        await stage.session.prompt("What is this?", images=images)
        assert sent_images(stage.provider.requests[0]) == [
            url(png(), "image/png"),
            url(jpeg(), "image/jpeg"),
            url(gif(), "image/gif"),
            url(webp(), "image/webp"),
        ]


async def test_an_image_needs_no_text(tmp_path: Path):
    # Mutation: refuse an empty text whatever the images.
    async with stage_for(tmp_path, [reply("Two by three.")]) as stage:
        await stage.session.prompt("", images=[png()])
        assert sent_images(stage.provider.requests[0]) == [url(png(), "image/png")]


async def test_the_home_folder_may_be_written_as_a_tilde(tmp_path: Path, isolated_environment: Path):
    # Mutation: leave `expanduser` out.
    (isolated_environment / "a.png").write_bytes(png())
    async with stage_for(tmp_path, [reply("Yes.")]) as stage:
        await stage.session.prompt("See?", images=["~/a.png"])
        assert len(sent_images(stage.provider.requests[0])) == 1


@pytest.mark.parametrize("verb", ["steer", "follow_up"])
async def test_queued_messages_take_images_too(tmp_path: Path, verb: str):
    # Mutation: drop the images in `AgentSession._queue`.
    (tmp_path / "a.png").write_bytes(png())
    async with stage_for(tmp_path, [reply("Seen.")]) as stage:
        await stage.session.start()
        getattr(stage.session, verb)("Look.", images=["a.png"])
        with anyio.fail_after(5):
            await stage.session.wait_for_idle()
        assert sent_images(stage.provider.requests[0]) == [url(png(), "image/png")]


async def test_a_run_and_what_steers_it_take_images(tmp_path: Path):
    # Mutation: drop the images in `RunHandle.steer` or in `open_handle`.
    (tmp_path / "a.png").write_bytes(png())
    async with stage_for(tmp_path, [reply("Seen.")]) as stage:
        async with stage.session.run("Look.", images=["a.png"]) as run:
            run.steer("And here.", images=[Path("a.png")])
            with anyio.fail_after(5):
                await run.result()
        told = [part for message in stage.provider.requests[-1].messages for part in message["content"] or ()]
        assert [part["type"] for part in told if isinstance(part, dict)].count("image_url") == 2


# What is refused -----------------------------------------------------------------------------------


async def test_a_missing_file_is_named_and_nothing_is_recorded(tmp_path: Path):
    # Mutation: record the text before the images are read; or raise the error without the path.
    async with stage_for(tmp_path, [reply("Fine.")]) as stage:
        with pytest.raises(FileNotFoundError, match=r"no such image file: 'shots/a\.png'"):
            await stage.session.prompt("See?", images=["shots/a.png"])
        assert stage.session.is_idle
        assert stage.lines("message") == []
        await stage.session.prompt("Then without.")
        assert len(stage.provider.requests) == 1


@pytest.mark.parametrize("verb", ["steer", "follow_up"])
async def test_a_queued_message_whose_image_is_missing_is_refused_at_once(tmp_path: Path, verb: str):
    # Mutation: leave the reading to the run that takes the message.
    async with stage_for(tmp_path, []) as stage:
        with pytest.raises(FileNotFoundError, match=r"a\.png"):
            getattr(stage.session, verb)("Look.", images=["a.png"])
        assert stage.session.pending_messages == ()


async def test_a_folder_and_a_file_that_is_no_image_are_refused_by_name(tmp_path: Path):
    # Mutation: read with `Path.read_bytes`; or name an image by its number only.
    (tmp_path / "notes.png").write_text("no picture")
    async with stage_for(tmp_path, []) as stage:
        with pytest.raises(ValueError, match=r"^notes\.png: not a png, jpeg, gif or webp image: convert it"):
            await stage.session.prompt("See?", images=["notes.png"])
        with pytest.raises(OSError, match="is a folder"):
            await stage.session.prompt("See?", images=["."])


@pytest.mark.parametrize(
    ("images", "error", "why"),
    [
        ("a.png", TypeError, "put it into a list"),
        (png(), TypeError, "put it into a list"),
        ([3], TypeError, "not int"),
        (["https://host.example/a.png"], ValueError, "fetch the image"),
        (["data:image/png;base64,AAAA"], ValueError, "fetch the image"),
    ],
)
async def test_what_is_no_image_at_all_is_refused_before_anything_runs(
    tmp_path: Path, images: Any, error: type[Exception], why: str
):
    # Mutation: leave `check_sources` out.
    async with stage_for(tmp_path, []) as stage:
        for verb in (stage.session.steer, stage.session.follow_up, stage.session.run):
            with pytest.raises(error, match=why):
                async with await entered(verb, images):
                    pass
        with pytest.raises(error, match=why):
            await stage.session.prompt("See?", images=images)
        assert stage.names == ["session_start"]


async def entered(verb: Callable[..., Any], images: Any) -> Any:
    return verb("See?", images=images)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "not a png, jpeg, gif or webp"),
        (b"BM\0\0\0\0", "not a png, jpeg, gif or webp"),
        (png()[:20], "a damaged image/png"),
        (jpeg()[:-3], "a damaged image/jpeg"),
        (b"\xff\xd8\xff\xd9", "a damaged image/jpeg"),
        (gif()[:8], "a damaged image/gif"),
        (webp()[:28], "a damaged image/webp"),
        (webp_extended()[:28], "a damaged image/webp"),
        (png(0, 5), "a damaged image/png"),
        (png() + bytes(MAX_IMAGE_BYTES), "larger than 3,750,000 bytes: make a smaller copy"),
        (png(8_001, 10), "8,001 by 10 pixels, and no side may be longer than 8,000: make a smaller copy"),
        (jpeg(10, 8_001), "10 by 8,001 pixels"),
    ],
)
def test_an_image_that_providers_refuse_is_refused_here(data: bytes, why: str):
    # Mutation: take one of the checks out of `image_content`.
    with pytest.raises(ValueError, match=why):
        image_content(data)


@pytest.mark.parametrize("sides", [(1, 1), (640, 479), (8_000, 3), (3, 8_000)])
@pytest.mark.parametrize("made", [png, jpeg, gif, webp, webp_without_loss, webp_extended])
def test_the_size_in_pixels_is_read_from_every_kind_of_header(
    made: Callable[[int, int], bytes], sides: tuple[int, int]
):
    # Mutation: swap width and height in one of them; or take the first frame-like bytes of a jpeg.
    assert image_size(made(*sides)) == sides
    image_content(made(*sides) + bytes(50))


def test_a_jpeg_says_its_size_in_any_kind_of_frame():
    # Mutation: know the baseline frame only (0xC0); or take the table 0xC4 for a frame.
    assert {image_size(jpeg(7, 5, frame=frame)) for frame in (0xC0, 0xC1, 0xC2, 0xC3, 0xC9, 0xCF)} == {(7, 5)}


@pytest.mark.parametrize(
    ("image", "why"),
    [
        (ImageContent("not base64!", "image/png"), "is base64, and this is not"),
        (block(jpeg(), "image/png"), "its mime_type is image/png, and its data is image/jpeg"),
        (block(png(9_000, 1), "image/png"), "9,000 by 1 pixels"),
        (block(bytes(MAX_IMAGE_BYTES + 1), "image/heic"), "larger than 3,750,000 bytes"),
    ],
)
async def test_a_block_is_looked_at_as_well(tmp_path: Path, image: ImageContent, why: str):
    # Mutation: let blocks pass as they are.
    async with stage_for(tmp_path, []) as stage:
        with pytest.raises(ValueError, match=f"^image 2: .*{why}"):
            await stage.session.prompt("See?", images=[png(), image])


async def test_a_block_of_a_type_not_known_here_is_left_to_the_provider(tmp_path: Path):
    # Mutation: refuse blocks whose data is of no known type.
    async with stage_for(tmp_path, [reply("Yes.")]) as stage:
        await stage.session.prompt("See?", images=[block(b"\0\0\0\x18ftypheic", "image/heic")])
        assert sent_images(stage.provider.requests[0])[0].startswith("data:image/heic;")


# While it is read ----------------------------------------------------------------------------------


async def test_the_run_is_reserved_before_the_images_are_read(tmp_path: Path):
    # Mutation: read the images in `AgentSession.prompt`, before the gate is claimed.
    (tmp_path / "a.png").write_bytes(png())
    async with stage_for(tmp_path, [reply("Yes.")]) as stage, anyio.create_task_group() as tasks, no_thread_free():
        tasks.start_soon(lambda: stage.session.prompt("See?", images=["a.png"]))
        with anyio.fail_after(5):
            while stage.session.is_idle:
                await anyio.lowlevel.checkpoint()
        with pytest.raises(SessionBusyError):
            await stage.session.prompt("Me first!")


async def test_an_abort_does_not_wait_for_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    # Mutation: in `Said.message` leave out `abandon_on_cancel`.
    is_reading, is_released, open_file = threading.Event(), threading.Event(), os.open

    def slow_disk(path: Any, *rest: Any, **more: Any) -> int:
        if str(path).endswith("a.png"):
            is_reading.set()
            is_released.wait(5)
        return open_file(path, *rest, **more)

    monkeypatch.setattr(os, "open", slow_disk)
    (tmp_path / "a.png").write_bytes(png())
    answers: list[Any] = []
    async with stage_for(tmp_path, []) as stage, anyio.create_task_group() as tasks:

        async def ask() -> None:
            answers.append(await stage.session.prompt("See?", images=["a.png"]))

        tasks.start_soon(ask)
        with anyio.fail_after(4):
            while not is_reading.is_set():
                await anyio.lowlevel.checkpoint()
            await stage.session.abort()
        assert [answer.stop_reason for answer in answers] == ["aborted"]
        is_released.set()


async def test_what_was_queued_for_a_prompt_whose_images_fail_is_answered_all_the_same(tmp_path: Path):
    # Mutation: in `hold_run` leave out the waking where there was no run.
    async with stage_for(tmp_path, [reply("Fine.")]) as stage:

        async def ask() -> None:
            with pytest.raises(FileNotFoundError):
                await stage.session.prompt("See?", images=["missing.png"])

        async with anyio.create_task_group() as tasks, no_thread_free():
            tasks.start_soon(ask)
            with anyio.fail_after(5):
                while stage.session.is_idle:
                    await anyio.lowlevel.checkpoint()
            stage.session.steer("Never mind.")
        with anyio.fail_after(5):
            await stage.session.wait_for_idle()
        assert [request.last_user_text for request in stage.provider.requests] == ["Never mind."]


async def test_a_busy_session_queues_a_prompt_with_images(tmp_path: Path):
    # Mutation: queue the text alone.
    (tmp_path / "a.png").write_bytes(png())
    async with stage_for(tmp_path, [reply("One."), reply("Two.")]) as stage:
        queued: list[Any] = []

        @stage.session.on("before_request")
        async def ask_once(event: Any) -> None:
            if not queued:
                queued.append(await stage.session.prompt("And this?", images=["a.png"], if_busy="steer"))

        await stage.session.prompt("Go.")
        assert queued == [None]
        assert sent_images(stage.provider.requests[1]) == [url(png(), "image/png")]


async def test_a_closed_session_takes_no_message_whose_images_were_read_meanwhile(tmp_path: Path):
    # Mutation: leave `check_open` out of `enqueue`.
    (tmp_path / "a.png").write_bytes(png())
    raised: list[Exception] = []
    async with stage_for(tmp_path, [hang()], check=False) as stage:
        session: AgentSession = stage.session

        async def ask() -> None:
            try:
                await session.prompt("And this?", images=["a.png"], if_busy="steer")
            except Exception as error:  # noqa: BLE001
                raised.append(error)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: session.prompt("Go."))
            with anyio.fail_after(5):
                while not stage.provider.requests:
                    await anyio.lowlevel.checkpoint()
                async with no_thread_free():
                    tasks.start_soon(ask)
                    for _ in range(5):
                        await anyio.lowlevel.checkpoint()
                    tasks.start_soon(session.close)
                    while stage.told("agent_settled") == []:
                        await anyio.lowlevel.checkpoint()
    assert [type(error).__name__ for error in raised] == ["SessionClosedError"]
