"""How many images a request may carry and how large they may be, by who answers, and which therefore stay behind.

Pure. The rule it keeps: the newest images are sent. Where there are too many, the oldest are left out a step at a time,
so that the next image does not change the beginning of the request again and the provider's cache holds. An image whose
bytes nobody here can read is the provider's to judge.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from agent_session.image_format import image_size, image_type
from agent_session.models import Model
from session_store.messages import Content, CustomMessage, ImageContent, Message, ToolResultMessage, UserMessage

NOT_SEEN = "[image left out: this model takes no images]"
NOT_READABLE = "[image left out: it is damaged, or of a type that this model does not take]"
TOO_LARGE = "[image left out: larger than this model takes]"
TOO_MANY = "[image left out: the request had too many images]"

_HEAD_CHARS: Final = 4 * 1_024
_STEPS: Final = 4
"""Of what is allowed, a quarter is left out at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageLimits:
    """`most_chars` and `total_chars` count base64, of one image and of all; `most_side` are pixels, None for any.

    In a request with more than `crowd` images, those with a side above `crowd_side` pixels are refused.
    `types` None: any.
    """

    most_images: int
    most_chars: int
    total_chars: int
    most_side: int | None = None
    crowd: int | None = None
    crowd_side: int = 2_000
    types: frozenset[str] | None = None


_CLAUDE: Final = ImageLimits(
    most_images=100,
    most_chars=5 * 1_024 * 1_024,
    total_chars=28_000_000,  # of 32 MB; the rest is for everything else
    most_side=8_000,
    crowd=20,
    types=frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"}),
)
_CLAUDE_WITH_A_LARGE_WINDOW: Final = replace(_CLAUDE, most_images=600)
_LARGE_WINDOW_TOKENS: Final = 200_000

_OTHERS: Final = ImageLimits(most_images=500, most_chars=20_000_000, total_chars=45_000_000)
_BY_PROVIDER: Final = {
    "gemini": ImageLimits(most_images=1_000, most_chars=18_000_000, total_chars=18_000_000, most_side=8_000),
    "groq": ImageLimits(most_images=5, most_chars=4_000_000, total_chars=18_000_000),
    "mistral": ImageLimits(most_images=8, most_chars=13_000_000, total_chars=45_000_000, most_side=8_000),
    "xai": ImageLimits(most_images=100, most_chars=20_000_000, total_chars=45_000_000, most_side=8_000),
}


def limits_of(model: Model, api: str) -> ImageLimits:
    """What is known of who answers; `api` is the wire format's name."""
    if api == "anthropic-messages" or model.is_claude:
        return _CLAUDE_WITH_A_LARGE_WINDOW if model.context_limit > _LARGE_WINDOW_TOKENS else _CLAUDE
    return _BY_PROVIDER.get(model.provider, _OTHERS)


def judged(images: Sequence[ImageContent], model: Model, api: str) -> list[ImageContent | str]:
    """What is sent in the place of each image, oldest first: itself, with the type that its bytes say, or a note."""
    if model.images is False:
        return [NOT_SEEN] * len(images)
    limits = limits_of(model, api)
    places: list[ImageContent | str] = []
    sides: list[int] = []
    for image in images:
        place, side = _alone(image, limits)
        places.append(place)
        sides.append(side)
    sent = [number for number, place in enumerate(places) if isinstance(place, ImageContent)]
    most = limits.most_images
    if limits.crowd is not None and any(sides[number] > limits.crowd_side for number in sent):
        most = min(most, limits.crowd)
    chars = [len(images[number].data) for number in sent]
    behind = max(_left_behind([1] * len(sent), most), _left_behind(chars, limits.total_chars))
    for number in sent[:behind]:
        places[number] = TOO_MANY
    return places


def content_with_images(message: Message) -> tuple[Content, ...]:
    """The content of a message that may hold images; nothing of any other."""
    return message.content if isinstance(message, (UserMessage, CustomMessage, ToolResultMessage)) else ()


def longest_side(image: ImageContent) -> int | None:
    """Pixels; None where the bytes do not say.

    Raises:
        ValueError: the data is not base64.
    """
    size = image_size(_decoded(image.data[:_HEAD_CHARS]))
    if size is None and len(image.data) > _HEAD_CHARS:  # what a camera puts before the header can be long
        size = image_size(_decoded(image.data))
    return None if size is None else max(size)


def _alone(image: ImageContent, limits: ImageLimits) -> tuple[ImageContent | str, int]:
    """One image whatever is beside it, and its longest side, 0 where that is not known."""
    try:
        known = image_type(_decoded(image.data[:_HEAD_CHARS]))
        side = longest_side(image) or 0
    except ValueError:
        return NOT_READABLE, 0
    if known is not None and known != image.mime_type:
        image = replace(image, mime_type=known)
    is_damaged = not image.data or (known is not None and side == 0)
    if is_damaged or (limits.types is not None and image.mime_type not in limits.types):
        return NOT_READABLE, side
    if len(image.data) > limits.most_chars or (limits.most_side is not None and side > limits.most_side):
        return TOO_LARGE, side
    return image, side


def _left_behind(weights: Sequence[int], most: int) -> int:
    """How many from the front leave so that the rest weighs at most `most`, in steps of a part of that."""
    excess = sum(weights) - most
    if excess <= 0:
        return 0
    step = max(1, most // _STEPS)
    target = -(-excess // step) * step
    count = left = 0
    while left < target and count < len(weights):
        left += weights[count]
        count += 1
    return count


def _decoded(data: str) -> bytes:
    return base64.b64decode(data, validate=True)
