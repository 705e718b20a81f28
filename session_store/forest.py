"""The entries of a log as nodes with their children, for whoever shows the whole tree. Pure.

The rule it keeps: every entry is in it once, whatever the parents say.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from typing_extensions import override

from session_store.entries import Entry


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


def nodes_of(entries: Iterable[Entry], labels: Mapping[str, str]) -> list[TreeNode]:
    """The roots of entries in file order: one where nothing is damaged and nobody branched off before the first.

    An entry whose parent is unknown is a root; of entries that are each other's ancestors the first in the file is one.
    """
    nodes = {entry.id: TreeNode(entry=entry, label=labels.get(entry.id)) for entry in entries}
    children: dict[str | None, list[TreeNode]] = {}
    for node in nodes.values():
        children.setdefault(node.entry.parent_id, []).append(node)
    roots = [node for node in nodes.values() if node.entry.parent_id not in nodes]
    placed: set[str] = set()
    _attach(roots, children, placed)
    for node in nodes.values():
        if node.entry.id not in placed:
            roots.append(node)
            _attach([node], children, placed)
    return roots


def _attach(roots: list[TreeNode], children: Mapping[str | None, list[TreeNode]], placed: set[str]) -> None:
    placed.update(root.entry.id for root in roots)
    waiting = list(roots)
    while waiting:
        node = waiting.pop()
        for child in children.get(node.entry.id, ()):
            if child.entry.id not in placed:
                placed.add(child.entry.id)
                node.children.append(child)
                waiting.append(child)
