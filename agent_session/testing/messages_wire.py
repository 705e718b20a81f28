"""How a scripted answer looks on the wire: Anthropic's messages, streamed, and what that service refuses.

The counterpart of `llm.anthropic_stream`. Thinking is signed, and only what was signed here is taken back.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from agent_session.llm.client import TextDelta, ThinkingDelta
from agent_session.llm.payload import encode, encode_text, encode_value
from agent_session.testing.messages_rules import blocks_of, messages_fault
from agent_session.testing.recording import RecordedRequest
from agent_session.testing.script import Answer, Delta, Refusal
from session_store.messages import Usage

PATH = "/messages"

# A script says why an answer ends in the words of chat completions; other words go out as they are.
_STOP_REASONS: Final = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "content_filter": "refusal",
}
_ERROR_TYPES: Final = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}


def answer_events(answer: Answer, request: RecordedRequest, call_ids: Iterator[str]) -> Iterator[bytes]:
    """The events of an answer: one for each delta, and those around a block and the whole. Nothing is sent for `hang`
    before its first delta.

    Args:
        answer: what the script says.
        request: what it answers.
        call_ids: an id for each call.
    """
    deltas = answer.deltas(call_ids)
    usage = answer.reported(request) if answer.ending == "finish" else None
    if deltas or answer.ending not in ("hang", "error"):
        start = {
            "id": f"msg_{request.number}",
            "type": "message",
            "role": "assistant",
            "model": request.payload.get("model"),
        }
        counts = _counts(usage or Usage())
        yield _event("message_start", message={**start, "content": [], "stop_reason": None, "usage": counts})
        yield _event("ping")
    thought = ""
    for position, delta in enumerate(deltas):
        if position == 0 or deltas[position - 1].index != delta.index:
            yield _event("content_block_start", index=delta.index, content_block=_opening(delta))
        thought = thought + delta.thinking if isinstance(delta, ThinkingDelta) else ""
        yield _event("content_block_delta", index=delta.index, delta=_delta(delta))
        is_last = position == len(deltas) - 1
        if not is_last and deltas[position + 1].index == delta.index:
            continue
        if isinstance(delta, ThinkingDelta):
            signed = {"type": "signature_delta", "signature": signature_of(thought)}
            yield _event("content_block_delta", index=delta.index, delta=signed)
        if not is_last or answer.ending == "finish":
            yield _event("content_block_stop", index=delta.index)
    if answer.ending == "error":
        yield b"event: error\ndata: " + encode_value(answer.error) + b"\n\n"
    if answer.ending == "finish":
        reason = _STOP_REASONS.get(answer.finish, answer.finish)
        counts = {"output_tokens": usage.output if usage is not None else 0}
        yield _event("message_delta", delta={"stop_reason": reason, "stop_sequence": None}, usage=counts)
        yield _event("message_stop")


def signature_of(thinking: str) -> str:
    """What vouches for a text that this provider has thought."""
    return f"signed-{hashlib.sha256(thinking.encode()).hexdigest()[:24]}"


def error_body(refusal: Refusal) -> bytes:
    """The body of an error status: the step's own, else the error object as Anthropic writes it."""
    if isinstance(refusal.body, str):
        return refusal.body.encode()
    if refusal.body is not None:
        return encode_value(refusal.body)
    sort = refusal.code or _ERROR_TYPES.get(refusal.status, "api_error")
    return encode({"type": "error", "error": {"type": sort, "message": refusal.text}})


def refusal_of(request: RecordedRequest, context_window: int | None) -> Refusal | None:
    """The refusal of a request that is too large or out of order, in Anthropic's words; None for one in order."""
    if (fault := _fault(request)) is not None:
        return Refusal(status=400, text=fault)
    if context_window is not None and (tokens := request.tokens) > context_window:
        return Refusal(status=400, text=f"prompt is too long: {tokens} tokens > {context_window} maximum")
    return None


def as_chat(payload: Mapping[str, Any]) -> dict[str, Any]:
    """The same request in the form of chat completions, for those who read requests whatever their format."""
    messages: list[dict[str, Any]] = []
    if system := payload.get("system"):
        messages.append({"role": "system", "content": _joined(blocks_of(system))})
    for message in payload.get("messages", ()):
        messages.extend(_chat_messages(message))
    chat: dict[str, Any] = {"model": payload.get("model"), "messages": messages}
    if tools := payload.get("tools"):
        chat["tools"] = [
            {
                "type": "function",
                "function": {
                    "name": tool.get("name"),
                    "description": tool.get("description"),
                    "parameters": tool.get("input_schema"),
                },
            }
            for tool in tools
        ]
    if (payload.get("tool_choice") or {}).get("type") == "none":
        chat["tool_choice"] = "none"
    return chat


def _event(name: str, **fields: Any) -> bytes:
    return f"event: {name}\ndata: ".encode() + encode({"type": name, **fields}) + b"\n\n"


def _opening(delta: Delta) -> dict[str, Any]:
    """The block that a first delta opens, empty."""
    if isinstance(delta, TextDelta):
        return {"type": "text", "text": ""}
    if isinstance(delta, ThinkingDelta):
        return {"type": "thinking", "thinking": "", "signature": ""}
    return {"type": "tool_use", "id": delta.id, "name": delta.name, "input": {}}


def _delta(delta: Delta) -> dict[str, Any]:
    if isinstance(delta, TextDelta):
        return {"type": "text_delta", "text": delta.text}
    if isinstance(delta, ThinkingDelta):
        return {"type": "thinking_delta", "thinking": delta.thinking}
    return {"type": "input_json_delta", "partial_json": delta.arguments}


def _counts(usage: Usage) -> dict[str, int]:
    """At the beginning the input is known, and of the output one token."""
    return {
        "input_tokens": usage.input,
        "cache_read_input_tokens": usage.cache_read,
        "cache_creation_input_tokens": usage.cache_write,
        "output_tokens": min(1, usage.output),
    }


def _fault(request: RecordedRequest) -> str | None:
    if "anthropic-version" not in request.headers:
        return "anthropic-version: header is required"
    return messages_fault(request.payload, is_signed=lambda thought, signature: signature == signature_of(thought))


def _chat_messages(message: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    blocks = blocks_of(message.get("content"))
    if message.get("role") == "assistant":
        converted: dict[str, Any] = {"role": "assistant", "content": _joined(blocks)}
        calls = [
            {
                "id": block.get("id"),
                "type": "function",
                "function": {"name": block.get("name"), "arguments": encode_text(block.get("input"))},
            }
            for block in blocks
            if block.get("type") == "tool_use"
        ]
        yield converted | ({"tool_calls": calls} if calls else {})
        return
    parts: list[dict[str, Any]] = []
    for block in blocks:
        if block.get("type") == "tool_result":
            inside = blocks_of(block.get("content"))
            yield {"role": "tool", "tool_call_id": block.get("tool_use_id"), "content": _joined(inside)}
            parts.extend({"type": "image_url"} for part in inside if part.get("type") == "image")
        elif block.get("type") == "image":
            parts.append({"type": "image_url"})
        else:
            parts.append({"type": "text", "text": block.get("text", "")})
    if parts:
        yield {"role": "user", "content": parts}


def _joined(blocks: Sequence[Mapping[str, Any]]) -> str:
    return "\n".join(block.get("text", "") for block in blocks if block.get("type") == "text")
