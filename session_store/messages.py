"""What a model can see: messages and the blocks in them.

Names on the wire are camelCase and live in `codec`; here they are snake_case. Every class is frozen,
so a message may be shared between the log, the context and a request without a copy; only the JSON
values inside (`arguments`, `details`, `data`, `extra`) are plain dicts, and nobody writes to them.
Roles, block types and stop reasons are open sets: what is not known here is kept as `UnknownContent`
or `UnknownMessage` and passed through. `extra` holds unknown fields of known types, None when there
are none. Timestamps of messages are Unix milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from typing_extensions import override

from session_store.showing import Brief, Shown, one_line, quoted

Json: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True, repr=False)
class TextContent(Brief):
    """Text. `text_signature` is the provider's own opaque text, kept byte for byte."""

    text: str
    text_signature: str | None = None
    extra: Json | None = None


@dataclass(frozen=True, slots=True, repr=False)
class ImageContent(Brief):
    """`data` is base64, as on the wire."""

    data: str
    mime_type: str
    extra: Json | None = None


@dataclass(frozen=True, slots=True, repr=False)
class ThinkingContent(Brief):
    """`thinking_signature` is the provider's own opaque text, kept byte for byte."""

    thinking: str
    thinking_signature: str | None = None
    redacted: bool = False
    extra: Json | None = None


@dataclass(frozen=True, slots=True, repr=False)
class ToolCall(Brief):
    """A request by the model to run a tool. `arguments` is always an object, never text."""

    id: str
    name: str
    arguments: Json
    thought_signature: str | None = None
    namespace: str | None = None
    extra: Json | None = None


@dataclass(frozen=True, slots=True, repr=False)
class UnknownContent(Brief):
    """A block of a type this version does not know, kept whole."""

    type: str
    raw: Json


Content: TypeAlias = TextContent | ImageContent | ThinkingContent | ToolCall | UnknownContent


@dataclass(frozen=True, slots=True, repr=False)
class Cost(Shown):
    """US dollars."""

    input: float = 0.0
    output: float = 0.0
    cache_read: float = 0.0
    cache_write: float = 0.0
    total: float = 0.0
    extra: Json | None = None

    @override
    def _line(self) -> str:
        return f"${self.total:.4f}"


@dataclass(frozen=True, slots=True, repr=False)
class Usage(Shown):
    """Tokens of one request, in disjoint parts.

    `input` is what was neither read from nor written to a cache; `output` includes reasoning.
    `estimated` says that the provider reported nothing (the numbers are then zero or an estimate, and
    are never taken for a measurement). `cost` is None where the price is unknown.
    `reported_total` is the log's own `totalTokens` where that is not the sum of the parts.
    """

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    cost: Cost | None = None
    estimated: bool = False
    reported_total: int | None = None
    extra: Json | None = None

    @property
    def total_tokens(self) -> int:
        """What the request and its answer occupy in the window."""
        if self.reported_total is not None:
            return self.reported_total
        return self.input + self.output + self.cache_read + self.cache_write

    @property
    def is_reported(self) -> bool:
        return not self.estimated and self.total_tokens > 0

    @override
    def _line(self) -> str:
        parts = {"input": self.input, "cache read": self.cache_read, "cache write": self.cache_write}
        shown = ", ".join(f"{tokens:,} {name}" for name, tokens in {**parts, "output": self.output}.items() if tokens)
        money = f", ${self.cost.total:.4f}" if self.cost is not None else ""
        source = ", estimated" if self.estimated else ""
        return f"{self.total_tokens:,} tokens{f' ({shown})' if shown else ''}{source}{money}"


