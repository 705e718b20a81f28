"""What Anthropic's messages refuse, in that service's words as far as they are known.

Strict where it is known to be strict, and independent of `llm.handover` and `llm.anthropic_payload`, so that they can
be held against it.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from agent_session.image_format import image_size, image_type

_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_IMAGES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
_MOST_IMAGE_CHARS: Final = 5 * 1_024 * 1_024
_MOST_IMAGES: Final = 600
_CROWD: Final = 20
_MOST_SIDE: Final = 8_000
_MOST_SIDE_IN_A_CROWD: Final = 2_000
_MOST_MARKS: Final = 4
_MIN_BUDGET: Final = 1_024
_THINKING: Final = ("thinking", "redacted_thinking")


def messages_fault(payload: Mapping[str, Any], *, is_signed: Callable[[str, str], bool]) -> str | None:
    """Why Anthropic would refuse this payload; None where it is in order.

    `is_signed` takes thinking and its signature, and says whether they were given out together.
    """
    max_tokens = payload.get("max_tokens")
    if not isinstance(max_tokens, int) or max_tokens < 1:
        return "max_tokens: Field required"
    thinking = payload.get("thinking") or {}
    if thinking.get("type") == "enabled" and not _MIN_BUDGET <= thinking.get("budget_tokens", 0) < max_tokens:
        return "thinking.budget_tokens: must be at least 1024 and less than max_tokens"
    messages: Sequence[Mapping[str, Any]] = payload["messages"]
    checks = (
        _block_faults(messages),
        _signature_faults(messages, is_signed),
        _batch_faults(payload, messages),
        _thinking_faults(payload, messages),
        _image_faults(messages),
        _mark_faults(payload, messages),
        _turn_faults(messages),
    )
    return next((fault for faults in checks for fault in faults), None)


def _turn_faults(messages: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    if not messages:
        yield "messages: at least one message is required"
    for position, message in enumerate(messages):
        if message.get("role") != ("user", "assistant")[position % 2]:
            yield f"messages.{position}: roles must alternate, and the first message must use the user role"
    if messages and messages[-1].get("role") == "assistant":
        yield "This model does not support assistant message prefill. The conversation must end with a user message."


def _block_faults(messages: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for position, message in enumerate(messages):
        blocks = blocks_of(message.get("content"))
        if not blocks:
            yield f"messages.{position}: content must not be empty"
        for block in blocks:
            inside = blocks_of(block.get("content")) if block.get("type") == "tool_result" else []
            if block.get("is_error") and any(part.get("type") != "text" for part in inside):
                yield f"messages.{position}: tool_result: all content must be type `text` if `is_error` is true"
            if any(part.get("type") == "text" and not part.get("text", "").strip() for part in (block, *inside)):
                yield f"messages.{position}: text content blocks must contain non-whitespace text"


def _batch_faults(payload: Mapping[str, Any], messages: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Calls and their results: each answered at the beginning of the next message, under an id of its own."""
    used: set[str] = set()
    for position, message in enumerate(messages):
        calls = _of_type(message, "tool_use")
        for call in calls:
            if not _ID.fullmatch(call.get("id") or ""):
                yield f"messages.{position}.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'"
            if not _NAME.fullmatch(call.get("name") or ""):
                yield f"messages.{position}.tool_use.name: String should match pattern '^[a-zA-Z0-9_-]{{1,64}}$'"
            if call["id"] in used:
                yield f"messages.{position}: `tool_use` ids must be unique"
            used.add(call["id"])
        ids = [call["id"] for call in calls]
        following = messages[position + 1] if position + 1 < len(messages) else {}
        results = [block.get("tool_use_id") for block in _of_type(following, "tool_result")]
        first = [block.get("type") for block in blocks_of(following.get("content"))][: len(results)]
        if sorted(map(str, results)) != sorted(ids) or first != ["tool_result"] * len(results):
            yield (
                f"messages.{position}: `tool_use` ids were found without `tool_result` blocks immediately after, or "
                f"`tool_result` blocks without their `tool_use`: {', '.join(map(str, ids or results))}"
            )
        if position == 0 and (stray := _of_type(message, "tool_result")):
            yield f"messages.0: unexpected `tool_use_id` found in `tool_result` blocks: {stray[0].get('tool_use_id')}"
    if used and not payload.get("tools"):
        yield "tools: Field required: `tool_use` and `tool_result` blocks need tools to be defined"


