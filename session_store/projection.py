"""The projection: what the log says about one branch, entry by entry.

A pure function of the path from the root to a leaf, and the same function advanced by one entry at a time.
The rule it keeps: an advanced projection equals the one built anew from the whole path, and advancing it
never costs the length of the session.

The newest compaction on the path opens the window: its replay of system messages and its summary come
first, then the raw path from its boundary up to it (without system messages), then everything after it.
Older compactions inside say nothing. Context edits inside the window change what an entry shows, the last in
path order wins, wherever its target stands; edits outside of it do not count. What a request sends is made
from this in `context`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Protocol

from typing_extensions import override

from session_store.entries import (
    BranchSummaryEntry,
    CompactionEntry,
    ContextEditEntry,
    CustomMessageEntry,
    Entry,
    MessageEntry,
    ModelChangeEntry,
    ThinkingLevelChangeEntry,
)
from session_store.messages import (
    AssistantMessage,
    BranchSummaryMessage,
    CompactionSummaryMessage,
    CustomMessage,
    Message,
    SystemMessage,
    ToolResultMessage,
    UserMessage,
)
from session_store.showing import Brief

# The newest compaction shows before everything that it keeps, although it stands after that on the path.
_FRONT = -1


@dataclass(frozen=True, slots=True, repr=False)
class ProjectedMessage(Brief):
    """A message and the entry it comes from. Unedited messages are the entry's own objects, never copies."""

    entry: Entry
    message: Message


class BranchBefore(Protocol):
    """What a branch says before the part of it that a projection is made of. None: nothing."""

    def model(self) -> tuple[str | None, str | None] | None:
        """Provider and model id of the last model change or answer."""
        ...

    def thinking_level(self) -> str | None:
        """The last change."""
        ...


class Projection:
    """What the log says about one branch. Live: `advance` changes it in place.

    `entries`: the window, that is the path from the boundary of the newest compaction on (all of the path
    where there is none), every type, in path order, system messages left out; the compaction itself stands
    at its own place among them.
    `messages`: what these entries show, the compaction's summary first.
    `compaction`: the newest on the path, also where its boundary keeps nothing.
    `provider`, `model_id`: of the last model change or answer on the full path, None where there is neither.
    `thinking_level`: the last change on the full path, else "off".
    `messages_after_last_change`: index into `messages` of the first whose entry stands after the newest
    compaction or context edit; token counts reported earlier say nothing about the context of now.
    `rewrites`: how often `messages` was changed otherwise than by something put behind it.
    `unresolved_boundary`: the boundary of `compaction` where that is an id which is not on the path before
    it: another branch, a descendant, unknown. Nothing is kept then.
    """

    __slots__ = (
        "_before",
        "_edits",
        "_model",
        "_sequence",
        "_thinking_level",
        "_window",
        "compaction",
        "entries",
        "leaf_id",
        "messages",
        "messages_after_last_change",
        "rewrites",
        "unresolved_boundary",
    )

    def __init__(self, path: Sequence[Entry] = (), *, before: BranchBefore | None = None) -> None:
        """`path` is the full path, or its end from the boundary of its newest compaction on.

        In that case `before` is asked, once it must be, what stands before that.
        """
        self.leaf_id: str | None = None
        self._before = before
        self._model: tuple[str | None, str | None] | None = None
        self._thinking_level: str | None = None
        self.rewrites = 0
        self._read(path)

    @property
    def provider(self) -> str | None:
        return self._known_model()[0]

    @property
    def model_id(self) -> str | None:
        return self._known_model()[1]

    @property
    def thinking_level(self) -> str:
        if self._thinking_level is None:
            self._thinking_level = (self._before.thinking_level() if self._before is not None else None) or "off"
        return self._thinking_level

    def _known_model(self) -> tuple[str | None, str | None]:
        if self._model is None:
            self._model = (self._before.model() if self._before is not None else None) or (None, None)
        return self._model

    @override
    def __repr__(self) -> str:
        return f"<Projection, {len(self.entries):,} entries, {len(self.messages):,} messages, leaf {self.leaf_id}>"

    def advance(self, entry: Entry, path: Callable[[], Sequence[Entry]]) -> None:
        """Go on by one entry that was appended under the leaf.

        `path` gives the full path, `entry` included; it is called only for a compaction whose boundary is
        not in the window. An entry that is no compaction costs the same however long the session is (an
        edit moves the pointers behind its target); a compaction costs what it keeps.

        Raises:
            ValueError: `entry` is not a child of the leaf.
        """
        if entry.parent_id != self.leaf_id:
            raise ValueError(f"entry {entry.id!r} is under {entry.parent_id!r}, not under the leaf {self.leaf_id!r}")
        if isinstance(entry, CompactionEntry):
            kept = self._kept_by(entry)
            if kept is None:
                self._read(path())
            else:
                self.leaf_id = entry.id
                self._open_window(kept, entry, unresolved=None)
            return
        self._note(entry)
        if isinstance(entry, ContextEditEntry):
            self._edits[entry.target_id] = entry
            self._show_again(entry.target_id)
        self._take(entry)

    # Building -----------------------------------------------------------------------------------

    def _read(self, path: Sequence[Entry]) -> None:
        for entry in path:
            self._note(entry)
        newest = next((i for i in range(len(path) - 1, -1, -1) if isinstance(path[i], CompactionEntry)), None)
        if newest is None:
            self._open_window((), None, unresolved=None, after=path)
            return
        compaction = path[newest]
        assert isinstance(compaction, CompactionEntry)
        boundary = compaction.first_kept_entry_id
        start = next((i for i in range(newest - 1, -1, -1) if path[i].id == boundary), newest)
        is_unresolved = start == newest and boundary is not None and boundary != compaction.id
        self._open_window(
            path[start:newest],
            compaction,
            unresolved=boundary if is_unresolved else None,
            after=path[newest + 1 :],
        )

    def _kept_by(self, compaction: CompactionEntry) -> Sequence[Entry] | None:
        """What a compaction at the leaf keeps of the window; None where only the full path can tell."""
        boundary = compaction.first_kept_entry_id
        if boundary is None or boundary == compaction.id:
            return ()
        if boundary not in self._window:
            return None
        start = next((i for i in range(len(self.entries) - 1, -1, -1) if self.entries[i].id == boundary), None)
        # A system message can be named as a boundary (by other programs) and is not among the entries.
        return self.entries[start:] if start is not None else None

    def _open_window(
        self,
        kept: Sequence[Entry],
        compaction: CompactionEntry | None,
        *,
        unresolved: str | None,
        after: Sequence[Entry] = (),
    ) -> None:
        self.rewrites += 1
        self.compaction = compaction
        self.unresolved_boundary = unresolved
        self.entries: list[Entry] = []
        self.messages: list[ProjectedMessage] = []
        self.messages_after_last_change = 0
        # Where each message's entry stands in the window: ascending, so that an edit finds its target by bisection.
        self._sequence: list[int] = []
        self._window: dict[str, tuple[int, Entry]] = {}
        self._edits = {
            entry.target_id: entry for part in (kept, after) for entry in part if isinstance(entry, ContextEditEntry)
        }
        if compaction is not None:
            self._show(_FRONT, compaction)
        for entry in kept:
            if not _is_system(entry):
                self._take(entry)
        if compaction is not None:
            self._window[compaction.id] = (_FRONT, compaction)
            self.entries.append(compaction)
            self.messages_after_last_change = len(self.messages)
        for entry in after:
            self._take(entry)

    def _note(self, entry: Entry) -> None:
        self.leaf_id = entry.id
        if isinstance(entry, MessageEntry):
            message = entry.message
            if isinstance(message, AssistantMessage) and message.model:
                self._model = (message.provider, message.model)
        elif isinstance(entry, ModelChangeEntry):
            self._model = (entry.provider, entry.model_id)
        elif isinstance(entry, ThinkingLevelChangeEntry):
            self._thinking_level = entry.thinking_level

    def _take(self, entry: Entry) -> None:
        position = len(self._window)
        self._window[entry.id] = (position, entry)
        if not _is_system(entry):
            self.entries.append(entry)
        self._show(position, entry)
        if isinstance(entry, ContextEditEntry):
            self.messages_after_last_change = len(self.messages)

    def _show(self, position: int, entry: Entry) -> None:
        for message in self._shown(entry):
            self.messages.append(ProjectedMessage(entry, message))
            self._sequence.append(position)

    def _show_again(self, entry_id: str) -> None:
        found = self._window.get(entry_id)
        if found is None:
            return
        self.rewrites += 1
        position, entry = found
        start = bisect_left(self._sequence, position)
        end = bisect_left(self._sequence, position + 1, lo=start)
        shown = self._shown(entry)
        self.messages[start:end] = [ProjectedMessage(entry, message) for message in shown]
        self._sequence[start:end] = [position] * len(shown)

    def _shown(self, entry: Entry) -> tuple[Message, ...]:
        if isinstance(entry, CompactionEntry) and entry is not self.compaction:
            return ()
        return _messages_of(entry, self._edits.get(entry.id))


