"""Events as JSON, the shape that `--json` prints: one object a line, `event` its name.

The rule it keeps: fields are named as in `agent_session.events`, while messages, blocks, usage and entries are what the
session's file has, key for key. A program that reads the file can read these.
"""

from __future__ import annotations

import dataclasses
import re
from pathlib import PurePath
from typing import Any

from agent_session.events import NOTIFICATIONS, Event
from agent_session.hooks import MessageEnd
from agent_session.logs import redact
from agent_session.models import Model
from session_store.codec import encode_entry, parse_line
from session_store.entries import Entry
from session_store.json_lines import dump_line
from session_store.message_codec import encode_content, encode_message, encode_usage
from session_store.messages import Content, Message, Usage

_CAPITAL = re.compile(r"(?<!^)(?=[A-Z])")


def is_told(event: Event) -> bool:
    """Whether an event is printed: every notification, and each message as it was recorded.

    The other decisions are questions to extensions; what came of them is told by an event.
    """
    return isinstance(event, MessageEnd) or event.name in NOTIFICATIONS


def event_line(event: Event) -> bytes:
    """One line, its newline included."""
    return dump_line({"event": event.name, **_fields_of(event)})


def json_line(value: dict[str, Any]) -> bytes:
    """One line, its newline included, whatever is in the texts."""
    return dump_line({key: _json(item) for key, item in value.items()})


def _fields_of(value: Any) -> dict[str, Any]:
    return {
        field.name: _json(getattr(value, field.name))
        for field in dataclasses.fields(value)
        if field.name != "decided_by"
    }


def _json(value: Any) -> Any:
    match value:
        case None | bool() | int() | float() | str():
            return value
        case BaseException():
            return {"type": type(value).__name__, "message": redact(str(value))}
        case PurePath():
            return str(value)
        case Model():
            return value.id
        case Usage():
            return encode_usage(value)
        case dict():
            return {str(key): _json(item) for key, item in value.items()}
        case list() | tuple():
            return [_json(item) for item in value]
        case _ if isinstance(value, Message):
            return encode_message(value)
        case _ if isinstance(value, Entry):
            return parse_line(encode_entry(value))
        case _ if isinstance(value, Content):
            return encode_content((value,))[0]
        case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return {"type": _snake(type(value).__name__), **_fields_of(value)}
        case _:
            return str(value)


def _snake(name: str) -> str:
    return _CAPITAL.sub("_", name).lower()
