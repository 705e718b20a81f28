"""`SessionReader`: what can be asked of a session's entries.

Owns the tree and everything that follows from it: the projection of the current leaf, labels, name, totals,
the newest state of extensions. The rule it keeps: all of it is a function of the entries alone, and taking one
more entry never costs the length of the session. What is not asked for is not computed; what was computed is
kept up from then on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from session_store.context import ContextRepair, build_context
from session_store.entries import CompactionEntry, CustomEntry, Entry, LabelEntry, SessionInfoEntry
from session_store.messages import Message
from session_store.projection import ProjectedMessage, Projection, build_projection
from session_store.totals import UsageTotals
from session_store.tree import EntryTree, TreeNode

LEAF_CUSTOM_TYPE = "agent_session.leaf"
"""The type of the `custom` entry that moves the leaf; its data names the entry that the leaf was moved to."""


class SessionReader:
    """The read side of a session. `on_warning` is told, once each, what had to be left out of the context."""

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self.on_warning: Callable[[str], None] | None = None
        self._tree = EntryTree()
        self._labels: dict[str, str] = {}
        self._name: str | None = None
        self._projection: Projection | None = None
        self._custom: dict[str, CustomEntry] | None = None
        self._totals: UsageTotals | None = None
        self._offsets: dict[str, int] = {}
        self._warned: set[str] = set()
        for entry in entries:
            self._admit(entry)

    # The tree -----------------------------------------------------------------------------------

    @property
    def leaf_id(self) -> str | None:
        """The entry that the next append stands under: the last of the file. None while it is empty."""
        return self._tree.leaf_id

    def __len__(self) -> int:
        """How many entries the log has, the header not counted."""
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

    def get_tree(self) -> list[TreeNode]:
        """All entries as nodes with their children, in file order; the list has the roots."""
        return self._tree.nodes(self._labels)

    # The branch ---------------------------------------------------------------------------------

    @property
    def projection(self) -> Projection:
        """What the log says about the branch of the leaf. Live: the next append advances this same object."""
        if self._projection is None:
            self._projection = self.build_projection()
        return self._projection

    def build_projection(self, leaf_id: str | None = None) -> Projection:
        """A projection of its own, of the branch that ends at `leaf_id` (by default at the leaf).

        Raises:
            EntryNotFoundError: there is no such entry.
        """
        projection = build_projection(self.get_branch(leaf_id))
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
        projection = self.projection if leaf_id is None else self.build_projection(leaf_id)
        return build_context(projection, on_repair=self._warn_of_repair)

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
        entry = self.newest_custom().get(custom_type)
        return entry.data if entry is not None else None

    def newest_custom(self) -> Mapping[str, CustomEntry]:
        """The newest entry of each custom type on the branch of the leaf."""
        if self._custom is None:
            self._custom = {entry.custom_type: entry for entry in self.get_branch() if isinstance(entry, CustomEntry)}
        return self._custom

    # The file -----------------------------------------------------------------------------------

    @property
    def name(self) -> str | None:
        """The session's name: the last that was set, on whichever branch; None where it is unset or blank."""
        return self._name

    @property
    def labels(self) -> Mapping[str, str]:
        """The current label of each labelled entry, by id."""
        return MappingProxyType(self._labels)

    @property
    def totals(self) -> UsageTotals:
        """What the whole session spent, all branches and compacted history included. Live."""
        if self._totals is None:
            self._totals = UsageTotals()
            for entry in self._tree:
                self._totals.add(entry)
        return self._totals

    def offset_of(self, entry_id: str) -> int | None:
        """Where the line of an entry begins in the file, in bytes; None where that is not known."""
        return self._offsets.get(entry_id)

    # Keeping up ---------------------------------------------------------------------------------

    def _admit(self, entry: Entry) -> None:
        """Take an entry that is in the log; it becomes the leaf."""
        is_on_branch = entry.parent_id == self.leaf_id and entry.id not in self._tree
        self._tree.add(entry)
        if isinstance(entry, LabelEntry):
            if entry.label:
                self._labels[entry.target_id] = entry.label
            else:
                self._labels.pop(entry.target_id, None)
        elif isinstance(entry, SessionInfoEntry):
            self._name = entry.name.strip() or None
        if self._totals is not None:
            self._totals.add(entry)
        if not is_on_branch:
            self._projection = self._custom = None
            return
        if self._projection is not None:
            self._projection.advance(entry, self.get_branch)
        if self._custom is not None and isinstance(entry, CustomEntry):
            self._custom[entry.custom_type] = entry

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
