"""`AgentSession`: composition and verbs, no algorithm.

Rule: no scope and no task group outlives one call, so each verb may be called from another task of the session's
event loop. What a verb needs of the gate it claims before its first await.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from agent_session import notices
from agent_session.blocks import async_events_block, async_run_block
from agent_session.branching import TreeMoves
from agent_session.compaction.types import NOTHING_STORED, CompactionOutcome, CompactionRequest
from agent_session.compaction_entry import EntryMaker
from agent_session.dispatch import EventStream, Listener
from agent_session.events import ModelSelect, ThinkingLevelSelect
from agent_session.extending.extension_set import LoadedExtension
from agent_session.extending.loader import Source
from agent_session.inspection import Inspection
from agent_session.llm.client import ModelClient, ThinkingLevel
from agent_session.model_state import ApiKey
from agent_session.models import Model
from agent_session.prompting import Said
from agent_session.queues import IfBusy
from agent_session.run_handle import RunHandle, open_handle
from agent_session.session_core import SessionCore
from agent_session.settings import Settings
from agent_session.summarizer import Summarizer
from agent_session.tools.images import ImageSource
from agent_session.tools.registry import ToolSpecifier
from agent_session.undo import undo_compaction
from session_store import SessionManager
from session_store.messages import AssistantMessage


class AgentSession(Inspection):
    """A model, its tools and a log, driven turn by turn; compacts itself before its context is too large.

    `async with AgentSession(...) as session`, or `await start()` and `await close()`; the first verb starts it.
    Without `session_manager` and `resume` it writes a new file in the default folder.
    `session.on(event, handler)`, or as a decorator, lets code decide; `subscribe` only tells. `deps` is whatever its
    tools need, as it is: `ToolContext.deps`.

    Raises:
        SettingsError: an argument of the wrong kind.
        MissingModelError: on the first use, when neither `model`, the log, the settings nor
            `AGENT_SESSION_MODEL` name a model.
        SessionStoreError: on the first use, when the log cannot be opened.
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
        self._core = SessionCore(
            manager=session_manager,
            resume=resume,
            sources=extensions,
            settings=settings or Settings(),
            cwd=Path(cwd or ".").absolute(),
            options={
                "model": Model.of(model) if model is not None else None,
                "thinking_level": thinking_level,
                "client": client,
                "api_key": api_key,
                "tools": tools,
                "system_prompt": system_prompt,
                "append_system_prompt": append_system_prompt,
                "interaction": interaction,
                "deps": deps,
            },
        )
        self._gate = self._core.gate
        self._dispatcher = self._core.dispatcher
        self.on = self._core.extensions.on
        self._dispatcher.subscribe(notices.listen)

    # Opening and closing ------------------------------------------------------------------------

    async def start(self) -> Self:
        """Open the log, load the extensions, tell `session_start`. Asks nothing of a model."""
        self._core.check_open()
        await self._core.start()
        return self

    async def close(self) -> list[str]:
        """End what runs, tell `session_shutdown`, close log and connections. Safe to call twice.

        Returns the queued texts that were not recorded.

        Raises:
            SessionBusyError: called from inside a handler or tool of this session.
            SessionWriteError: entries are in memory that could not be written.
        """
        return await self._core.close()

    async def __aenter__(self) -> Self:
        try:
            return await self.start()
        except BaseException:
            await self.close()  # noqa: ASYNC102 - it shields itself
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()  # noqa: ASYNC102 - it shields itself

    # Running ------------------------------------------------------------------------------------

    async def prompt(
        self,
        text: str,
        *,
        images: Sequence[ImageSource] = (),
        if_busy: IfBusy = "raise",
        on_text: Callable[[str], None] | None = None,
    ) -> AssistantMessage | None:
        """Say something and run until the session has settled; the last answer.

        After an abort, wherever it falls: a message whose `stop_reason` is "aborted", with what had streamed of an
        answer that was cut off, else without content. On a busy session `if_busy` decides: "raise", "wait" for its
        turn, or queue as "steer" / "follow_up" and return None at once. During a manual compaction prompts wait in
        order. From inside a handler or tool of this session it is queued as a follow-up. None also where an extension
        took the text for itself. `on_text` is called with the text as it streams. `images` are paths (relative to
        `cwd`), bytes or blocks: png, jpeg, gif or webp, of up to 3.75 MB and 8,000 pixels a side.

        Raises:
            SessionBusyError: something else runs and `if_busy` is "raise".
            ModelError: the run ended on a provider's error that was not recovered (`ContextOverflowError` for size).
            ContextCannotFitError: system prompt and tools alone do not fit the model.
            ValueError: neither text nor an image, or an image that providers do not take; `OSError`: one not found.
        """
        return await self._core.prompt(Said(text=text, images=images, folder=self.cwd), if_busy, on_text)

    def run(self, text: str, *, images: Sequence[ImageSource] = ()) -> AbstractAsyncContextManager[RunHandle]:
        """The same run as events: `async with session.run(text) as run`, then iterate it.

        Leaving the block early aborts the run.
        """
        return async_run_block(open_handle(self._core, text, images), text)

    def steer(self, text: str, *, images: Sequence[ImageSource] = ()) -> None:
        """Say something before the next request; on an idle session it starts a run the session owns.

        Image files are read before it returns; `prompt(..., if_busy="steer")` reads them in a thread.
        """
        self._core.enqueue("steer", Said(text=text, images=images, folder=self.cwd).message_now())

    def follow_up(self, text: str, *, images: Sequence[ImageSource] = ()) -> None:
        """Say something when the run would end; on an idle session it starts a run the session owns."""
        self._core.enqueue("follow_up", Said(text=text, images=images, folder=self.cwd).message_now())

    @property
    def pending_messages(self) -> tuple[str, ...]:
        """Queued texts in order of delivery, those included that are on their way into the log."""
        return self._parts.queue.pending

    def clear_queue(self) -> list[str]:
        """Take back what is queued and not on its way into the log; the texts, in order."""
        return self._parts.queue.clear()

    async def abort(self) -> list[str]:
        """End whatever runs, and return when it is over: the queued texts that were not recorded.

        From inside a handler or tool it is a request that the run honours at its next safe point.
        """
        return await self._core.abort()

    async def wait_for_idle(self) -> None:
        """Return when nothing runs, runs started by the queue included.

        Raises:
            SessionBusyError: called from inside a handler or tool of this session, which is what runs.
        """
        if self._core.opened is not None and self._parts.queue.starts_a_run:
            await self._core.start()
        await self._gate.wait_idle()

    # Compaction ---------------------------------------------------------------------------------

    async def compact(
        self,
        instructions: str | None = None,
        *,
        keep_recent_tokens: int | None = None,
        model: str | None = None,
        interrupt: bool = True,
        dry_run: bool = False,
    ) -> CompactionOutcome:
        """Replace old history by a summary now. Aborts what runs; with `interrupt=False` a run goes on and
        compacts at its next safe point. The session stays idle afterwards, unless messages are queued.

        `instructions` focus the summary, they never move the boundary; `model` (`provider/name`) writes it.
        With `dry_run` nothing happens, whatever else runs: the outcome is a `preview` of what would leave the context,
        of tokens before and after, and of the calls and the cost expected. No model is asked, nothing is appended.

        Raises:
            CompactionError: it failed; `.outcome` says more, the log and the context are as before.
            SessionBusyError: a manual compaction or a tree move is under way, or a handler asks for its own session.
        """
        request = CompactionRequest(
            reason="manual",
            instructions=instructions,
            keep_recent_tokens=keep_recent_tokens,
            model=Model.of(model).id if model is not None else None,
        )
        if dry_run:
            self._core.check_open()
            await self._core.start()
            return await EntryMaker(self._parts, Summarizer(self._parts)).preview(request)
        return await self._core.compact(request, interrupt=interrupt)

    async def undo_compaction(self) -> CompactionOutcome:
        """Take the newest compaction of the branch back: the context is as if it had not been, what came after it
        included. Nothing leaves the log; undoing an undo compacts again, with the summary that was made. Where nothing
        was compacted the outcome is `skipped`.

        While an undo is the newest compaction of the branch, none is made because of the threshold.

        Raises:
            SessionBusyError: something runs.
            ContextCannotFitError: the model does not take what would come back; nothing was appended.
        """
        outcome = await self._core.move(undo_compaction)
        return outcome or CompactionOutcome(status="aborted", reason="manual", why=NOTHING_STORED)

    def abort_compaction(self) -> bool:
        """End the compaction that runs or is next in line, and only it: `aborted`. False when there is none."""
        return self._gate.abort_innermost("compaction")

    # Events and extensions ------------------------------------------------------------------------

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` with every event, once and when it is final; returns what takes it off again."""
        return self._dispatcher.subscribe(listener)

    def events(self) -> AbstractAsyncContextManager[EventStream]:
        """`async with session.events() as stream: async for event in stream`. Buffers without bound."""
        return async_events_block(self._dispatcher.events())

    async def load(self, extension: Source) -> LoadedExtension:
        """Load an extension now; the handle has `unload()`.

        Raises:
            ExtensionLoadError: it could not be loaded.
        """
        self._core.check_open()
        await self._core.start()
        return await self._core.extensions.load(extension, announce=True)

    # Models, tools, names -------------------------------------------------------------------------

    async def set_model(self, model: str | Model) -> None:
        """Answer with another model from the next request on; a smaller window compacts before it."""
        self._core.check_open()
        await self._core.start()
        parts = self._parts
        chosen = await parts.models.resolve(Model.of(model))
        previous = parts.models.model
        parts.models.select(chosen)
        parts.backoff.reset()
        if previous.id != chosen.id:
            await parts.recorder.append(lambda log: log.append_model_change(chosen.provider, chosen.name))
            await self._dispatcher.notify(ModelSelect(model=chosen.id, previous=previous.id))

    async def set_thinking_level(self, level: ThinkingLevel) -> None:
        """Think this hard from the next request on: off, minimal, low, medium, high, xhigh or max.

        Raises:
            SettingsError: there is no such level.
        """
        self._core.check_open()
        await self._core.start()
        parts = self._parts
        previous = parts.models.thinking_level
        if previous != level:
            parts.models.think(level)
            await parts.recorder.append(lambda log: log.append_thinking_level_change(level))
            await self._dispatcher.notify(ThinkingLevelSelect(thinking_level=level, previous=previous))

    def set_active_tools(self, names: Sequence[str] | None) -> None:
        """Offer only these tools from the next request on; None offers all."""
        self._parts.shape.activate(tuple(names) if names is not None else None)

    async def set_name(self, name: str) -> None:
        """Name the session; a blank name takes the name off."""
        self._core.check_open()
        await self._core.start()
        await self._parts.recorder.append(lambda log: log.set_name(name))

    def update_settings(self, **changes: Any) -> Settings:
        """Change settings at run time: `update_settings(compaction={"enabled": False})` merges into the section.

        Raises:
            SettingsError: an unknown key or a wrong value; nothing was changed.
        """
        self._core.settings = self._core.settings.merged(changes)
        if self._core.opened is not None:
            self._core.opened.backoff.reset()
        return self._core.settings

    # The tree -------------------------------------------------------------------------------------

    async def navigate_tree(
        self, entry_id: str, *, summarize: bool = False, instructions: str | None = None
    ) -> str | None:
        """Make `entry_id` the leaf; from a user message, its parent, and return its text.

        Raises:
            SessionBusyError: something runs.
            EntryNotFoundError: no such entry.
            AgentSessionError: an extension vetoed it.
        """
        return await self._core.move(
            lambda parts: TreeMoves(parts).navigate(entry_id, summarize=summarize, instructions=instructions)
        )

    async def fork(self, entry_id: str | None = None) -> SessionManager:
        """A new session with the path to `entry_id` (None: with everything); this one stays as it is."""
        self._core.check_open()
        await self._core.start()
        return await TreeMoves(self._parts).fork(entry_id)
