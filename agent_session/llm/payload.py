"""The bytes of a request: deterministic, and valid UTF-8 whatever the log holds.

Equal payloads give equal bytes: keys keep the order in which the converter wrote them. Lone surrogates, which
other programs' logs may hold, leave as U+FFFD; the check costs nothing where there are none.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import orjson


def encode(payload: Mapping[str, Any]) -> bytes:
    """`payload` as JSON in UTF-8, without spaces."""
    return encode_value(payload)


def readable(payload: dict[str, Any]) -> dict[str, Any]:
    """`payload` as it reads when it was sent, for a library that writes the bytes itself; itself where that is so."""
    try:
        orjson.dumps(payload)
    except TypeError:
        return dict(orjson.loads(encode(payload)))
    return payload


def encode_text(value: Any) -> str:
    """Any JSON value as text, the way `encode` writes it."""
    return encode_value(value).decode()


def encode_value(value: Any) -> bytes:
    try:
        return orjson.dumps(value)
    except TypeError:  # a lone surrogate, an integer beyond 64 bits, a Mapping that is no dict
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_plain)
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} cannot be sent as JSON")
