"""Text that is too large for a line, bounded while it is recorded.

A text above 256 KiB becomes head, tail and a pointer, and that is the message from then on, here and in other
programs; the whole text lies in the blob store. Text that a provider signed is never touched: a signature
over other text would be refused for ever.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeGuard

from session_store.blobs import TEXT_LIMIT_BYTES, BlobStore, bound_text
from session_store.messages import (
    AssistantMessage,
    BashExecutionMessage,
    Content,
    CustomMessage,
    Message,
    TextContent,
    ToolResultMessage,
    UserMessage,
)


def bound_message(message: Message, blobs: Callable[[], BlobStore]) -> Message:
    """The message as it is recorded; the same object where nothing in it is too large.

    `blobs` is called only where something may be.
    """
    if isinstance(message, BashExecutionMessage):
        output = _bound(message.output, blobs)
        return message if output is message.output else replace(message, output=output)
    if isinstance(message, (UserMessage, AssistantMessage, ToolResultMessage, CustomMessage)):
        content = bound_content(message.content, blobs)
        return message if content is message.content else replace(message, content=content)
    return message


def bound_content(content: tuple[Content, ...], blobs: Callable[[], BlobStore]) -> tuple[Content, ...]:
    """The blocks as they are recorded; the same tuple where nothing in it is too large."""
    for block in content:
        if _may_be_large(block):
            break
    else:
        return content
    return tuple(replace(block, text=_bound(block.text, blobs)) if _may_be_large(block) else block for block in content)


def _may_be_large(block: Content) -> TypeGuard[TextContent]:
    return isinstance(block, TextContent) and block.text_signature is None and len(block.text) * 4 > TEXT_LIMIT_BYTES


def _bound(text: str, blobs: Callable[[], BlobStore]) -> str:
    if len(text) * 4 <= TEXT_LIMIT_BYTES:  # no character takes more than four bytes
        return text
    try:
        return bound_text(text, blobs())
    except OSError:
        # A disk that takes no side file takes no line either. The whole text waits in the line, so that
        # nothing is lost and the run goes on.
        return text
