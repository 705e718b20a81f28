"""The beginnings of image files, of any size in pixels: as much as says what they are."""

from __future__ import annotations

import struct
import zlib


def png(width: int = 2, height: int = 3) -> bytes:
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + struct.pack(">I", 13)
        + b"IHDR"
        + header
        + struct.pack(">I", zlib.crc32(b"IHDR" + header))
    )


def jpeg(width: int = 2, height: int = 3, *, frame: int = 0xC0) -> bytes:
    """With a comment that holds what looks like a frame, a table, and filling before the frame."""
    fake = b"\xff\xc0\x00\x0b\x08" + struct.pack(">HH", 9, 9)
    comment = b"\xff\xfe" + struct.pack(">H", 2 + len(fake)) + fake
    table = b"\xff\xc4\x00\x04\x00\x00"
    return (
        b"\xff\xd8"
        + comment
        + table
        + b"\xff\xff"
        + bytes([frame])
        + b"\x00\x0b\x08"
        + struct.pack(">HH", height, width)
    )


def gif(width: int = 2, height: int = 3) -> bytes:
    return b"GIF89a" + struct.pack("<HH", width, height) + b"\0\0\0"


def webp(width: int = 2, height: int = 3) -> bytes:
    """With loss."""
    return _webp(b"VP8 ", b"\0\0\0\x9d\x01\x2a" + struct.pack("<HH", width | 0x4000, height))


def webp_without_loss(width: int = 2, height: int = 3) -> bytes:
    return _webp(b"VP8L", b"\x2f" + struct.pack("<I", (width - 1) | (height - 1) << 14 | 1 << 28))


def webp_extended(width: int = 2, height: int = 3) -> bytes:
    return _webp(b"VP8X", b"\0\0\0\0" + (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little"))


def _webp(kind: bytes, chunk: bytes) -> bytes:
    return b"RIFF" + struct.pack("<I", 12 + len(chunk)) + b"WEBP" + kind + struct.pack("<I", len(chunk)) + chunk