def build_projection(path: Sequence[Entry]) -> Projection:
    """What the log says about the branch `path`, root first. Pure."""
    return Projection(path)


def _is_system(entry: Entry) -> bool:
    return isinstance(entry, MessageEntry) and isinstance(entry.message, SystemMessage)


def _messages_of(entry: Entry, edit: ContextEditEntry | None) -> tuple[Message, ...]:
    """What one entry shows: nothing, a message, or for a compaction the system message and the summary."""
    if edit is None and isinstance(entry, MessageEntry):
        return (entry.message,)
    if edit is not None and edit.replacement is None:
        return ()
    content = edit.replacement if edit is not None else None
    match entry:
        case MessageEntry(message=message):
            if content is not None and isinstance(
                message, (UserMessage, AssistantMessage, ToolResultMessage, CustomMessage)
            ):
                return (replace(message, content=content),)
            return (message,)
        case CustomMessageEntry():
            return (
                CustomMessage(
                    custom_type=entry.custom_type,
                    content=entry.content if content is None else content,
                    display=entry.display,
                    details=entry.details,
                    timestamp=_unix_ms(entry.timestamp),
                ),
            )
        case BranchSummaryEntry(summary=summary) if summary:
            return (BranchSummaryMessage(summary=summary, from_id=entry.from_id, timestamp=_unix_ms(entry.timestamp)),)
        case CompactionEntry():
            summary_message = CompactionSummaryMessage(
                summary=entry.summary, tokens_before=entry.tokens_before, timestamp=_unix_ms(entry.timestamp)
            )
            return (summary_message,) if entry.system_message is None else (entry.system_message, summary_message)
        case _:
            return ()


def _unix_ms(timestamp: str) -> int:
    """Milliseconds of an entry's ISO-8601 time, UTC where it names no zone; 0 where it is no time."""
    try:
        moment = datetime.fromisoformat(timestamp)
        return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
    except (ValueError, OverflowError):
        return 0
