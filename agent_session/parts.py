"""The pieces one session is made of. Each owns its own state; this only says where they are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio

from agent_session.activity import ActivityGate
from agent_session.compaction.backoff import Backoff
from agent_session.compaction.types import CompactionOutcome, CompactionRequest
from agent_session.dispatch import Dispatcher
from agent_session.logs import Logger
from agent_session.meter import ContextMeter
from agent_session.model_state import ModelState
from agent_session.queues import MessageQueue
from agent_session.recorder import Recorder
from agent_session.request_shape import RequestShape
from agent_session.settings import Settings
from session_store import SessionManager


@dataclass(slots=True)
class CompactionAsk:
    """A compaction that somebody asked the running activity for; it is honoured at the next safe point.

    `done` is set when it was, with `outcome`; or when the run ended first, with `outcome` None.
    """

    request: CompactionRequest
    done: anyio.Event = field(default_factory=anyio.Event)
    outcome: CompactionOutcome | None = None

    def resolve(self, outcome: CompactionOutcome | None) -> None:
        self.outcome = outcome
        self.done.set()


@dataclass(slots=True)
class Parts:
    cwd: Path
    manager: SessionManager
    settings: Callable[[], Settings]
    dispatcher: Dispatcher
    gate: ActivityGate
    queue: MessageQueue
    recorder: Recorder
    models: ModelState
    shape: RequestShape
    meter: ContextMeter
    log: Logger
    interaction: Any = None
    deps: Any = None
    backoff: Backoff = field(default_factory=Backoff)
    warned: set[str] = field(default_factory=set)
    compaction_asks: list[CompactionAsk] = field(default_factory=list)
