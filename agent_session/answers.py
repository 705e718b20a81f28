"""What handlers answer decisions with. `hooks` says which event takes which."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from session_store.messages import Content, ImageContent, Message
from session_store.showing import Brief


@dataclass(frozen=True, slots=True, repr=False)
class Veto(Brief):
    """It does not happen."""

    reason: str = "vetoed"


@dataclass(frozen=True, slots=True, repr=False)
class Block(Brief):
    """The tool does not run; the model is told the reason."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ChangedInput(Brief):
    """The prompt goes on with other text or images. Fields left None stay as they are."""

    text: str | None = None
    images: tuple[ImageContent, ...] | None = None


@dataclass(frozen=True, slots=True, repr=False)
class Handled(Brief):
    """The input was dealt with; no run starts."""

    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class RunChanges(Brief):
    """`messages` are recorded after the user's; `system_prompt` holds for this run only."""

    messages: tuple[Message, ...] = ()
    system_prompt: str | None = None


@dataclass(frozen=True, slots=True, repr=False)
class ReplacedMessages(Brief):
    """What this one request sends instead."""

    messages: tuple[Message, ...]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ReplacedRequest(Brief):
    """What is sent instead. Fields left None stay as they are; credentials are in neither."""

    payload: dict[str, Any] | None = None
    headers: dict[str, str] | None = None


@dataclass(frozen=True, slots=True, repr=False)
class ChangedArguments(Brief):
    """The tool runs with these arguments, which are validated again."""

    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ChangedResult(Brief):
    """Fields left None stay as they are."""

    content: tuple[Content, ...] | None = None
    details: Any = None
    is_error: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Summarize(Brief):
    """The default summary, with more said to the summariser, text that must survive, or another model."""

    instructions: str | None = None
    pinned: tuple[str, ...] | list[str] = ()
    model: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Amend(Brief):
    """Changes to the finished compaction entry. Fields left None stay as they are."""

    summary: str | None = None
    details: dict[str, Any] | None = None
    first_kept_entry_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class TreeSummary(Brief):
    """The summary of the branch that is left, instead of the model's, and a label for it."""

    summary: str | None = None
    label: str | None = None
