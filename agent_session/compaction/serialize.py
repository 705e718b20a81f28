"""Dropped history as plain text, for a model to summarise.

Pure. The rule it keeps: what comes out is one block of data that nothing inside can end. No tool blocks, no images,
no thinking, no signatures; a long result is its head and tail. The tags around it carry a nonce that does not occur
between them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from agent_session.compaction.cutting import head_within
from agent_session.compaction.text_tokens import MOST_CHARS_PER_TOKEN
from session_store.json_lines import replace_surrogates
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
    ToolCall,
    ToolResultMessage,
    UserMessage,
)

TOOL_RESULT_CHARS = 2_000


def conversation_text(messages: Sequence[Message], *, nonce: str, tool_result_chars: int = TOOL_RESULT_CHARS) -> str:
    """The messages in order, each under its role, between tags that carry `nonce`.

    Results, shell output and the arguments of a call are shortened to `tool_result_chars` characters each.
    """
    parts = [part for message in messages for part in message_texts(message, tool_result_chars)]
    return enclosed("conversation", "\n\n".join(parts), nonce)


def enclosed(tag: str, text: str, nonce: str) -> str:
    """`text` as data: between `<tag-nonce>` and its end, lone surrogates replaced and the nonce broken up inside."""
    data = replace_surrogates(text).replace(nonce, "(nonce)")
    return f"<{tag}-{nonce}>\n{data}\n</{tag}-{nonce}>"


def shortened(text: str, most_chars: int) -> str:
    """Head and tail of a text above `most_chars` characters, with a mark between them."""
    if len(text) <= most_chars:
        return text
    tail = most_chars // 2
    head = most_chars - tail
    return f"{text[:head]}\n[… {len(text) - most_chars:,} characters left out …]\n{text[len(text) - tail :]}"


def pieces_of(text: str, most_tokens: int) -> list[str]:
    """The text in pieces of at most `most_tokens`, cut at the ends of lines where they are near; joined, they are it.

    A piece is one character at least: below 3 tokens, which some take, it may be more than it should.
    """
    pieces: list[str] = []
    position = 0
    while position < len(text):
        # One character more than could ever fit, so that only the last piece can be all of its window.
        window = text[position : position + most_tokens * MOST_CHARS_PER_TOKEN + 1]
        piece = head_within(window, most_tokens) or text[position]
        pieces.append(piece)
        position += len(piece)
    return pieces


def message_texts(message: Message, most_chars: int) -> Iterator[str]:
    """What is read of one message, each part under its role; results and arguments within `most_chars` characters."""
    match message:
        case UserMessage(content=content):
            yield f"[User]\n{_text(content)}"
        case CustomMessage(content=content, custom_type=custom_type):
            yield f"[Message from {custom_type}]\n{_text(content)}"
        case AssistantMessage(content=content):
            if text := _text(content):
                yield f"[Assistant]\n{text}"
            for block in content:
                if isinstance(block, ToolCall):
                    yield f"[Assistant called {block.name}]\n{shortened(_as_json(block.arguments), most_chars)}"
        case ToolResultMessage(tool_name=name, content=content, is_error=is_error):
            label = f"[Error from {name}]" if is_error else f"[Result of {name}]"
            yield f"{label}\n{shortened(_text(content), most_chars)}"
        case BashExecutionMessage(exclude_from_context=False):
            yield f"[User ran a command]\n{message.command}"
            ending = "cancelled" if message.cancelled else f"exit code {message.exit_code}"
            yield f"[Its output, {ending}]\n{shortened(message.output, most_chars)}"
        case BranchSummaryMessage(summary=summary):
            yield f"[Summary of another attempt]\n{summary}"
        case CompactionSummaryMessage(summary=summary):
            yield f"[Summary of earlier conversation]\n{summary}"
        case _:  # system messages, unknown roles and excluded output are not the conversation
            return


def _text(content: Sequence[Content]) -> str:
    """Text as it is, an image as a placeholder, everything else left out."""
    parts: list[str] = []
    for block in content:
        if isinstance(block, TextContent):
            parts.append(block.text)
        elif isinstance(block, ImageContent):
            parts.append(f"[image, {block.mime_type}]")
    return "\n".join(part for part in parts if part.strip())


def _as_json(arguments: Any) -> str:
    return json.dumps(arguments, ensure_ascii=False, default=str)