UNREPORTED = Usage(estimated=True)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class UserMessage(Shown):
    """What a person, or a program in their place, said."""

    content: tuple[Content, ...]
    timestamp: int = 0
    extra: Json | None = None

    @property
    def text(self) -> str:
        return text_of(self.content)

    @override
    def _line(self) -> str:
        return quoted(self.text)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class AssistantMessage(Shown):
    """An answer of a model. `stop_reason`: stop, length, toolUse, error, aborted, or one to come."""

    content: tuple[Content, ...]
    api: str = ""
    provider: str = ""
    model: str = ""
    usage: Usage = UNREPORTED
    stop_reason: str = "stop"
    error_message: str | None = None
    response_id: str | None = None
    thinking_level: str | None = None
    timestamp: int = 0
    extra: Json | None = None

    @property
    def text(self) -> str:
        return text_of(self.content)

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        return tuple([block for block in self.content if isinstance(block, ToolCall)])

    @property
    def is_failed(self) -> bool:
        """Ended `error` or `aborted`: kept in the log, never sent."""
        return self.stop_reason in ("error", "aborted")

    @override
    def __str__(self) -> str:
        return self.text

    @override
    def _line(self) -> str:
        source = "/".join(part for part in (self.provider, self.model) if part)
        calls = f", calls {', '.join(call.name for call in self.tool_calls)}" if self.tool_calls else ""
        why = f", {one_line(self.error_message)}" if self.error_message else ""
        return f"{self.stop_reason}{f', {source}' if source else ''}{calls}{why}: {quoted(self.text)}"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ToolResultMessage(Shown):
    """The result of one tool call, failed ones included. `details` is for programs and people, never sent."""

    tool_call_id: str
    tool_name: str
    content: tuple[Content, ...]
    is_error: bool = False
    details: Any = None
    usage: Usage | None = None
    timestamp: int = 0
    extra: Json | None = None

    @property
    def text(self) -> str:
        return text_of(self.content)

    @override
    def _line(self) -> str:
        return f"{self.tool_name}{' failed' if self.is_error else ''}: {quoted(self.text)}"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class BashExecutionMessage(Shown):
    """A command the user ran; shown to the model unless `exclude_from_context`."""

    command: str
    output: str
    exit_code: int | None = None
    cancelled: bool = False
    truncated: bool = False
    full_output_path: str | None = None
    exclude_from_context: bool = False
    timestamp: int = 0
    extra: Json | None = None

    @override
    def _line(self) -> str:
        return f"{quoted(self.command)}, exit code {self.exit_code}"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class CustomMessage(Shown):
    """A message of an extension, shown to the model as the user's."""

    custom_type: str
    content: tuple[Content, ...]
    display: bool = True
    details: Any = None
    timestamp: int = 0
    extra: Json | None = None

    @property
    def text(self) -> str:
        return text_of(self.content)

    @override
    def _line(self) -> str:
        return f"{self.custom_type}: {quoted(self.text)}"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SystemMessage(Shown):
    """Found in other programs' files; kept and projected, never sent, counted, summarised or cut at."""

    content: tuple[Content, ...]
    sections: Json | None = None
    tools_added: tuple[Any, ...] = ()
    tools_removed: tuple[Any, ...] = ()
    timestamp: int = 0
    extra: Json | None = None

    @override
    def _line(self) -> str:
        return quoted(text_of(self.content))


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class BranchSummaryMessage(Shown):
    """The summary of a branch that was left at the entry `from_id`."""

    summary: str
    from_id: str | None = None
    timestamp: int = 0
    extra: Json | None = None

    @override
    def _line(self) -> str:
        return quoted(self.summary)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class CompactionSummaryMessage(Shown):
    """The summary that stands for everything before a compaction's boundary."""

    summary: str
    tokens_before: int = 0
    timestamp: int = 0
    extra: Json | None = None

    @override
    def _line(self) -> str:
        return f"{self.tokens_before:,} tokens became {quoted(self.summary)}"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class UnknownMessage(Shown):
    """A message with a role this version does not know, kept whole, never sent."""

    role: str
    raw: Json

    @override
    def _line(self) -> str:
        return one_line(self.role)


Message: TypeAlias = (
    UserMessage
    | AssistantMessage
    | ToolResultMessage
    | BashExecutionMessage
    | CustomMessage
    | SystemMessage
    | BranchSummaryMessage
    | CompactionSummaryMessage
    | UnknownMessage
)


def text_of(content: Iterable[Content]) -> str:
    """The text blocks, one after the other; thinking, calls and images left out."""
    return "".join(block.text for block in content if isinstance(block, TextContent))


def as_content(value: str | Content | Sequence[Content]) -> tuple[Content, ...]:
    """A string becomes one text block; a block or blocks stay what they are."""
    if isinstance(value, str):
        return (TextContent(value),)
    if isinstance(value, (TextContent, ImageContent, ThinkingContent, ToolCall, UnknownContent)):
        return (value,)
    return tuple(value)
