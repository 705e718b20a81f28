"""Parents, children, leaf and paths, on whole and on broken trees."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from session_store.entries import Entry
from session_store.errors import EntryNotFoundError
from session_store.forest import TreeNode, nodes_of
from session_store.tree import EntryTree
from tests.session_store.branch_building import chain, user


def under(parent_id: str | None, entry_id: str, text: str = "") -> Entry:
    return replace(user(entry_id, text), parent_id=parent_id)


def ids(entries: list[Entry]) -> list[str]:
    return [entry.id for entry in entries]


def outline(nodes: list[TreeNode]) -> list[object]:
    return [[node.entry.id, *outline(node.children)] for node in nodes]


def test_the_leaf_is_the_last_entry_that_was_added():
    assert EntryTree().leaf_id is None
    tree = EntryTree([under(None, "a"), under("a", "b")])
    tree.add(under("a", "c"))
    assert tree.leaf_id == "c"
    assert ids(list(tree)) == ["a", "b", "c"]


def test_a_path_goes_from_the_root_to_the_given_entry():
    tree = EntryTree([*chain(user("a"), user("b"), user("c")), under("a", "d")])
    assert ids(tree.path("c")) == ["a", "b", "c"]
    assert ids(tree.path("d")) == ["a", "d"]
    assert tree.path(None) == []
    assert [entry.id for entry in tree.ancestors("c")] == ["c", "b", "a"]


def test_children_are_in_file_order_and_roots_are_the_children_of_none():
    tree = EntryTree([under(None, "a"), under("a", "b"), under("a", "c"), under(None, "d")])
    assert ids(tree.children("a")) == ["b", "c"]
    assert ids(tree.children(None)) == ["a", "d"]


def test_unknown_entries_are_refused():
    tree = EntryTree([under(None, "a")])
    for ask in (tree.entry, tree.path, tree.children, lambda entry_id: next(tree.ancestors(entry_id))):
        with pytest.raises(EntryNotFoundError):
            ask("nowhere")


def test_an_unknown_parent_ends_a_path():
    assert ids(EntryTree([under("nowhere", "a"), under("a", "b")]).path("b")) == ["a", "b"]


def test_a_cycle_ends_a_path():
    # Mutation: walking without remembering what was visited (the test would hang).
    tree = EntryTree([under("c", "a"), under("a", "b"), under("b", "c")])
    assert ids(tree.path("c")) == ["a", "b", "c"]
    assert ids(EntryTree([under("a", "a")]).path("a")) == ["a"]


def test_an_id_that_comes_again_replaces_the_earlier_line_and_moves_to_the_end():
    # Mutation: leaving the replaced line under its old parent.
    tree = EntryTree([under(None, "a"), under("a", "b"), under("a", "c"), under("c", "b", "again")])
    assert tree.entry("b") == under("c", "b", "again")
    assert ids(tree.children("a")) == ["c"]
    assert ids(list(tree)) == ["a", "c", "b"]
    assert len(tree) == 3


def test_many_duplicates_and_siblings_take_linear_time():
    # Mutation: keeping children in lists and removing from them.
    entries = [under(None, "root"), *(under("root", f"e{number}") for number in range(20_000))]
    start = time.perf_counter()
    tree = EntryTree([*entries, *entries])
    assert len(nodes_of(tree, {})[0].children) == 20_000
    assert time.perf_counter() - start < 2


def test_nodes_have_children_in_file_order_and_current_labels():
    tree = EntryTree([under(None, "a"), under("a", "b"), under("a", "c"), under("b", "d")])
    nodes = nodes_of(tree, {"c": "here"})
    assert outline(nodes) == [["a", ["b", ["d"]], ["c"]]]
    assert [node.label for node in nodes[0].children] == [None, "here"]


def test_every_entry_of_a_broken_tree_is_in_the_nodes_once():
    # Mutation: starting only from entries without a parent.
    tree = EntryTree([under("z", "x"), under("x", "y"), under("y", "z"), under("gone", "o"), under("z", "p")])
    assert outline(nodes_of(tree, {})) == [["o"], ["x", ["y", ["z", ["p"]]]]]


def test_a_branch_deeper_than_the_stack_can_be_walked_shown_and_dropped():
    # Mutation: recursing over children.
    tree = EntryTree(chain(*[user(f"e{number}") for number in range(50_000)]))
    assert len(tree.path(tree.leaf_id)) == 50_000
    nodes = nodes_of(tree, {})
    assert repr(nodes[0]) == "TreeNode(MessageEntry e0, 1 children)"
    del nodes
