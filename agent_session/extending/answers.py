"""The shape of answers: what a handler returned, checked value by value and detached from the handler.

Rule: nothing enters an event that its annotation does not allow. `Decision.fold` checks the answer's kind and
what it means (a boundary, a blank summary); here its values are compared with the types that the answer's
class declares, JSON in them is copied, and a list becomes a tuple where a tuple is declared. What a checker
of types would have refused in a typed handler is refused here for an untyped one.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Sequence
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from agent_session.hooks import InvalidAnswer

T = TypeVar("T")

MAX_JSON_DEPTH = 200
"""Deeper than any payload, and shallow enough for the encoder of the log."""


_JSON_SCALARS = (str, int, float, bool, type(None))

_known_fields: dict[type, tuple[tuple[str, Any, frozenset[type]], ...]] = {}
"""Name, annotation and the scalar types it allows, for each field of each class that was met.

An answer may hold a whole history: most of its fields are settled by one look at the type.
"""


class _Mismatch(Exception):
    """A value its annotation does not allow; `steps` lead to it, innermost first."""

    def __init__(self, value: object, expected: str) -> None:
        self.steps: list[str] = []
        self.found = "None" if value is None else type(value).__name__
        self.expected = expected
        super().__init__()


def admitted(answer: T) -> T:
    """The answer with only what its class declares in it, sharing nothing with the handler.

    A value that is no dataclass is returned as it is: `fold` refuses it by its kind.

    Raises:
        InvalidAnswer: a field holds something its annotation does not allow; the text says which and why.
    """
    if not _is_value(answer):
        return answer
    try:
        return _with_fields(answer)  # type: ignore[no-any-return]
    except _Mismatch as mismatch:
        path = type(answer).__name__ + "".join(reversed(mismatch.steps))
        raise InvalidAnswer(f"{path} is {mismatch.found}, not {mismatch.expected}") from None


def _checked(value: Any, declared: Any) -> Any:
    origin = get_origin(declared)
    if declared is Any:
        return _json(value, MAX_JSON_DEPTH)
    if origin in (Union, types.UnionType):
        return _one_of(value, get_args(declared))
    if origin in (tuple, list, Sequence):
        if isinstance(value, (tuple, list)):
            return _items(value, get_args(declared)[0])
    elif origin is dict:
        if isinstance(value, dict):
            return _values(value, get_args(declared)[1])
    elif origin is Literal:
        if value in get_args(declared):
            return value
    elif _is_instance(value, declared):
        return _with_fields(value) if _is_value(value) else value
    raise _Mismatch(value, _spelled(declared))


def _one_of(value: Any, members: tuple[Any, ...]) -> Any:
    if type(value) in members:
        return _checked(value, type(value))
    refusals: list[_Mismatch] = []
    for member in members:
        try:
            return _checked(value, member)
        except _Mismatch as refusal:
            refusals.append(refusal)
    deepest = max(refusals, key=lambda refusal: len(refusal.steps))
    if deepest.steps:  # the right kind of value with a wrong one inside
        raise deepest
    raise _Mismatch(value, " or ".join(_spelled(member) for member in members))


def _items(value: Sequence[Any], declared: Any) -> tuple[Any, ...]:
    items = []
    for index, item in enumerate(value):
        try:
            items.append(_checked(item, declared))
        except _Mismatch as mismatch:
            mismatch.steps.append(f"[{index}]")
            raise
    return tuple(items)


def _values(value: dict[Any, Any], declared: Any) -> dict[str, Any]:
    values = {}
    for key, item in value.items():
        if not isinstance(key, str):
            mismatch = _Mismatch(key, "text")
            mismatch.steps.append(f" key {key!r}")
            raise mismatch
        try:
            values[key] = _checked(item, declared)
        except _Mismatch as mismatch:
            mismatch.steps.append(f"[{key!r}]")
            raise
    return values


def _with_fields(value: Any) -> Any:
    changes = {}
    for name, declared, scalars in _known_fields.get(type(value)) or _fields(type(value)):
        old = getattr(value, name)
        if type(old) in scalars:
            continue
        try:
            new = _checked(old, declared)
        except _Mismatch as mismatch:
            mismatch.steps.append(f".{name}")
            raise
        if new is not old:
            changes[name] = new
    return dataclasses.replace(value, **changes) if changes else value


def _json(value: Any, depth_left: int) -> Any:
    """A copy of a JSON value; nothing else can be written to the log or sent."""
    if isinstance(value, _JSON_SCALARS):
        return value
    if not depth_left:
        raise _Mismatch(value, f"JSON of at most {MAX_JSON_DEPTH} levels")
    if isinstance(value, (list, tuple)):
        return [_json(item, depth_left - 1) for item in value]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: _json(item, depth_left - 1) for key, item in value.items()}
    raise _Mismatch(value, "JSON")


def _is_instance(value: object, declared: Any) -> bool:
    if declared is type(None) or declared is None:
        return value is None
    if isinstance(value, bool):  # an int in Python, and none in an answer
        return declared is bool
    return isinstance(value, (int, float) if declared is float else declared)


def _is_value(value: object) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def _fields(kind: type) -> tuple[tuple[str, Any, frozenset[type]], ...]:
    hints = get_type_hints(kind)
    _known_fields[kind] = tuple(
        (field.name, hints[field.name], _scalars(hints[field.name])) for field in dataclasses.fields(kind)
    )
    return _known_fields[kind]


def _scalars(declared: Any) -> frozenset[type]:
    """The scalar types that an annotation allows whatever their value."""
    if declared is Any:
        return frozenset(_JSON_SCALARS)
    if get_origin(declared) in (Union, types.UnionType):
        return frozenset[type]().union(*map(_scalars, get_args(declared)))
    return frozenset({declared}) if declared in _JSON_SCALARS else frozenset()


def _spelled(declared: Any) -> str:
    if declared is type(None) or declared is None:
        return "None"
    if get_origin(declared) is Literal:
        return " or ".join(repr(value) for value in get_args(declared))
    if get_origin(declared) is not None:
        return getattr(get_origin(declared), "__name__", str(declared))
    return getattr(declared, "__name__", str(declared))
