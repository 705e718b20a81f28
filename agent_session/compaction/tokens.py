"""How many tokens something takes where no provider has said so.

The rule it keeps: one estimate, used for the trigger, for the cut point and for the bound of a summary's input, so
that the three never disagree. Characters of Latin words are four a token; other scripts weigh what tokenizers make
of them, and so do long unbroken runs of many symbols (base64, hex). Weights are measured on today's common
tokenizers and lean to the dense side: an estimate that is too low ends in a refused request. Everything is linear
and done by `bytes` methods, never character by character.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, Final

import orjson

from agent_session.llm.client import ToolDefinition
from session_store.messages import (
    AssistantMessage,
    BashExecutionMessage,
    BranchSummaryMessage,
    CompactionSummaryMessage,
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

CHARS_PER_TOKEN = 4
IMAGE_TOKENS = 1_200
"""What an image takes, whatever its size: providers scale it, and its base64 is never what they count."""

MESSAGE_TOKENS = 4
"""Role and framing of one message."""

CALL_TOKENS = 8
"""Framing of one tool call or one tool definition."""

LABEL_TOKENS = 50
"""The words around a summary or a shell command that say what it is."""

# Twelfths of a token for one character, by the first byte of its UTF-8 form. Every byte that continues a character is
# left out and weighs nothing.
_TWELFTHS: Final = {
    12 // CHARS_PER_TOKEN: range(0x80),  # ASCII
    12: [*range(0xC2, 0xCD), 0xE0, 0xE2],  # accents, Indic and Thai, signs and boxes
    10: [*range(0xCD, 0xD0), *range(0xD5, 0xDC)],  # Greek, Armenian, Hebrew, Arabic
    6: range(0xD0, 0xD5),  # Cyrillic
    18: [*range(0xDC, 0xE0), 0xE1],  # Syriac to NKo; Georgian, Ethiopic, Khmer, Myanmar
    14: range(0xE3, 0xF0),  # kana, CJK, Hangul, full-width forms
    30: range(0xF0, 0xF8),  # emoji, rare ideographs
}
_SCRIPTS: Final = tuple((twelfths, bytes(leads)) for twelfths, leads in _TWELFTHS.items() if twelfths != 3)
_ALL_BUT_ASCII: Final = bytes(range(0x80, 0x100))

_RUN_SYMBOLS: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=_-"
_NOT_DIGITS: Final = bytes(set(range(0x100)) - set(b"0123456789"))
_RUN, _GAP = b"x", b" "
_RUN_MAP: Final = bytes(_RUN[0] if byte in _RUN_SYMBOLS else _GAP[0] for byte in range(0x100))

_SHORTEST_RUN = 40
_SURE_RUN = 256
"""Paths and long names are runs too; below this length a run counts as opaque only if enough of it is digits."""

_DIGITS_ONE_IN = 16

# Hundredths of a token for each symbol of an opaque run, by how many different symbols it has.
_RUN_WEIGHTS: Final = ((2, 25), (11, 40), (22, 58), (len(_RUN_SYMBOLS), 70))


def estimate_chars_as_tokens(text: str) -> int:
    """The plain rule alone, four characters a token, rounded up: a floor for any text."""
    return -(-len(text) // CHARS_PER_TOKEN)


def estimate_text_tokens(text: str) -> int:
    """Tokens of `text` in any script, rounded up; 0 for no text."""
    raw = text.encode("utf-8", "surrogatepass")
    if text.isascii():
        twelfths = len(raw) * (12 // CHARS_PER_TOKEN)
    else:
        left = raw.translate(None, _ALL_BUT_ASCII)
        twelfths = len(left) * (12 // CHARS_PER_TOKEN)
        twelfths += sum(weight * (len(raw) - len(raw.translate(None, leads))) for weight, leads in _SCRIPTS)
    return -(-twelfths // 12) + _surplus_of_runs(raw)


def estimate_message_tokens(message: Message) -> int:
    """What a message takes in a request, its framing included; 0 for one that is never sent.

    Thinking text and opaque signatures count: they are sent again with each request. An answer weighs at least the
    output tokens that its provider reported, whatever can be seen of them.
    """
    match message:
        case UserMessage() | ToolResultMessage() | CustomMessage():
            return MESSAGE_TOKENS + _content_tokens(message.content)
        case AssistantMessage(usage=usage):
            estimate = MESSAGE_TOKENS + _content_tokens(message.content)
            return max(estimate, usage.output) if usage.is_reported else estimate
        case BashExecutionMessage():
            if message.exclude_from_context:
                return 0
            return LABEL_TOKENS + estimate_text_tokens(message.command) + estimate_text_tokens(message.output)
        case BranchSummaryMessage(summary=summary) | CompactionSummaryMessage(summary=summary):
            return LABEL_TOKENS + estimate_text_tokens(summary)
        case _:
            return 0


def estimate_fixed_request_tokens(system_prompt: str, tools: Iterable[ToolDefinition] = ()) -> int:
    """What rides on every request: the system prompt and the JSON of the tool definitions."""
    tokens = MESSAGE_TOKENS + estimate_text_tokens(system_prompt) if system_prompt else 0
    for tool in tools:
        tokens += CALL_TOKENS + estimate_text_tokens(tool.name) + estimate_text_tokens(tool.description)
        tokens += estimate_text_tokens(_as_json(tool.parameters))
    return tokens


class TokenLedger:
    """Estimates by message, so that an unchanged message is counted once for as long as it is in the context.

    Messages are told apart by identity: they are frozen, and the projection hands out the same objects again.
    """

    __slots__ = ("_counted",)

    def __init__(self) -> None:
        # The message is held beside its count, so that its id cannot become another's.
        self._counted: dict[int, tuple[Message, int]] = {}

    def __len__(self) -> int:
        return len(self._counted)

    def count(self, message: Message) -> int:
        """`estimate_message_tokens(message)`."""
        known = self._counted.get(id(message))
        if known is None:
            known = (message, estimate_message_tokens(message))
            self._counted[id(message)] = known
        return known[1]

    def total(self, messages: Iterable[Message]) -> int:
        return sum(map(self.count, messages))

    def forget_all_but(self, messages: Sequence[Message]) -> None:
        """Let go of what left the context, once that is more than half: memory follows the context, not the session."""
        if len(self._counted) > 2 * len(messages) + 64:
            current = {id(message) for message in messages}
            self._counted = {key: known for key, known in self._counted.items() if key in current}


def _content_tokens(content: Sequence[Content]) -> int:
    tokens = 0
    for block in content:
        match block:
            case TextContent(text=text, text_signature=signature):
                tokens += estimate_text_tokens(text)
            case ThinkingContent(thinking=text, thinking_signature=signature):
                tokens += estimate_text_tokens(text)
            case ToolCall(name=name, arguments=arguments, thought_signature=signature):
                tokens += CALL_TOKENS + estimate_text_tokens(name) + estimate_text_tokens(_as_json(arguments))
            case ImageContent():
                tokens += IMAGE_TOKENS
                continue
            case _:  # an unknown block is kept in the log and sent to nobody
                continue
        if signature:
            tokens += estimate_text_tokens(signature)
    return tokens


def _as_json(value: Any) -> str:
    try:
        return orjson.dumps(value).decode()
    except TypeError:  # a lone surrogate, an integer beyond 64 bits, a mapping that is no dict
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_as_dict)


def _as_dict(value: Any) -> Any:
    try:
        return dict(value)
    except (TypeError, ValueError):
        return str(value)


def _surplus_of_runs(raw: bytes) -> int:
    """Tokens that opaque runs take beyond the plain rule."""
    mapped = raw.translate(_RUN_MAP)
    needle = _RUN * _SHORTEST_RUN
    hundredths = 0
    start = mapped.find(needle)
    while start >= 0:
        end = mapped.find(_GAP, start)
        run = raw[start:] if end < 0 else raw[start:end]
        hundredths += len(run) * (_run_weight(run) - 100 // CHARS_PER_TOKEN)
        start = mapped.find(needle, start + len(run))
    return -(-hundredths // 100)


def _run_weight(run: bytes) -> int:
    if len(run) < _SURE_RUN and len(run.translate(None, _NOT_DIGITS)) * _DIGITS_ONE_IN < len(run):
        return 100 // CHARS_PER_TOKEN
    symbols = sum(symbol in run for symbol in _RUN_SYMBOLS)
    return next(weight for most, weight in _RUN_WEIGHTS if symbols <= most)
