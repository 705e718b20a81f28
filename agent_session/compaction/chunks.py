"""Dropped history in pieces that a summary model can read, in as few calls as may be.

Pure. The rule it keeps: no piece is larger than its room, and every message is in one of them, at least by its head and
tail. What does not fit the calls that are left is shortened step by step, never left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from agent_session.compaction.serialize import TOOL_RESULT_CHARS, enclosed, message_texts, pieces_of, shortened
from agent_session.compaction.text_tokens import estimate_text_tokens
from session_store.messages import CompactionSummaryMessage, Message

_SEPARATOR_TOKENS = 1

# Characters of a tool result, and of any one part, from as they are to the shortest that still say something.
_STEPS: Final = ((TOOL_RESULT_CHARS, None), (700, 8_000), (200, 1_500), (100, 400))


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunks:
    """`texts` in order, each for one call; `previous_summary` goes into the first one's prompt beside its text."""

    texts: tuple[str, ...]
    previous_summary: str | None


def chunked(
    messages: Sequence[Message],
    *,
    previous_summary: str | None,
    room_tokens: int,
    summary_tokens: int,
    most_chunks: int,
    nonce: str,
) -> Chunks:
    """Cut the messages' text into chunks.

    `room_tokens` is for a chunk and the summary that it updates: `previous_summary` first, then one of at most
    `summary_tokens`. A previous summary above half of the room is read as part of the record instead.

    Raises:
        ValueError: even the shortest form takes more than `most_chunks`.
    """
    carried = estimate_text_tokens(previous_summary) if previous_summary else 0
    if previous_summary and carried > room_tokens // 2:
        messages = [CompactionSummaryMessage(summary=previous_summary, tokens_before=0), *messages]
        previous_summary, carried = None, 0
    needed = 0
    for result_chars, part_chars in _STEPS:
        parts = [
            text if part_chars is None else shortened(text, part_chars)
            for message in messages
            for text in message_texts(message, result_chars)
        ]
        groups = _grouped(parts, room_tokens - carried)
        if len(groups) > 1:
            later = room_tokens - max(carried, min(summary_tokens, room_tokens // 2))
            groups = _grouped(parts, later)
        needed = len(groups)
        if needed <= most_chunks:
            texts = tuple(enclosed("conversation", "\n\n".join(group), nonce) for group in groups)
            return Chunks(texts=texts, previous_summary=previous_summary)
    raise ValueError(f"the history takes {needed:,} calls, however much it is shortened, and {most_chunks} are left")


def _grouped(parts: Sequence[str], room: int) -> list[list[str]]:
    """Consecutive parts, each group within `room` tokens; a part that is larger by itself is cut into pieces."""
    groups: list[list[str]] = [[]]
    filled = 0
    for part in parts:
        tokens = estimate_text_tokens(part)
        pieces = [part] if tokens <= room else pieces_of(part, room)
        for piece in pieces:
            size = (tokens if len(pieces) == 1 else estimate_text_tokens(piece)) + _SEPARATOR_TOKENS
            if groups[-1] and filled + size > room:
                groups.append([])
                filled = 0
            groups[-1].append(piece)
            filled += size
    return groups
