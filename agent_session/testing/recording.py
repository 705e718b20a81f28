"""What a scripted model or a fake provider was asked, and whether a real provider would take it.

The view is the chat-completions payload, whatever the format: a test that reads requests reads them the same way
in process and over HTTP. Tokens are counted by the plain rule of four characters each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import anyio

from agent_session.llm.client import ModelRequest
from agent_session.llm.convert import chat_messages
from agent_session.llm.payload import encode_text
from agent_session.models import Model
from session_store.messages import Message
from session_store.showing import Brief

IMAGE_TOKENS = 1_200


def four_characters_a_token(text: str) -> int:
    """The plain rule, rounded up: what a scripted provider counts unless it is told otherwise."""
    return -(-len(text) // 4)


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class RecordedRequest(Brief):
    """One request as it arrived.

    `count_text` is how its provider counts the tokens of a text. `raw` are the bytes, `payload` what they say;
    `chat` is the same in the form of chat completions, where the format is another one. `headers` have lower-case
    keys and are empty in process; `request` is None over HTTP. `is_summary`: it came from the summariser.
    `is_answered`: all that the script says went out; `disconnected` is set when the client left before that.
    """

    number: int
    payload: Mapping[str, Any]
    raw: bytes
    chat: Mapping[str, Any] | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict)
    request: ModelRequest | None = None
    is_summary: bool = False
    is_answered: bool = False
    disconnected: anyio.Event = field(default_factory=anyio.Event, repr=False)
    count_text: Callable[[str], int] = field(default=four_characters_a_token, repr=False)

    @property
    def as_chat(self) -> Mapping[str, Any]:
        """The payload in the form of chat completions."""
        return self.payload if self.chat is None else self.chat

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The messages as chat completions have them, the system prompt among them."""
        return list(self.as_chat.get("messages", ()))

    @property
    def system(self) -> str:
        """The system prompt; empty without one."""
        return "\n".join(_text(message) for message in self.messages if message.get("role") in ("system", "developer"))

    @property
    def text(self) -> str:
        """All text of all messages, a line break between them."""
        return "\n".join(_text(message) for message in self.messages)

    @property
    def last_user_text(self) -> str:
        """The text of the last user message; empty without one."""
        return next((_text(message) for message in reversed(self.messages) if message.get("role") == "user"), "")

    @property
    def last_text(self) -> str:
        """The last piece of text, whoever said it: one message may have several."""
        parts = [(message.get("content") or "") for message in self.messages[-1:]]
        texts = [part.get("text", "") for part in parts[0]] if parts and isinstance(parts[0], list) else parts
        return str(texts[-1]) if texts else ""

    @property
    def tokens(self) -> int:
        """The size of the request as its provider counts."""
        return count_tokens(self.as_chat, self.count_text)


class Arrivals:
    """The requests in the order in which they came, for those who wait for one."""

    def __init__(self) -> None:
        self.requests: list[RecordedRequest] = []
        self._events: dict[int, anyio.Event] = {}

    def add(self, request: RecordedRequest) -> None:
        self.requests.append(request)
        self._event(len(self.requests)).set()

    async def arrived(self, number: int) -> RecordedRequest:
        """The request with this number, from 1, once it is there."""
        await self._event(number).wait()
        return self.requests[number - 1]

    def _event(self, number: int) -> anyio.Event:
        return self._events.setdefault(number, anyio.Event())


def count_tokens(payload: Mapping[str, Any], count_text: Callable[[str], int] = four_characters_a_token) -> int:
    """Tokens of a chat-completions payload: the text of messages, calls and tools; images at a flat size."""
    texts: list[str] = []
    images = 0
    for message in payload.get("messages", ()):
        texts.append(_text(message))
        for call in message.get("tool_calls") or ():
            function = call.get("function", {})
            texts += [function.get("name") or "", function.get("arguments") or ""]
        content = message.get("content")
        if isinstance(content, list):
            images += sum(part.get("type") == "image_url" for part in content)
    if tools := payload.get("tools"):
        texts.append(encode_text(tools))
    return count_text("".join(texts)) + images * IMAGE_TOKENS


def pairing_fault(messages: Iterable[Mapping[str, Any]]) -> str | None:
    """Why a provider would refuse these chat-completions messages, in its words; None where they are in order.

    Every call is answered, exactly once, right after the message that made it; every answer has its call.
    """
    open_calls: list[str] = []
    for position, message in enumerate(messages):
        if message.get("role") == "tool":
            call_id = message.get("tool_call_id")
            if call_id not in open_calls:
                return (
                    f"Invalid parameter: messages[{position}] with role 'tool' must be a response to a preceding "
                    f"message with 'tool_calls'; no tool call found with id {call_id!r}."
                )
            open_calls.remove(call_id)
            continue
        if open_calls:
            break
        open_calls = [call["id"] for call in message.get("tool_calls") or ()]
        if len(set(open_calls)) < len(open_calls):
            return f"Invalid parameter: duplicate tool call id in messages[{position}]."
    if open_calls:
        return (
            "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
            f"'tool_call_id'. The following tool_call_ids did not have response messages: {', '.join(open_calls)}"
        )
    return None


def pairs_ok(messages: Sequence[Message]) -> bool:
    """Whether a provider takes this context: every call answered once, right after it, every answer with its call."""
    request = ModelRequest(model=Model("scripted/model"), messages=messages)
    return pairing_fault(chat_messages(request)) is None


def _text(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, list):
        return "\n".join(part.get("text", "") for part in content if part.get("type") == "text")
    return content if isinstance(content, str) else ""
