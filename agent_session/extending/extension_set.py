"""The extensions of one session: loading them in order, taking them out again, and ending them with it.

Rule: an extension is in with all it registered or out with all of it. One that cannot be loaded is reported
with its traceback and leaves nothing behind; the session goes on.
"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Iterable

from typing_extensions import override

from agent_session.errors import ExtensionLoadError
from agent_session.events import ExtensionFailed, SessionShutdown, SessionStart
from agent_session.extending.api import ExtensionAPI
from agent_session.extending.clock import OwnClock, awaited, context_served_by
from agent_session.extending.context import Tenure
from agent_session.extending.loader import Located, Source, forget, locate
from agent_session.extending.on import On
from agent_session.extending.registry import HandlerRegistry, Owner
from agent_session.extending.runner import HookRunner, no_grace
from agent_session.extending.view import SessionView
from agent_session.owned_tasks import OwnedTasks

PROGRAM = "program"
"""The owner of what is registered on the session itself; each such handler is reported by its own name."""


class ExtensionSet:
    """What a session has of extensions. `hooks` asks handlers, `on` registers the program's own.

    `hook_timeout`, `tasks` and `grace` are `HookRunner`'s.
    """

    def __init__(
        self,
        view: SessionView,
        *,
        hook_timeout: Callable[[], float],
        tasks: OwnedTasks,
        grace: Callable[[], float | None] = no_grace,
    ) -> None:
        self._view = view
        self._hook_timeout = hook_timeout
        self._tasks = tasks
        self._registry = HandlerRegistry()
        self._program = Owner(PROGRAM, Tenure(PROGRAM, view), order=None)
        self._loaded: dict[str, LoadedExtension] = {}
        self.hooks = HookRunner(self._registry, hook_timeout=hook_timeout, report=view.report, tasks=tasks, grace=grace)
        self.on = On(self._registry, self._program)

    @property
    def loaded(self) -> tuple[LoadedExtension, ...]:
        """In load order."""
        return tuple(self._loaded.values())

    async def load_all(self, sources: Iterable[Source]) -> tuple[LoadedExtension, ...]:
        """Those that could be loaded, one after the other; the others are reported. Cancelled, none of them stays."""
        extensions: list[LoadedExtension] = []
        try:
            for source in sources:
                try:
                    extensions.append(await self.load(source))
                except ExtensionLoadError:
                    continue  # reported by `load`
        except BaseException:
            # Whoever starts the session next loads them all again.
            for extension in reversed(extensions):
                self.drop(extension, "the session's start was cancelled")
            raise
        return tuple(extensions)

    async def load(self, source: Source, *, announce: bool = False) -> LoadedExtension:
        """Find the extension and run its `setup`, which has `hook_timeout` of its own time.

        `announce`: the session has started already, so the extension alone gets a `session_start`, reason load.

        Raises:
            ExtensionLoadError: it could not be loaded. It was reported already, and the session goes on.
        """
        try:
            extension = await self._set_up(await locate(source))
        except ExtensionLoadError as error:
            refusal = error
        else:
            if announce:
                await self.hooks.notify(SessionStart(reason="load"), owner=extension._owner)
            return extension
        await self._tell_of(refusal)
        raise refusal

    def drop(self, extension: LoadedExtension, why: str) -> None:
        """Take off all it registered and end its context; `why` is what using it still is answered with."""
        self._loaded.pop(extension.name, None)
        self._registry.remove_owner(extension._owner)
        extension._owner.tenure.end(why)
        forget(extension._located)

    def end(self, why: str) -> None:
        """End every context, the program's too: the session closed or was replaced. `why` is that sentence."""
        for extension in reversed(self.loaded):
            self.drop(extension, why)
        self._registry.remove_owner(self._program)
        self._program.tenure.end(why)

    async def _set_up(self, located: Located) -> LoadedExtension:
        name = self._unique(located.name)
        owner = self._registry.admit(name, Tenure(name, self._view))
        extension = LoadedExtension(self, located, owner)
        self._loaded[name] = extension
        try:
            result = located.setup(ExtensionAPI(owner, self._registry))
            if inspect.isawaitable(result):
                clock = OwnClock(self._hook_timeout())
                await self._tasks.attend(
                    awaited(result), name=f"setup of {name}", clock=clock, context=context_served_by(clock)
                )
        except (Exception, SystemExit) as error:
            self.drop(extension, "its setup failed")
            raise ExtensionLoadError(name, f"setup raised {type(error).__name__}: {error}") from error
        except BaseException:
            self.drop(extension, "its setup was cancelled")
            raise
        return extension

    def _unique(self, name: str) -> str:
        number = 2
        unique = name
        while unique in self._loaded:
            unique = f"{name}#{number}"
            number += 1
        return unique

    async def _tell_of(self, error: ExtensionLoadError) -> None:
        await self.hooks.tell_failure(
            ExtensionFailed(
                owner=error.owner,
                event="load",
                why=str(error),
                error=error,
                traceback="".join(traceback.format_exception(error.__cause__ or error)),
            )
        )


class LoadedExtension:
    """What `load` returns. `name` is what reports call it."""

    def __init__(self, extensions: ExtensionSet, located: Located, owner: Owner) -> None:
        self.name = owner.name
        self._located = located
        self._owner = owner
        self._extensions = extensions

    @property
    def is_loaded(self) -> bool:
        return self in self._extensions.loaded

    async def unload(self) -> None:
        """Tell it (`session_shutdown`, reason unload), then take it out. A second call does nothing."""
        if self.is_loaded:
            await self._extensions.hooks.notify(SessionShutdown(reason="unload"), owner=self._owner)
            self._extensions.drop(self, "the extension was unloaded")

    @override
    def __repr__(self) -> str:
        return f"<extension {self.name}{'' if self.is_loaded else ', unloaded'}>"
