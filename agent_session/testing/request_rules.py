"""What is wrong with a request, said strictly: as the strictest provider of its format says it, or stricter.

Independent of what puts requests in order (`llm.handover`), so that one can be held against the other. Two views: the
messages before a client writes them, and a chat-completions payload; Anthropic's payloads are in `messages_rules`.
"""

from __future__ import annotations

import base64
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from agent_session.image_format import image_size
from agent_session.llm.image_limits import limits_of
from agent_session.models import Model
from agent_session.testing.recording import pairing_fault
from session_store.context import is_sent, pairs_ok
from session_store.messages import (
    AssistantMessage,
    Content,
    CustomMessage,
    ImageContent,
    Message,
    TextContent,
    ThinkingContent,
    ToolCall,
    ToolResultMessage,
    UserMessage,
)

_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_MOST_ID_CHARS_OF_CHAT: Final = 40
_ID: Final = re.compile(r"[A-Za-z0-9_-]+")
_DATA_URL: Final = re.compile(r"data:image/[a-z0-9.+-]+;base64,[A-Za-z0-9+/]+=*")


# Messages -------------------------------------------------------------------------------------------


def context_faults(messages: Sequence[Message], *, model: Model, api: str, declares_tools: bool = True) -> list[str]:
    """What keeps these messages from being sent to `model` in the format `api`; empty where nothing does."""
    faults = [f"messages[{n}] is never sent" for n, message in enumerate(messages) if not is_sent(message)]
    if not messages:
        faults.append("there are no messages")
    for number, message in enumerate([*messages, None]):
        before = messages[number - 1] if number else None
        if isinstance(message, AssistantMessage | None) and isinstance(before, AssistantMessage | None):
            faults.append(f"messages[{number}]: the user's side is missing before it")
    if not pairs_ok(messages):
        faults.append("calls and results do not match")
    calls = [call for message in messages if isinstance(message, AssistantMessage) for call in message.tool_calls]
    faults += [
        f"call id {call_id!r} is used twice" for call_id, uses in Counter(c.id for c in calls).items() if uses > 1
    ]
    if calls and not declares_tools:
        faults.append("calls, and no tool is declared")
    for number, message in enumerate(messages):
        if isinstance(message, AssistantMessage):
            found = _answer_faults(message, model, api)
        elif isinstance(message, (UserMessage, CustomMessage, ToolResultMessage)):
            found = _blank_faults(message.content)
        else:
            continue
        faults += [f"messages[{number}]: {fault}" for fault in found]
    return faults + _image_faults(messages, model, api)


def _answer_faults(answer: AssistantMessage, model: Model, api: str) -> Iterator[str]:
    thinking = [block for block in answer.content if isinstance(block, ThinkingContent)]
    if len(thinking) == len(answer.content):
        yield "it says nothing"
    if not all(isinstance(block, (TextContent, ThinkingContent, ToolCall)) for block in answer.content):
        yield "a block that no format has for answers"
    if any(isinstance(block, TextContent) and not block.text.strip() for block in answer.content):
        yield "blank text"
    is_own = (answer.api, answer.provider, answer.model) == (api, model.provider, model.name)
    if is_own and not _is_whole(thinking, answer.content):
        yield "thinking that is not whole"
    if not is_own and thinking:
        yield "another model's thinking"
    if not is_own and any(_signature(block) for block in answer.content):
        yield "another model's signature"
    for call in answer.tool_calls:
        yield from _call_faults(call, api, is_own=is_own)


def _call_faults(call: ToolCall, api: str, *, is_own: bool) -> Iterator[str]:
    most_chars = 64 if api == "anthropic-messages" else _MOST_ID_CHARS_OF_CHAT
    if not call.id:
        yield "a call without an id"
    elif not is_own and not (_ID.fullmatch(call.id) and len(call.id) <= most_chars):
        yield f"call id {call.id!r}"
    if not _NAME.fullmatch(call.name):
        yield f"tool name {call.name!r}"


def _is_whole(thinking: Sequence[ThinkingContent], content: Sequence[Content]) -> bool:
    signed = [block for block in thinking if block.thinking_signature]
    if not signed:
        return True
    return len(signed) == len(thinking) and content[0] is thinking[0] and content[-1] is not thinking[-1]


def _signature(block: Content) -> str | None:
    match block:
        case TextContent(text_signature=signature) | ToolCall(thought_signature=signature):
            return signature
        case _:
            return None


def _blank_faults(content: Sequence[Content]) -> Iterator[str]:
    shown = [block for block in content if isinstance(block, (TextContent, ImageContent))]
    if not shown:
        yield "it is empty"
    if any(isinstance(block, TextContent) and not block.text.strip() for block in shown):
        yield "blank text"


def _image_faults(messages: Sequence[Message], model: Model, api: str) -> list[str]:
    images = [
        block for message in messages for block in getattr(message, "content", ()) if isinstance(block, ImageContent)
    ]
    if not images:
        return []
    limits = limits_of(model, api)
    faults = ["the model takes no images"] if model.images is False else []
    if len(images) > limits.most_images:
        faults.append(f"{len(images)} images")
    if sum(len(image.data) for image in images) > limits.total_chars:
        faults.append("the images are too large together")
    most_side = limits.most_side
    if limits.crowd is not None and len(images) > limits.crowd:
        most_side = limits.crowd_side
    for image in images:
        try:
            size = image_size(base64.b64decode(image.data, validate=True))
        except ValueError:
            faults.append("an image that is not base64")
            continue
        if len(image.data) > limits.most_chars or (most_side is not None and max(size or (0,)) > most_side):
            faults.append("an image is too large")
        if limits.types is not None and image.mime_type not in limits.types:
            faults.append(f"an image of type {image.mime_type}")
    return faults


# Chat completions -----------------------------------------------------------------------------------


def chat_fault(payload: Mapping[str, Any]) -> str | None:
    """Why a provider would refuse this chat-completions payload; None where it is in order."""
    messages: Sequence[Mapping[str, Any]] = payload["messages"]
    if (fault := pairing_fault(messages)) is not None:
        return fault
    said = [message for message in messages if message.get("role") not in ("system", "developer")]
    if not said:
        return "Invalid 'messages': empty array. Expected an array with minimum length 1."
    if said[0].get("role") == "assistant" or said[-1].get("role") == "assistant":
        return "Invalid 'messages': the conversation must begin and end on the user's side."
    for position, message in enumerate(said):
        for call in message.get("tool_calls") or ():
            if not 0 < len(call.get("id") or "") <= _MOST_ID_CHARS_OF_CHAT:
                return f"Invalid 'messages[{position}].tool_calls[0].id': string too long. Expected maximum length 40."
            if not _NAME.fullmatch((call.get("function") or {}).get("name") or ""):
                return f"Invalid 'messages[{position}].tool_calls[0].function.name': string does not match pattern."
        if (fault := _chat_content_fault(message)) is not None:
            return f"Invalid 'messages[{position}].content': {fault}"
    return None


def _chat_content_fault(message: Mapping[str, Any]) -> str | None:
    content = message.get("content")
    if content is None:
        return None if message.get("tool_calls") else "expected a string or array, but got null instead."
    parts: Sequence[Mapping[str, Any]] = [{"type": "text", "text": content}] if isinstance(content, str) else content
    if not parts:
        return "empty array."
    for part in parts:
        if part.get("type") == "text" and not part.get("text", "").strip():
            return "text must not be blank."
        if part.get("type") == "image_url" and not _DATA_URL.fullmatch(part["image_url"]["url"]):
            return "invalid image."
    return None
