"""What the runtime asks of a model client, and what streams back.

A client turns a `ModelRequest` into the provider's payload (`prepare`, pure) and sends it (`stream`). The
two are apart so that extensions may see and replace the payload, and so that tests can compare the bytes
of two requests. What comes back is neutral: deltas by content index, usage, and one final `Finish`.
`llm.builder.MessageBuilder` makes a message of them, for every client the same way.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias

from agent_session.models import Model
from session_store.messages import Message, Usage
from session_store.showing import Brief

ThinkingLevel: TypeAlias = Literal["off", "minimal", "low", "medium", "high", "xhigh", "max"]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ToolDefinition(Brief):
    """What a model is told of a tool. `parameters` is a JSON schema of type object."""

    name: str
    description: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ModelRequest(Brief):
    """One request. `messages` are what this model may be sent (`handover.hand_over`), in order; the client writes them.

    `tool_choice` "none" declares the tools and forbids their use. `max_output_tokens` None leaves it to
    the provider. `api_key` is resolved anew for each request and never part of the payload. `overflow_patterns` are
    texts that the session knows to say "too long", beside those that the client knows.
    """

    model: Model
    messages: Sequence[Message]
    system_prompt: str = ""
    tools: Sequence[ToolDefinition] = ()
    tool_choice: Literal["auto", "none"] = "auto"
    thinking_level: ThinkingLevel = "off"
    max_output_tokens: int | None = None
    session_id: str | None = None
    api_key: str | None = field(default=None, repr=False)
    silence_seconds: float = 300.0
    overflow_patterns: Sequence[re.Pattern[str]] = ()


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class PreparedRequest(Brief):
    """The provider's payload and headers, credentials not among them."""

    request: ModelRequest
    payload: dict[str, Any]
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, repr=False)
class TextDelta(Brief):
    """The next piece of the text block at `index`."""

    index: int
    text: str


@dataclass(frozen=True, slots=True, repr=False)
class ThinkingDelta(Brief):
    """The next piece of the thinking block at `index`; `signature` is the provider's own opaque text."""

    index: int
    thinking: str = ""
    signature: str | None = None
    redacted: bool = False


@dataclass(frozen=True, slots=True, repr=False)
class ToolCallDelta(Brief):
    """`arguments` is the next piece of the JSON text."""

    index: int
    id: str | None = None
    name: str | None = None
    arguments: str = ""
    thought_signature: str | None = None


@dataclass(frozen=True, slots=True, repr=False)
class UsageReport(Brief):
    """What the request has taken so far; the last report of a stream counts."""

    usage: Usage


@dataclass(frozen=True, slots=True, repr=False)
class ResponseId(Brief):
    """The provider's own name for the answer."""

    response_id: str


@dataclass(frozen=True, slots=True, repr=False)
class Finish(Brief):
    """The terminal event. `stop_reason` in the log's words, `raw` in the provider's."""

    stop_reason: str
    raw: str = ""


StreamEvent: TypeAlias = TextDelta | ThinkingDelta | ToolCallDelta | UsageReport | ResponseId | Finish


class ModelClient(Protocol):
    """A provider, or a family that speaks one wire format.

    A client holds no state of a session and may serve several at once.
    """

    @property
    def api(self) -> str:
        """The wire format's name as it is logged, e.g. `openai-completions`."""
        ...

    def prepare(self, request: ModelRequest) -> PreparedRequest:
        """The payload for this request. Pure: equal requests give equal payloads."""
        ...

    def stream(self, prepared: PreparedRequest) -> AbstractAsyncContextManager[AsyncIterator[StreamEvent]]:
        """Send it. Entering the block opens the connection, leaving it closes it, whatever happened.

        A stream that ends normally ends with exactly one `Finish`.

        Raises:
            ModelError: on entering or while iterating; `kind` says which sort. A stream that breaks off
                before its final event raises one with kind `stream_cut`, silence longer than
                `request.silence_seconds` one with kind `silence`.
        """
        ...

    async def aclose(self) -> None:
        """Close pooled connections."""
        ...
