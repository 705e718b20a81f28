"""JSON values and the lines that hold them, whatever is in them.

The fast path is one orjson call each way. What orjson refuses is tried once more, slowly: text that was cut
through a surrogate pair, numbers no JSON reader can hold, nesting deeper than orjson goes. Only what can
never be JSON is an error, and the error says where in the value it was.
"""

from __future__ import annotations

import json
import math
from typing import Any

import orjson

from session_store.messages import Json

# Dataclasses and dates are refused rather than converted: an object that comes back as a plain dict after a
# reload is a crash that waits for the next session.
_OPTIONS = orjson.OPT_APPEND_NEWLINE | orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME

_SMALLEST_INTEGER = -(2**63)
_LARGEST_INTEGER = 2**64 - 1


def parse_line(raw: bytes) -> Json | None:
    """The JSON object in one line, or None when the line is damaged."""
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError:
        _, value = _parse_slowly(raw)
    return value if type(value) is dict else None


def is_json_value(raw: bytes) -> bool:
    """Whether the bytes are one whole JSON value of any kind."""
    try:
        orjson.loads(raw)
    except orjson.JSONDecodeError:
        return _parse_slowly(raw)[0]
    return True


def dump_line(value: Json) -> bytes:
    """One line, its newline included.

    Lone surrogates become U+FFFD. NaN and infinities become null, as in every JSON writer; integers beyond 64
    bits become floats, as every JSON reader would make of them.

    Raises:
        TypeError: something in it is not JSON. The text begins with its path, such as `message.details.when[3]`.
    """
    try:
        return orjson.dumps(value, option=_OPTIONS)
    except TypeError:
        try:
            text = json.dumps(_as_json(value, ""), ensure_ascii=False, separators=(",", ":"))
        except RecursionError:
            raise TypeError("value: nested too deep for JSON, or it contains itself") from None
        return text.encode() + b"\n"


def replace_surrogates(text: str) -> str:
    """The text with halves of surrogate pairs joined, and lone ones replaced by U+FFFD."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def _parse_slowly(raw: bytes) -> tuple[bool, Any]:
    """Whether it is JSON after all, and the value."""
    try:
        text = raw.decode("utf-8-sig", "replace")
        value = json.loads(text, parse_constant=lambda _: None, parse_float=_finite_or_none)
        return True, _without_surrogates(value)
    except (ValueError, RecursionError):
        return False, None


def _finite_or_none(digits: str) -> float | None:
    number = float(digits)
    return number if math.isfinite(number) else None


def _without_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return replace_surrogates(value)
    if isinstance(value, dict):
        return {replace_surrogates(key): _without_surrogates(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_surrogates(item) for item in value]
    return value


def _as_json(value: Any, path: str) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return replace_surrogates(value)
    if isinstance(value, int):
        return int(value) if _SMALLEST_INTEGER <= value <= _LARGEST_INTEGER else _float_or_none(value)
    if isinstance(value, float):
        return _float_or_none(value)
    if isinstance(value, dict):
        return {
            _as_key(key, path): _as_json(item, f"{path}.{key}" if path else str(key)) for key, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [_as_json(item, f"{path}[{number}]") for number, item in enumerate(value)]
    try:
        return orjson.loads(orjson.dumps(value, option=_OPTIONS))  # what the fast path takes too, such as an enum
    except TypeError:
        raise TypeError(f"{path or 'value'}: {type(value).__name__} is not JSON") from None


def _float_or_none(value: float) -> float | None:
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _as_key(key: Any, path: str) -> str:
    if isinstance(key, str):
        return replace_surrogates(key)
    if key is None or isinstance(key, (bool, int, float)):
        return json.dumps(key)  # the convention of JSON writers: 1 is "1", True is "true"
    raise TypeError(f"{path or 'value'}: a key of type {type(key).__name__} is not JSON")
