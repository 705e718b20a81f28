"""What Ctrl-C does while a statement runs: the first ends what the session does, the next the statement.

Rule: a statement that computes is interrupted where it stands, as in Python's own prompt; one that awaits is cancelled
where it awaits; and a verb whose run is aborted returns what it returns then.
"""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import FrameType
from typing import Any, Self

import anyio
from anyio.abc import TaskGroup

from agent_session.session import AgentSession

INSISTENT_PRESSES = 3
"""After so many KeyboardInterrupt is raised wherever the thread is: the event loop itself may be stuck."""


class Interrupts:
    """`perform` runs statements; in between Ctrl-C does nothing: it belongs to the line that is typed."""

    def __init__(self, session: AgentSession, tasks: TaskGroup) -> None:
        self._session = session
        self._tasks = tasks
        self._scope: anyio.CancelScope | None = None
        self._is_computing = False
        self._presses = 0
        self._seen = 0
        self._raised = 0

    @classmethod
    @asynccontextmanager
    async def watched(cls, session: AgentSession) -> AsyncIterator[Self]:
        """Take over Ctrl-C for the length of the block. In the main thread only."""
        async with anyio.create_task_group() as tasks:
            with anyio.open_signal_receiver(signal.SIGINT) as presses:
                interrupts = cls(session, tasks)
                # The receiver hears of every signal however it is handled; this one may raise besides.
                signal.signal(signal.SIGINT, interrupts._press)
                tasks.start_soon(interrupts._listen, presses)
                try:
                    yield interrupts
                finally:
                    tasks.cancel_scope.cancel()

    @property
    def is_performing(self) -> bool:
        """Whether a statement runs."""
        return self._scope is not None

    async def perform(self, step: Callable[[], Any]) -> None:
        """Call `step`, and await what it returns, if anything.

        Raises:
            KeyboardInterrupt: Ctrl-C ended it.
            Exception: what it raised.
        """
        self._presses = self._seen = self._raised = 0
        try:
            with anyio.CancelScope() as self._scope:
                self._is_computing = True
                try:
                    awaited = step()
                finally:
                    self._is_computing = False
                if awaited is not None:
                    await awaited
                return
        finally:
            self._scope = None
        raise KeyboardInterrupt

    def _press(self, _signal: int, _frame: FrameType | None) -> None:
        """Called by Python between two instructions of the main thread, whatever it is doing."""
        if self._scope is None:
            return
        self._presses += 1
        is_for_session = self._presses == 1 and not self._session.is_idle
        if self._presses >= INSISTENT_PRESSES or (self._is_computing and not is_for_session):
            self._raised += 1
            raise KeyboardInterrupt

    async def _listen(self, presses: AsyncIterator[int]) -> None:
        """The rest of a press: what has to be done in the event loop."""
        async for _ in presses:
            if self._raised or self._scope is None:
                continue
            self._seen += 1
            if self._seen == 1 and not self._session.is_idle:
                self._tasks.start_soon(self._session.abort)
            else:
                self._scope.cancel()
