"""What can be seen of a session: its context, its history, its state.

Rule: everything here returns at once, asks nothing of a model and changes nothing. The log is opened on first use.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from typing_extensions import override

from agent_session.activity import ActivityGate
from agent_session.history import SEARCH_LIMIT, RecordedMessage, SearchHit, branch_of, search_branch
from agent_session.llm.client import ThinkingLevel
from agent_session.meter import ContextUsage
from agent_session.models import Model
from agent_session.parts import Parts
from agent_session.session_core import SessionCore
from agent_session.settings import Settings
from agent_session.stats import SessionStats, html_of, stats_of
from session_store import SessionManager
from session_store.entries import Entry
from session_store.messages import Message
from session_store.showing import Lazily, Several


class Messages(Several[Message]):
    """A context as it was in one moment."""

    __slots__ = ()
    _kind = "message"


class Inspection:
    """The part of `AgentSession` that only looks."""

    _core: SessionCore
    _gate: ActivityGate

    @property
    def messages(self) -> tuple[Message, ...]:
        """The context: what the next request sends."""
        return Messages(item.message for item in self._parts.meter.context())

    @property
    def transcript(self) -> Iterator[Entry]:
        """The whole branch, root first, compacted history included; read when iterated."""
        return Lazily(self._parts.manager.walk_branch(), "the entries of the branch, root first")

    def dropped(self) -> Iterator[RecordedMessage]:
        """What was said on this branch and the context no longer shows, oldest first: messages that a compaction
        summarised, and those that a context edit omitted or shortened, as they were recorded (`.message`, `.text`,
        `.where`). Answers that failed were never in the context. Looked up when iterated.
        """
        return Lazily(self._dropped(), "messages that the context no longer shows, oldest first")

    def _dropped(self) -> Iterator[RecordedMessage]:
        yield from branch_of(self._parts.manager).dropped()

    def search(self, text: str, *, limit: int = SEARCH_LIMIT) -> list[SearchHit]:
        """The messages of this branch in which `text` occurs, newest first, at most `limit`, wherever they are now.

        Plain text, in any case; white space stands for any white space. Arguments of calls are looked through as
        well, thinking and the summaries of compactions are not. Takes the time to read the branch.

        Raises:
            ValueError: there is nothing to search for.
        """
        return search_branch(self._parts.manager, text, limit=limit)

    def context_usage(self) -> ContextUsage:
        """How full the context is, in tokens, and where it is compacted."""
        return self._parts.meter.usage(self._core.settings.compaction)

    def stats(self) -> SessionStats:
        """What the whole session has spent, with the share of its compactions."""
        return stats_of(self._parts)

    @property
    def is_idle(self) -> bool:
        return self._gate.is_idle

    @property
    def is_streaming(self) -> bool:
        """Whether a run is under way."""
        return self._gate.is_active("run")

    @property
    def is_compacting(self) -> bool:
        return self._gate.is_active("compaction")

    @property
    def is_retrying(self) -> bool:
        return self._core.run is not None and self._core.run.is_retrying

    @property
    def session_manager(self) -> SessionManager:
        return self._parts.manager

    @property
    def session_id(self) -> str:
        return self._parts.manager.session_id

    @property
    def path(self) -> Path | None:
        return self._parts.manager.path

    @property
    def leaf_id(self) -> str | None:
        return self._parts.manager.leaf_id

    @property
    def model(self) -> Model:
        return self._parts.models.model

    @property
    def thinking_level(self) -> ThinkingLevel:
        return self._parts.models.thinking_level

    @property
    def settings(self) -> Settings:
        return self._core.settings

    @property
    def cwd(self) -> Path:
        return self._core.cwd

    @override
    def __repr__(self) -> str:
        if self._core.opened is None:
            return "<AgentSession, not opened>"
        state = "closed" if self._core.is_closed else repr(self._gate)
        return f"<AgentSession {self.session_id}, {self.model.id}, {state}>"

    def _repr_html_(self) -> str:
        return html_of(self._core.opened, "closed" if self._core.is_closed else repr(self._gate))

    @property
    def _parts(self) -> Parts:
        return self._core.parts
