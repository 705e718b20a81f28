"""A log that is read from its end gives what the same log gives that was read whole, and reads no more than it must."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scripts.bench.long_logs.generator import Shape, write_session
from session_store import SessionManager
from session_store.codec import encode_entry
from session_store.context import build_projection, pairs_ok
from session_store.entries import MessageEntry
from session_store.errors import EntryNotFoundError, SessionNotFoundError
from session_store.forest import TreeNode
from session_store.jsonl_log import JsonlLog
from session_store.log import LoadedLog
from session_store.log_lines import LogLines
from session_store.messages import CustomMessage, Usage, UserMessage, as_content
from session_store.projection import Projection
from session_store.reading import LEAF_CUSTOM_TYPE, SessionReader
from session_store.testing import new_header, user_entry
from session_store.tree import EntryTree
from tests.session_store.random_sessions import STEPS, Step, as_pi_writes, take, write

BLOCKS = st.sampled_from([64, 300, 2_000])
EXAMPLES = settings(max_examples=60, deadline=None)


@contextmanager
def read_from_the_end(path: Path, block: int = 64) -> Iterator[tuple[SessionReader, LogLines]]:
    log = JsonlLog.open(path, read_only=True)
    lines = LogLines(log, first_block_bytes=block)
    try:
        yield SessionReader(EntryTree(source=lines)), lines
    finally:
        log.close()


def read_whole(path: Path) -> tuple[SessionReader, LoadedLog]:
    log = JsonlLog.open(path, read_only=True)
    loaded = log.load()
    log.close()
    return SessionReader(EntryTree(loaded.entries)), loaded


@contextmanager
def session_of(steps: list[Step]) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "s.jsonl"
        write(path, steps)
        yield path


def shown(projection: Projection) -> tuple[Any, ...]:
    return (
        projection.leaf_id,
        projection.compaction,
        projection.entries,
        projection.messages,
        projection.messages_after_last_change,
        projection.unresolved_boundary,
    )


def without_parents(projection: Projection) -> tuple[Any, ...]:
    return (
        projection.leaf_id,
        projection.compaction.id if projection.compaction is not None else None,
        [replace(entry, parent_id=None) for entry in projection.entries],
        [(item.entry.id, item.message) for item in projection.messages],
        projection.messages_after_last_change,
        projection.unresolved_boundary,
    )


def of_the_branch(projection: Projection) -> tuple[Any, ...]:
    return projection.provider, projection.model_id, projection.thinking_level


def forest(nodes: list[TreeNode]) -> list[Any]:
    return [(node.entry.id, node.label, forest(node.children)) for node in nodes]


def customs(reader: SessionReader) -> dict[str, Any]:
    return {kind: reader.get_custom(kind) for kind in reader.newest_custom() if kind != LEAF_CUSTOM_TYPE}


QUESTIONS: dict[str, Callable[[SessionReader], Any]] = {
    "context": lambda reader: reader.build_context(),
    "projection": lambda reader: shown(reader.projection),
    "model": lambda reader: of_the_branch(reader.projection),
    "totals": lambda reader: reader.totals,
    "name": lambda reader: reader.name,
    "labels": lambda reader: dict(reader.labels),
    "length": len,
    "customs": customs,
    "branch": lambda reader: reader.get_branch(),
    "all": list,
    "tree": lambda reader: forest(reader.get_tree()),
    "roots": lambda reader: reader.get_children(None),
}


class Watched:
    """A log that counts the bytes that are read from it."""

    def __init__(self, log: JsonlLog) -> None:
        self._log = log
        self.bytes_read = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def read(self, start: int, length: int) -> bytes:
        block = self._log.read(start, length)
        self.bytes_read += len(block)
        return block


@pytest.fixture(scope="module")
def long_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("long") / "s.jsonl"
    write_session(path, Shape(entries=4_000))
    return path


# The same answers ---------------------------------------------------------------------------------------------------


@EXAMPLES
@given(steps=STEPS, block=BLOCKS, questions=st.permutations(list(QUESTIONS)), pi=st.integers(min_value=1, max_value=9))
def test_whatever_is_asked_first_the_end_of_a_log_answers_as_all_of_it(
    steps: list[Step], block: int, questions: list[str], pi: int
):
    # Mutation: in `EntryTree._window` go on behind the boundary; in `PathBefore` answer None; in `_base` trust any
    # checkpoint, or leave the compaction's own usage out; in `_grow` let the earlier of two lines win.
    with session_of(steps) as path:
        if pi > 3:
            as_pi_writes(path, lambda number: number % pi == 0)
        whole, loaded = read_whole(path)
        assert not [record for record in loaded.damage.records if record.kind != "unknown_type"]
        assert shown(whole.projection) == shown(build_projection(whole.get_branch()))
        with read_from_the_end(path, block) as (reader, _):
            for question in questions:
                assert QUESTIONS[question](reader) == QUESTIONS[question](whole), question


@EXAMPLES
@given(steps=STEPS, block=BLOCKS, number=st.integers(min_value=0, max_value=100))
def test_any_other_branch_is_the_same_too(steps: list[Step], block: int, number: int):
    # Mutation: in `EntryTree._check_whole` keep the lines in the order in which they were read.
    with session_of(steps) as path:
        whole, _ = read_whole(path)
        entries = list(whole)
        wanted = entries[number % len(entries)].id
        with read_from_the_end(path, block) as (reader, _):
            projection = reader.build_projection(wanted)
            assert shown(projection) == shown(build_projection(whole.get_branch(wanted)))
            assert of_the_branch(projection) == of_the_branch(build_projection(whole.get_branch(wanted)))
            assert reader.get_entry(wanted) == whole.get_entry(wanted)
            assert reader.get_children(wanted) == whole.get_children(wanted)
            assert "nowhere" not in reader


@EXAMPLES
@given(before=STEPS, after=STEPS, first_block=st.sampled_from([64, 1_000]))
def test_a_resumed_session_goes_on_as_one_that_was_never_closed(
    before: list[Step], after: list[Step], first_block: int
):
    # Mutation: in `EntryTree.forget_before` forget one line more; in `_admit` advance what is not on the branch; in
    # `count_before` take what is known for all.
    with session_of(before) as path, pytest.MonkeyPatch.context() as patch:
        patch.setattr("session_store.log_lines.FIRST_BLOCK_BYTES", first_block)
        with SessionManager.open(path) as manager:
            for kind, first, second in after:
                take(manager, kind, first, second)
            whole, _ = read_whole(path)
            for question, ask in QUESTIONS.items():
                assert ask(manager) == ask(whole), question


DAMAGE_KINDS = ["nul", "garble", "glue", "tear", "repeat", "drop", "swap", "no id", "header", "blank"]
DAMAGES = st.tuples(
    st.sampled_from(DAMAGE_KINDS),
    st.integers(min_value=0, max_value=10) | st.integers(min_value=0, max_value=100),
)


def damage(path: Path, kind: str, number: int) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    if len(lines) == 1:
        return
    place = len(lines) - 1 - number % (len(lines) - 1)  # counted from the end; the header stays
    line = lines[place]
    match kind:
        case "nul":
            lines[place] = b"\0" * (len(line) - 1) + b"\n"
        case "garble":  # the head stays as it is, and the end
            lines[place] = line[:-12] + b"\x01" * 10 + b"}\n"
        case "glue":
            lines[place] = line[: len(line) * 2 // 3]
        case "tear":
            lines[-1] = lines[-1][: len(lines[-1]) * 2 // 3]
        case "repeat":
            lines.insert(1 + number % len(lines), line)
        case "drop":
            del lines[place]
        case "swap":
            other = 1 + number % (len(lines) - 1)
            lines[place], lines[other] = lines[other], lines[place]
        case "no id":
            lines[place] = b'{"type":"message","message":{}}\n'
        case "header":
            lines.insert(place, lines[0])
        case _:
            lines.insert(place, b"\n")
    path.write_bytes(b"".join(lines))


@EXAMPLES
@given(steps=STEPS, block=BLOCKS, damages=st.lists(DAMAGES, min_size=1, max_size=3))
def test_a_damaged_log_shows_the_same_from_its_end_as_read_whole(
    steps: list[Step], block: int, damages: list[tuple[str, int]]
):
    # Mutation: in `EntryTree._sound` let the damage pass, or give what was found before all was settled; in `_grow`
    # count edits without their compaction; in `_settle` leave the parents of what is held.
    with session_of(steps) as path:
        for kind, number in damages:
            damage(path, kind, number)
        looks_the_same(path, block)


@pytest.mark.parametrize("is_compacted", [False, True])
@pytest.mark.parametrize("kind", DAMAGE_KINDS)
def test_each_line_may_be_the_damaged_one(tmp_path: Path, kind: str, is_compacted: bool):
    # Mutation: in `EntryTree._check_whole` take lines with a parent that is not there.
    steps: list[Step] = [("user", 1, 1), ("answer", 3, 1), ("result", 0, 3), ("custom", 1, 1), ("user", 2, 2)]
    steps += [("shrink", 1, 1)] if is_compacted else []
    steps += [("branch", 2, 3), ("user", 1, 3), ("answer", 5, 2), ("user", 3, 3)]
    for number in range(len(steps) + 3):
        path = tmp_path / f"{number}.jsonl"
        write(path, steps)
        damage(path, kind, number)
        looks_the_same(path, 64)


def looks_the_same(path: Path, block: int) -> None:
    """From its end and read whole."""
    whole, loaded = read_whole(path)
    with read_from_the_end(path, block) as (reader, lines):
        assert reader.leaf_id == whole.leaf_id
        # What the first entry of the window hangs on is in the part that is not read.
        assert without_parents(reader.projection) == without_parents(whole.projection)
        assert pairs_ok(reader.build_messages())
        assert list(reader) == list(whole)
        assert forest(reader.get_tree()) == forest(whole.get_tree())
        assert reader.get_branch() == whole.get_branch()
        if lines.damage.complete:
            assert lines.damage == loaded.damage


# No more than it must ------------------------------------------------------------------------------------------------


def test_a_resume_reads_the_end_of_the_log_whatever_else_is_in_it(long_log: Path):
    # Mutation: in `EntryTree._window` walk on to the root; in `SessionReader._base` trust no checkpoint; in
    # `newest_custom` walk on behind the compaction; in `PathBefore` leave the checkpoint aside.
    watched = Watched(JsonlLog.open(long_log, read_only=True))
    reader = SessionReader(EntryTree(source=LogLines(watched)))
    context = reader.build_context()
    assert reader.projection.compaction is not None
    for ask in (QUESTIONS["model"], QUESTIONS["totals"], QUESTIONS["name"], QUESTIONS["length"]):
        ask(reader)
    assert reader.get_custom("todo")
    assert watched.bytes_read < 1_500_000 < watched.size // 5
    whole, _ = read_whole(long_log)
    assert context == whole.build_context()
    for name in ("model", "name", "length"):
        assert QUESTIONS[name](reader) == QUESTIONS[name](whole)
    assert reader.totals.all.requests == whole.totals.all.requests
    assert reader.totals.all.total_tokens == whole.totals.all.total_tokens
    assert reader.totals.all.cost == pytest.approx(whole.totals.all.cost)
    assert reader.get_custom("todo") == whole.get_custom("todo")
    watched.close()


def test_a_branch_is_walked_without_being_held(long_log: Path):
    # Mutation: in `EntryTree.walk` read all of the path at once, or begin at its end.
    watched = Watched(JsonlLog.open(long_log, read_only=True))
    reader = SessionReader(EntryTree(source=LogLines(watched)))
    walk = reader.walk_branch()
    before = watched.bytes_read  # to find the way to the root
    first = next(walk)
    assert watched.bytes_read - before < watched.size // 8
    assert [first, *walk] == reader.get_branch()
    with pytest.raises(EntryNotFoundError):
        reader.walk_branch("nowhere")
    watched.close()


def test_an_index_of_a_sound_log_parses_no_message_and_reads_it_once(long_log: Path):
    # Mutation: in `EntryTree._check_whole` always settle.
    watched = Watched(JsonlLog.open(long_log, read_only=True))
    lines = LogLines(watched)
    reader = SessionReader(EntryTree(source=lines))
    assert "nowhere" not in reader
    assert watched.bytes_read < 1.2 * watched.size
    assert not lines.damage.complete
    watched.close()


def test_what_has_left_the_context_is_forgotten_and_still_there(tmp_path: Path):
    # Mutation: in `SessionReader._admit` forget nothing, or hold everything; in `forget_before` leave `_end` of the
    # source where it was.
    for manager in (SessionManager.create(tmp_path, session_dir=tmp_path), SessionManager.in_memory(tmp_path)):
        with manager:
            manager.set_name("mine")
            entries = [manager.append_message(UserMessage(content=as_content(f"{n} " * 300))) for n in range(300)]
            manager.append_label(entries[3].id, "here")
            settlings = manager._tree._settlings
            for _ in range(2):
                entries.append(manager.append_message(UserMessage(content=as_content("next"))))
                manager.append_compaction("summary", entries[-2].id, 10)
                assert not manager._tree.knows(entries[0].id)
                assert len(manager._tree._lines) == len(manager._tree._held) <= 4
                assert manager.get_entry(entries[0].id) == entries[0]
                assert [entry for entry in manager.get_branch() if isinstance(entry, MessageEntry)] == entries
            assert (manager.name, dict(manager.labels), len(manager)) == ("mine", {entries[3].id: "here"}, 306)
            assert manager._tree._settlings == settlings  # looked up again, and not for want of lines


def test_a_closed_session_can_still_be_looked_at_for_as_long_as_its_file_is_there(tmp_path: Path):
    # Mutation: in `JsonlLog.read` use the descriptor after `close`.
    manager = SessionManager.create(tmp_path, session_dir=tmp_path)
    first = manager.append_message(UserMessage(content=as_content("first")))
    last = manager.append_message(UserMessage(content=as_content("last")))
    manager.append_compaction("summary", last.id, 10)
    manager.close()
    assert manager.get_branch()[0] == first
    assert manager.path is not None
    manager.path.unlink()
    with pytest.raises(SessionNotFoundError, match="closed"):
        manager.get_entry(first.id)


def test_large_state_is_read_from_where_the_checkpoint_says_it_is(long_log: Path, tmp_path: Path):
    # Mutation: in `EntryTree.entry_near` look the entry up by its id.
    path = tmp_path / "s.jsonl"
    path.write_bytes(long_log.read_bytes())
    with SessionManager.open(path) as manager:
        manager.append_custom("large", "x" * 5_000)
        kept = [manager.append_message(UserMessage(content=as_content("next " * 30_000))) for _ in range(8)][-1]
        manager.append_compaction("summary", kept.id, 10)
        manager.append_compaction("summary", manager.append_message(UserMessage(content=as_content("kept"))).id, 10)
    watched = Watched(JsonlLog.open(path, read_only=True))
    reader = SessionReader(EntryTree(source=LogLines(watched)))
    reader.build_context()
    before = watched.bytes_read
    assert reader.get_custom("large") == "x" * 5_000
    assert watched.bytes_read - before < 100_000
    watched.close()
    with SessionManager.fork_from(path, cwd="/a/much/longer/path/than/before", session_dir=tmp_path) as fork:
        assert fork.get_custom("large") == "x" * 5_000


def test_an_entry_that_stands_where_another_stood_is_not_taken_for_it(tmp_path: Path):
    # Mutation: in `EntryTree.entry_near` take what stands there.
    with SessionManager.create(tmp_path, session_dir=tmp_path) as manager:
        right = manager.append_custom("large", "right" * 2_000)
        wrong = manager.append_custom("other", "wrong" * 2_000)
        far = [manager.append_message(UserMessage(content=as_content("far " * 4_000))) for _ in range(100)]
        kept = far[-1]
        compacted = manager.append_compaction("summary", kept.id, 10)
        assert compacted.checkpoint is not None
        where = {"large": {"entryId": right.id, "offset": manager.offset_of(wrong.id)}}
        misled = replace(
            compacted, id="misled", parent_id=kept.id, checkpoint={**compacted.checkpoint, "customOffsets": where}
        )
        manager._append([misled])
        assert manager.path is not None
        with read_from_the_end(manager.path) as (reader, _):
            assert reader.get_custom("large") == "right" * 2_000


def test_a_head_that_the_rest_of_its_line_overrules_is_not_believed(tmp_path: Path):
    # Mutation: in `LogLines._entry` do not compare the ids.
    path = tmp_path / "s.jsonl"
    session = JsonlLog.create(path, new_header())
    session.append([encode_entry(user_entry(text, entry_id=text)) for text in ("first", "head", "behind it")])
    session.close()
    lines = path.read_bytes().splitlines(keepends=True)
    for place in (1, 2, 3):
        twice = [*lines]
        twice[place] = lines[place].removesuffix(b"}\n") + b',"id":"another"}\n'
        path.write_bytes(b"".join(twice))
        whole, _ = read_whole(path)
        with read_from_the_end(path) as (reader, _):
            assert reader.leaf_id == whole.leaf_id
            assert list(reader) == list(whole)


def test_a_fork_of_one_branch_does_not_believe_what_its_checkpoint_says_of_the_other_file(tmp_path: Path):
    # Mutation: in `SessionReader._base` trust a checkpoint wherever it stands.
    with SessionManager.create(tmp_path, session_dir=tmp_path) as manager:
        first = manager.append_message(UserMessage(content=as_content("first")))
        manager.append_usage("compaction", "acme", "small", Usage(input=7))
        manager.set_name("of a branch that was left")
        manager.branch(first.id)
        kept = manager.append_message(UserMessage(content=as_content("kept")))
        compacted = manager.append_compaction("summary", kept.id, 10)
        assert manager.totals.all.input == 7
        with SessionManager.fork_from(manager, entry_id=compacted.id) as fork:
            assert (fork.totals.all.input, fork.name, len(fork)) == (0, None, 4)
        with SessionManager.fork_from(manager) as fork:
            assert (fork.totals.all.input, fork.name, len(fork)) == (7, "of a branch that was left", len(manager))


def test_damage_in_the_part_that_was_read_is_told_and_its_line_when_all_of_it_was(long_log: Path, tmp_path: Path):
    # Mutation: in `LogLines._report` tell of nothing; in `scan` believe the head of a line without an end, or
    # of one with NULs in it; in `EntryTree._grow` forget that there were flaws.
    path = tmp_path / "s.jsonl"
    lines = long_log.read_bytes().splitlines(keepends=True)
    half, nothing, torn = lines[7][:150] + b"\n", lines[9][:150] + b"\0" * 64 + b"}\n", lines[-1][:200]
    path.write_bytes(b"".join([*lines[:50], b"no entry\n", *lines[50:-20], half, nothing, *lines[-20:], torn]))
    with SessionManager.open(path, read_only=True) as manager:
        assert manager.build_messages() == read_whole(path)[0].build_messages()
        kinds = [(record.kind, record.line_number) for record in manager.damage.records]
        assert kinds == [("bad_line", None), ("bad_line", None), ("torn_tail", None)]
        assert not manager.damage.complete
        assert len(list(manager)) == len(lines) - 1
        kinds = [(record.kind, record.line_number) for record in manager.damage.records]
        assert kinds == [
            ("bad_line", 51),
            ("bad_line", len(lines) - 18),
            ("bad_line", len(lines) - 17),
            ("torn_tail", len(lines) + 4),
        ]
        assert manager.damage.complete


@pytest.mark.parametrize("block", [64, 250, 10_000])
def test_of_two_lines_with_one_id_the_last_counts_from_the_end_too(tmp_path: Path, block: int):
    # Mutation: in `EntryTree._grow` let the earlier of two lines win.
    log = JsonlLog.create(tmp_path / "s.jsonl", new_header())
    first, again = user_entry("first", entry_id="same"), user_entry("again", entry_id="same")
    lines = [
        user_entry("root", entry_id="root"),
        first,
        user_entry("between", "same"),
        again,
        user_entry("end", "same"),
    ]
    log.append([encode_entry(entry) for entry in lines])
    log.close()
    with read_from_the_end(tmp_path / "s.jsonl", block) as (reader, _):
        assert reader.build_messages() == [again.message, lines[-1].message]
        assert [entry.id for entry in reader] == ["root", lines[2].id, "same", lines[-1].id]


def test_version_2_is_read_from_its_end_like_version_3(tmp_path: Path):
    # Mutation: in `LogLines._entry` leave the upcast out.
    path = tmp_path / "s.jsonl"
    lines = [b'{"type":"session","version":2,"id":"s","timestamp":"","cwd":"/"}\n']
    for number in range(20):
        parent = b"null" if number == 0 else b'"e%d"' % (number - 1)
        head = b'{"type":"message","id":"e%d","parentId":%b,"timestamp":"2025-01-01T00:00:00.000Z",' % (number, parent)
        lines.append(head + b'"message":{"role":"hookMessage","customType":"note","content":"n","display":true}}\n')
    path.write_bytes(b"".join(lines))
    with read_from_the_end(path) as (reader, _):
        assert reader.build_messages() == read_whole(path)[0].build_messages()
        assert all(isinstance(message, CustomMessage) for message in reader.build_messages())


def test_a_line_longer_than_any_block_is_read(tmp_path: Path):
    # Mutation: in `LogLines.earlier` take a block without the beginning of a line for all there is.
    log = JsonlLog.create(tmp_path / "s.jsonl", new_header())
    entries = [user_entry("first"), user_entry("x" * 2_000_000), user_entry("last")]
    log.append([encode_entry(entry) for entry in entries])
    log.close()
    with read_from_the_end(tmp_path / "s.jsonl") as (reader, _):
        assert list(reader) == entries


def test_a_parent_that_comes_later_in_the_file_is_no_way_round_the_rest_of_it(tmp_path: Path):
    # Mutation: in `EntryTree._parent_of` and in `_check_whole` do not look at the order of parents.
    log = JsonlLog.create(tmp_path / "s.jsonl", new_header())
    ring = [user_entry("a", "b", entry_id="a"), user_entry("b", "a", entry_id="b"), user_entry("c", "a", entry_id="c")]
    log.append([encode_entry(entry) for entry in ring])
    log.close()
    whole, _ = read_whole(tmp_path / "s.jsonl")
    with read_from_the_end(tmp_path / "s.jsonl") as (reader, _):
        assert shown(reader.projection) == shown(whole.projection)
        assert list(reader) == list(whole)
    with read_from_the_end(tmp_path / "s.jsonl") as (reader, _):
        assert list(reader.get_tree()[0].children) != []
        assert shown(reader.projection) == shown(whole.projection)
