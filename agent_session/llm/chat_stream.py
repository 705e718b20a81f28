"""The chat-completions stream, chunk by chunk, as neutral events. Pure: bytes were read elsewhere.

What servers do differently is evened out here: tool calls whose indexes are missing or all the same, ids that come
late, reasoning under several names, its signatures beside it, content as parts, usage in any chunk, a whole message
instead of deltas.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

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
class _OpenCall:
    """A tool call that is still streaming: where its pieces go, and what is known of it."""

    index: int
    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list)

    def is_whole(self) -> bool:
        try:
            return isinstance(orjson.loads("".join(self.arguments)), dict)
        except orjson.JSONDecodeError:
            return False


@dataclass(slots=True)
class ChatStream:
    """One answer. `finish_reason` is the provider's word once it came, None before."""

    finish_reason: str | None = None
    _next_index: int = 0
    _open_kind: str = ""
    _open_index: int = 0
    _calls: dict[int, _OpenCall] = field(default_factory=dict)
    _last_call: _OpenCall | None = None
    _response_id: str | None = None

    def events(self, data: Mapping[str, Any]) -> Iterator[StreamEvent]:
        """The events of one chunk, in order; the final one is `finish()`'s."""
        response_id = data.get("id")
        if self._response_id is None and isinstance(response_id, str) and response_id:
            self._response_id = response_id
            yield ResponseId(response_id)
        usage = data.get("usage")
        choices = data.get("choices")
        if isinstance(choices, list) and choices and isinstance(choices[0], dict):
            choice = choices[0]
            usage = usage or choice.get("usage")
            delta = choice.get("delta") or choice.get("message")
            if isinstance(delta, dict):
                yield from self._delta(delta)
            reason = choice.get("finish_reason")
            if isinstance(reason, str) and reason:
                self.finish_reason = reason
        if isinstance(usage, dict):
            yield UsageReport(usage_from(usage))

    def whole(self, data: Mapping[str, Any]) -> Iterator[StreamEvent]:
        """The same for an answer in one piece: a chunk whose delta is the whole message."""
        return self.events(data)

    def finish(self) -> Finish:
        """The final event, to be given once, when nothing more comes."""
        raw = self.finish_reason or ""
        return Finish(stop_reason_for(raw, has_tool_calls=self._last_call is not None), raw)

    def _delta(self, delta: dict[str, Any]) -> Iterator[StreamEvent]:
        reasoning = delta.get("reasoning_content") or delta.get("reasoning")
        if isinstance(reasoning, str) and reasoning:
            yield ThinkingDelta(self._block("thinking"), reasoning)
        blocks = delta.get("thinking_blocks")
        for block in blocks if isinstance(blocks, list) else ():
            if isinstance(block, dict):
                yield from self._signature(block)
        content = delta.get("content")
        for part in content if isinstance(content, list) else (content,):
            yield from self._part(part)
        refusal = delta.get("refusal")
        if isinstance(refusal, str) and refusal:
            yield TextDelta(self._block("text"), refusal)
        calls = delta.get("tool_calls")
        for piece in calls if isinstance(calls, list) else ():
            if isinstance(piece, dict):
                yield self._call(piece)
        if isinstance(function := delta.get("function_call"), dict):  # the form before there were several calls
            yield self._call({"index": 0, "function": function})

    def _signature(self, block: Mapping[str, Any]) -> Iterator[StreamEvent]:
        """What vouches for thinking; its text came as reasoning. It ends the block, so that no two share one."""
        if redacted := _text(block.get("data")):
            yield ThinkingDelta(self._take_index(), signature=redacted, redacted=True)
        elif signature := _text(block.get("signature")):
            yield ThinkingDelta(self._block("thinking"), signature=signature)
        else:
            return
        self._open_kind = ""

    def _part(self, part: Any) -> Iterator[StreamEvent]:
        if isinstance(part, str):
            if part:
                yield TextDelta(self._block("text"), part)
        elif isinstance(part, dict) and part.get("type") == "thinking":
            thinking = part.get("thinking")
            pieces = thinking if isinstance(thinking, list) else [thinking]
            thought = "".join(_text(piece.get("text") if isinstance(piece, dict) else piece) for piece in pieces)
            if thought:
                yield ThinkingDelta(self._block("thinking"), thought)
        elif isinstance(part, dict):
            yield from self._part(_text(part.get("text")))

    def _block(self, kind: str) -> int:
        """The index of the open block of this kind; a change of kind opens the next one."""
        if self._open_kind != kind:
            self._open_kind = kind
            self._open_index = self._take_index()
        return self._open_index

    def _take_index(self) -> int:
        index = self._next_index
        self._next_index += 1
        return index

    def _call(self, piece: Mapping[str, Any]) -> ToolCallDelta:
        function = piece.get("function")
        function = function if isinstance(function, dict) else {}
        call_id, name, arguments = _text(piece.get("id")), _text(function.get("name")), function.get("arguments")
        text = arguments if isinstance(arguments, str) else "" if arguments is None else encode_text(arguments)
        slot = piece.get("index")
        call = self._calls.get(slot) if isinstance(slot, int) else self._last_call
        if call is None or _begins_another(call, call_id, name):
            self._open_kind = "call"
            call = self._last_call = _OpenCall(self._take_index())
        if isinstance(slot, int):
            self._calls[slot] = call
        call.id = call.id or call_id
        call.name = call.name or name
        call.arguments.append(text)
        own = piece.get("provider_specific_fields") or function.get("provider_specific_fields")
        signature = _text(own.get("thought_signature")) if isinstance(own, dict) else ""
        return ToolCallDelta(call.index, call_id or None, name or None, text, signature or None)


def _begins_another(call: _OpenCall, call_id: str, name: str) -> bool:
    """Whether a piece under the same index (or under none) belongs to a new call.

    Another id together with a name does, and so does a name alone once the arguments are whole. A server that repeats
    id or name with each piece does not.
    """
    if call_id and call.id:
        return call_id != call.id and bool(name)
    return bool(name) and bool(call.name) and call.is_whole()


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
