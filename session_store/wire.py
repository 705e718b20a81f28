"""How a class and its JSON object correspond: one table for both directions.

Names on the wire are camelCase, in Python snake_case; the table is the only place that knows both. Reading is
lenient: an absent field and null give the field's default, a value of the wrong type too. Unknown fields are
kept in `extra`, and written back after the known ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Generic, TypeVar

from session_store.messages import Json

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One field: an attribute's name and its key on the wire.

    A value of exactly the type `plain` is the attribute as it is; any other goes through `read`, which never
    raises; null and absence are `read(None)`. `write` makes the JSON value of an attribute that is not None.
    An `optional` field is left out where its JSON value is None.
    """

    name: str
    key: str
    read: Callable[[Any], Any]
    plain: type | None = None
    write: Callable[[Any], Any] | None = None
    optional: bool = False


class Shape(Generic[T]):
    """A class with slots and an `extra`, and the fields of its JSON object in the order they are written."""

    def __init__(self, cls: type[T], *fields: Field, tag: tuple[str, str] | None = None) -> None:
        self.cls = cls
        self._tag = dict([tag]) if tag else {}
        self._known = frozenset([*self._tag, *(field.key for field in fields)])
        self._readers = tuple(
            (field.key, vars(cls)[field.name].__set__, field.plain, field.read, field.read(None)) for field in fields
        )
        self._set_extra = vars(cls)["extra"].__set__
        self._writers = tuple((field.key, field.write, field.optional) for field in fields)
        self._values = attrgetter(*(field.name for field in fields), "extra")

    def decode(self, data: Json) -> T:
        # The slots are set one by one as they are read: a frozen dataclass's own `__init__` does the same by
        # name, after an argument list was built, and takes twice as long. Loading is made of this loop.
        value = object.__new__(self.cls)
        get = data.get
        for key, assign, plain, read, default in self._readers:
            item = get(key)
            if item is None:
                item = default
            elif type(item) is not plain:
                item = read(item)
            assign(value, item)
        known = self._known
        extra = None if known.issuperset(data) else {key: item for key, item in data.items() if key not in known}
        self._set_extra(value, extra)
        return value

    def encode(self, value: T) -> Json:
        data: Json = self._tag.copy()
        values = self._values(value)
        for (key, write, optional), item in zip(self._writers, values, strict=False):  # `extra` comes last, alone
            if item is None:
                if optional:
                    continue
            elif write is not None:
                item = write(item)
                if item is None and optional:
                    continue
            data[key] = item
        extra = values[-1]
        if extra:
            for key, item in extra.items():
                data.setdefault(key, item)
        return data


# Kinds of field that need no more than a name and a key --------------------------------------------------------------


def text(name: str, key: str | None = None) -> Field:
    """Text; "" where there is none."""
    return Field(name=name, key=key or name, plain=str, read=as_text)


def optional_text(name: str, key: str | None = None) -> Field:
    """Text, left out where there is none."""
    return Field(name=name, key=key or name, plain=str, read=as_optional_text, optional=True)


def integer(name: str, key: str | None = None) -> Field:
    """A whole number; 0 where there is none."""
    return Field(name=name, key=key or name, plain=int, read=as_integer)


def optional_integer(name: str, key: str | None = None) -> Field:
    """A whole number, left out where there is none."""
    return Field(name=name, key=key or name, plain=int, read=as_optional_integer, optional=True)


def flag(name: str, key: str | None = None) -> Field:
    """True or False, False where there is none."""
    return Field(name=name, key=key or name, plain=bool, read=as_flag)


def optional_flag(name: str, key: str | None = None) -> Field:
    """True or False, left out where it is False."""
    return Field(name=name, key=key or name, plain=bool, read=as_flag, write=_true_or_none, optional=True)


def any_json(name: str) -> Field:
    """Any JSON value, left out where it is null."""
    return Field(name=name, key=name, read=_as_is, optional=True)


def json_object(name: str) -> Field:
    """An object, left out where there is none."""
    return Field(name=name, key=name, plain=dict, read=_as_object, optional=True)


def as_text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def as_optional_text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def as_integer(value: Any) -> int:
    return as_optional_integer(value) or 0


def as_optional_integer(value: Any) -> int | None:
    if type(value) is int:
        return value
    if type(value) is float and math.isfinite(value):
        return int(value)
    return None


def as_flag(value: Any) -> bool:
    return value is True


def _true_or_none(value: bool) -> bool | None:
    return value or None


def _as_object(value: Any) -> Json | None:
    return value if isinstance(value, dict) else None


def _as_is(value: Any) -> Any:
    return value
