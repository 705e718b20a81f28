"""What was said on a branch, as it was recorded, and what of it the context no longer shows.

Pure, over a log that was read already. The rule it keeps: every message that a request could ever carry is either in
the context as it was recorded, or among what was dropped, with the reason. Summaries of compactions are neither: what
they stand for is found itself. Answers that failed were never part of the context.

A `Branch` is taken in one step and does not change; walking it takes the time of the branch's length, and may be done
in a thread.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, Literal, NamedTuple, TypeAlias

from typing_extensions import override

from agent_session.compaction.serialize import message_texts
from session_store.context import build_context
from session_store.entries import CompactionEntry, ContextEditEntry, Entry
from session_store.messages import (
    AssistantMessage,
    BashExecutionMessage,
    BranchSummaryMessage,
    CustomMessage,
    Message,
    ToolCall,
    ToolResultMessage,
    UserMessage,
)
from session_store.projection import build_projection
from session_store.reading import SessionReader
from session_store.showing import Shown, one_line, quoted

SEARCH_HISTORY: Final = "search_history"
"""The name of the tool that lets a model look here. What it said is not found again: it only repeats."""

SEARCH_LIMIT: Final = 50

_SNIPPET_CHARS_BEFORE = 60
_SNIPPET_CHARS = 160

Whereabouts: TypeAlias = Literal["context", "summarised", "omitted", "shortened"]
"""Where a recorded message is now. `summarised`: before the boundary of the newest compaction. `omitted`: a context
edit took it out. `shortened`: a context edit shows something else in its place."""

_ROLES: tuple[tuple[type[Message], str], ...] = (
    (UserMessage, "user"),
    (AssistantMessage, "assistant"),
    (ToolResultMessage, "tool_result"),
    (BashExecutionMessage, "bash_execution"),
    (CustomMessage, "custom"),
    (BranchSummaryMessage, "branch_summary"),
)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class RecordedMessage(Shown):
    """A message as it was recorded, the entry that holds it, and where it is now."""

    entry: Entry
    message: Message
    where: Whereabouts

    @property
    def id(self) -> str:
        """Of the entry."""
        return self.entry.id

    @property
    def role(self) -> str:
        """user, assistant, tool_result, bash_execution, custom or branch_summary."""
        return next((role for kind, role in _ROLES if isinstance(self.message, kind)), "")

    @property
    def text(self) -> str:
        """All that is read of it, calls with their arguments included; thinking left out, images as placeholders."""
        return "\n\n".join(message_texts(self.message, sys.maxsize))

    @override
    def _line(self) -> str:
        return f"{self.id} ({self.where}): {self.message!r}"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SearchHit(Shown):
    """A message in which a text occurs. `snippet` is one line around the first place, `timestamp` the entry's."""

    entry_id: str
    role: str
    where: Whereabouts
    timestamp: str
    snippet: str

    @override
    def _line(self) -> str:
        return f"{self.entry_id} {self.role} ({self.where}): {quoted(self.snippet, _SNIPPET_CHARS)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """The path to the leaf, and what the context shows of it: the message by entry, and the entries it could show."""

    path: Sequence[Entry]
    shown: dict[str, Message]
    window: frozenset[str]

    def messages(self) -> Iterator[RecordedMessage]:
        """Everything that was said, oldest first."""
        spoken = [entry for entry in self.path if not isinstance(entry, CompactionEntry | ContextEditEntry)]
        for item in build_context(build_projection(spoken)):
            if isinstance(item.message, ToolResultMessage) and _is_answer(item.entry):
                continue  # made up for a call without a result, and recorded nowhere
            yield RecordedMessage(entry=item.entry, message=item.message, where=self._where(item.entry, item.message))

    def dropped(self) -> Iterator[RecordedMessage]:
        """What of it the context does not show as it was recorded, oldest first."""
        return (said for said in self.messages() if said.where != "context")

    def search(self, *terms: str, limit: int, skip: int = 0, only_dropped: bool = False) -> list[SearchHit]:
        """The newest messages in which every term occurs, newest first, those after the first `skip`.

        Without a term: all of them, each with its beginning as the snippet.
        """
        patterns = [_pattern(term) for term in terms]
        hits = self._hits(patterns, self.dropped() if only_dropped else self.messages())
        return list(islice(hits, skip, skip + limit))

    def message(self, entry_id: str) -> RecordedMessage | None:
        """What an entry of this branch says; None where it is not here, or says nothing."""
        return next((said for said in self.messages() if said.id == entry_id), None)

    @staticmethod
    def _hits(patterns: Sequence[re.Pattern[str]], messages: Iterator[RecordedMessage]) -> Iterator[SearchHit]:
        for said in reversed(list(messages)):
            texts = _searched_texts(said.message)
            places = [_place(pattern, texts) for pattern in patterns]
            first = places[0] if places else _Place(texts[0], 0) if texts else None
            if first is not None and None not in places:
                yield SearchHit(
                    entry_id=said.id,
                    role=said.role,
                    where=said.where,
                    timestamp=said.entry.timestamp,
                    snippet=_snippet(first),
                )

    def _where(self, entry: Entry, message: Message) -> Whereabouts:
        if entry.id in self.shown:
            return "context" if self.shown[entry.id] == message else "shortened"
        return "omitted" if entry.id in self.window else "summarised"


def branch_of(session: SessionReader) -> Branch:
    """The branch of the leaf as it is now."""
    projection = session.projection
    context = build_context(projection)
    return Branch(
        path=session.get_branch(),
        # In reverse, so that an answer wins over the results that were made up for it.
        shown={item.entry.id: item.message for item in reversed(context)},
        window=frozenset(entry.id for entry in projection.entries),
    )


def search_branch(session: SessionReader, text: str, *, limit: int = SEARCH_LIMIT) -> list[SearchHit]:
    """The messages of the branch of the leaf in which `text` occurs, newest first, at most `limit`.

    Raises:
        ValueError: nothing to search for.
    """
    if not text.strip():
        raise ValueError("search takes a text: there is nothing to search for")
    return branch_of(session).search(text, limit=limit)


def first_occurrence(text: str, term: str) -> int | None:
    """Where `term` first occurs in `text`, by the rules of a search; None where it does not."""
    found = _pattern(term).search(text)
    return found.start() if found is not None else None


def _pattern(term: str) -> re.Pattern[str]:
    """Plain text in any case; any white space for white space, since lines are broken anywhere."""
    return re.compile(r"\s+".join(map(re.escape, term.split())), re.IGNORECASE)


def _searched_texts(message: Message) -> list[str]:
    """The parts of a message without the labels that they are shown under."""
    if isinstance(message, ToolResultMessage) and message.tool_name == SEARCH_HISTORY:
        return []
    if isinstance(message, AssistantMessage):
        own = [block for block in message.content if not (isinstance(block, ToolCall) and block.name == SEARCH_HISTORY)]
        if len(own) != len(message.content):
            message = AssistantMessage(content=tuple(own))
    return [part.partition("\n")[2] for part in message_texts(message, sys.maxsize)]


class _Place(NamedTuple):
    text: str
    position: int


def _place(pattern: re.Pattern[str], texts: Sequence[str]) -> _Place | None:
    return next((_Place(text, match.start()) for text in texts if (match := pattern.search(text)) is not None), None)


def _snippet(place: _Place) -> str:
    start = max(0, place.position - _SNIPPET_CHARS_BEFORE)
    end = start + _SNIPPET_CHARS
    line = one_line(place.text[start:end], _SNIPPET_CHARS)
    return f"{'…' if start else ''}{line}{'…' if end < len(place.text) else ''}"


def _is_answer(entry: Entry) -> bool:
    return isinstance(getattr(entry, "message", None), AssistantMessage)
