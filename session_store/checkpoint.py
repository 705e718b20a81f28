"""What a compaction entry carries so that a reader need not read what stands before it.

Pure. Other programs ignore it. Everything in it can be recomputed from the log; it is never the only place. What is not
exactly as it is written here is no checkpoint: the log is read instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from session_store.json_lines import dump_line
from session_store.messages import Json
from session_store.totals import UsageSum, UsageTotals

CUSTOM_DATA_LIMIT_BYTES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomState:
    """The newest data of one custom type on a branch.

    Where `is_here` is false, `data` is in the entry `entry_id`. `offset` is where its line begins, in bytes; it is a
    hint, since other lines may stand there in a fork.
    """

    entry_id: str | None = None
    offset: int | None = None
    data: Any = None
    is_here: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """What the log says before a compaction: of its branch, and of the file.

    Of the branch: `provider`, `model_id`, `thinking_level`, `custom`. Of the file: `name`, `totals`, `entries` (how
    many stand before it) and `bytes` (of the lines between the header and it). In a file that has other lines before
    it, such as a fork of one branch, what is said of the file is not true, and `bytes` tells: it is None where the
    place in the file was not known. `active_tools` are those of the session that wrote it.
    """

    provider: str | None
    model_id: str | None
    thinking_level: str
    name: str | None
    active_tools: tuple[str, ...] | None
    totals: UsageTotals
    entries: int
    bytes: int | None
    custom: Mapping[str, CustomState]

    def to_json(self) -> Json:
        data: Json = {
            "provider": self.provider,
            "modelId": self.model_id,
            "thinkingLevel": self.thinking_level,
            "name": self.name,
            "activeTools": list(self.active_tools) if self.active_tools is not None else None,
            "totals": {model: spent.to_json() for model, spent in self.totals.by_model.items()},
            "totalsByKind": {kind: spent.to_json() for kind, spent in self.totals.by_kind.items()},
            "entries": self.entries,
            "bytes": self.bytes,
            "custom": {},
        }
        for custom_type, state in self.custom.items():
            if state.is_here and len(dump_line({"data": state.data})) <= CUSTOM_DATA_LIMIT_BYTES:
                data["custom"][custom_type] = state.data
            else:
                where = {"entryId": state.entry_id, "offset": state.offset}
                data.setdefault("customOffsets", {})[custom_type] = where
        return data


def read_checkpoint(data: Json | None) -> Checkpoint | None:
    """The checkpoint in that JSON object; None where it is none. Never raises."""
    if data is None:
        return None
    try:
        custom = {custom_type: CustomState(data=state) for custom_type, state in data["custom"].items()}
        for custom_type, where in data.get("customOffsets", {}).items():
            custom[custom_type] = CustomState(
                entry_id=_text(where["entryId"]), offset=_integer_or_none(where["offset"]), is_here=False
            )
        tools = data["activeTools"]
        return Checkpoint(
            provider=_text_or_none(data["provider"]),
            model_id=_text_or_none(data["modelId"]),
            thinking_level=_text(data["thinkingLevel"]),
            name=_text_or_none(data["name"]),
            active_tools=None if tools is None else tuple(map(_text, tools)),
            totals=UsageTotals.of(_sums(data["totals"]), _sums(data["totalsByKind"])),
            entries=int(data["entries"]),
            bytes=_integer_or_none(data.get("bytes")),
            custom=custom,
        )
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError):
        return None


def _sums(data: Any) -> dict[str, UsageSum]:
    return {name: UsageSum.from_json(spent) for name, spent in data.items()}


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value


def _text_or_none(value: Any) -> str | None:
    return None if value is None else _text(value)


def _integer_or_none(value: Any) -> int | None:
    return None if value is None else int(value)
