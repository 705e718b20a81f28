"""What a session runs and what waits for it: one prompt, one compaction, and the work the session owns.

Rule: whoever holds the gate gives it back on every way out, and what was told to have started is told to have ended,
the caller's own cancellation included. Nothing waits for somebody: when the gate is free, what is queued starts.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from contextvars import Context
from pathlib import Path
from typing import Any, TypeVar, get_args

import anyio
import anyio.to_thread

from agent_session.activity import Activity, ActivityGate
from agent_session.compaction.types import NOTHING_STORED, CompactionOutcome, CompactionRequest
from agent_session.compactor import Compactor
from agent_session.composition import build_parts, check_arguments, open_manager
from agent_session.dispatch import Dispatcher, text_listener
from agent_session.errors import CompactionError, SessionBusyError, SessionClosedError
from agent_session.events import AgentSettled, SessionShutdown, SessionStart, Warning
from agent_session.extending.extension_set import ExtensionSet
from agent_session.extending.loader import Source
from agent_session.owned_tasks import OwnedTasks
from agent_session.parts import CompactionAsk, Parts
from agent_session.prompting import Said
from agent_session.queues import IfBusy, Lane, Queued
from agent_session.run import Run
from agent_session.session_view import RuntimeView
from agent_session.settings import Settings
from agent_session.turn import aborted
from session_store import SessionManager
from session_store.errors import SessionReadOnlyError
from session_store.messages import AssistantMessage, UserMessage

T = TypeVar("T")


class SessionCore:
    """`options` are `build_parts`'s own. The log is opened on first use of `parts`.

    Raises:
        SettingsError: see `check_arguments`.
    """

    def __init__(
        self,
        *,
        manager: SessionManager | None,
        resume: str | Path | None,
        sources: Sequence[Source],
        settings: Settings,
        cwd: Path,
        options: dict[str, Any],
    ) -> None:
        check_arguments(settings, sources, options["thinking_level"])
        self.settings = settings
        self.cwd = cwd
        self._given_manager = manager
        self._resume = resume
        self._sources = tuple(sources)
        self._options = options
        self.gate = ActivityGate(lambda: self.owned.spawn(self.abort(), name="interrupt", context=Context()))
        self.owned = OwnedTasks(self._task_crashed)
        self.extensions = ExtensionSet(
            RuntimeView(lambda: self.parts, self.wake, self.request_abort),
            hook_timeout=lambda: self.settings.hook_timeout,
            tasks=self.owned,
            grace=self.gate.grace_until,
        )
        self.dispatcher = Dispatcher(self.extensions.hooks, safe_point=self.gate.honour_abort)
        self.opened: Parts | None = None
        self.run: Run | None = None
        self.is_started = False
        self.is_closed = False
        self._starting = anyio.Lock()

    @property
    def parts(self) -> Parts:
        """The parts, made on first use: opening the log is what can fail."""
        if self.opened is None:
            if self.is_closed:
                raise SessionClosedError
            manager = open_manager(self._given_manager, self._resume, self.cwd)
            try:
                self.opened = build_parts(
                    manager=manager,
                    dispatcher=self.dispatcher,
                    gate=self.gate,
                    settings=lambda: self.settings,
                    cwd=self.cwd,
                    **self._options,
                )
            except BaseException:
                if manager is not self._given_manager:
                    manager.close()
                raise
        return self.opened

    async def start(self) -> None:
        """Open the log, load the extensions, tell `session_start`. Asks nothing of a model."""
        if not self.is_started:
            await self._start_once()

    async def _start_once(self) -> None:
        async with self._starting:
            # Another verb may have started it while this one waited.
            if self.is_started:
                return
            is_resumed = self.parts.manager.leaf_id is not None
            await self.parts.models.complete()
            await self.extensions.load_all(self._sources)
            if self.is_closed:
                self.extensions.end("the session was closed")
                raise SessionClosedError
            self.is_started = True
            await self.dispatcher.notify(SessionStart(reason="resume" if is_resumed else "startup"))
        self.wake()

    async def close(self) -> list[str]:
        """End what runs, tell `session_shutdown`, close log and connections. Safe to call twice.

        Returns the queued texts that were not recorded.

        Raises:
            SessionBusyError: called from inside a handler or tool of this session.
            SessionWriteError: entries are in memory that could not be written.
        """
        if self.is_closed:
            return []
        if self.gate.is_inside():
            raise SessionBusyError("close", "a handler cannot close its own session; ctx.abort() ends the run")
        self.is_closed = True
        return await self.owned.finish(self._close(), name="closing", on_cancel=lambda: None)

    async def _close(self) -> list[str]:
        returned: list[str] = []
        while not self.gate.is_idle:
            returned += await self.abort()
        if self.opened is None:
            if self._given_manager is not None:
                self._given_manager.close()
            return returned
        returned += self.opened.queue.clear()
        if self.is_started:
            await self.dispatcher.notify(SessionShutdown(reason="close"))
        self.extensions.end("the session was closed")
        # What handlers have left in the log to the very last; nobody can add to it any more.
        await self.opened.recorder.announce()
        await self.owned.cancel_all()
        self.dispatcher.close_streams()
        try:
            await anyio.to_thread.run_sync(self.opened.manager.close)
        finally:
            await self.opened.models.aclose()
        return returned

    async def abort(self) -> list[str]:
        """End whatever runs, and return when it is over: the queued texts that were not recorded.

        From inside a handler or tool it is a request that the run honours at its next safe point.
        """
        self._drop_asks()
        withdrawn = self._withdraw_queue()
        activity = self.gate.current
        if activity is not None and self.gate.is_inside():
            self.request_abort()
        elif activity is not None:
            # A compaction that is waiting for this one to end is ended with it.
            self.gate.abort_waiting("compaction")
            activity.abort()
            try:
                while activity is not None and activity.is_aborted:
                    await activity.ended.wait()
                    activity = self.gate.current
            except BaseException:
                # Nobody gets what this call was to return.
                if self.opened is not None:
                    self.opened.queue.reinstate(withdrawn)
                raise
            # What was on its way into the log when the run ended is back in the queue, in front of the rest.
            withdrawn = self._withdraw_queue() + withdrawn
        return [item.text for item in withdrawn]

    # Verbs ------------------------------------------------------------------------------------------

    async def prompt(
        self, said: Said, if_busy: IfBusy, on_text: Callable[[str], None] | None
    ) -> AssistantMessage | None:
        self.check_open()
        if if_busy not in get_args(IfBusy):
            raise ValueError(f"if_busy is one of {', '.join(map(repr, get_args(IfBusy)))}, not {if_busy!r}")
        if self.gate.is_inside():
            self.enqueue("follow_up", await said.message())
            return None
        if not self.gate.is_idle and if_busy in ("steer", "follow_up"):
            self.enqueue(if_busy, await said.message())
            return None
        if if_busy == "wait" or self.gate.is_claimed_for("compaction"):
            activity = await self.gate.claim_in_turn("run")
        else:
            activity = self.gate.claim("run")
        return await self.hold_run(activity, said, on_text)

    def enqueue(self, lane: Lane, message: UserMessage) -> None:
        """Leave a message for the run there is; one starts where that ended while the message was made."""
        self.check_open()
        self.owned.require_loop("steer() and follow_up()")
        self.parts.queue.put(lane, message)
        self.wake()

    async def compact(self, request: CompactionRequest, *, interrupt: bool) -> CompactionOutcome:
        self.check_open()
        if self.gate.is_inside():
            raise SessionBusyError("run", "a handler asks for a compaction with ctx.request_compaction()")
        if self.gate.is_claimed_for("compaction"):
            raise SessionBusyError("compaction", "it is compacting already; wait for it, or abort_compaction()")
        if self.gate.is_claimed_for("tree"):
            raise SessionBusyError("tree", "its tree is moving; wait for it with wait_for_idle(), or abort()")
        outcome: CompactionOutcome | None = None
        while not interrupt and not self.gate.is_idle and outcome is None:
            # Whoever had the gate may have ended without it, and the next in line must not be interrupted either.
            outcome = await self._ask_for_compaction(request)
        if outcome is None:
            outcome = await self._compact_in_turn(request)
        if outcome.status == "failed":
            error = outcome.error
            if not isinstance(error, CompactionError):
                error = CompactionError(f"the compaction failed: {outcome.why}")
                error.__cause__ = outcome.error
            error.outcome = outcome
            raise error
        return outcome

    async def move(self, move: Callable[[Parts], Awaitable[T]]) -> T | None:
        """Do what changes where the session stands, on an idle session; None where it was aborted."""
        self.check_open()
        try:
            with self.gate.hold(self.gate.claim("tree")) as activity, activity.scope:
                await self.start()
                return await move(self.parts)
            return None
        finally:
            self.wake()

    def check_open(self) -> None:
        if self.is_closed:
            raise SessionClosedError

    async def hold_run(
        self, activity: Activity, said: Said | None, on_text: Callable[[str], None] | None = None
    ) -> AssistantMessage | None:
        """One prompt inside its activity; whatever happens, the run is told to have ended and settled."""
        run: Run | None = None
        settled: AgentSettled | None = None
        is_aborted = True
        unsubscribe = self.dispatcher.subscribe(text_listener(on_text)) if on_text is not None else None
        try:
            with self.gate.hold(activity):
                try:
                    with activity.scope:
                        self.check_open()
                        await self.start()
                        message = await said.message() if said is not None else None
                        run = self.run = Run(self.parts, Compactor(self.parts))
                        await run.execute(message)
                        is_aborted = False
                except Exception:
                    is_aborted = False
                    raise
                finally:
                    settled = await self.owned.finish(  # noqa: ASYNC102 - it runs to its end whatever cancels it
                        self._settle(activity, run, is_aborted), name="settling", on_cancel=activity.begin_grace
                    )
        finally:
            if unsubscribe is not None:
                unsubscribe()
            if settled is not None:
                # The gate is left, and with it its grace: what an aborted run still waits for ends here.
                with anyio.CancelScope(shield=True, deadline=activity.grace_until or math.inf):
                    await self.dispatcher.tell(settled)
            elif self.is_started:
                self.wake()  # there was no run to take what was queued for it
            # After an error the queue waits for the next prompt; who asked for a compaction is waiting for it now.
            self._drop_asks() if is_aborted else self._serve_asks()
        if run is not None and run.error is not None:
            raise run.error
        if is_aborted:
            return aborted(run.last if run is not None else None)
        assert run is not None
        self.wake()
        return run.last

    async def _settle(self, activity: Activity, run: Run | None, is_aborted: bool) -> AgentSettled | None:
        self.run = None
        if is_aborted:
            self._drop_asks()
            activity.begin_grace()
        if run is None:
            return None
        await run.end_agent_run()
        run.end_logging(is_aborted=is_aborted)
        self.parts.shape.override_system_prompt(None)
        await self.parts.recorder.flush()
        settled = AgentSettled(aborted=is_aborted)
        if self.extensions.hooks.has(AgentSettled):
            await self.extensions.hooks.notify(settled)
        return settled

    async def _compact_in_turn(self, request: CompactionRequest) -> CompactionOutcome:
        if self.gate.current is not None:
            self.gate.current.abort()
        activity = await self.gate.claim_in_turn("compaction", first=True)
        return await self._hold_compaction(activity, request)

    async def _hold_compaction(self, activity: Activity, request: CompactionRequest) -> CompactionOutcome:
        outcome: CompactionOutcome | None = None
        compactor: Compactor | None = None
        try:
            with self.gate.hold(activity), activity.scope:
                self.check_open()
                await anyio.lowlevel.checkpoint_if_cancelled()
                await self.start()
                if self.parts.manager.is_read_only:
                    raise SessionReadOnlyError(self.parts.manager.path)  # before a summary is paid for
                compactor = Compactor(self.parts)
                outcome = await compactor.run(request)
        finally:
            self.wake()
        if outcome is None and compactor is not None:
            outcome = compactor.last_outcome
        return outcome or CompactionOutcome(status="aborted", reason=request.reason, why=NOTHING_STORED)

    async def _ask_for_compaction(self, request: CompactionRequest) -> CompactionOutcome | None:
        """Leave the request for the run; None when the run ended without it."""
        ask = CompactionAsk(request)
        self.parts.compaction_asks.append(ask)
        try:
            await ask.done.wait()
        finally:
            if ask in self.parts.compaction_asks:
                self.parts.compaction_asks.remove(ask)
        return ask.outcome

    def _serve_asks(self) -> bool:
        """On an idle session, start the first compaction that was asked for; False where there is nothing to start."""
        if self.opened is None or self.is_closed or not self.gate.is_idle or not self.opened.compaction_asks:
            return False
        ask = self.opened.compaction_asks.pop(0)
        self.owned.spawn(self._serve(self.gate.claim("compaction"), ask), name="compaction")
        return True

    async def _serve(self, activity: Activity, ask: CompactionAsk) -> None:
        outcome: CompactionOutcome | None = None
        try:
            outcome = await self._hold_compaction(activity, ask.request)
        finally:
            ask.resolve(outcome)

    def request_abort(self) -> None:
        """For who is inside and cannot wait: while handlers are at work, at the safe point after them; else at once."""
        if self.gate.current is None:
            return
        if self.dispatcher.is_asking_handlers:
            self.gate.request_abort()
        else:
            self.gate.current.abort()

    def _withdraw_queue(self) -> list[Queued]:
        # Something may run, and is to be ended, before the log is open.
        return self.opened.queue.withdraw() if self.opened is not None else []

    def _drop_asks(self) -> None:
        if self.opened is not None:
            asks, self.opened.compaction_asks[:] = list(self.opened.compaction_asks), []
            for ask in asks:
                ask.resolve(None)

    def wake(self) -> None:
        """On an idle session, start what waits for nobody: a compaction that was asked for, queued messages."""
        if self.opened is None or self.is_closed:
            return
        if not self.is_started:
            # Starting ends with waking. Where it is under way already, this one finds nothing left to do.
            self.owned.spawn(self.start(), name="start")
            return
        if not self.gate.is_idle or self._serve_asks():
            return
        if self.opened.queue.starts_a_run:
            self.owned.spawn(self.hold_run(self.gate.claim("run"), None), name="queued run")
        elif self.opened.recorder.has_untold:
            self.owned.spawn(self.opened.recorder.announce(), name="announcement")

    def _task_crashed(self, name: str, error: BaseException) -> None:
        self.dispatcher.report(Warning(text=f"{name}: {type(error).__name__}: {error}"))
