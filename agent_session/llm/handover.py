"""From the context to what one model is sent: the one repair between the log and a request.

Pure. The rule it keeps: whatever the messages are, what comes out is a request that the target's provider takes, and
equal beginnings give equal beginnings. The log is never touched.

An answer is the target's own where provider, model and wire format are the same. Of any other one the thinking leaves
whole, with all signatures, and call ids that the target's provider would refuse are replaced, in call and result alike.
One of the target's own keeps its thinking unchanged, or loses all of it where it would not be taken back: signed only
in part, or not at the beginning, or at the end. An answer that then says nothing leaves; it has no calls, so no
results. Where no tool is declared, calls and results go as text, since some providers refuse them then. The user's side
is the first and the last to speak, and between two answers: some refuse anything else.
"""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from operator import is_
from typing import Final, TypeVar

from agent_session.llm.image_limits import content_with_images, judged
from agent_session.llm.payload import encode_text
from agent_session.models import Model
from session_store.context import paired
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

BEGINNING = "(What was said before this is not shown.)"
CONTINUE = "Continue."
EMPTY_MESSAGE = "(empty message)"
EMPTY_OUTPUT = "(no output)"
UNNAMED_TOOL = "unnamed_tool"

MOST_NAME_CHARS: Final = 64
"""Of a tool's name, for every provider."""

_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,40}")
_ANTHROPIC_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_MISTRAL_ID: Final = re.compile(r"[A-Za-z0-9]{9}")
_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9_-]")

_T = TypeVar("_T", bound=UserMessage | AssistantMessage | ToolResultMessage | CustomMessage)


def hand_over(
    messages: Iterable[Message], *, model: Model, api: str, declares_tools: bool = True
) -> tuple[Message, ...]:
    """The messages as `model` is sent them through the wire format `api`, in order.

    What is in order already stays the same object, and doing it twice changes nothing. Messages that no model may see,
    answers that failed or say nothing, and results without a call are left out; a call without a result gets one.
    """
    taken = [_as_taken_back(message, model, api) for message in paired(messages)]
    said = _with_wire_ids([message for message in taken if _says_something(message)], model, api)
    said = _with_images_that_fit(said, model, api)
    if not declares_tools:
        said = [_in_words(message) for message in said]
    said = [_filled(message) for message in said]
    return tuple(_in_turns(said))


def is_own(answer: AssistantMessage, model: Model, api: str) -> bool:
    """Whether the same model gave this answer, through the same wire format."""
    return (answer.api, answer.provider, answer.model) == (api, model.provider, model.name)


# Answers --------------------------------------------------------------------------------------------


def _as_taken_back(message: Message, model: Model, api: str) -> Message:
    """An answer without what its provider, or another one, would refuse; any other message as it is."""
    if not isinstance(message, AssistantMessage):
        return message
    content: Sequence[Content] = [
        block
        for block in message.content
        if isinstance(block, (TextContent, ThinkingContent, ToolCall)) and not _is_blank(block)
    ]
    if not is_own(message, model, api):
        content = [_unsigned(block) for block in content if not isinstance(block, ThinkingContent)]
    elif not _is_thinking_whole(content):
        content = [block for block in content if not isinstance(block, ThinkingContent)]
    return _with_content(message, [_with_wire_name(block) for block in content])


def _is_thinking_whole(content: Sequence[Content]) -> bool:
    """Whether signed thinking may go back: all of it signed, something behind it, nothing before it."""
    thinking = [block for block in content if isinstance(block, ThinkingContent)]
    if not any(block.thinking_signature for block in thinking):
        return True
    return (
        all(block.thinking_signature for block in thinking)
        and isinstance(content[0], ThinkingContent)
        and not isinstance(content[-1], ThinkingContent)
    )


def _is_blank(block: Content) -> bool:
    return isinstance(block, TextContent) and not block.text.strip()


def _unsigned(block: Content) -> Content:
    if isinstance(block, TextContent) and block.text_signature is not None:
        return replace(block, text_signature=None)
    if isinstance(block, ToolCall) and block.thought_signature is not None:
        return replace(block, thought_signature=None)
    return block


def _with_wire_name(block: Content) -> Content:
    """A call under a name that providers take; models make up others, and every later request would be refused."""
    if not isinstance(block, ToolCall):
        return block
    name = _NOT_IN_NAMES.sub("_", block.name)[:MOST_NAME_CHARS] or UNNAMED_TOOL
    return block if name == block.name else replace(block, name=name)


def _says_something(message: Message) -> bool:
    return not isinstance(message, AssistantMessage) or any(
        isinstance(block, (TextContent, ToolCall)) for block in message.content
    )


# Ids ------------------------------------------------------------------------------------------------


