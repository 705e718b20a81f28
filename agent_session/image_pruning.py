"""After a refusal because of images: which of them leave the context, so that they are not refused again and again.

Which leave is pure. They leave as everything leaves the context: by context edits, so the log keeps them, and a session
that is reopened does not send them either. A refusal that names a size takes the images above it; one that cannot read
an image takes those that no answer has followed yet, since the others were read before; any other takes the oldest
half. Where the model takes no images at all, nothing is edited: the session learns it, and another model may see them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from agent_session.errors import ModelError
from agent_session.events import Warning
from agent_session.llm.image_limits import content_with_images, longest_side
from agent_session.parts import Parts
from session_store.messages import (
    AssistantMessage,
    Content,
    ImageContent,
    TextContent,
)
from session_store.projection import ProjectedMessage

REFUSED = "[image left out: the provider refused it]"
"""What stands in the place of an image that left."""

_IMAGES: Final = re.compile(r"image|picture|photo|pixel|vision|media", re.IGNORECASE)
_NONE_TAKEN: Final = re.compile(
    r"\b(model|endpoints?|deployment|provider)\b[^.]{0,60}(\b(not|no|cannot|without)\b|n't\b)[^.]{0,30}"
    r"\b(images?|vision|image_url|multimodal)\b"
    r"|\bendpoints? found[^.]{0,30}\bimage"
    r"|\b(images?|image[ _](url|inputs?)|vision)\b[^.]{0,20}\b(is|are)\b[^.]{0,10}"
    r"(not supported|unsupported|only supported|not available|not enabled)[^.]{0,20}\b(models?|endpoint|deployment)\b"
    r"|unknown variant \W{0,2}image_url",
    re.IGNORECASE,
)
_UNREADABLE: Final = re.compile(
    r"process|decod|\bread|pars(e|ing)|corrupt|damaged|truncated|invalid|unsupported|not supported|format|mime"
    r"|media.type|appears to be",
    re.IGNORECASE,
)
_PIXELS: Final = re.compile(r"(\d[\d,]*)(?:\s*(?:x|\xd7|by)\s*(\d[\d,]*))?\s*(?:px|pixels?)\b", re.IGNORECASE)
_SIZE: Final = r"(\d[\d,]*(?:\.\d+)?)\s*(bytes|[km]i?b)\b"
# The most certain first: in "exceeds 5 MB maximum: 6291456 bytes > 5242880 bytes" it is the last number.
_BYTES: Final = tuple(
    re.compile(shape + _SIZE, re.IGNORECASE)
    for shape in (r">\s*", r"exceed\w*\D{0,20}", r"(?:maximum|limit|at most|up to|than)\D{0,20}")
)
_COUNT: Final = re.compile(
    r"(?:at most|up to|max(?:imum)?|limit|more than|>)(?: of| is)?:?\s*(\d{1,4})\b"
    r"(?!\s*(?:px|pixels|bytes|[km]i?b|by)\b)",
    re.IGNORECASE,
)
_UNITS: Final = {"bytes": 1, "kb": 1_000, "kib": 1_024, "mb": 1_000_000, "mib": 1_048_576}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shown:
    """An image of the context by its place: message, then block. `is_new`: no answer has followed it yet."""

    place: tuple[int, int]
    image: ImageContent
    is_new: bool


async def prune_images(parts: Parts, error: ModelError) -> bool:
    """Take out of the context what the refusal is about. True: something changed, so it is worth asking again."""
    context = parts.meter.context()
    model = parts.models.model
    if model.images is False or not _all_shown(context):
        return False
    if error.kind in ("content", "bad_request") and _NONE_TAKEN.search(str(error)):
        parts.models.learn_no_images()
        await parts.dispatcher.notify(Warning(text=f"{model.id} takes no images: it is sent a note in their place"))
        return True
    edits = pruned_images(context, error)
    if not edits:
        return False
    stored = parts.recorder.commit(lambda log: log.append_context_edits(edits))
    await parts.recorder.announce(*((edit, ()) for edit in stored))
    await parts.dispatcher.notify(
        Warning(text=f"{model.id} refused images: from here on a note is sent in the place of some of them ({error})")
    )
    return True


def pruned_images(
    context: Sequence[ProjectedMessage], error: ModelError
) -> list[tuple[str, tuple[Content, ...] | None]]:
    """What entries show instead, by id, in order; nothing where the refusal is not about images, or none is there.

    `overflow_bytes` is about the size of the request: with images they go first, without it is for a compaction.
    """
    text = str(error)  # the provider's words; its codes say "invalid" of anything
    if error.kind == "overflow_bytes":
        leaving = _older_half(_all_shown(context))
    elif error.kind == "content" and _IMAGES.search(text):
        leaving = _refused(_all_shown(context), text)
    else:
        return []
    places = {shown.place for shown in leaving}
    return [
        (
            item.entry.id,
            tuple(
                TextContent(REFUSED) if (number, position) in places else block
                for position, block in enumerate(content_with_images(item.message))
            ),
        )
        for number, item in enumerate(context)
        if any(number == message for message, _ in places)
    ]


def _refused(images: Sequence[_Shown], text: str) -> Sequence[_Shown]:
    if (pixels := _largest_side_named(text)) and (found := [shown for shown in images if _side(shown) > pixels]):
        return found
    if (most := _bytes_named(text)) and (found := [shown for shown in images if len(shown.image.data) > most]):
        return found
    if (count := _COUNT.search(text)) and 0 < int(count.group(1)) < len(images):
        return images[: len(images) - int(count.group(1))]
    if _UNREADABLE.search(text) and (found := [shown for shown in images if shown.is_new]):
        return found
    return _older_half(images)


def _older_half(images: Sequence[_Shown]) -> Sequence[_Shown]:
    return images[: -(-len(images) // 2)]


def _all_shown(context: Sequence[ProjectedMessage]) -> list[_Shown]:
    """Oldest first."""
    answers = [number for number, item in enumerate(context) if isinstance(item.message, AssistantMessage)]
    return [
        _Shown(place=(number, position), image=block, is_new=number > max(answers, default=-1))
        for number, item in enumerate(context)
        for position, block in enumerate(content_with_images(item.message))
        if isinstance(block, ImageContent)
    ]


def _side(shown: _Shown) -> int:
    try:
        return longest_side(shown.image) or 0
    except ValueError:
        return 0


def _largest_side_named(text: str) -> int:
    numbers = [_number(group) for found in _PIXELS.finditer(text) for group in found.groups() if group]
    return int(max(numbers, default=0))


def _bytes_named(text: str) -> float:
    found = next((found for shape in _BYTES if (found := shape.search(text))), None)
    return 0 if found is None else _number(found.group(1)) * _UNITS[found.group(2).lower()]


def _number(digits: str) -> float:
    return float(digits.replace(",", ""))
