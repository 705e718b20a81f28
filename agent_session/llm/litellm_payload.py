"""From a request to what litellm is called with: chat completions, and what litellm adds to them. Pure."""

from __future__ import annotations

from typing import Any, Final

from agent_session.llm.client import ModelRequest
from agent_session.llm.convert import as_model_messages, chat_payload
from agent_session.llm.payload import readable
from session_store.messages import AssistantMessage, Json, ThinkingContent

API: Final = "litellm"
"""The wire format's name, as it is logged: litellm decides which it really is."""

_HIGHEST_EFFORT_OF_ALL = "high"


def litellm_payload(request: ModelRequest) -> dict[str, Any]:
    """The arguments of a completion. Signatures go back: those of calls always, thinking where the request asks for it,
    since Anthropic refuses it otherwise.

    Reasoning effort goes up to what litellm takes for every provider; it refuses more for some.
    """
    payload = chat_payload(request)
    payload["model"] = request.model.id
    if payload.get("reasoning_effort") == "xhigh":
        payload["reasoning_effort"] = _HIGHEST_EFFORT_OF_ALL
    answers = [message for message in as_model_messages(request.messages) if isinstance(message, AssistantMessage)]
    written = [message for message in payload["messages"] if message["role"] == "assistant"]
    for answer, message in zip(answers, written, strict=True):
        _add_signatures(message, answer, thinks="reasoning_effort" in payload)
    return readable(payload)


def _add_signatures(message: dict[str, Any], answer: AssistantMessage, *, thinks: bool) -> None:
    blocks = [
        _thinking_block(block)
        for block in answer.content
        if isinstance(block, ThinkingContent) and block.thinking_signature
    ]
    if blocks and thinks:
        message["thinking_blocks"] = blocks
    for call, written in zip(answer.tool_calls, message.get("tool_calls", ()), strict=True):
        if call.thought_signature:
            written["provider_specific_fields"] = {"thought_signature": call.thought_signature}


def _thinking_block(block: ThinkingContent) -> Json:
    if block.redacted:
        return {"type": "redacted_thinking", "data": block.thinking_signature}
    return {"type": "thinking", "thinking": block.thinking, "signature": block.thinking_signature}
