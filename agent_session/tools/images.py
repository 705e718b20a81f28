"""Images on their way in: from a path, bytes or a block to a block that providers take.

The rule: an image is looked at before it is recorded. One that a provider refuses would be in the log, and so in every
later request.
"""

from __future__ import annotations

import base64
import binascii
import errno
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

from agent_session.image_format import image_size, image_type
from agent_session.tools.files import opened
from session_store.messages import ImageContent

ImageSource: TypeAlias = str | Path | bytes | ImageContent
"""What `images=` takes: a file's path, the file's bytes, or a block that is ready."""

MAX_IMAGE_BYTES = 3_750_000
"""Providers take images up to 5 MB of base64, which is four thirds of the file."""

MAX_IMAGE_SIDE = 8_000
"""Pixels; providers refuse more."""

_ADDRESSES = ("http://", "https://", "data:")


def check_sources(sources: Sequence[ImageSource]) -> tuple[ImageSource, ...]:
    """The sources, as far as they can be judged without reading a file.

    Raises:
        TypeError: one is of another type, or `sources` is itself one image instead of a sequence.
        ValueError: one is an address.
    """
    if isinstance(sources, (str, bytes, Path, ImageContent)):
        raise TypeError(f"images is a sequence, not one {type(sources).__name__}: put it into a list")
    for source in sources:
        if not isinstance(source, (str, bytes, Path, ImageContent)):
            raise TypeError(f"an image is a path, bytes or an ImageContent, not {type(source).__name__}")
        if isinstance(source, str) and source.startswith(_ADDRESSES):
            raise ValueError(f"{source[:60]!r} is an address: fetch the image, and give its file or its bytes")
    return tuple(sources)


def read_images(sources: Sequence[ImageSource], folder: Path) -> tuple[ImageContent, ...]:
    """The images, in order. Relative paths begin in `folder`. Where there are paths it waits for the disk.

    Raises:
        OSError: a file is not there or cannot be read; the text names it.
        ValueError: an image is of no known type, damaged or too large; the text says which one, and what to do.
    """
    return tuple(_read(source, f"image {number}", folder) for number, source in enumerate(sources, start=1))


def image_content(data: bytes) -> ImageContent:
    """The bytes of an image file as a block.

    Raises:
        ValueError: no png, jpeg, gif or webp; damaged; or larger than providers take.
    """
    mime_type = image_type(data)
    if mime_type is None:
        raise ValueError("not a png, jpeg, gif or webp image: convert it to one of them")
    if len(data) > MAX_IMAGE_BYTES:
        raise ValueError(f"larger than {MAX_IMAGE_BYTES:,} bytes: make a smaller copy and use that")
    size = image_size(data)
    if size is None or 0 in size:
        raise ValueError(f"a damaged {mime_type}: it does not say how wide and high it is")
    if max(size) > MAX_IMAGE_SIDE:
        raise ValueError(
            f"{size[0]:,} by {size[1]:,} pixels, and no side may be longer than {MAX_IMAGE_SIDE:,}: "
            f"make a smaller copy and use that"
        )
    return ImageContent(base64.b64encode(data).decode("ascii"), mime_type)


def _read(source: ImageSource, name: str, folder: Path) -> ImageContent:
    if isinstance(source, ImageContent):
        return _checked(source, name)
    if isinstance(source, bytes):
        data = source
    else:
        name = str(source)
        data = _contents(folder / Path(source).expanduser(), name)
    try:
        return image_content(data)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error


def _contents(path: Path, name: str) -> bytes:
    """All of the file, or as much as shows that it is too large."""
    try:
        with opened(path) as file:
            return file.read(MAX_IMAGE_BYTES + 1)
    except OSError as error:
        reason = "no such image file" if error.errno == errno.ENOENT else error.strerror
        raise type(error)(error.errno, reason, name) from error


def _checked(block: ImageContent, name: str) -> ImageContent:
    """The block as it is. Of a type that is not known here, only its encoding and size are judged."""
    try:
        data = binascii.a2b_base64(block.data, strict_mode=True)
    except ValueError as error:
        raise ValueError(f"{name}: the data of an ImageContent is base64, and this is not: {error}") from error
    known = image_type(data)
    try:
        if known is not None:
            image_content(data)
        elif len(data) > MAX_IMAGE_BYTES:
            raise ValueError(f"larger than {MAX_IMAGE_BYTES:,} bytes: make a smaller copy and use that")
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error
    if known is not None and known != block.mime_type:
        raise ValueError(f"{name}: its mime_type is {block.mime_type}, and its data is {known}")
    return block
