"""`SessionReader`: what can be asked of a session's entries.

Owns the tree and everything that follows from it: the projection of the current leaf, labels, name, totals,
the newest state of extensions. The rule it keeps: all of it is a function of the entries alone, and taking one
more entry never costs the length of the session. What is not asked for is not computed, or read; what was computed
is kept up from then on. A checkpoint on the branch stands for what it was made of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from session_store.branch_before import PathBefore
from session_store.checkpoint import Checkpoint, CustomState, read_checkpoint
from session_store.context import ContextRepair, GrowingContext, build_context
from session_store.entries import CompactionEntry, CustomEntry, Entry, LabelEntry, SessionInfoEntry
from session_store.forest import TreeNode, nodes_of
from session_store.gc_pause import paused_collector
from session_store.messages import Message
from session_store.projection import ProjectedMessage, Projection
from session_store.totals import COUNTED_TYPES, UsageTotals
from session_store.tree import EntryTree

_CUSTOM_TYPES: Final = frozenset({CustomEntry.type})
_LABEL_TYPES: Final = frozenset({LabelEntry.type})
_NAME_TYPES: Final = frozenset({SessionInfoEntry.type})

LEAF_CUSTOM_TYPE = "agent_session.leaf"
"""The type of the `custom` entry that moves the leaf; its data names the entry that the leaf was moved to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Base:
    """A compaction whose checkpoint speaks for the file before it; `start` is where its line begins, in bytes."""

    compaction: CompactionEntry
    checkpoint: Checkpoint
    start: int


