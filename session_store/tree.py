"""The tree that the entries of a log form: parents, children, leaf, paths.

Owns the index of one session in memory. The rule it keeps: the leaf is the last entry that was added, and
every walk ends. A parent that is null, unknown or already visited ends a path, so that a damaged file can
shorten a branch but never hang a reader.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from typing_extensions import override

from session_store.entries import Entry
from session_store.errors import EntryNotFoundError


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class TreeNode:
    """One entry with what was appended under it, in file order. `label` is the entry's current label."""

    entry: Entry
    label: str | None = None
    children: list[TreeNode] = field(default_factory=list)

    @override
    def __repr__(self) -> str:
        # Not recursive: a branch may be deeper than the interpreter's stack.
        return f"TreeNode({type(self.entry).__name__} {self.entry.id}, {len(self.children)} children)"


class EntryTree:
    """Entries by id, in file order. An id that comes again replaces the earlier line and moves to the end."""

    __slots__ = ("_children", "_entries", "_leaf_id")

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self._entries: dict[str, Entry] = {}
        # Ordered sets of ids: taking out a replaced line must not cost the number of its siblings.
        self._children: dict[str | None, dict[str, None]] = {}
        self._leaf_id: str | None = None
        for entry in entries:
            self.add(entry)

    @override
    def __repr__(self) -> str:
        return f"<EntryTree, {len(self):,} entries, leaf {self._leaf_id}>"

    def add(self, entry: Entry) -> None:
        """Put an entry behind all others; it becomes the leaf. Constant time."""
        replaced = self._entries.pop(entry.id, None)
        if replaced is not None:
            del self._children[replaced.parent_id][replaced.id]
        self._entries[entry.id] = entry
        self._children.setdefault(entry.parent_id, {})[entry.id] = None
        self._leaf_id = entry.id

    @property
    def leaf_id(self) -> str | None:
        """The last entry of the file; None while there is none."""
        return self._leaf_id

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, entry_id: object) -> bool:
        return entry_id in self._entries

    def __iter__(self) -> Iterator[Entry]:
        """All entries in file order."""
        return iter(self._entries.values())

    def entry(self, entry_id: str) -> Entry:
        """The entry with that id.

        Raises:
            EntryNotFoundError: there is none.
        """
        try:
            return self._entries[entry_id]
        except KeyError:
            raise EntryNotFoundError(entry_id) from None

    def ancestors(self, entry_id: str | None) -> Iterator[Entry]:
        """The entry itself, its parent, and so on up to the root.

        Raises:
            EntryNotFoundError: `entry_id` is given and unknown. An unknown parent further up ends the walk.
        """
        if entry_id is None:
            return
        entry = self.entry(entry_id)
        visited: set[str] = set()
        while entry.id not in visited:
            visited.add(entry.id)
            yield entry
            parent = self._entries.get(entry.parent_id) if entry.parent_id is not None else None
            if parent is None:
                return
            entry = parent

    def path(self, leaf_id: str | None) -> list[Entry]:
        """The branch from the root down to `leaf_id`, both included; empty for None.

        Raises:
            EntryNotFoundError: `leaf_id` is given and unknown.
        """
        branch = list(self.ancestors(leaf_id))
        branch.reverse()
        return branch

    def children(self, entry_id: str | None) -> list[Entry]:
        """What was appended directly under an entry, in file order; for None the entries without a parent.

        Raises:
            EntryNotFoundError: `entry_id` is given and unknown.
        """
        if entry_id is not None:
            self.entry(entry_id)
        return [self._entries[child] for child in self._children.get(entry_id, ())]

    def nodes(self, labels: dict[str, str]) -> list[TreeNode]:
        """The whole forest: one root where nothing is damaged and nobody branched off before the first entry.

        Every entry is in it once. An entry whose parent is unknown is a root; of entries that are each
        other's ancestors the first in the file is one.
        """
        nodes = {entry.id: TreeNode(entry=entry, label=labels.get(entry.id)) for entry in self}
        roots = [node for node in nodes.values() if node.entry.parent_id not in nodes]
        placed: set[str] = set()
        self._grow(roots, nodes, placed)
        for node in nodes.values():
            if node.entry.id not in placed:
                roots.append(node)
                self._grow([node], nodes, placed)
        return roots

    def _grow(self, roots: list[TreeNode], nodes: dict[str, TreeNode], placed: set[str]) -> None:
        placed.update(root.entry.id for root in roots)
        waiting = list(roots)
        while waiting:
            node = waiting.pop()
            for child_id in self._children.get(node.entry.id, ()):
                if child_id not in placed:
                    placed.add(child_id)
                    node.children.append(nodes[child_id])
                    waiting.append(nodes[child_id])
