"""The session at the prompt, and putting another one in its place.

The rule it keeps: the next session is open before the present one is closed, so that one that cannot be opened changes
nothing; so is one whose extensions cannot all be loaded. A session in which nothing was said leaves no file.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import cast

import anyio.to_thread

from agent_session.cli.arguments import Options
from agent_session.cli.opening import opened_manager
from agent_session.composition import choose_model
from agent_session.errors import ExtensionLoadError
from agent_session.events import Event, ExtensionFailed
from agent_session.extending.view import Interaction
from agent_session.llm.client import ThinkingLevel
from agent_session.models import Model
from agent_session.session import AgentSession
from agent_session.settings import Settings
from session_store import SessionManager


class Host:
    """`watch` is called with each session before it starts, to subscribe to it."""

    def __init__(
        self,
        options: Options,
        *,
        cwd: Path,
        interaction: Interaction | None,
        watch: Callable[[AgentSession], None],
    ) -> None:
        self.options = options
        self.cwd = cwd
        self._interaction = interaction
        self._watch = watch
        self._session: AgentSession | None = None
        self._made_here: set[Path] = set()
        self.settings = Settings.load(cwd)

    @property
    def is_open(self) -> bool:
        return self._session is not None

    @property
    def session(self) -> AgentSession:
        assert self._session is not None, "open() comes first"
        return self._session

    async def open(self) -> AgentSession:
        """Open what the options name. Raises what opening raises; nothing is left then."""
        manager = await anyio.to_thread.run_sync(opened_manager, self.options, self.settings, self.cwd)
        if self.options.resume is None and manager.path is not None:
            self._made_here.add(manager.path)
        model: Model | str | None = self.options.model
        if self.options.context_window is not None:
            chosen = choose_model(self.options.model, manager, self.settings)
            model = Model(chosen.id, context_window=self.options.context_window)
        return await self._begin(manager, model=model, level=self.options.thinking_level)

    async def begin_new(self) -> AgentSession:
        """Go on in a new session, with the present model."""
        if self.options.is_stored:
            manager = await anyio.to_thread.run_sync(SessionManager.create, self.session.cwd)
        else:
            manager = SessionManager.in_memory(self.session.cwd)
        if manager.path is not None:
            self._made_here.add(manager.path)
        return await self.replace(manager)

    async def replace(self, manager: SessionManager) -> AgentSession:
        """Go on in another session, with its own model, else with the present one and what was said of its window."""
        previous = self.session
        own = f"{manager.projection.provider}/{manager.projection.model_id}" if manager.projection.model_id else None
        model = previous.model if own in (None, previous.model.id) else None
        session = await self._begin(manager, model=model, level=None)
        await self._end(previous)
        return session

    async def close(self) -> None:
        """End what runs, and close the session. Safe to call when none was opened."""
        if self._session is not None:
            session, self._session = self._session, None
            await self._end(session)

    async def _begin(self, manager: SessionManager, *, model: Model | str | None, level: str | None) -> AgentSession:
        home = Path(manager.cwd)
        session = AgentSession(
            model,
            session_manager=manager,
            extensions=self.options.extensions,
            settings=self.settings,
            thinking_level=cast("ThinkingLevel | None", level),
            interaction=self._interaction,
            # A session that is resumed from elsewhere goes on where its files are.
            cwd=home if await anyio.Path(home).is_dir() else self.cwd,
        )
        before, self._session = self._session, session
        self._watch(session)
        refused: list[BaseException] = []

        def notice(event: Event) -> None:
            if isinstance(event, ExtensionFailed) and isinstance(event.error, ExtensionLoadError):
                refused.append(event.error)

        session.subscribe(notice)
        try:
            await session.start()
            if refused:
                # It was asked for by name: to go on without it would be something else than was asked for.
                raise refused[0]
            return session
        except BaseException:
            self._session = before
            with anyio.CancelScope(shield=True):
                await self._end(session)
            raise

    async def _end(self, session: AgentSession) -> None:
        manager = session.session_manager
        await session.close()
        if manager.path in self._made_here and len(manager) == 0:
            await anyio.Path(manager.path).unlink(missing_ok=True)
