"""`SessionWriter`: what can be appended to a log.

The rule it keeps: an append stands under the leaf, unless it says where, and becomes the leaf; what would not fit the
branch is refused before anything is written. The way into the log itself is `LoggedSession`'s.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from session_store.compaction_batch import compaction_batch
from session_store.entries import (
    BranchSummaryEntry,
    CompactionEntry,
    ContextEditEntry,
    CustomEntry,
    CustomMessageEntry,
    Entry,
    LabelEntry,
    MessageEntry,
    ModelChangeEntry,
    SessionInfoEntry,
    ThinkingLevelChangeEntry,
    UsageEntry,
)
from session_store.errors import DuplicateEntryError
from session_store.ids import is_random, new_id, now_iso
from session_store.logged import LoggedSession
from session_store.messages import Content, Message, Usage, as_content
from session_store.reading import LEAF_CUSTOM_TYPE
from session_store.recording import bound_content, bound_message
from session_store.undo import Undo


class SessionWriter(LoggedSession):
    """A session with its log: what `SessionReader` answers, and every append.

    All appends return the entry as stored, are short enough for an event loop, and raise, with nothing
    changed: `SessionReadOnlyError` (opened read-only, or closed), `SessionLockedError` and `StaleLeafError`
    (somebody else has the file), `TypeError` (a value that can never be JSON). What the disk refuses is no
    error: the entry is taken and `pending`, `on_warning` says so, and the next append writes it first.
    """

    # Messages -----------------------------------------------------------------------------------

    def append_message(
        self, message: Message, *, entry_id: str | None = None, parent_id: str | None = None
    ) -> MessageEntry:
        """Record a message. Text above 256 KiB becomes head, tail and pointer, and is so from then on.

        `parent_id` is where it stands instead of under the leaf.

        Raises:
            DuplicateEntryError: `entry_id` is taken.
            EntryNotFoundError: `parent_id` is not in this session.
        """
        self._require_writable()
        if entry_id is not None and entry_id in self:
            raise DuplicateEntryError(entry_id)
        if parent_id is not None:
            self._require(parent_id, role="parent")
        return self._append_one(
            MessageEntry(
                id=entry_id or new_id(),
                parent_id=parent_id if parent_id is not None else self.leaf_id,
                timestamp=now_iso(),
                message=bound_message(message, self._blob_store),
            )
        )

    def append_custom_message(
        self,
        custom_type: str,
        content: str | Content | Sequence[Content],
        *,
        display: bool = True,
        details: Any = None,
    ) -> CustomMessageEntry:
        """Record a message of an extension, which the model sees as the user's."""
        self._require_writable()
        return self._append_one(
            CustomMessageEntry(
                **self._next(),
                custom_type=custom_type,
                content=bound_content(as_content(content), self._blob_store),
                display=display,
                details=details,
            )
        )

    # Compaction ---------------------------------------------------------------------------------

    def append_compaction(
        self,
        summary: str,
        first_kept_entry_id: str | None,
        tokens_before: int,
        *,
        details: Any = None,
        usage: Usage | None = None,
        from_hook: bool = False,
        reason: str | None = None,
        method: str | None = None,
        model: str | None = None,
        tokens_after: int | None = None,
        duration_ms: int | None = None,
        instructions: str | None = None,
        active_tools: Sequence[str] | None = None,
    ) -> CompactionEntry:
        """Let `summary` stand for everything before `first_kept_entry_id` (None: for everything).

        Raises:
            InvalidBoundaryError: see `append_compaction_entry`.
        """
        entry, _ = self.append_compaction_entry(
            CompactionEntry(
                **self._next(),
                summary=summary,
                first_kept_entry_id=first_kept_entry_id,
                tokens_before=tokens_before,
                details=details,
                usage=usage,
                from_hook=from_hook,
                reason=reason,
                method=method,
                model=model,
                tokens_after=tokens_after,
                duration_ms=duration_ms,
                instructions=instructions,
            ),
            active_tools=active_tools,
        )
        return entry

    def append_compaction_entry(
        self,
        entry: CompactionEntry,
        edits: Sequence[tuple[str, tuple[Content, ...] | None]] = (),
        *,
        active_tools: Sequence[str] | None = None,
    ) -> tuple[CompactionEntry, tuple[ContextEditEntry, ...]]:
        """Append a prepared compaction at the leaf as it is now, with context edits before it, in one write.

        Its `parent_id` is replaced, a checkpoint and the replay of system messages are added. Each edit is
        `(target_id, replacement)`, may name the compaction itself, and without the entry counts for nothing.

        Raises:
            InvalidBoundaryError: the boundary does not fit the branch as it is now (`check_boundary`). With
                `details["undoes"]` any entry of the branch fits.
            DuplicateEntryError: the entry's id is taken; one that is the randomness of `new_id` is taken for new.
            EntryNotFoundError: an edit's target is not in this session.
        """
        self._require_writable()
        # Randomness is not looked up: that would read all of the log.
        if self._tree.knows(entry.id) or (not is_random(entry.id) and entry.id in self):
            raise DuplicateEntryError(entry.id)
        for target_id, _ in edits:
            if target_id != entry.id:
                self._require(target_id, role="target")
        bounded = [
            (target_id, None if content is None else bound_content(content, self._blob_store))
            for target_id, content in edits
        ]
        batch = compaction_batch(
            self, entry, bounded, active_tools=active_tools, bytes_before=self._bytes_before_next()
        )
        stored = self._append(batch)
        compaction = stored[-1]
        assert isinstance(compaction, CompactionEntry)
        return compaction, tuple(edit for edit in stored[:-1] if isinstance(edit, ContextEditEntry))

    def append_undo(self, undo: Undo, *, active_tools: Sequence[str] | None = None) -> list[Entry]:
        """Append what `plan_undo` planned for the branch as it is now, in one write; the stored entries, in order."""
        batch: list[Entry] = compaction_batch(
            self, undo.entry, undo.edits, active_tools=active_tools, bytes_before=self._bytes_before_next()
        )
        if undo.system_message is not None:
            batch.append(undo.system_message)
        return self._append(batch)

    def append_context_edit(
        self, target_id: str, replacement: str | Content | Sequence[Content] | None
    ) -> ContextEditEntry:
        """Change how an earlier entry shows in the context: None omits it, else it is the new content.

        Raises:
            EntryNotFoundError: the target is not in this session.
        """
        content = None if replacement is None else as_content(replacement)
        return self.append_context_edits([(target_id, content)])[0]

    def append_context_edits(
        self, edits: Sequence[tuple[str, tuple[Content, ...] | None]]
    ) -> tuple[ContextEditEntry, ...]:
        """Several edits in one write, each `(target_id, replacement)`.

        Raises:
            EntryNotFoundError: a target is not in this session; nothing was appended.
        """
        self._require_writable()
        for target_id, _ in edits:
            self._require(target_id, role="target")
        batch: list[Entry] = []
        for target_id, replacement in edits:
            content = None if replacement is None else bound_content(replacement, self._blob_store)
            parent = {"parent_id": batch[-1].id} if batch else {}
            batch.append(ContextEditEntry(**self._next() | parent, target_id=target_id, replacement=content))
        return tuple(edit for edit in self._append(batch) if isinstance(edit, ContextEditEntry))

    # Branches and state -------------------------------------------------------------------------

    def branch(self, entry_id: str | None) -> CustomEntry | None:
        """Move the leaf under an entry (None: before the first), so that whoever reopens the file is there too.

        Returns the entry that moved it, None where the leaf is there already.

        Raises:
            EntryNotFoundError: there is no such entry.
        """
        if entry_id == self.leaf_id:
            return None
        offset = None
        if entry_id is not None:
            self._require(entry_id)
            offset = self.offset_of(entry_id)
        data = {"targetId": entry_id, "offset": offset}
        return self._append_one(
            CustomEntry(id=new_id(), parent_id=entry_id, timestamp=now_iso(), custom_type=LEAF_CUSTOM_TYPE, data=data)
        )

    def append_branch_summary(
        self,
        from_id: str | None,
        summary: str,
        *,
        parent_id: str | None,
        details: Any = None,
        usage: Usage | None = None,
        from_hook: bool = False,
    ) -> BranchSummaryEntry:
        """Move the leaf under `parent_id` (None: before the first entry) with a summary of the branch left.

        `from_id` is the leaf that was left.

        Raises:
            EntryNotFoundError: one of the two is not in this session.
        """
        if from_id is not None:
            self._require(from_id)
        if parent_id is not None:
            self._require(parent_id, role="parent")
        return self._append_one(
            BranchSummaryEntry(
                id=new_id(),
                parent_id=parent_id,
                timestamp=now_iso(),
                from_id=from_id,
                summary=summary,
                details=details,
                usage=usage,
                from_hook=from_hook,
            )
        )

    def append_custom(self, custom_type: str, data: Any = None) -> CustomEntry:
        """Keep a piece of an extension's state; `get_custom` gives the newest of the branch."""
        return self._append_one(CustomEntry(**self._next(), custom_type=custom_type, data=data))

    def append_model_change(self, provider: str, model_id: str) -> ModelChangeEntry:
        return self._append_one(ModelChangeEntry(**self._next(), provider=provider, model_id=model_id))

    def append_thinking_level_change(self, level: str) -> ThinkingLevelChangeEntry:
        return self._append_one(ThinkingLevelChangeEntry(**self._next(), thinking_level=level))

    def append_label(self, target_id: str, label: str | None) -> LabelEntry:
        """Label an entry; None or a blank label takes it off.

        Raises:
            EntryNotFoundError: there is no such entry.
        """
        self._require(target_id, role="target")
        return self._append_one(LabelEntry(**self._next(), target_id=target_id, label=(label or "").strip() or None))

    def set_name(self, name: str) -> SessionInfoEntry:
        """Name the session; a blank name takes the name off."""
        return self._append_one(SessionInfoEntry(**self._next(), name=name.strip()))

    def append_usage(self, kind: str, provider: str, model: str, usage: Usage) -> UsageEntry:
        """Count tokens that were spent outside of an answer, such as by a compaction that came to nothing."""
        return self._append_one(UsageEntry(**self._next(), kind=kind, provider=provider, model=model, usage=usage))
