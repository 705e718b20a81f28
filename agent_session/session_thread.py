"""A session on a thread of its own: how others use it, how Ctrl-C ends what it does, how it ends when nobody closes it.

Rule: the session is used on its thread alone. Who asks for something that takes time from that very thread is refused:
it would wait for itself.
"""

from __future__ import annotations

import atexit
import sys
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from agent_session import notices
from agent_session.errors import SessionBusyError, SessionClosedError
from agent_session.events import Event
from agent_session.loop_thread import Call, LoopEnded, LoopThread, Work, WouldWait, at_once, current_call
from agent_session.owned_tasks import GRACE_SECONDS
from agent_session.session import AgentSession
from session_store import SessionWriteError

T = TypeVar("T")

EXIT_SECONDS = GRACE_SECONDS + 0.5
"""How long an interpreter that exits waits for a session that nobody closed."""

_NO_WAITING = "handlers and listeners run on the session's own thread and cannot wait for it; they may steer() it"


class SessionThread:
    """`make` makes the session, on the thread."""

    def __init__(self, make: Callable[[], AgentSession]) -> None:
        self._thread = LoopThread("agent_session")
        try:
            self.session = self._thread.call(Call(_done(make)))
        except BaseException:
            self._thread.stop()
            raise
        _open.add(self)

    def look(self, look: Callable[[], T]) -> T:
        """Do something that takes no time."""
        return look() if self._thread.is_current else self.ask(_done(look))

    def ask(
        self,
        work: Work[T],
        *,
        aborts: bool = False,
        from_inside: bool = False,
        show: Callable[[Event], None] | None = None,
        instead: Callable[[], T] | None = None,
    ) -> T:
        """Do something and wait for it.

        `aborts`: the first Ctrl-C aborts what the session does. Work that may stand in line behind that gives with
        `instead` what it returns then. `from_inside`: the session's handlers are answered, at once. `show` gets, in the
        calling thread, the events that the work causes.

        Raises:
            SessionBusyError: asked on the session's thread.
            SessionClosedError: the thread has ended.
        """
        if self._thread.is_current:
            if from_inside and self.session._gate.is_inside():
                with suppress(WouldWait):
                    return at_once(work)
            raise SessionBusyError("call", _NO_WAITING)
        told = work if show is None else _telling(self.session, work)
        with suppress(LoopEnded):
            return self._thread.call(Call(told, show=show, when_cancelled=instead), self._abort if aborts else None)
        self._thread.stop()
        if not self.session._core.is_closed:  # something has ended the thread before its time
            raise SessionClosedError
        return at_once(work)

    def close(self) -> list[str]:
        """Close the session and end the thread. See `AgentSession.close`."""
        returned = self.ask(self._close, from_inside=True)
        if not self._thread.is_current:
            self._thread.stop()
        return returned

    def forget(self) -> None:
        """Close it some time soon: nobody can use it any more."""
        with suppress(LoopEnded):
            self._thread.begin(Call(self._close))

    def exit(self) -> None:
        """Close it in the time that an exiting interpreter has; say nothing but what was lost."""
        call = Call(self._close)
        try:
            self._thread.begin(call)
            call.wait(timeout=EXIT_SECONDS)
            call.outcome()
        except SessionWriteError as error:
            print(f"agent_session: {error}", file=sys.stderr)  # noqa: T201 - the last chance to say it
        except (Exception, KeyboardInterrupt):  # noqa: BLE001 - every entry that could be written is in the file
            pass

    async def _close(self) -> list[str]:
        try:
            return await self.session.close()
        finally:
            if self.session._core.is_closed:
                self._thread.stop(wait=False)

    async def _abort(self, call: Call[Any]) -> None:
        # What stands in line must not have its turn because what was before it is aborted.
        if call.has_substitute and not call.is_within(self.session._gate.is_inside):
            call.cancel()
        await self.session.abort()


def _done(look: Callable[[], T]) -> Work[T]:
    async def work() -> T:
        return look()

    return work


def _telling(session: AgentSession, work: Work[T]) -> Work[T]:
    """The work; meanwhile its call tells what it causes."""

    async def telling() -> T:
        unsubscribe = session.subscribe(current_call().tell)
        try:
            with notices.shown_by_the_caller():
                return await work()
        finally:
            unsubscribe()

    return telling


_open: weakref.WeakSet[SessionThread] = weakref.WeakSet()


@atexit.register
def _close_what_is_open() -> None:
    for thread in tuple(_open):
        thread.exit()