class SessionReader:
    """The read side of a session. `on_warning` is told, once each, what had to be left out of the context."""

    def __init__(self, tree: EntryTree | None = None) -> None:
        self.on_warning: Callable[[str], None] | None = None
        self._tree = tree if tree is not None else EntryTree()
        self._labels: dict[str, str] | None = None
        self._name: tuple[str | None] | None = None  # None: not looked for yet
        self._projection: Projection | None = None
        self._context = GrowingContext(self._warn_of_repair)
        self._custom: dict[str, CustomState] | None = None
        self._totals: UsageTotals | None = None
        self._warned: set[str] = set()

    # The tree -----------------------------------------------------------------------------------

    @property
    def leaf_id(self) -> str | None:
        """The entry that the next append stands under: the last of the file. None while it is empty."""
        return self._tree.leaf_id

    def __len__(self) -> int:
        """How many entries the log has, the header not counted."""
        base = self._base()
        if base is not None:
            self._tree.count_before(base.compaction.id, base.checkpoint.entries)
        return len(self._tree)

    def __iter__(self) -> Iterator[Entry]:
        """All entries in file order."""
        return iter(self._tree)

    def __contains__(self, entry_id: object) -> bool:
        return entry_id in self._tree

    def get_entry(self, entry_id: str) -> Entry:
        """The entry with that id.

        Raises:
            EntryNotFoundError: there is none.
        """
        return self._tree.entry(entry_id)

    def get_children(self, entry_id: str | None) -> list[Entry]:
        """What was appended directly under an entry, in file order; for None the entries without a parent.

        Raises:
            EntryNotFoundError: there is no such entry.
        """
        return self._tree.children(entry_id)

    def get_branch(self, from_id: str | None = None) -> list[Entry]:
        """The path from the root down to `from_id`, both included; by default down to the leaf.

        Raises:
            EntryNotFoundError: there is no such entry.
        """
        return self._tree.path(from_id if from_id is not None else self.leaf_id)

    def walk_branch(self, from_id: str | None = None) -> Iterator[Entry]:
        """The same path as it is now, its entries read as they are reached: no more of them is in memory at once.

        Raises:
            EntryNotFoundError: there is no such entry.
        """
        return self._tree.walk(from_id if from_id is not None else self.leaf_id)

    def get_tree(self) -> list[TreeNode]:
        """All entries as nodes with their children, in file order; the list has the roots."""
        return nodes_of(self._tree, self.labels)

    def is_on_branch(self, entry_id: str) -> bool:
        """Whether an entry is on the path from the root to the leaf."""
        return any(line.id == entry_id for line in self._tree.ancestors(self.leaf_id))

    # The branch ---------------------------------------------------------------------------------

    @property
    def projection(self) -> Projection:
        """What the log says about the branch of the leaf. Live: the next append advances this same object."""
        if self._projection is None:
            self._projection = self.build_projection()
            self._tree.hold_only(self._projection.entries)
        return self._projection

    def build_projection(self, leaf_id: str | None = None) -> Projection:
        """A projection of its own, of the branch that ends at `leaf_id` (by default at the leaf).

        Raises:
            EntryNotFoundError: there is no such entry.
        """
        with paused_collector():
            entries, before_id = self._tree.window(leaf_id if leaf_id is not None else self.leaf_id)
            compaction = next((entry for entry in reversed(entries) if isinstance(entry, CompactionEntry)), None)
            checkpoint = read_checkpoint(compaction.checkpoint) if compaction is not None else None
            before = PathBefore(self._tree, before_id, checkpoint) if before_id is not None else None
            projection = Projection(entries, before=before)
        if projection.unresolved_boundary is not None and projection.compaction is not None:
            self._warn_once(
                f"compaction {projection.compaction.id!r} keeps nothing: its boundary "
                f"{projection.unresolved_boundary!r} is not on the branch before it"
            )
        return projection

    def build_context(self, leaf_id: str | None = None) -> list[ProjectedMessage]:
        """The context with its entries: what the next request sends from the branch that ends at `leaf_id`, or at the
        leaf. A result that answers no call is warned about, once.

        Raises:
            EntryNotFoundError: there is no such entry.
        """
        if leaf_id is None:
            with paused_collector():
                return self._context.of(self.projection)
        return build_context(self.build_projection(leaf_id), on_repair=self._warn_of_repair)

    def build_messages(self, leaf_id: str | None = None) -> list[Message]:
        """The messages of `build_context`.

        Raises:
            EntryNotFoundError: there is no such entry.
        """
        return [item.message for item in self.build_context(leaf_id)]

    def get_latest_compaction_entry(self) -> CompactionEntry | None:
        """The newest compaction on the branch of the leaf."""
        return self.projection.compaction

    def get_custom(self, custom_type: str) -> Any:
        """The newest data that an extension appended under that type on the branch of the leaf, else None."""
        state = self.newest_custom().get(custom_type)
        if state is None or state.entry_id is None or state.is_here:
            return state.data if state is not None else None
        entry = self._tree.entry_near(state.entry_id, state.offset)
        return entry.data if isinstance(entry, CustomEntry) else None

    def newest_custom(self) -> Mapping[str, CustomState]:
        """The newest state of each custom type on the branch of the leaf."""
        if self._custom is None:
            compaction = self.projection.compaction
            checkpoint = read_checkpoint(compaction.checkpoint) if compaction is not None else None
            after = compaction.id if compaction is not None and checkpoint is not None else None
            found: dict[str, CustomState] = {}
            for entry in self._tree.nearest(self.leaf_id, _CUSTOM_TYPES, after=after):
                if isinstance(entry, CustomEntry):
                    found.setdefault(entry.custom_type, self._state_of(entry))
            self._custom = {**(checkpoint.custom if checkpoint is not None else {}), **found}
        return self._custom

    # The file -----------------------------------------------------------------------------------

    @property
    def name(self) -> str | None:
        """The session's name: the last that was set, on whichever branch; None where it is unset or blank."""
        if self._name is None:
            base = self._base()
            since = base.start if base is not None else None
            names = [
                entry.name.strip() or None
                for entry in self._tree.all_of(_NAME_TYPES, since=since)
                if isinstance(entry, SessionInfoEntry)
            ]
            before = base.checkpoint.name if base is not None else None
            self._name = (names[-1] if names else before,)
        return self._name[0]

    @property
    def labels(self) -> Mapping[str, str]:
        """The current label of each labelled entry, by id."""
        if self._labels is None:
            self._labels = {}
            for entry in self._tree.all_of(_LABEL_TYPES):
                self._note_label(entry)
        return MappingProxyType(self._labels)

    @property
    def totals(self) -> UsageTotals:
        """What the whole session spent, all branches and compacted history included. Live."""
        if self._totals is None:
            base = self._base()
            totals = base.checkpoint.totals if base is not None else UsageTotals()
            for entry in self._tree.all_of(COUNTED_TYPES, since=base.start if base is not None else None):
                totals.add(entry)
            self._totals = totals
        return self._totals

    def offset_of(self, entry_id: str) -> int | None:
        """Where the line of an entry begins in the file, in bytes; None where that is not known."""
        line = self._tree.line(entry_id)
        return line.start if line is not None and line.start >= 0 else None

    # Keeping up ---------------------------------------------------------------------------------

    def _admit(self, entry: Entry, *, start: int, length: int) -> None:
        """Take an entry whose line is in the log, `length` bytes from `start` on; it becomes the leaf."""
        is_on_branch = entry.parent_id == self.leaf_id and not self._tree.knows(entry.id)
        self._tree.add(entry, start=start, length=length)
        self._note_label(entry)
        if isinstance(entry, SessionInfoEntry):
            self._name = (entry.name.strip() or None,)
        if self._totals is not None:
            self._totals.add(entry)
        if not is_on_branch:
            self._projection = self._custom = None
            self._tree.hold_only((entry,))
            return
        if self._custom is not None and isinstance(entry, CustomEntry):
            self._custom[entry.custom_type] = self._state_of(entry)
        if self._projection is not None:
            self._projection.advance(entry, self.get_branch)
            if isinstance(entry, CompactionEntry):
                # What has left the context is forgotten: memory follows the context, not the history.
                self._tree.hold_only(self._projection.entries)
                self._tree.forget_before(self._projection.entries)

    def _base(self) -> _Base | None:
        """The newest compaction of the branch, where its checkpoint is true of all that stands before it in the log."""
        compaction = self.projection.compaction
        checkpoint = read_checkpoint(compaction.checkpoint) if compaction is not None else None
        if compaction is None or checkpoint is None or checkpoint.bytes is None:
            return None
        if self._tree.bytes_before(compaction.id) != checkpoint.bytes:
            return None
        return _Base(compaction=compaction, checkpoint=checkpoint, start=self.offset_of(compaction.id) or 0)

    def _state_of(self, entry: CustomEntry) -> CustomState:
        return CustomState(entry_id=entry.id, offset=self.offset_of(entry.id), data=entry.data)

    def _note_label(self, entry: Entry) -> None:
        if self._labels is None or not isinstance(entry, LabelEntry):
            return
        if entry.label:
            self._labels[entry.target_id] = entry.label
        else:
            self._labels.pop(entry.target_id, None)

    def _warn_of_repair(self, repair: ContextRepair) -> None:
        why = "no earlier call has its id" if repair.kind == "orphan_result" else "its call has a result already"
        self._warn_once(f"the result in entry {repair.entry_id!r} for call {repair.call_id!r} is not sent: {why}")

    def _warn_once(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            self._warn(text)

    def _warn(self, text: str) -> None:
        if self.on_warning is not None:
            self.on_warning(text)
