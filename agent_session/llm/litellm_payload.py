"""From a request to what litellm is called with: chat completions, and what litellm adds to them. Pure."""

from __future__ import annotations

from typing import Any, Final

from agent_session.llm.client import ModelRequest
from agent_session.llm.convert import as_model_messages, chat_payload
from agent_session.models import Model
from session_store.messages import AssistantMessage, Json, ThinkingContent

API: Final = "litellm"
"""The wire format's name, as it is logged: litellm decides which it really is."""

_HIGHEST_EFFORT_OF_ALL = "high"


def litellm_payload(request: ModelRequest) -> dict[str, Any]:
    """The arguments of a completion. Thinking goes back with its signatures to the model that gave them.

    Reasoning effort goes up to what litellm takes for every provider; it refuses more for some.
    """
    payload = chat_payload(request)
    payload["model"] = request.model.id
    if payload.get("reasoning_effort") == "xhigh":
        payload["reasoning_effort"] = _HIGHEST_EFFORT_OF_ALL
    answers = [message for message in as_model_messages(request.messages) if isinstance(message, AssistantMessage)]
    written = [message for message in payload["messages"] if message["role"] == "assistant"]
    for answer, message in zip(answers, written, strict=True):
        if _is_own(answer, request.model):
            _add_signatures(message, answer)
    return payload


def _is_own(answer: AssistantMessage, model: Model) -> bool:
    return (answer.api, answer.provider, answer.model) == (API, model.provider, model.name)


def _add_signatures(message: dict[str, Any], answer: AssistantMessage) -> None:
    blocks = [
        _thinking_block(block)
        for block in answer.content
        if isinstance(block, ThinkingContent) and block.thinking_signature
    ]
    if blocks:
        message["thinking_blocks"] = blocks
    for call, written in zip(answer.tool_calls, message.get("tool_calls", ()), strict=True):
        if call.thought_signature:
            written["provider_specific_fields"] = {"thought_signature": call.thought_signature}


def _thinking_block(block: ThinkingContent) -> Json:
    if block.redacted:
        return {"type": "redacted_thinking", "data": block.thinking_signature}
    return {"type": "thinking", "thinking": block.thinking, "signature": block.thinking_signature}
