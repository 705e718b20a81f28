"""Copies for extensions: what they are handed shares nothing that can be changed with the session.

Rule: only what could be written to is copied. Entries, messages and events are frozen, so a message without
JSON in it is handed on as it is; dicts and lists, and the frozen values around them, are rebuilt. That keeps
a copy of a long history cheap, where `copy.deepcopy` would rebuild every text block of it.
"""

from __future__ import annotations

import copy
import dataclasses
from operator import is_
from typing import Any, TypeVar

T = TypeVar("T")

_SCALARS = frozenset((str, int, float, bool, type(None), bytes))

_fields_of_frozen: dict[type, tuple[str, ...] | None] = {}
"""Field names of each frozen dataclass that was met; None for every other class."""


def detached(value: T) -> T:
    """`value`, with a copy of everything in it that can be changed.

    Exceptions are shared: they cannot be copied in general, and nothing is read back from them. So is what
    refuses to be copied: it is no JSON, so no log or request would take it either.
    """
    return _detached(value)  # type: ignore[no-any-return]


def _detached(value: Any) -> Any:
    kind = type(value)
    if kind in _SCALARS:
        return value
    if kind is dict:
        return {key: item if type(item) in _SCALARS else _detached(item) for key, item in value.items()}
    if kind is list:
        return [_detached(item) for item in value]
    if kind is tuple:
        items = tuple([_detached(item) for item in value])
        return value if all(map(is_, items, value)) else items
    fields = _fields_of_frozen[kind] if kind in _fields_of_frozen else _frozen_fields(kind)
    if fields is not None:
        return _detached_fields(value, fields)
    if isinstance(value, BaseException):
        return value
    try:
        return copy.deepcopy(value)
    except Exception:  # noqa: BLE001 - whatever the copying of a foreign object does
        return value


def _frozen_fields(kind: type) -> tuple[str, ...] | None:
    """The fields of a frozen dataclass that does not say itself what its copy is."""
    parameters = getattr(kind, "__dataclass_params__", None)
    is_frozen = parameters is not None and parameters.frozen and not hasattr(kind, "__deepcopy__")
    fields = tuple(field.name for field in dataclasses.fields(kind)) if is_frozen else None
    return _fields_of_frozen.setdefault(kind, fields)


def _detached_fields(value: Any, fields: tuple[str, ...]) -> Any:
    new: Any = None
    for name in fields:
        old = getattr(value, name)
        if type(old) in _SCALARS:
            continue
        item = _detached(old)
        if item is not old:
            if new is None:
                new = copy.copy(value)
            # Not through `replace`: a frozen value's own checks were made when it was built.
            object.__setattr__(new, name, item)
    return value if new is None else new
