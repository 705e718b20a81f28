"""What can be seen of a `SyncSession`: its context, its history, its state.

Rule: what is handed out is as it was in one moment of the session's thread.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from agent_session.history import SEARCH_LIMIT, RecordedMessage, SearchHit
from agent_session.llm.client import ThinkingLevel
from agent_session.meter import ContextUsage
from agent_session.models import Model
from agent_session.raising import at_the_call
from agent_session.session import AgentSession
from agent_session.session_thread import SessionThread
from agent_session.settings import Settings
from agent_session.stats import SessionStats
from session_store import SessionManager
from session_store.entries import Entry
from session_store.messages import Message
from session_store.showing import Lazily


@at_the_call
class SyncInspection:
    """The part of `SyncSession` that only looks."""

    _thread: SessionThread
    _session: AgentSession

    @property
    def messages(self) -> tuple[Message, ...]:
        """The context: what the next request sends."""
        return self._thread.look(lambda: self._session.messages)

    @property
    def transcript(self) -> Iterator[Entry]:
        """The whole branch as it is now, root first, compacted history included."""
        entries = self._thread.look(lambda: tuple(self._session.transcript))
        return Lazily(iter(entries), f"{len(entries):,} entries, root first")

    def dropped(self) -> Iterator[RecordedMessage]:
        """What was said on this branch and the context no longer shows, oldest first. See `AgentSession.dropped`."""
        messages = self._thread.look(lambda: tuple(self._session.dropped()))
        return Lazily(iter(messages), f"{len(messages):,} messages that the context no longer shows, oldest first")

    def search(self, text: str, *, limit: int = SEARCH_LIMIT) -> list[SearchHit]:
        """The messages of this branch in which `text` occurs, newest first. See `AgentSession.search`."""
        return self._thread.look(lambda: self._session.search(text, limit=limit))

    def context_usage(self) -> ContextUsage:
        """How full the context is, in tokens, and where it is compacted."""
        return self._thread.look(self._session.context_usage)

    def stats(self) -> SessionStats:
        """What the whole session has spent, with the share of its compactions."""
        return self._thread.look(self._session.stats)

    @property
    def is_idle(self) -> bool:
        return self._session.is_idle

    @property
    def is_streaming(self) -> bool:
        """Whether a run is under way."""
        return self._session.is_streaming

    @property
    def is_compacting(self) -> bool:
        return self._session.is_compacting

    @property
    def is_retrying(self) -> bool:
        return self._session.is_retrying

    @property
    def session_manager(self) -> SessionManager:
        return self._thread.look(lambda: self._session.session_manager)

    @property
    def session_id(self) -> str:
        return self._thread.look(lambda: self._session.session_id)

    @property
    def path(self) -> Path | None:
        return self._thread.look(lambda: self._session.path)

    @property
    def leaf_id(self) -> str | None:
        return self._thread.look(lambda: self._session.leaf_id)

    @property
    def model(self) -> Model:
        return self._thread.look(lambda: self._session.model)

    @property
    def thinking_level(self) -> ThinkingLevel:
        return self._thread.look(lambda: self._session.thinking_level)

    @property
    def settings(self) -> Settings:
        return self._session.settings

    @property
    def cwd(self) -> Path:
        return self._session.cwd
