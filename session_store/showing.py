"""How values show themselves: one readable line at a prompt, a table in a notebook.

Rule: whatever is in a value, `repr()` is one short line without control characters, and a table shows text as text.
"""

from __future__ import annotations

import dataclasses
import html
import re
import reprlib
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar, TypeVar

from typing_extensions import override

TEXT_CHARS = 72
LINE_CHARS = 240
CELL_CHARS = 400
ITEM_CHARS = 96

T = TypeVar("T")

# Everything a terminal might obey: C0 without tab and newline, DEL, C1.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_STYLE = "text-align: left; vertical-align: top"

_BRIEFLY = reprlib.Repr()
_BRIEFLY.maxstring = TEXT_CHARS
_BRIEFLY.maxother = ITEM_CHARS
_BRIEFLY.maxtuple = _BRIEFLY.maxlist = _BRIEFLY.maxdict = _BRIEFLY.maxset = 4
_BRIEFLY.maxlevel = 4


def printable(text: str) -> str:
    """`text` without control characters, lines and tabs kept: what a model says must not move a cursor."""
    return _CONTROL.sub("", text)


def one_line(text: str, chars: int = TEXT_CHARS) -> str:
    """`text` in one line of at most `chars` characters; … stands for what was cut."""
    # No more is looked at than could be shown: a value may hold megabytes.
    line = " ".join(printable(text[: 8 * chars]).split())
    if len(line) > chars or len(text) > 8 * chars:
        line = line[: chars - 1].rstrip() + "…"
    return line


def quoted(text: str, chars: int = TEXT_CHARS) -> str:
    """The same in quotation marks."""
    return f'"{one_line(text, chars)}"'


def table(caption: str, rows: Iterable[tuple[str, object]]) -> str:
    """An HTML table of facts, one a row, everything escaped. Rows whose value is None are left out."""
    lines = "".join(
        f'<tr><th style="{_STYLE}">{_escaped(name)}</th><td style="{_STYLE}">{_escaped(value)}</td></tr>'
        for name, value in rows
        if value is not None
    )
    return f'<table><caption style="{_STYLE}">{_escaped(caption)}</caption>{lines}</table>'


class Shown:
    """Mixed into a dataclass made with `repr=False`: one line by `_line`, in a notebook a table of its fields."""

    __slots__ = ()

    def _line(self) -> str:
        raise NotImplementedError

    @override
    def __repr__(self) -> str:
        return f"<{one_line(f'{type(self).__name__} {self._line()}', LINE_CHARS)}>"

    def _repr_html_(self) -> str:
        return table(type(self).__name__, fields_of(self))


class Brief:
    """Mixed into a dataclass made with `repr=False`: its fields as in a call of it, without those that have their
    default, each cut short.
    """

    __slots__ = ()

    @override
    def __repr__(self) -> str:
        shown = [
            f"{field.name}={_BRIEFLY.repr(value)}"
            for field in dataclasses.fields(self)  # type: ignore[arg-type]
            if field.repr and (value := getattr(self, field.name)) != field.default
        ]
        return f"{type(self).__name__}({one_line(', '.join(shown), LINE_CHARS)})"


class Several(tuple[T, ...]):
    """Several values of one kind: how many, the first and the last in one line; in a notebook a table of them all."""

    __slots__ = ()
    _kind: ClassVar[str] = "value"

    @property
    def _count(self) -> str:
        return f"{len(self):,} {self._kind}{'' if len(self) == 1 else 's'}"

    @override
    def __repr__(self) -> str:
        ends = sorted({0, len(self) - 1} & set(range(len(self))))
        items = (", … " if len(self) > len(ends) else ", ").join(
            f"[{number}] {one_line(repr(self[number]), ITEM_CHARS)}" for number in ends
        )
        return f"<{self._count}{': ' + items if items else ''}>"

    def _repr_html_(self) -> str:
        return table(self._count, ((f"[{number}]", item) for number, item in enumerate(self)))


class Lazily(Iterator[T]):
    """Values that are looked up as they are iterated. `what` they are, for who looks at the iterator itself."""

    def __init__(self, items: Iterator[T], what: str) -> None:
        self._items = items
        self._what = what

    @override
    def __next__(self) -> T:
        return next(self._items)

    @override
    def __repr__(self) -> str:
        return f"<{self._what}: iterate it, or list(...) it>"


def fields_of(value: Any) -> list[tuple[str, object]]:
    """The fields of a dataclass, by the words of their names, without those that have their default."""
    facts = [(field, getattr(value, field.name)) for field in dataclasses.fields(value)]
    return [(field.name.replace("_", " "), fact) for field, fact in facts if fact != field.default]


def _escaped(value: object) -> str:
    if isinstance(value, tuple):
        return "<br>".join(_escaped(getattr(item, "text", item)) for item in value)
    text = value if isinstance(value, str) else f"{value:,}" if type(value) is int else repr(value)
    shown = printable(text[:CELL_CHARS]) + ("…" if len(text) > CELL_CHARS else "")
    return html.escape(shown).replace("\n", "<br>")
