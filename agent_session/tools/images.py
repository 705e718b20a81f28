"""Images on their way in: from a path, bytes or a block to a block that providers take.

The rule: an image is looked at before it is recorded. One that a provider refuses would be in the log, and so in every
later request.
"""

from __future__ import annotations

import base64
import binascii
import errno
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

from agent_session.tools.files import opened
from session_store.messages import ImageContent

ImageSource: TypeAlias = str | Path | bytes | ImageContent
"""What `images=` takes: a file's path, the file's bytes, or a block that is ready."""

MAX_IMAGE_BYTES = 3_750_000
"""Providers take images up to 5 MB of base64, which is four thirds of the file."""

MAX_IMAGE_SIDE = 8_000
"""Pixels; providers refuse more."""

_ADDRESSES = ("http://", "https://", "data:")

_JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # the three are tables among the markers of frames
_JPEG_BARE = frozenset((0x01, *range(0xD0, 0xD9)))  # markers with nothing behind them


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


def image_type(start: bytes) -> str | None:
    """The mime type that the first bytes of a file say; None for what providers do not take."""
    if start.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if start.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if start.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if start[:4] == b"RIFF" and start[8:12] == b"WEBP":
        return "image/webp"
    return None


def image_size(data: bytes) -> tuple[int, int] | None:
    """Width and height in pixels, from the headers of an image; None where they do not say."""
    try:
        match image_type(data):
            case "image/png":
                return struct.unpack_from(">II", data, 16) if data[12:16] == b"IHDR" else None
            case "image/gif":
                return struct.unpack_from("<HH", data, 6)
            case "image/webp":
                return _webp_size(data)
            case "image/jpeg":
                return _jpeg_size(data)
            case _:
                return None
    except (struct.error, IndexError):  # it ends before it says
        return None


def _webp_size(data: bytes) -> tuple[int, int] | None:
    match data[12:16]:
        case b"VP8 " if data[23:26] == b"\x9d\x01\x2a":
            width, height = struct.unpack_from("<HH", data, 26)
            return width & 0x3FFF, height & 0x3FFF
        case b"VP8L" if data[20] == 0x2F:
            (bits,) = struct.unpack_from("<I", data, 21)
            return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        case b"VP8X" if len(data) >= 30:
            return int.from_bytes(data[24:27], "little") + 1, int.from_bytes(data[27:30], "little") + 1
        case _:
            return None


def _jpeg_size(data: bytes) -> tuple[int, int] | None:
    position = 2
    while data[position] == 0xFF:
        marker = data[position + 1]
        if marker == 0xFF:  # filling
            position += 1
        elif marker in _JPEG_BARE:
            position += 2
        elif marker in _JPEG_FRAMES:
            height, width = struct.unpack_from(">HH", data, position + 5)
            return width, height
        else:
            (length,) = struct.unpack_from(">H", data, position + 2)
            position += 2 + length
    return None


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
