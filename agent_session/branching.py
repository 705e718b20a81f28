"""Moving in the tree and leaving it: `navigate_tree` and `fork`."""

from __future__ import annotations

from agent_session.errors import AgentSessionError
from agent_session.events import SessionFork, SessionTree
from agent_session.hooks import BeforeFork, BeforeTree
from agent_session.parts import Parts
from agent_session.summarizer import Spending, Summarizer, SummaryOrder
from session_store import SessionManager
from session_store.entries import BranchSummaryEntry, Entry, MessageEntry
from session_store.messages import Message, Usage, UserMessage


class TreeMoves:
    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._summarizer = Summarizer(parts)

    async def navigate(self, entry_id: str, *, summarize: bool, instructions: str | None) -> str | None:
        """Make `entry_id` the leaf; from a user message, its parent, and return its text.

        With `summarize` the branch that is left becomes a `branch_summary` under the new position.
        Nothing moves before everything was decided and made; a veto leaves the leaf where it is.
        """
        parts = self._parts
        target = parts.manager.get_entry(entry_id)
        text: str | None = None
        position: str | None = entry_id
        if isinstance(target, MessageEntry) and isinstance(target.message, UserMessage):
            text, position = target.message.text, target.parent_id
        old_leaf = parts.manager.leaf_id
        left = self._entries_left(position)
        event = await parts.dispatcher.decide(
            BeforeTree(target_id=entry_id, old_leaf_id=old_leaf, summarize=summarize, entries=tuple(left))
        )
        if event.veto is not None:
            raise AgentSessionError(f"the move was vetoed by {event.decided_by}: {event.veto.reason}")
        summary, usage = event.summary, None
        messages = [entry.message for entry in left if isinstance(entry, MessageEntry)]
        if summary is None and summarize and messages:
            summary, usage = await self._summarized(messages, instructions)
        entry: Entry | None = None
        if summary is not None or position != old_leaf:
            entry = await parts.recorder.append(
                lambda log: self._moved(log, position, old_leaf, summary, usage, from_hook=event.summary is not None)
            )
        if entry is not None and event.label is not None:
            labelled, label = entry.id, event.label
            await parts.recorder.append(lambda log: log.append_label(labelled, label))
        parts.backoff.reset()
        await parts.recorder.flush()
        await parts.dispatcher.notify(
            SessionTree(
                new_leaf_id=parts.manager.leaf_id,
                old_leaf_id=old_leaf,
                summary_entry=entry if isinstance(entry, BranchSummaryEntry) else None,
            )
        )
        return text

    async def fork(self, entry_id: str | None) -> SessionManager:
        """A new session file with the path to `entry_id` (None: with everything)."""
        parts = self._parts
        if entry_id is not None:
            parts.manager.get_entry(entry_id)
        event = await parts.dispatcher.decide(BeforeFork(entry_id=entry_id))
        if event.veto is not None:
            raise AgentSessionError(f"the fork was vetoed by {event.decided_by}: {event.veto.reason}")
        forked = SessionManager.fork_from(parts.manager, entry_id=entry_id)
        await parts.dispatcher.notify(
            SessionFork(entry_id=entry_id, path=str(forked.path) if forked.path else None, session_id=forked.session_id)
        )
        return forked

    @staticmethod
    def _moved(
        log: SessionManager,
        position: str | None,
        old_leaf: str | None,
        summary: str | None,
        usage: Usage | None,
        *,
        from_hook: bool,
    ) -> Entry:
        if summary is None:
            moved = log.branch(position)
            assert moved is not None, "the position is not the leaf"
            return moved
        return log.append_branch_summary(old_leaf, summary, parent_id=position, usage=usage, from_hook=from_hook)

    def _entries_left(self, position: str | None) -> list[Entry]:
        """What is on the present branch and not on the way to the new position, root first."""
        manager = self._parts.manager
        kept = {entry.id for entry in manager.get_branch(position)} if position is not None else set()
        return [entry for entry in manager.get_branch() if entry.id not in kept]

    async def _summarized(self, messages: list[Message], instructions: str | None) -> tuple[str, Usage | None]:
        spending = Spending()
        order = SummaryOrder(messages=messages, instructions=instructions)
        try:
            summary, _ = await self._summarizer.summarize(order, spending)
        except BaseException:
            for model, usage in spending.by_model.items():
                self._parts.recorder.owe(model, usage)
            raise
        return summary, spending.usage
