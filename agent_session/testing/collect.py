"""Collecting what a session tells."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from agent_session.events import Event

if TYPE_CHECKING:
    from agent_session.session import AgentSession


class Collected(list[Event]):
    """Events in the order they were told."""

    @property
    def names(self) -> list[str]:
        """Their names, the pieces of streamed answers left out."""
        return [event.name for event in self if event.name != "message_update"]


@contextmanager
def collect(session: AgentSession) -> Iterator[Collected]:
    """Hold every event that is told inside the block."""
    events = Collected()
    unsubscribe = session.subscribe(events.append)
    try:
        yield events
    finally:
        unsubscribe()