def _with_wire_ids(messages: Sequence[Message], model: Model, api: str) -> list[Message]:
    """Each call under an id that the provider takes and that no earlier call has; results under their call's."""
    taken: set[str] = set()
    waiting: dict[str, deque[str]] = defaultdict(deque)  # recorded id -> what its calls are sent under
    result: list[Message] = []
    for message in messages:
        if isinstance(message, AssistantMessage):
            may_keep = is_own(message, model, api) and model.provider != "mistral"
            ids = [_wire_id(call.id, model, api, taken, may_keep=may_keep) for call in message.tool_calls]
            for call, wire_id in zip(message.tool_calls, ids, strict=True):
                waiting[call.id].append(wire_id)
            result.append(_with_ids(message, ids))
        elif isinstance(message, ToolResultMessage):
            wire_id = waiting[message.tool_call_id].popleft()
            is_same = wire_id == message.tool_call_id
            result.append(message if is_same else replace(message, tool_call_id=wire_id))
        else:
            result.append(message)
    return result


def _wire_id(call_id: str, model: Model, api: str, taken: set[str], *, may_keep: bool) -> str:
    """`call_id`, or what is made of it, always the same; it is `taken` then.

    What the provider itself gave may have any form: some know their own calls by it.
    """
    pattern = _MISTRAL_ID if model.provider == "mistral" else _ANTHROPIC_ID if api == "anthropic-messages" else _ID
    wire_id, count = call_id, 0
    while wire_id in taken or not ((may_keep and wire_id) or pattern.fullmatch(wire_id)):
        seed = f"{call_id}#{count}" if count else call_id
        digest = hashlib.sha256(seed.encode("utf-8", "surrogatepass")).hexdigest()
        wire_id = digest[:9] if pattern is _MISTRAL_ID else f"call_{digest[:24]}"
        count += 1
    taken.add(wire_id)
    return wire_id


def _with_ids(message: AssistantMessage, ids: Sequence[str]) -> AssistantMessage:
    if all(call.id == wire_id for call, wire_id in zip(message.tool_calls, ids, strict=True)):
        return message
    left = iter(ids)
    content = [replace(block, id=next(left)) if isinstance(block, ToolCall) else block for block in message.content]
    return _with_content(message, content)


# Images and empty messages --------------------------------------------------------------------------


def _with_images_that_fit(messages: list[Message], model: Model, api: str) -> list[Message]:
    """A note in the place of each image that cannot be sent."""
    images = [
        block for message in messages for block in content_with_images(message) if isinstance(block, ImageContent)
    ]
    if not images:
        return messages
    places = iter(judged(images, model, api))
    return [
        _with_content(message, [_placed(block, places) for block in message.content])
        if isinstance(message, (UserMessage, CustomMessage, ToolResultMessage))
        else message
        for message in messages
    ]


def _filled(message: Message) -> Message:
    """Without blank text, which is refused, and with something in the place of nothing."""
    if not isinstance(message, (UserMessage, CustomMessage, ToolResultMessage)):
        return message
    blocks: list[Content] = [
        block for block in message.content if isinstance(block, (TextContent, ImageContent)) and not _is_blank(block)
    ]
    if not blocks:
        blocks = [TextContent(EMPTY_OUTPUT if isinstance(message, ToolResultMessage) else EMPTY_MESSAGE)]
    return _with_content(message, blocks)


def _in_words(message: Message) -> Message:
    """A call and a result as text. An answer that is changed so keeps none of its thinking."""
    if isinstance(message, AssistantMessage) and message.tool_calls:
        content = [
            TextContent(f"[called {block.name} with {encode_text(block.arguments)}]")
            if isinstance(block, ToolCall)
            else block
            for block in message.content
            if not isinstance(block, ThinkingContent)
        ]
        return replace(message, content=tuple(content))
    if isinstance(message, ToolResultMessage):
        label = TextContent(f"[{'error' if message.is_error else 'result'} of {message.tool_name}]")
        return UserMessage(content=(label, *content_with_images(_filled(message))), timestamp=message.timestamp)
    return message


def _in_turns(messages: Sequence[Message]) -> Iterator[Message]:
    """With the user's side before the first answer, between any two, and after the last."""
    before: Message | None = None
    for message in messages:
        if isinstance(message, AssistantMessage) and (before is None or isinstance(before, AssistantMessage)):
            yield _user(BEGINNING if before is None else CONTINUE)
        yield message
        before = message
    if before is None or isinstance(before, AssistantMessage):
        yield _user(CONTINUE)


def _with_content(message: _T, content: Sequence[Content]) -> _T:
    """The message with other content; itself where each block is the one that it has."""
    if len(content) == len(message.content) and all(map(is_, content, message.content)):
        return message
    return replace(message, content=tuple(content))


def _placed(block: Content, places: Iterator[ImageContent | str]) -> Content:
    if not isinstance(block, ImageContent):
        return block
    place = next(places)
    return TextContent(place) if isinstance(place, str) else place


def _user(text: str) -> UserMessage:
    return UserMessage(content=(TextContent(text),))