def _thinking_faults(payload: Mapping[str, Any], messages: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    answers = [(place, message) for place, message in enumerate(messages) if message.get("role") == "assistant"]
    for place, answer in answers:
        types = [block.get("type") for block in blocks_of(answer.get("content"))]
        if any(kind in _THINKING for kind in types):
            if types[0] not in _THINKING:
                yield f"messages.{place}: if it contains any thinking blocks, the first block must be `thinking`"
            if types[-1] in _THINKING:
                yield f"messages.{place}: The final block in an assistant message cannot be `thinking`."
    if not answers:
        return
    place, last = answers[-1]
    has_thinking = any(block.get("type") in _THINKING for block in blocks_of(last.get("content")))
    if has_thinking and not payload.get("thinking") and not payload.get("output_config"):
        yield f"messages.{place}: When thinking is disabled, the last assistant message cannot contain `thinking`."
    if (payload.get("thinking") or {}).get("type") == "enabled" and (
        begun := _turn_begun_without(messages)
    ) is not None:
        yield f"messages.{begun}: Expected `thinking` or `redacted_thinking`: the turn must start with a thinking block"


def _turn_begun_without(messages: Sequence[Mapping[str, Any]]) -> int | None:
    """The answer that opens the turn which the request goes on with, where it has no thinking at its beginning."""
    opening = None
    for place in range(len(messages) - 1, -1, -1):
        blocks = blocks_of(messages[place].get("content"))
        if messages[place].get("role") == "assistant":
            opening = place if blocks[0].get("type") not in _THINKING else None
        elif blocks[0].get("type") != "tool_result":
            break
    return opening


def _image_faults(messages: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    images = [
        block["source"]
        for message in messages
        for outer in blocks_of(message.get("content"))
        for block in (outer, *blocks_of(outer.get("content")))
        if block.get("type") == "image"
    ]
    if len(images) > _MOST_IMAGES:
        yield f"too many images: {len(images)} > {_MOST_IMAGES}"
    side = _MOST_SIDE if len(images) <= _CROWD else _MOST_SIDE_IN_A_CROWD
    for image in images:
        try:
            data = base64.b64decode(image["data"], validate=True)
        except ValueError:
            yield "image.source.base64.data: invalid base64"
            continue
        known = image_type(data)
        if image["media_type"] not in _IMAGES or known not in (None, image["media_type"]):
            yield f"image.source.base64: the image is {known}, its media_type {image['media_type']}"
        if len(image["data"]) > _MOST_IMAGE_CHARS:
            yield f"image exceeds 5 MB maximum: {len(image['data'])} bytes > {_MOST_IMAGE_CHARS} bytes"
        if max(image_size(data) or (0,)) > side:
            crowd = " for many-image requests" if len(images) > _CROWD else ""
            yield f"At least one of the image dimensions exceed max allowed size{crowd}: {side} pixels"


def _mark_faults(payload: Mapping[str, Any], messages: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    places = [payload.get("system"), payload.get("tools"), *(message.get("content") for message in messages)]
    marks = sum("cache_control" in block for place in places for block in blocks_of(place))
    if marks > _MOST_MARKS:
        yield f"A maximum of 4 blocks with cache_control may be provided. Found {marks}."


def _signature_faults(messages: Sequence[Mapping[str, Any]], is_signed: Callable[[str, str], bool]) -> Iterator[str]:
    for position, message in enumerate(messages):
        for block in _of_type(message, "thinking"):
            if not is_signed(block.get("thinking", ""), block.get("signature", "")):
                yield f"messages.{position}: Invalid `signature` in `thinking` block"


def _of_type(message: Mapping[str, Any], kind: str) -> list[Mapping[str, Any]]:
    return [block for block in blocks_of(message.get("content")) if block.get("type") == kind]


def blocks_of(content: Any) -> list[Mapping[str, Any]]:
    """The blocks of a message or a result in Anthropic's format; a string is one text block."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [block for block in content or () if isinstance(block, dict)]
