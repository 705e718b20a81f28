"""From stream events to a message, for every client the same way.

Pieces are collected by content index and joined when a message is asked for. A message can be asked for at
any time, so that what had streamed before a cut or an abort is kept. `ToolCall.arguments` is always an
object: text that is no JSON object becomes `{}` with the text itself in `extra["rawArguments"]`, so that
nothing later stumbles over it and whoever runs tools can refuse the call.
"""

from __future__ import annotations

import json
import re
import time
import uuid
from dataclasses import dataclass, field
from typing import Any, assert_never

import orjson

from agent_session.llm.client import (
    Finish,
    ModelRequest,
    ResponseId,
    StreamEvent,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    UsageReport,
)
from session_store.messages import (
    UNREPORTED,
    AssistantMessage,
    Content,
    Json,
    TextContent,
    ThinkingContent,
    ToolCall,
    Usage,
)

RAW_ARGUMENTS = "rawArguments"
"""The key in `ToolCall.extra` under which arguments that are no JSON object are kept as text."""

_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(slots=True)
class _Text:
    pieces: list[str] = field(default_factory=list)

    def block(self) -> Content | None:
        text = _whole("".join(self.pieces))
        return TextContent(text) if text else None


@dataclass(slots=True)
class _Thinking:
    pieces: list[str] = field(default_factory=list)
    signature: list[str] = field(default_factory=list)
    redacted: bool = False

    def block(self) -> Content | None:
        thinking = _whole("".join(self.pieces))
        signature = "".join(self.signature) or None
        if not thinking and signature is None:
            return None
        return ThinkingContent(thinking, signature, self.redacted)


@dataclass(slots=True)
class _Call:
    fallback_id: str
    id: str | None = None
    name: str = ""
    pieces: list[str] = field(default_factory=list)
    signature: str | None = None

    def block(self, taken: set[str]) -> Content:
        """`taken` are the ids of the calls before this one: a repeated id would answer two calls at once."""
        call_id = self.id if self.id and self.id not in taken else self.fallback_id
        taken.add(call_id)
        arguments, extra = parsed_arguments("".join(self.pieces))
        return ToolCall(call_id, self.name, arguments, thought_signature=self.signature, extra=extra)


class MessageBuilder:
    """Collects one answer. `timestamp` is Unix milliseconds, by default now."""

    def __init__(self, request: ModelRequest, api: str, *, timestamp: int | None = None) -> None:
        self._request = request
        self._api = api
        self._timestamp = int(time.time() * 1000) if timestamp is None else timestamp
        self._blocks: dict[int, _Text | _Thinking | _Call] = {}
        self._usage: Usage = UNREPORTED
        self._response_id: str | None = None
        self.finish: Finish | None = None

    @property
    def is_empty(self) -> bool:
        """Whether no block has begun."""
        return not self._blocks

    def add(self, event: StreamEvent) -> None:
        """Take the next event, in the order in which they streamed."""
        match event:
            case TextDelta(index, text):
                block = self._blocks.setdefault(index, _Text())
                if isinstance(block, _Text):
                    block.pieces.append(text)
            case ThinkingDelta(index, thinking, signature, redacted):
                block = self._blocks.setdefault(index, _Thinking())
                if isinstance(block, _Thinking):
                    block.pieces.append(thinking)
                    block.redacted = block.redacted or redacted
                    if signature:
                        block.signature.append(signature)
            case ToolCallDelta():
                self._add_call(event)
            case UsageReport(usage):
                self._usage = usage
            case ResponseId(response_id):
                self._response_id = response_id
            case Finish():
                self.finish = event
            case _:
                assert_never(event)

    def message(self, stop_reason: str | None = None, error_message: str | None = None) -> AssistantMessage:
        """What has streamed so far, as a message.

        `stop_reason` None takes the stream's own, or `stop` where it has not finished. The usage carries its
        cost where the model's price is known.
        """
        model = self._request.model
        return AssistantMessage(
            content=self._content(),
            api=self._api,
            provider=model.provider,
            model=model.name,
            usage=self._usage if self._usage.estimated else model.priced(self._usage),
            stop_reason=stop_reason or (self.finish.stop_reason if self.finish is not None else "stop"),
            error_message=error_message,
            response_id=self._response_id,
            thinking_level=self._request.thinking_level,
            timestamp=self._timestamp,
        )

    def _add_call(self, delta: ToolCallDelta) -> None:
        block = self._blocks.get(delta.index)
        if block is None:
            block = self._blocks[delta.index] = _Call(fallback_id=f"call_{uuid.uuid4().hex[:24]}")
        if isinstance(block, _Call):
            block.id = block.id or delta.id
            block.name = block.name or delta.name or ""
            block.signature = delta.thought_signature or block.signature
            if delta.arguments:
                block.pieces.append(delta.arguments)

    def _content(self) -> tuple[Content, ...]:
        taken: set[str] = set()
        content: list[Content] = []
        for index in sorted(self._blocks):
            collected = self._blocks[index]
            block = collected.block(taken) if isinstance(collected, _Call) else collected.block()
            if block is not None:
                content.append(block)
        return tuple(content)


def parsed_arguments(text: str) -> tuple[Json, Json | None]:
    """The arguments object in `text`, and what to keep beside it (None, or the raw text)."""
    if not text.strip():
        return {}, None
    value = _decoded(text)
    if isinstance(value, dict):
        return value, None
    return {}, {RAW_ARGUMENTS: _whole(text)}


def _decoded(text: str) -> Any:
    """JSON as models write it: strictly first, then with raw control characters and lone surrogates allowed."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        pass
    try:
        value = json.loads(text, strict=False, parse_constant=_refuse_constant)
        return orjson.loads(_whole(json.dumps(value, ensure_ascii=False)))
    except (ValueError, RecursionError):
        return None


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _whole(text: str) -> str:
    """`text` with surrogate pairs joined, also such as came in two pieces, and lone surrogates as U+FFFD."""
    if text.isascii() or _SURROGATE.search(text) is None:
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
