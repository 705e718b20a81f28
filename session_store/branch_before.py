"""What a branch says before the part of it that was read: by the checkpoint in between, else by reading on.

The rule it keeps: nothing is looked up before it is asked for, and both ways give the same.
"""

from __future__ import annotations

from typing import Final

from session_store.checkpoint import Checkpoint
from session_store.entries import MessageEntry, ModelChangeEntry, ThinkingLevelChangeEntry
from session_store.messages import AssistantMessage
from session_store.tree import EntryTree

_MODEL_TYPES: Final = frozenset({ModelChangeEntry.type, MessageEntry.type})
_LEVEL_TYPES: Final = frozenset({ThinkingLevelChangeEntry.type})


class PathBefore:
    """A `BranchBefore` over the path to one entry, that entry included."""

    def __init__(self, tree: EntryTree, entry_id: str, checkpoint: Checkpoint | None) -> None:
        """`checkpoint` is that of a compaction further down, if it has one."""
        self._tree = tree
        self._entry_id = entry_id
        self._checkpoint = checkpoint

    def model(self) -> tuple[str | None, str | None] | None:
        if self._checkpoint is not None:
            return self._checkpoint.provider, self._checkpoint.model_id
        for entry in self._tree.nearest(self._entry_id, _MODEL_TYPES):
            if isinstance(entry, ModelChangeEntry):
                return entry.provider, entry.model_id
            if isinstance(entry, MessageEntry) and isinstance(entry.message, AssistantMessage) and entry.message.model:
                return entry.message.provider, entry.message.model
        return None

    def thinking_level(self) -> str | None:
        if self._checkpoint is not None:
            return self._checkpoint.thinking_level
        for entry in self._tree.nearest(self._entry_id, _LEVEL_TYPES):
            if isinstance(entry, ThinkingLevelChangeEntry):
                return entry.thinking_level
        return None
