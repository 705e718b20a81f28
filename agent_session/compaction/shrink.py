"""Giant items made smaller: head, a mark that points to the full text, tail. Costs nothing, and loses nothing.

Pure. The rule it keeps: only results of tools and messages of extensions are shrunk, and always from the text as it was
recorded, so that an item may be shrunk again and again and is never the head of a head. An edit that somebody else made
stands: what it hid stays hidden. Everything else is taken whole: the user's own words, answers (they are signed),
summaries, and what the user ran (no edit reaches it).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from agent_session.compaction.cutting import head_within, tail_within
from agent_session.compaction.text_tokens import estimate_text_tokens
from agent_session.compaction.tokens import TokenLedger, estimate_message_tokens
from agent_session.compaction.types import Shrink
from session_store.blobs import HEAD_BYTES, TAIL_BYTES, path_in_mark
from session_store.entries import CustomMessageEntry, MessageEntry
from session_store.json_lines import replace_surrogates
from session_store.messages import Content, CustomMessage, TextContent, ToolResultMessage
from session_store.projection import ProjectedMessage

LEAST_TOKENS: Final = 256
"""Where the giants are not enough, no item is made smaller than this."""

_LEAST_SAVED: Final = 64
_LEAST_SHOWN: Final = 64
_MARK: Final = re.compile(r"\n?\[… [\d,]+ of [\d,]+ bytes left out here; full text: [^\n]* …\]\n?")


@dataclass(slots=True)
class _Item:
    """A message that may be shrunk. `text` is all of it; `shrink` is None for as long as it stays as it shows."""

    entry_id: str
    message: ToolResultMessage | CustomMessage
    text: str
    tokens_before: int
    tokens: int
    where: str | None = None
    shrink: Shrink | None = None


def plan_shrinks(
    context: Sequence[ProjectedMessage],
    *,
    share_tokens: int,
    most_tokens: int | None,
    ledger: TokenLedger,
    locate: Callable[[str, str], str],
) -> tuple[Shrink, ...]:
    """What to show instead of the items that are too large, in the order of the context.

    An item above `share_tokens` is a giant, and ends below it. `most_tokens` is what the whole context may take: where
    shrinking the giants does not reach it, the largest that are left are shrunk, all to one size that is halved until
    it does or nothing is left worth shrinking; None leaves it at the giants. `locate` is given the entry and its full
    text, and says in words where that can be read; it is asked once for each item that is shrunk.
    """
    items = [
        _Item(item.entry.id, message, text, ledger.count(message), ledger.count(message))
        for item in context
        if (message := _shrinkable(item)) is not None and (text := _full_text(item, message)).strip()
    ]
    total = ledger.total(item.message for item in context)
    for item in items:
        if item.tokens > share_tokens:
            total -= _shrink(item, share_tokens, locate)
    if most_tokens is not None:
        for level in _levels(share_tokens):
            # Sorting is stable: of two that are equally large, the older one is shrunk first.
            for item in sorted(items, key=lambda item: -item.tokens):
                if total <= most_tokens or item.tokens <= level:
                    break
                total -= _shrink(item, level, locate)
    return tuple(item.shrink for item in items if item.shrink is not None)


def _levels(share_tokens: int) -> Iterator[int]:
    level = share_tokens // 2
    yield level
    while level > LEAST_TOKENS:
        level = max(LEAST_TOKENS, level // 2)
        yield level


def _shrink(item: _Item, most_tokens: int, locate: Callable[[str, str], str]) -> int:
    """Make it smaller than `most_tokens`, if that is worth it. The tokens that this saves, against the last size."""
    rest = tuple(block for block in item.message.content if not isinstance(block, TextContent))
    fixed = estimate_message_tokens(replace(item.message, content=rest))
    worth = max(1, min(_LEAST_SAVED, most_tokens // 4))
    if item.tokens - fixed < worth:
        return 0  # it is images that make it large
    if item.where is None:
        item.where = " ".join(locate(item.entry_id, item.text).split())
    text = _head_mark_tail(item.text, most_tokens - fixed, item.where)
    content: tuple[Content, ...] = (TextContent(text), *rest)
    after = estimate_message_tokens(replace(item.message, content=content))
    saved = item.tokens - after
    if saved < worth:
        return 0
    item.tokens = after
    item.shrink = Shrink(
        entry_id=item.entry_id,
        replacement=content,
        full_text=item.text,
        tokens_before=item.tokens_before,
        tokens_after=after,
    )
    return saved


def _head_mark_tail(text: str, most_tokens: int, where: str) -> str:
    """The text within `most_tokens`; where not even the mark fits, the mark alone."""
    size = len(text.encode())
    mark = _mark(size, size, where, path_in_mark(text))
    # A line end on either side of the mark, and one for rounding.
    room = most_tokens - estimate_text_tokens(mark) - 3
    # A quarter is left free, so that what is a little too large does not become a little smaller; of a small room all.
    room = max(room - most_tokens // 4, min(room, _LEAST_SHOWN), 0)
    head = head_within(text, room - room // 2, most_bytes=HEAD_BYTES)
    tail = tail_within(text[len(head) :], room // 2, most_bytes=TAIL_BYTES)
    cut = size - len(head.encode()) - len(tail.encode())
    hidden = path_in_mark(text[len(head) : len(text) - len(tail)])
    line_end = "" if not head or head.endswith("\n") else "\n"
    return f"{head}{line_end}{_mark(cut, size, where, hidden)}\n{tail}"


def _mark(cut: int, size: int, where: str, recorded_from: str | None) -> str:
    """`recorded_from` is where the text lies that was itself cut when it was recorded, if that is no longer said."""
    more = f"; the longer text that this was recorded from: {recorded_from}" if recorded_from else ""
    return f"[… {cut:,} of {size:,} bytes left out here; full text: {where}{more} …]"


def _shrinkable(item: ProjectedMessage) -> ToolResultMessage | CustomMessage | None:
    message = item.message
    if not isinstance(message, ToolResultMessage | CustomMessage):
        return None
    if type(_recorded(item)) is not type(message):
        return None  # a synthetic result stands for the answer that made the call
    if any(isinstance(block, TextContent) and block.text_signature for block in message.content):
        return None
    return message


def _recorded(item: ProjectedMessage) -> object:
    """The message as it was recorded, or one of the same content."""
    match item.entry:
        case MessageEntry(message=message):
            return message
        case CustomMessageEntry(custom_type=custom_type, content=content):
            return CustomMessage(custom_type=custom_type, content=content)
        case _:
            return None


def _full_text(item: ProjectedMessage, message: ToolResultMessage | CustomMessage) -> str:
    """The text to shrink: the recorded one, except where an edit of somebody else shows another."""
    shown = _text(message.content)
    recorded = _recorded(item)
    assert isinstance(recorded, ToolResultMessage | CustomMessage)
    if recorded.content == message.content:
        return shown
    whole = _text(recorded.content)
    is_ours = any(
        whole.startswith(shown[: mark.start()]) and whole.endswith(shown[mark.end() :])
        for mark in _MARK.finditer(shown)
    )
    return whole if is_ours else shown


def _text(content: Sequence[Content]) -> str:
    return replace_surrogates("\n".join(block.text for block in content if isinstance(block, TextContent)))
