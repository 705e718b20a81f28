"""`SyncSession`: a session for who cannot `await`: the plain Python prompt, scripts, notebooks.

Rule: nothing of the session is decided here. Every verb is `AgentSession`'s, done on a thread of the session's own.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from typing_extensions import override

from agent_session import notices
from agent_session.blocks import events_block, run_block
from agent_session.compaction.types import CompactionOutcome
from agent_session.dispatch import Listener, Listening
from agent_session.echo import Echo
from agent_session.errors import SessionClosedError
from agent_session.events import Event, MessageUpdate
from agent_session.extending.loader import Source
from agent_session.extending.on import On
from agent_session.llm.client import ModelClient, TextDelta, ThinkingLevel
from agent_session.model_state import ApiKey
from agent_session.models import Model
from agent_session.queues import IfBusy
from agent_session.raising import at_the_call
from agent_session.session import AgentSession
from agent_session.session_thread import SessionThread
from agent_session.settings import Settings
from agent_session.sync_handles import SyncEventStream, SyncLoadedExtension, SyncRunHandle, on_another_thread
from agent_session.sync_inspection import SyncInspection
from agent_session.tools.images import ImageSource
from agent_session.tools.registry import ToolSpecifier
from agent_session.turn import aborted
from session_store import SessionManager
from session_store.messages import AssistantMessage


@at_the_call
class SyncSession(SyncInspection):
    """An `AgentSession` whose verbs return when they are done, from any thread. Takes what `AgentSession` takes.

    The first verb opens it. `with`, `close()`, the interpreter's exit or being forgotten close it. The first Ctrl-C
    during a verb is `abort()`, and the verb returns what it returns then; a second raises KeyboardInterrupt, and so
    does the first during what cannot be aborted, such as `load`.

    Handlers, listeners and `interaction` are called on the session's thread: they may look, steer and abort, but
    not wait for the session. What `session_manager` gives is safe to read while the session is idle.
    """

    def __init__(
        self,
        model: str | Model | None = None,
        *,
        session_manager: SessionManager | None = None,
        resume: str | Path | None = None,
        tools: Sequence[ToolSpecifier] | None = None,
        system_prompt: str | None = None,
        append_system_prompt: str | None = None,
        extensions: Sequence[Source] = (),
        settings: Settings | None = None,
        thinking_level: ThinkingLevel | None = None,
        client: ModelClient | None = None,
        api_key: ApiKey | None = None,
        interaction: Any = None,
        deps: Any = None,
        cwd: str | Path | None = None,
    ) -> None:
        self._thread = SessionThread(
            lambda: AgentSession(
                model,
                session_manager=session_manager,
                resume=resume,
                tools=tools,
                system_prompt=system_prompt,
                append_system_prompt=append_system_prompt,
                extensions=extensions,
                settings=settings,
                thinking_level=thinking_level,
                client=client,
                api_key=api_key,
                interaction=interaction,
                deps=deps,
                cwd=cwd,
            )
        )
        self._session = self._thread.session
        # Whoever resumes the same file must not find it locked by a session that nobody can use any more.
        weakref.finalize(self, self._thread.forget).atexit = False

    # Opening and closing ------------------------------------------------------------------------

    def start(self) -> Self:
        """Open the log, load the extensions, tell `session_start`. Asks nothing of a model."""
        self._thread.ask(self._session.start)
        return self

    def close(self) -> list[str]:
        """End what runs, tell `session_shutdown`, close log and connections, end the thread. Safe to call twice.

        Returns the queued texts that were not recorded.

        Raises:
            SessionBusyError: called from inside a handler or tool of this session.
            SessionWriteError: entries are in memory that could not be written.
        """
        return self._thread.close()

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # Running ------------------------------------------------------------------------------------

    def prompt(
        self,
        text: str,
        *,
        images: Sequence[ImageSource] = (),
        if_busy: IfBusy = "raise",
        on_text: Callable[[str], None] | None = None,
    ) -> AssistantMessage | None:
        """Say something and run until the session has settled; the last answer. See `AgentSession.prompt`.

        `on_text` is called in this thread with the text as it streams, and what it raises ends the run. Without it the
        text is printed, where standard output is a terminal.
        """
        return self._thread.ask(
            lambda: self._session.prompt(text, images=images, if_busy=if_busy),
            aborts=True,
            from_inside=True,
            show=_shown_by(on_text),
            instead=aborted,
        )

    def run(self, text: str, *, images: Sequence[ImageSource] = ()) -> AbstractContextManager[SyncRunHandle]:
        """The same run as events: `with session.run(text) as run`, then iterate it.

        Leaving the block early aborts the run.
        """
        return run_block(self._run(text, images), text)

    def steer(self, text: str, *, images: Sequence[ImageSource] = ()) -> None:
        """Say something before the next request; on an idle session it starts a run the session owns."""
        self._thread.look(lambda: self._session.steer(text, images=images))

    def follow_up(self, text: str, *, images: Sequence[ImageSource] = ()) -> None:
        """Say something when the run would end; on an idle session it starts a run the session owns."""
        self._thread.look(lambda: self._session.follow_up(text, images=images))

    @property
    def pending_messages(self) -> tuple[str, ...]:
        """Queued texts in order of delivery, those included that are on their way into the log."""
        return self._thread.look(lambda: self._session.pending_messages)

    def clear_queue(self) -> list[str]:
        """Take back what is queued and not on its way into the log; the texts, in order."""
        return self._thread.look(self._session.clear_queue)

    def abort(self) -> list[str]:
        """End whatever runs, and return when it is over: the queued texts that were not recorded."""
        return self._thread.ask(self._session.abort, from_inside=True)

    def wait_for_idle(self) -> None:
        """Return when nothing runs, runs started by the queue included."""
        self._thread.ask(self._session.wait_for_idle, aborts=True)

    # Compaction ---------------------------------------------------------------------------------

    def compact(
        self,
        instructions: str | None = None,
        *,
        keep_recent_tokens: int | None = None,
        model: str | None = None,
        interrupt: bool = True,
        dry_run: bool = False,
    ) -> CompactionOutcome:
        """Replace old history by a summary now; with `dry_run` say what that would do. See `AgentSession.compact`."""
        return self._thread.ask(
            lambda: self._session.compact(
                instructions, keep_recent_tokens=keep_recent_tokens, model=model, interrupt=interrupt, dry_run=dry_run
            ),
            aborts=not dry_run,
            from_inside=True,
            instead=lambda: CompactionOutcome(status="aborted", reason="manual", why="aborted"),
        )

    def undo_compaction(self) -> CompactionOutcome:
        """Take the newest compaction of the branch back. See `AgentSession.undo_compaction`."""
        return self._thread.ask(self._session.undo_compaction, aborts=True)

    def abort_compaction(self) -> bool:
        """End the compaction that runs, and only it; False when there is none. Its outcome is `aborted`."""
        return self._thread.look(self._session.abort_compaction)

    # Events and extensions ------------------------------------------------------------------------

    @property
    def on(self) -> On:
        """Register a handler, as a decorator or a call: see `AgentSession.on`. It runs on the session's thread."""
        return on_another_thread(self._thread, self._session.on)

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` on the session's thread with every event; returns what takes it off again."""
        unsubscribe = self._thread.look(lambda: self._session.subscribe(listener))
        return Listening(listener, lambda: self._thread.look(unsubscribe))

    def events(self) -> AbstractContextManager[SyncEventStream]:
        """`with session.events() as stream: for event in stream`. Buffers without bound."""
        return events_block(self._events())

    def load(self, extension: Source) -> SyncLoadedExtension:
        """Load an extension now; the handle has `unload()`.

        Raises:
            ExtensionLoadError: it could not be loaded.
        """
        return SyncLoadedExtension(self._thread, self._thread.ask(lambda: self._session.load(extension)))

    # Models, tools, names -------------------------------------------------------------------------

    def set_model(self, model: str | Model) -> None:
        """Answer with another model from the next request on; a smaller window compacts before it."""
        self._thread.ask(lambda: self._session.set_model(model))

    def set_thinking_level(self, level: ThinkingLevel) -> None:
        """Think this hard from the next request on: off, minimal, low, medium, high, xhigh or max."""
        self._thread.ask(lambda: self._session.set_thinking_level(level))

    def set_active_tools(self, names: Sequence[str] | None) -> None:
        """Offer only these tools from the next request on; None offers all."""
        self._thread.look(lambda: self._session.set_active_tools(names))

    def set_name(self, name: str) -> None:
        """Name the session; a blank name takes the name off."""
        self._thread.ask(lambda: self._session.set_name(name))

    def update_settings(self, **changes: Any) -> Settings:
        """Change settings at run time: `update_settings(compaction={"enabled": False})` merges into the section.

        Raises:
            SettingsError: an unknown key or a wrong value; nothing was changed.
        """
        return self._thread.look(lambda: self._session.update_settings(**changes))

    # The tree -------------------------------------------------------------------------------------

    def navigate_tree(self, entry_id: str, *, summarize: bool = False, instructions: str | None = None) -> str | None:
        """Make `entry_id` the leaf; from a user message, its parent, and return its text.

        See `AgentSession.navigate_tree`.
        """
        return self._thread.ask(
            lambda: self._session.navigate_tree(entry_id, summarize=summarize, instructions=instructions), aborts=True
        )

    def fork(self, entry_id: str | None = None) -> SessionManager:
        """A new session with the path to `entry_id` (None: with everything); this one stays as it is."""
        return self._thread.ask(lambda: self._session.fork(entry_id))

    @override
    def __repr__(self) -> str:
        return repr(self._session).replace(AgentSession.__name__, type(self).__name__, 1)

    def _repr_html_(self) -> str:
        return self._thread.look(self._session._repr_html_)

    # ----------------------------------------------------------------------------------------------

    @contextmanager
    def _run(self, text: str, images: Sequence[ImageSource]) -> Iterator[SyncRunHandle]:
        manager = self._session.run(text, images=images)
        handle = self._thread.ask(manager.__aenter__)
        try:
            yield SyncRunHandle(self._thread, handle)
        finally:
            self._leave(manager)

    @contextmanager
    def _events(self) -> Iterator[SyncEventStream]:
        manager = self._session.events()
        stream = self._thread.ask(manager.__aenter__)
        try:
            yield SyncEventStream(self._thread, stream)
        finally:
            self._leave(manager)

    def _leave(self, manager: AbstractAsyncContextManager[Any]) -> None:
        # What failed in the block is the caller's; a session that was closed in it has ended everything.
        with suppress(SessionClosedError):
            self._thread.ask(lambda: manager.__aexit__(None, None, None))


def _shown_by(on_text: Callable[[str], None] | None) -> Callable[[Event], None] | None:
    if on_text is None:
        return Echo().show if sys.stdout is not None and sys.stdout.isatty() else None

    def show(event: Event) -> None:
        if isinstance(event, MessageUpdate) and isinstance(event.delta, TextDelta):
            on_text(event.delta.text)
        else:
            notices.tell(event)

    return show
