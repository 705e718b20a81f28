"""Any history, in memory and on the disk at once: tree, projection and context stay one function of the log.

The oracle below is the projection's rules written down a second time, as slowly and plainly as possible.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from typing_extensions import override

from session_store import SessionManager
from session_store.boundary import check_boundary
from session_store.context import NO_RESULT_TEXT, build_context, build_projection, dangling_calls, pairs_ok
from session_store.entries import (
    BranchSummaryEntry,
    CompactionEntry,
    ContextEditEntry,
    CustomEntry,
    CustomMessageEntry,
    Entry,
    MessageEntry,
    ModelChangeEntry,
    ThinkingLevelChangeEntry,
)
from session_store.errors import InvalidBoundaryError
from session_store.messages import (
    AssistantMessage,
    BashExecutionMessage,
    CompactionSummaryMessage,
    Content,
    CustomMessage,
    Message,
    SystemMessage,
    TextContent,
    ToolCall,
    ToolResultMessage,
    Usage,
    UserMessage,
    as_content,
)
from session_store.projection import Projection
from session_store.system_replay import replay_system_messages
from session_store.undo import plan_undo
from tests.session_store.branch_building import TIMESTAMP

EDITABLE = (UserMessage, AssistantMessage, ToolResultMessage, CustomMessage)


def oracle(path: list[Entry]) -> list[tuple[str, str]]:
    """Entry id and a word for what is shown, of each message of the projection."""
    compactions = [index for index, entry in enumerate(path) if isinstance(entry, CompactionEntry)]
    window: list[Entry] = path
    newest: CompactionEntry | None = None
    if compactions:
        last = path[compactions[-1]]
        newest = last if isinstance(last, CompactionEntry) else None
        assert newest is not None
        before, after = path[: compactions[-1]], path[compactions[-1] + 1 :]
        ids = [entry.id for entry in before]
        kept = before[ids.index(newest.first_kept_entry_id) :] if newest.first_kept_entry_id in ids else []
        kept = [entry for entry in kept if not (isinstance(entry, MessageEntry) and role(entry.message) == "System")]
        window = [newest, *kept, *after]
    shown: list[tuple[str, str]] = []
    for entry in window:
        edits = [edit for edit in window if isinstance(edit, ContextEditEntry) and edit.target_id == entry.id]
        replacement = edits[-1].replacement if edits else ()
        if replacement is None:
            continue
        if isinstance(entry, MessageEntry):
            is_replaced = bool(edits) and isinstance(entry.message, EDITABLE)
            shown.append((entry.id, "replaced" if is_replaced else role(entry.message)))
        elif isinstance(entry, CustomMessageEntry):
            shown.append((entry.id, "replaced" if edits else "Custom"))
        elif isinstance(entry, BranchSummaryEntry) and entry.summary:
            shown.append((entry.id, "BranchSummary"))
        elif newest is not None and entry is newest:
            shown += [(entry.id, "System")] if newest.system_message is not None else []
            shown.append((entry.id, "CompactionSummary"))
    return shown


def role(message: Message) -> str:
    return type(message).__name__.removesuffix("Message")


def as_oracle_says(projection: Projection) -> list[tuple[str, str]]:
    shown = []
    for item in projection.messages:
        entry = item.entry
        original = entry.message if isinstance(entry, MessageEntry) else None
        is_replaced = (
            item.message is not original
            if original is not None
            else isinstance(entry, CustomMessageEntry) and item.message.content != entry.content  # type: ignore[union-attr]
        )
        shown.append((entry.id, "replaced" if is_replaced else role(item.message)))
    return shown


def state_of(projection: Projection) -> tuple[Any, ...]:
    return (
        projection.leaf_id,
        projection.compaction,
        projection.entries,
        projection.messages,
        (projection.provider, projection.model_id, projection.thinking_level),
        projection.messages_after_last_change,
        projection.unresolved_boundary,
    )


def without_times_and_ids(messages: list[Message]) -> list[Message]:
    plain: list[Message] = []
    for message in messages:
        values: Any = message
        blank = {"timestamp": 0, "from_id": None}
        plain.append(
            replace(values, **{field.name: blank[field.name] for field in fields(values) if field.name in blank})
        )
    return plain


def plain(messages: list[Message]) -> list[Message]:
    """The same messages without what an undo cannot give back: when a summary was stored, and of how much."""
    return [
        replace(message, tokens_before=0) if isinstance(message, CompactionSummaryMessage) else message
        for message in without_times_and_ids(messages)
    ]


def batch_of(entry: Entry) -> object:
    if isinstance(entry, ContextEditEntry):
        return entry.batch
    return (entry.extra or {}).get("batch") if isinstance(entry, MessageEntry) else None


CALL_IDS = st.sampled_from(["c1", "c2", "c3"])
INDEX = st.integers(min_value=0, max_value=6) | st.integers(min_value=0, max_value=1_000)
STOPS = st.sampled_from(["stop", "toolUse", "toolUse", "error", "aborted", "length"])
TEXT = st.sampled_from(["", "text", "more text"])


def near_the_end(ids: list[str], index: int) -> str:
    """The id at that place counted from the end, where histories go on."""
    return ids[-1 - index % len(ids)]


class Sessions(RuleBasedStateMachine):
    """The same appends to a session in memory and to one on the disk; entries are named by their place in the log."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.memory = SessionManager.in_memory(self.folder)
        self.disk = SessionManager.create(self.folder, session_dir=self.folder)

    @override
    def teardown(self) -> None:
        self.memory.close()
        self.disk.close()
        shutil.rmtree(self.folder)

    def both(self, append: Callable[[SessionManager, list[str]], object]) -> None:
        for session in (self.memory, self.disk):
            append(session, [entry.id for entry in session])

    def message(self, message: Message) -> None:
        self.both(lambda session, ids: session.append_message(message))

    @initialize()
    def begin(self) -> None:
        self.message(UserMessage(content=as_content("begin")))

    @rule(text=TEXT)
    def user(self, text: str) -> None:
        self.message(UserMessage(content=as_content(text)))

    @rule(text=TEXT, calls=st.lists(CALL_IDS, max_size=3), stop=STOPS)
    def answer(self, text: str, calls: list[str], stop: str) -> None:
        content: list[Content] = [TextContent(text), *(ToolCall(call, "read", {}) for call in calls)]
        self.message(AssistantMessage(content=tuple(content), stop_reason=stop, provider="acme", model=text or "m"))

    @rule(call=CALL_IDS)
    def result(self, call: str) -> None:
        self.message(ToolResultMessage(tool_call_id=call, tool_name="read", content=as_content("r")))

    @rule(calls=st.lists(CALL_IDS, min_size=1, max_size=3), stop=STOPS, between=st.lists(st.booleans(), max_size=3))
    def batch(self, calls: list[str], stop: str, between: list[bool]) -> None:
        """An answer with calls, and results of some with something between them."""
        self.answer("", calls, stop)
        for call, is_message in zip(calls, between, strict=False):
            if is_message:
                self.user("between")
            else:
                self.other("custom", 1)
            self.result(call)

    @rule(excluded=st.booleans())
    def shell(self, excluded: bool) -> None:
        self.message(BashExecutionMessage(command="ls", output="x", exclude_from_context=excluded))

    @rule(text=TEXT)
    def system(self, text: str) -> None:
        self.message(SystemMessage(content=as_content(text)))

    @rule(kind=st.sampled_from(["custom", "custom_message", "model", "level", "name", "usage", "label"]), index=INDEX)
    def other(self, kind: str, index: int) -> None:
        def append(session: SessionManager, ids: list[str]) -> object:
            match kind:
                case "custom":
                    return session.append_custom("state", index)
                case "custom_message":
                    return session.append_custom_message("note", "note")
                case "model":
                    return session.append_model_change("acme", "small")
                case "level":
                    return session.append_thinking_level_change("high")
                case "name":
                    return session.set_name("mine")
                case "usage":
                    return session.append_usage("compaction", "acme", "small", Usage(input=index))
                case _:
                    return session.append_label(near_the_end(ids, index), "here")

        self.both(append)

    @rule(index=INDEX, replacement=st.sampled_from([None, "replaced"]))
    def edit(self, index: int, replacement: str | None) -> None:
        self.both(lambda session, ids: session.append_context_edit(near_the_end(ids, index), replacement))

    @rule(index=INDEX)
    def branch(self, index: int) -> None:
        self.both(lambda session, ids: session.branch(near_the_end(ids, index)))

    @rule(index=INDEX, text=TEXT)
    def branch_summary(self, index: int, text: str) -> None:
        self.both(
            lambda session, ids: session.append_branch_summary(
                session.leaf_id, text, parent_id=near_the_end(ids, index)
            )
        )

    @rule(index=INDEX, edited=st.lists(INDEX, max_size=2))
    def compact(self, index: int, edited: list[int]) -> None:
        """A compaction through the check; refused ones change nothing."""

        def append(session: SessionManager, ids: list[str]) -> None:
            branch = session.get_branch()
            boundary = near_the_end([entry.id for entry in branch], index)
            entry = compaction_at(boundary)
            edits = [(near_the_end(ids, place), as_content("smaller") if place % 2 else None) for place in edited]
            try:
                session.append_compaction_entry(replace(entry, id=f"k{len(ids)}"), edits)
            except InvalidBoundaryError:
                assert [step.id for step in session] == ids
            else:
                assert pairs_ok(item.message for item in build_context(session.projection))

        self.both(append)

    @rule(index=st.none() | INDEX)
    def foreign_compaction(self, index: int | None) -> None:
        """A compaction of another program, with any boundary: unchecked, from another branch, from nowhere."""

        def append(session: SessionManager, ids: list[str]) -> None:
            boundary = None if index is None else near_the_end(["nowhere", *ids], index)
            entry = replace(compaction_at(boundary), id=f"k{len(ids)}", parent_id=session.leaf_id)
            session._append([entry])

        self.both(append)

    @rule()
    def undo(self) -> None:
        """Afterwards the branch shows what it shows without its newest compaction and what was written with it."""
        # Mutation: in `plan_undo` keep the edits of the batch in `without`; take a boundary that keeps nothing over as
        # it is; in `_overruling` restore the recorded content where an earlier edit stands.

        def append(session: SessionManager, ids: list[str]) -> None:
            path = session.get_branch()
            undone = next((entry for entry in reversed(path) if isinstance(entry, CompactionEntry)), None)
            planned = plan_undo(session)
            if undone is None:
                assert planned is None
                return
            assert planned is not None
            written_with = [entry for entry in path if batch_of(entry) == undone.id]
            wanted = build_projection([entry for entry in path if entry is not undone and entry not in written_with])
            stored = session.append_undo(planned)
            assert session.get_branch() == [*path, *stored]
            said = [[item.message for item in build_context(shown)] for shown in (wanted, session.projection)]
            assert plain(said[0]) == plain(said[1])
            systems = [
                replay_system_messages(
                    item.message for item in shown.messages if isinstance(item.message, SystemMessage)
                )
                for shown in (wanted, session.projection)
            ]
            assert systems[0] == systems[1]

        self.both(append)

    @rule()
    def reopen(self) -> None:
        before = list(self.disk), self.disk.build_messages(), state_of(self.disk.projection), self.disk.totals
        path = self.disk.path
        assert path is not None
        self.disk.close()
        self.disk = SessionManager.open(path)
        assert before == (
            list(self.disk),
            self.disk.build_messages(),
            state_of(self.disk.projection),
            self.disk.totals,
        )
        assert not self.disk.damage

    @rule(index=st.none() | INDEX)
    def fork(self, index: int | None) -> None:
        for session in (self.memory, self.disk):
            ids = [entry.id for entry in session]
            entry_id = None if index is None else near_the_end(ids, index)
            with SessionManager.fork_from(session, entry_id=entry_id) as fork:
                assert fork.build_messages() == session.build_messages(entry_id)
                assert state_of(fork.projection)[3] == state_of(session.build_projection(entry_id))[3]
                assert fork.leaf_id == (entry_id or session.leaf_id)
                assert not fork.damage

    @invariant()
    def the_cached_projection_is_the_rebuilt_one_and_the_oracles(self) -> None:
        for session in (self.memory, self.disk):
            rebuilt = build_projection(session.get_branch())
            assert state_of(session.projection) == state_of(rebuilt)
            assert as_oracle_says(rebuilt) == oracle(session.get_branch())

    @invariant()
    def the_context_is_a_valid_request(self) -> None:
        for session in (self.memory, self.disk):
            assert pairs_ok(session.build_messages())
            # Mutation: in `Projection._show_again` or `_open_window` count no rewrite; in `_Pairing._settle` take a
            # batch for settled that misses a result.
            assert session.build_context() == build_context(session.projection)
            # Calls dangle only at the end of the branch: there the context answers them itself, until that is recorded.
            dangling = [call.id for call in dangling_calls(session.projection)]
            last = session.build_messages()[-len(dangling) :] if dangling else []
            made_up = [message for message in last if getattr(message, "text", "") == NO_RESULT_TEXT]
            assert [message.tool_call_id for message in made_up if isinstance(message, ToolResultMessage)] == dangling

    @invariant()
    def memory_and_disk_are_equal(self) -> None:
        memory, disk = ([type(entry) for entry in session] for session in (self.memory, self.disk))
        assert memory == disk
        assert without_times_and_ids(self.memory.build_messages()) == without_times_and_ids(self.disk.build_messages())
        assert self.memory.totals == self.disk.totals
        assert self.memory.name == self.disk.name

    @invariant()
    def what_is_kept_up_equals_what_is_read_anew(self) -> None:
        branch = self.disk.get_branch()
        states = [entry.data for entry in branch if isinstance(entry, CustomEntry) and entry.custom_type == "state"]
        assert self.disk.get_custom("state") == (states[-1] if states else None)
        changes = [entry for entry in branch if isinstance(entry, ThinkingLevelChangeEntry)]
        assert self.disk.projection.thinking_level == (changes[-1].thinking_level if changes else "off")
        models = [
            entry.model_id if isinstance(entry, ModelChangeEntry) else entry.message.model  # type: ignore[union-attr]
            for entry in branch
            if isinstance(entry, ModelChangeEntry) or isinstance(getattr(entry, "message", None), AssistantMessage)
        ]
        assert self.disk.projection.model_id == (models[-1] if models else None)

    @invariant()
    def a_compaction_keeps_verbatim_what_stands_from_its_boundary_on(self) -> None:
        branch = self.disk.get_branch()
        context = build_context(self.disk.projection)
        for place in range(max(0, len(branch) - 4), len(branch)):
            try:
                check_boundary(self.disk.projection, branch[place].id)
            except InvalidBoundaryError:
                continue
            cut = replace(compaction_at(branch[place].id), parent_id=branch[-1].id)
            kept = {entry.id for entry in branch[place:] if not isinstance(entry, CompactionEntry)}
            after = build_context(build_projection([*branch, cut]))
            assert after[1:] == [item for item in context if item.entry.id in kept]


def compaction_at(boundary: str | None) -> CompactionEntry:
    return CompactionEntry(
        id="k", parent_id=None, timestamp=TIMESTAMP, summary="summary", first_kept_entry_id=boundary, tokens_before=9
    )


TestSessions = Sessions.TestCase
TestSessions.settings = settings(max_examples=60, stateful_step_count=25)
