"""Images that a provider refuses: which leave the context, that the log keeps them, and that asking goes on."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from agent_session import AssistantMessage, Model, ModelRequestError, ToolResult, UserMessage, Warning, tool
from agent_session.errors import ContextCannotFitError, ContextOverflowError, ModelError, ModelErrorKind
from agent_session.image_pruning import REFUSED, pruned_images
from agent_session.testing import Step, calls, fail, reply
from session_store import Content, ImageContent, SessionManager, TextContent, pairs_ok
from session_store.context import build_context, build_projection
from session_store.entries import Entry
from tests.pictures import png
from tests.session.scene import Scene, scene, words
from tests.session_store.branch_building import answer, chain, custom_message, message, user

TOO_WIDE = "image dimensions exceed max allowed size: 2000 pixels"
TOO_LARGE_TOGETHER = "total message size 31457280 exceeds limit 10485760"
NO_IMAGES = "No endpoints found that support image input"


def image(width: int = 2, *, padding: int = 0) -> ImageContent:
    return ImageContent(base64.b64encode(png(width) + bytes(padding)).decode(), "image/png")


def with_images(entry_id: str, *images: ImageContent) -> Entry:
    return message(entry_id, UserMessage(content=(TextContent(entry_id), *images)))


def refusal(text: str, kind: ModelErrorKind = "content") -> ModelError:
    return ModelRequestError(f"openai/scripted refused the request (400): {text}", kind=kind, body=text)


def left(text: str, *entries: Entry, kind: ModelErrorKind = "content") -> dict[str, int]:
    """How many images stay in each entry that changes."""
    context = build_context(build_projection(chain(*entries)))
    changed: dict[str, int] = {}
    for entry_id, content in pruned_images(context, refusal(text, kind)):
        assert content is not None
        changed[entry_id] = sum(isinstance(block, ImageContent) for block in content)
        assert TextContent(REFUSED) in content
        assert content[0] == TextContent(entry_id)
    return changed


# Which leave ---------------------------------------------------------------------------------------

WIDE, SMALL = image(3_000), image(500)
THREE: list[Entry] = [with_images("a", SMALL), with_images("b", WIDE), answer("c"), with_images("d", SMALL)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (TOO_WIDE, {"b": 0}),
        ("image dimensions exceed 2,000 x 2,000 pixels", {"b": 0}),
        ("image dimensions exceed max allowed size: 8000 pixels", {"a": 0, "b": 0}),
        ("image exceeds 5 MB maximum: 6291456 bytes > 5242880 bytes", {"a": 0, "b": 0}),
        ("Too many images: 3 > 2", {"a": 0}),
        ("This model takes at most 1 images per request", {"a": 0, "b": 0}),
        ("Could not process image", {"d": 0}),
        ("Unsupported image media type", {"d": 0}),
        ("the images were refused", {"a": 0, "b": 0}),
    ],
)
def test_the_images_that_the_refusal_is_about_leave(text: str, expected: dict[str, int]) -> None:
    # Mutation: take the oldest half whatever is said; keep the images that are named; take those already answered.
    assert left(text, *THREE) == expected


def test_an_image_above_the_size_that_is_named_leaves() -> None:
    # Mutation: do not read sizes in bytes.
    entries = [with_images("a", SMALL), with_images("large", image(padding=60_000)), answer("c")]
    for text in (
        "image exceeds 50 KB maximum: 80044 bytes > 50000 bytes",
        "the image exceeds the limit of 0.05 MB",
        "image is larger than 50 kb",
    ):
        assert left(text, *entries) == {"large": 0}


def test_a_request_that_is_too_large_loses_the_older_half_of_its_images() -> None:
    # Mutation: take the newer half; round down.
    entries = [with_images("a", SMALL, SMALL), answer("b"), with_images("c", SMALL, SMALL, SMALL)]
    assert left(TOO_LARGE_TOGETHER, *entries, kind="overflow_bytes") == {"a": 0, "c": 2}
    assert left(TOO_LARGE_TOGETHER, with_images("a", SMALL), kind="overflow_bytes") == {"a": 0}


@pytest.mark.parametrize("kind", ["overflow", "bad_request", "rate", "server", "pairing"])
def test_a_refusal_about_something_else_changes_nothing(kind: ModelErrorKind) -> None:
    # Mutation: look at the words alone.
    assert left("the image is too large", *THREE, kind=kind) == {}


def test_a_refusal_of_another_sort_of_content_changes_nothing() -> None:
    # Mutation: look at the kind alone.
    assert left("the audio could not be decoded", *THREE) == {}


def test_without_images_there_is_nothing_to_change() -> None:
    entries: list[Entry] = [user("u"), custom_message("m"), answer("a")]
    assert left(TOO_WIDE, *entries) == left(TOO_LARGE_TOGETHER, *entries, kind="overflow_bytes") == {}


# In a session --------------------------------------------------------------------------------------


def images_in(request: Any) -> int:
    return int(request.raw.count(b"data:image"))


def content_of(stage: Scene) -> list[Content]:
    return [block for item in stage.session.messages if isinstance(item, UserMessage) for block in item.content]


async def test_a_poisoned_image_leaves_and_the_same_prompt_is_answered(tmp_path: Path) -> None:
    # Mutation: in `Run._ask_until_answered` do not prune; in `prune_images` change the request only.
    steps: list[Step] = [fail(400, TOO_WIDE), reply("Seen.")]
    async with scene(tmp_path, steps, window=50_000) as stage:
        before = stage.path.read_bytes()
        pictures = [png(500), png(3_000)]
        assert str(await stage.session.prompt("What is this?", images=pictures)) == "Seen."
        assert [images_in(request) for request in stage.provider.requests] == [2, 1]
        assert REFUSED in stage.provider.requests[1].text
        assert len([event for event in stage.of(Warning) if "refused images" in event.text]) == 1
        assert stage.told("retry_start", "compaction_start") == []
        assert stage.path.read_bytes().startswith(before)
        assert stage.path.read_bytes().count(base64.b64encode(png(3_000))) == 1
    # Reopened it is as it was left: the image is in the file and in no request.
    async with scene(tmp_path, [reply("Again.")], window=50_000, manager=SessionManager.open(stage.path)) as again:
        await again.session.prompt("And now?")
        assert images_in(again.provider.requests[0]) == 1
        with SessionManager.open(stage.path, read_only=True) as manager:
            assert tuple(manager.build_messages()) == again.session.messages


async def test_a_refusal_that_stays_ends_the_prompt_and_the_next_one_takes_more_away(tmp_path: Path) -> None:
    # Mutation: prune again and again in one turn; prune once for the whole session.
    refused = fail(400, "there are too many images")
    steps: list[Step] = [refused, refused, refused, refused, refused, reply("At last.")]
    async with scene(tmp_path, steps, window=50_000) as stage:
        with pytest.raises(ModelRequestError):
            await stage.session.prompt("See?", images=[png()] * 4)
        with pytest.raises(ModelRequestError):
            await stage.session.prompt("And now?")
        assert str(await stage.session.prompt("Still?")) == "At last."
        assert [images_in(request) for request in stage.provider.requests] == [4, 2, 2, 1, 1, 0]
        assert sum(block == TextContent(REFUSED) for block in content_of(stage)) == 4


async def test_a_request_too_large_in_bytes_loses_old_images_before_anything_is_summarised(tmp_path: Path) -> None:
    # Mutation: go to the compaction first.
    steps: list[Step] = [reply("one"), reply("two"), fail(400, TOO_LARGE_TOGETHER), reply("three")]
    async with scene(tmp_path, steps, window=80_000) as stage:
        for number in range(3):
            await stage.session.prompt(f"see {number}", images=[png()] * 10)
        assert [images_in(request) for request in stage.provider.requests] == [10, 20, 30, 15]
        assert stage.outcomes == []
        shown = [block for block in content_of(stage) if not isinstance(block, ImageContent)]
        assert shown[:11] == [TextContent("see 0"), *[TextContent(REFUSED)] * 10]


async def test_without_images_a_request_too_large_in_bytes_is_compacted(tmp_path: Path) -> None:
    # Mutation: treat `overflow_bytes` as images alone.
    steps: list[Step] = [
        *(reply(words(60, f"answer {number}")) for number in range(3)),
        fail(413, "request too large"),
        reply("ok"),
    ]
    async with scene(tmp_path, steps, window=8_000) as stage:
        for number in range(3):
            await stage.session.prompt(words(60, f"question {number}"))
        assert str(await stage.session.prompt("and now?")) == "ok"
        assert stage.outcomes == ["applied"]


async def test_where_fewer_images_are_still_too_many_bytes_the_context_is_compacted(tmp_path: Path) -> None:
    # Mutation: end the prompt after the second refusal.
    steps: list[Step] = [
        reply(words(60, "one")),
        reply(words(60, "two")),
        *[fail(400, TOO_LARGE_TOGETHER)] * 2,
        reply("three"),
    ]
    async with scene(tmp_path, steps, window=50_000) as stage:
        for number in range(2):
            await stage.session.prompt(words(60, f"see {number}"), images=[png()] * 2)
        assert str(await stage.session.prompt("and now?")) == "three"
        assert stage.outcomes == ["applied"]
        assert images_in(stage.provider.requests[3]) == 2


async def test_images_of_results_leave_too_and_calls_stay_answered(tmp_path: Path) -> None:
    # Mutation: look at the user's messages only.
    @tool
    def picture() -> ToolResult:
        """A picture."""
        return ToolResult((TextContent("a picture"), image(3_000)))

    steps: list[Step] = [calls([("picture", {}), ("picture", {})]), fail(400, TOO_WIDE), reply("Seen.")]
    async with scene(tmp_path, steps, window=50_000, tools=[picture]) as stage:
        assert str(await stage.session.prompt("look")) == "Seen."
        assert [images_in(request) for request in stage.chat_requests] == [0, 2, 0]
        assert pairs_ok(stage.session.messages)
        failed = [item for item in stage.session.messages if isinstance(item, AssistantMessage) and item.is_failed]
        assert failed == []


@pytest.mark.parametrize(
    "text",
    [
        NO_IMAGES,
        "This model does not support image inputs",
        "Invalid content type. image_url is only supported by certain models.",
        "messages[0]: unknown variant `image_url`, expected `text`",
    ],
)
async def test_a_model_that_says_it_takes_no_images_gets_notes_and_another_model_gets_the_images(
    tmp_path: Path, text: str
) -> None:
    # Mutation: edit the context for good; ask again with the same request.
    steps: list[Step] = [fail(404, text), reply("I see nothing."), reply("A dot.")]
    async with scene(tmp_path, steps, window=50_000) as stage:
        assert str(await stage.session.prompt("What is this?", images=[png()])) == "I see nothing."
        assert [images_in(request) for request in stage.provider.requests] == [1, 0]
        assert "takes no images" in stage.provider.requests[1].text
        assert stage.lines("context_edit") == []
        await stage.session.set_model(Model("openai/with-eyes", context_window=50_000))
        assert str(await stage.session.prompt("And you?")) == "A dot."
        assert images_in(stage.provider.requests[2]) == 1


async def test_an_overflow_of_bytes_that_nothing_helps_ends_with_its_error(tmp_path: Path) -> None:
    # Mutation: prune without end.
    steps: list[Step] = [*[fail(400, TOO_LARGE_TOGETHER)] * 2, reply("after all")]
    async with scene(tmp_path, steps, window=50_000) as stage:
        with pytest.raises((ContextOverflowError, ContextCannotFitError)):
            await stage.session.prompt("see", images=[png()])
        assert str(await stage.session.prompt("and now?")) == "after all"
        assert [images_in(request) for request in stage.provider.requests] == [1, 0, 0]


async def test_a_refusal_of_images_that_were_not_sent_is_never_sent_again(tmp_path: Path) -> None:
    # Mutation: in `prune_images` do not look at whether there are images, or whether the model was sent any.
    refused = fail(400, "This model does not support image inputs")
    async with scene(tmp_path, [refused, refused], window=50_000) as stage:
        with pytest.raises(ModelRequestError):
            await stage.session.prompt("no image here")
        await stage.session.set_model(Model("openai/blind", context_window=50_000, images=False))
        with pytest.raises(ModelRequestError):
            await stage.session.prompt("see", images=[png()])
        assert [images_in(request) for request in stage.provider.requests] == [0, 0]
        assert stage.lines("context_edit") == []
