"""Undoing a compaction in the log: one write, after which the branch shows what was there, wherever it is read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from session_store import SessionManager, SystemMessage, replay_system_messages
from session_store.entries import CompactionEntry, ContextEditEntry, Entry, MessageEntry
from session_store.errors import SessionReadOnlyError
from session_store.messages import BashExecutionMessage, Message, as_content
from session_store.undo import Undo, plan_undo
from tests.session_store.branch_building import answer, compaction, result, user


@pytest.fixture
def log(tmp_path: Path) -> Iterator[SessionManager]:
    with SessionManager.create(tmp_path, session_dir=tmp_path / "sessions") as opened:
        yield opened


def say(log: SessionManager, *texts: str) -> list[str]:
    """Append user messages; their ids."""
    return [log.append_message(user(text).message).id for text in texts]


def planned(log: SessionManager) -> Undo:
    undo = plan_undo(log)
    assert undo is not None
    return undo


def undo(log: SessionManager) -> list[Entry]:
    return log.append_undo(planned(log))


def texts(log: SessionManager) -> list[str]:
    return [text_of(message) for message in log.build_messages()]


def text_of(message: Message) -> str:
    return str(getattr(message, "text", getattr(message, "summary", getattr(message, "output", ""))))


def system_state(log: SessionManager) -> SystemMessage | None:
    shown = [item.message for item in log.projection.messages]
    return replay_system_messages(message for message in shown if isinstance(message, SystemMessage))


def read_again(log: SessionManager, look: Callable[[SessionManager], Any]) -> list[Any]:
    """What `look` sees in the session itself, in a reader of its file, and in its forks."""
    assert log.path is not None
    seen = [look(log)]
    with SessionManager.open(log.path, read_only=True) as reader:
        assert not reader.damage
        seen.append(look(reader))
    for entry_id in (None, log.leaf_id):
        with SessionManager.fork_from(log, entry_id=entry_id) as fork:
            seen.append(look(fork))
    return seen


def test_where_one_was_compacted_before_its_summary_and_boundary_are_taken_up_again(log: SessionManager):
    # Mutation: in `plan_undo` take the summary or the boundary of the compaction that is undone.
    _, second, third, fourth = say(log, "one", "two", "three", "four")
    first = log.append_compaction("first", second, 100, details={"readFiles": ["a.py"]}, from_hook=True)
    say(log, "five")
    before = texts(log)
    undone = log.append_compaction("second", fourth, 90, details={"readFiles": ["a.py", "b.py"]})
    say(log, "six")
    assert texts(log) == ["second", "four", "five", "six"]
    (entry,) = undo(log)
    assert isinstance(entry, CompactionEntry)
    assert (entry.summary, entry.first_kept_entry_id) == (first.summary, first.first_kept_entry_id)
    assert entry.details == {"readFiles": ["a.py"], "undoes": undone.id}
    assert entry.from_hook
    assert entry.is_undo
    assert read_again(log, texts) == [[*before, "six"]] * 4
    assert third in {step.id for step in log.projection.entries}


def test_where_nothing_was_compacted_before_all_of_the_branch_is_back_without_a_summary(log: SessionManager):
    # Mutation: in `plan_undo` leave the edit out that omits the new entry's own summary.
    log.append_model_change("acme", "large")
    _, _, third = say(log, "one", "two", "three")
    log.append_compaction("summary", third, 100)
    say(log, "four")
    edit, entry = undo(log)
    assert isinstance(edit, ContextEditEntry)
    assert isinstance(entry, CompactionEntry)
    assert (edit.target_id, edit.replacement, edit.batch) == (entry.id, None, entry.id)
    assert entry.first_kept_entry_id == log.get_branch()[0].id
    assert entry.summary.strip()  # other programs list it
    assert read_again(log, texts) == [["one", "two", "three", "four"]] * 4


def test_without_a_compaction_on_the_branch_there_is_nothing_to_undo(log: SessionManager):
    # Mutation: in `plan_undo` look at all entries instead of the branch.
    assert plan_undo(log) is None
    first, second = say(log, "one", "two")
    log.append_compaction("summary", second, 100)
    log.branch(first)
    assert plan_undo(log) is None


def test_an_undo_is_undone_by_compacting_again_and_that_as_well(log: SessionManager):
    # Mutation: in `plan_undo` skip undos when looking for the compaction before.
    _, second, third = say(log, "one", "two", "three")
    log.append_compaction("summary", third, 100)
    whole, compacted = ["one", "two", "three"], ["summary", "three"]
    for wanted in (whole, compacted, whole, compacted):
        undo(log)
        assert read_again(log, texts) == [wanted] * 4
    log.append_compaction("another", None, 50)
    undo(log)
    assert texts(log) == compacted
    assert second not in {step.id for step in log.projection.entries}


def test_a_compaction_that_kept_nothing_is_taken_up_with_all_that_came_after_it(log: SessionManager):
    # Mutation: in `_boundary_of` give None, or an unknown id, as it stands.
    say(log, "one")
    log.append_compaction("alone", None, 100)
    _, third = say(log, "two", "three")
    log.append_compaction("second", third, 90)
    undo(log)
    assert read_again(log, texts) == [["alone", "two", "three"]] * 4
    # Another program's boundary may name what is not there.
    log._append([replace(compaction("foreign", "nowhere", "lost"), parent_id=log.leaf_id)])
    (fourth,) = say(log, "four")
    log.append_compaction("third", fourth, 80)
    undo(log)
    assert read_again(log, texts) == [["lost", "four"]] * 4


def test_edits_written_with_a_compaction_are_taken_back_with_it_and_no_others(log: SessionManager):
    # Mutation: in `_overruling` overrule every edit, or none; or give back what was recorded over an earlier edit.
    say(log, "one", "two")
    call = log.append_message(answer("call", "c1", text="looking").message)
    output = log.append_message(result("r", "c1", "a long output").message)
    shell = log.append_message(BashExecutionMessage(command="ls", output="files"))
    note = log.append_custom_message("note", "a note")
    (edited, last) = say(log, "edited by hand", "last")
    log.append_context_edit(edited, "by hand")
    before = texts(log)
    batch = [
        (output.id, as_content("short")),
        (shell.id, None),
        (note.id, as_content("n")),
        (edited, as_content("again")),
        (last, as_content("overruled later")),
    ]
    log.append_compaction_entry(compaction("k", call.id, "summary"), batch)
    log.append_context_edit(last, "by hand, later")
    assert texts(log) == ["summary", "looking", "short", "n", "again", "by hand, later"]
    stored = undo(log)
    assert before == ["one", "two", "looking", "a long output", "files", "a note", "by hand", "last"]
    assert read_again(log, texts) == [[*before[:-1], "by hand, later"]] * 4
    targets = [edit.target_id for edit in stored if isinstance(edit, ContextEditEntry)]
    assert sorted(targets[:-1]) == sorted([output.id, shell.id, note.id, edited])
    undo(log)
    assert texts(log) == ["summary", "looking", "short", "n", "again", "by hand, later"]


def test_what_other_programs_said_of_the_system_is_said_again_after_an_undo(log: SessionManager):
    # Mutation: in `plan_undo` no system message, or in `_told_again` no batch, so that it is said twice.
    log.append_message(SystemMessage(content=as_content("You are careful."), tools_added=("read",)))
    _, second = say(log, "one", "two")
    log.append_message(SystemMessage(content=as_content("And quick."), tools_removed=("read",)))
    wanted = system_state(log)
    assert wanted is not None
    log.append_compaction("summary", second, 100)
    for _ in range(2):
        assert isinstance(undo(log)[-1], MessageEntry)
        assert read_again(log, system_state) == [wanted] * 4
        assert not isinstance(undo(log)[-1], MessageEntry)
        assert read_again(log, system_state) == [wanted] * 4
    undo(log)
    assert texts(log) == ["one", "two"]


def test_what_an_undone_compaction_alone_said_of_the_system_goes_with_it(log: SessionManager):
    # Mutation: in `compaction_batch` replay what the branch shows now for an undo, too.
    _, second, third = say(log, "one", "two", "three")
    log.append_compaction("summary", second, 100)
    told = SystemMessage(content=as_content("You are careful."))
    log._append([replace(compaction("foreign", third, system_message=told), parent_id=log.leaf_id)])
    assert system_state(log) is not None
    undo(log)
    assert read_again(log, system_state) == [None] * 4
    assert texts(log) == ["summary", "two", "three"]


def test_all_of_an_undo_is_one_write_and_half_of_one_is_none(log: SessionManager):
    # Mutation: in `append_undo` append one entry after the other; or put the edit behind its compaction.
    writes: list[int] = []
    append = log._log.append

    def counted(lines: Sequence[bytes]) -> None:
        writes.append(len(lines))
        append(lines)

    log._log.append = counted  # type: ignore[method-assign]
    _, second = say(log, "one", "two")
    log.append_compaction("summary", second, 100)
    assert log.path is not None
    size = log.path.stat().st_size
    compacted = texts(log)
    stored = undo(log)
    assert writes[-1] == len(stored) == 2
    whole = log.path.read_bytes()
    path = log.path
    log.close()
    for length in range(size, len(whole) + 1):
        path.write_bytes(whole[:length])
        with SessionManager.open(path, read_only=True) as reader:
            # The last line is whole without its newline.
            assert texts(reader) == (["one", "two"] if length >= len(whole) - 1 else compacted)


def test_a_log_that_is_only_read_is_not_undone(log: SessionManager):
    # Mutation: in `LoggedSession._append` tell the tree before the log.
    _, second = say(log, "one", "two")
    log.append_compaction("summary", second, 100)
    assert log.path is not None
    before = log.path.read_bytes()
    with SessionManager.open(log.path, read_only=True) as reader:
        with pytest.raises(SessionReadOnlyError):
            undo(reader)
        assert texts(reader) == ["summary", "two"]
    assert log.path.read_bytes() == before
