"""How a scripted answer looks on the wire: chat completions, streamed. The counterpart of `llm.chat_stream`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from agent_session.llm.client import TextDelta, ThinkingDelta
from agent_session.llm.payload import encode, encode_value
from agent_session.testing.recording import RecordedRequest
from agent_session.testing.script import Answer, Delta
from session_store.messages import Usage

PATH = "/chat/completions"


def answer_events(answer: Answer, request: RecordedRequest, call_ids: Iterator[str]) -> Iterator[bytes]:
    """The events of an answer, one for each delta, then those of its ending. Nothing is sent for `hang`.

    Usage goes out where the request asked for it, in a chunk of its own behind the finish reason.
    """
    frame = {
        "id": f"chatcmpl-{request.number}",
        "object": "chat.completion.chunk",
        "created": 0,
        "model": request.payload.get("model"),
    }
    first_call_index: int | None = None
    for delta in answer.deltas(call_ids):
        if first_call_index is None and not isinstance(delta, TextDelta | ThinkingDelta):
            first_call_index = delta.index
        yield _event({**frame, "choices": [_choice(_delta(delta, first_call_index or 0))]})
    if answer.ending == "error":
        yield b"data: " + encode_value(answer.error) + b"\n\n"
    if answer.ending != "finish":
        return
    yield _event({**frame, "choices": [_choice({}, finish_reason=answer.finish)]})
    usage = answer.reported(request)
    asked = request.payload.get("stream_options") or {}
    if usage is not None and asked.get("include_usage"):
        yield _event({**frame, "choices": [], "usage": _usage(usage)})
    yield b"data: [DONE]\n\n"


def _event(chunk: Mapping[str, Any]) -> bytes:
    return b"data: " + encode(chunk) + b"\n\n"


def _choice(delta: Mapping[str, Any], *, finish_reason: str | None = None) -> dict[str, Any]:
    return {"index": 0, "delta": delta, "finish_reason": finish_reason}


def _delta(delta: Delta, first_call_index: int) -> dict[str, Any]:
    """Calls are numbered from 0 on the wire, whatever blocks came before them."""
    if isinstance(delta, TextDelta):
        return {"content": delta.text}
    if isinstance(delta, ThinkingDelta):
        return {"reasoning_content": delta.thinking}
    piece: dict[str, Any] = {"index": delta.index - first_call_index}
    if delta.id is not None:
        piece |= {"id": delta.id, "type": "function"}
    function = {"arguments": delta.arguments}
    if delta.name is not None:
        function = {"name": delta.name, **function}
    return {"tool_calls": [{**piece, "function": function}]}


def _usage(usage: Usage) -> dict[str, Any]:
    """The parts put together as this format has them: input with what was cached."""
    given = usage.input + usage.cache_read + usage.cache_write
    return {
        "prompt_tokens": given,
        "completion_tokens": usage.output,
        "total_tokens": given + usage.output,
        "prompt_tokens_details": {"cached_tokens": usage.cache_read, "cache_write_tokens": usage.cache_write},
    }
