"""What the bytes of an image file say of it: its type, and how wide and high it is. Pure; only headers are read."""

from __future__ import annotations

import struct

_JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # the three are tables among the markers of frames
_JPEG_BARE = frozenset((0x01, *range(0xD0, 0xD9)))  # markers with nothing behind them


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
