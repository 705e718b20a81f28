"""The stream of Anthropic's messages, event by event, as neutral events. Pure: bytes were read elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from agent_session.llm.client import (
    Finish,
    ResponseId,
    StreamEvent,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    UsageReport,
)
from agent_session.llm.finish import stop_reason_for
from agent_session.llm.payload import encode_text
from agent_session.llm.usage import usage_from


@dataclass(slots=True)
class MessagesStream:
    """One answer. `finish_reason` is the provider's word once it came, None before.

    The counts of the first event are brought up to date by those of the later ones, which name only some of them.
    """

    finish_reason: str | None = None
    _counts: dict[str, Any] = field(default_factory=dict)
    _whole_inputs: dict[int, str] = field(default_factory=dict)
    _has_calls: bool = False

    def events(self, data: Mapping[str, Any]) -> Iterator[StreamEvent]:
        """What one event of the stream says, in order; the final event is `finish()`'s."""
        index = data.get("index")
        index = index if isinstance(index, int) else 0
        match data.get("type"):
            case "message_start":
                yield from self._start(_section(data, "message"))
            case "content_block_start":
                yield from self._begin(index, _section(data, "content_block"))
            case "content_block_delta":
                yield from self._delta(index, _section(data, "delta"))
            case "content_block_stop":
                if arguments := self._whole_inputs.pop(index, None):
                    yield ToolCallDelta(index, arguments=arguments)
            case "message_delta":
                yield from self._end(_section(data, "delta"), _section(data, "usage"))
            case "message_stop":
                self.finish_reason = self.finish_reason or ""
            case _:
                pass  # pings, and what is still to come

    def whole(self, data: Mapping[str, Any]) -> Iterator[StreamEvent]:
        """The same for an answer in one piece, from a server that was asked to stream and does not."""
        blocks = data.get("content")
        if not isinstance(blocks, list):
            return  # no message: the answer has not ended, since it never began
        yield from self._start(data)
        for index, block in enumerate(blocks):
            yield from self.events({"type": "content_block_start", "index": index, "content_block": block})
            yield from self.events({"type": "content_block_stop", "index": index})
        yield from self._end(data, {})
        self.finish_reason = self.finish_reason or ""

    def finish(self) -> Finish:
        """The final event, to be given once, when nothing more comes."""
        raw = self.finish_reason or ""
        return Finish(stop_reason_for(raw, has_tool_calls=self._has_calls), raw)

    def _start(self, message: Mapping[str, Any]) -> Iterator[StreamEvent]:
        if response_id := _text(message, "id"):
            yield ResponseId(response_id)
        yield from self._report(_section(message, "usage"))

    def _begin(self, index: int, block: Mapping[str, Any]) -> Iterator[StreamEvent]:
        match block.get("type"):
            case "text":
                if text := _text(block, "text"):
                    yield TextDelta(index, text)
            case "thinking":
                thinking, signature = _text(block, "thinking"), _text(block, "signature")
                if thinking or signature:
                    yield ThinkingDelta(index, thinking, signature or None)
            case "redacted_thinking":
                yield ThinkingDelta(index, signature=_text(block, "data"), redacted=True)
            case "tool_use":
                self._has_calls = True
                if given := _section(block, "input"):
                    self._whole_inputs[index] = encode_text(given)
                yield ToolCallDelta(index, _text(block, "id") or None, _text(block, "name") or None)
            case _:
                pass  # the provider's own tools, which nobody here asks for

    def _delta(self, index: int, delta: Mapping[str, Any]) -> Iterator[StreamEvent]:
        match delta.get("type"):
            case "text_delta":
                if text := _text(delta, "text"):
                    yield TextDelta(index, text)
            case "thinking_delta":
                if thinking := _text(delta, "thinking"):
                    yield ThinkingDelta(index, thinking)
            case "signature_delta":
                if signature := _text(delta, "signature"):
                    yield ThinkingDelta(index, signature=signature)
            case "input_json_delta":
                if arguments := _text(delta, "partial_json"):
                    self._whole_inputs.pop(index, None)  # what streams is the whole
                    yield ToolCallDelta(index, arguments=arguments)
            case _:
                pass  # citations

    def _end(self, delta: Mapping[str, Any], counts: Mapping[str, Any]) -> Iterator[StreamEvent]:
        self.finish_reason = _text(delta, "stop_reason") or self.finish_reason
        yield from self._report(counts)

    def _report(self, counts: Mapping[str, Any]) -> Iterator[StreamEvent]:
        """Later counts win, but for zeros: some servers send those where they have nothing to say."""
        given = {name: count for name, count in counts.items() if count or name not in self._counts}
        if given:
            self._counts |= given
            yield UsageReport(usage_from(self._counts))


def _section(data: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = data.get(key)
    return value if isinstance(value, dict) else {}


def _text(data: Mapping[str, Any], key: str) -> str:
    value = data.get(key)
    return value if isinstance(value, str) else ""
