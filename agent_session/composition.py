"""Putting a session together: which log, which model, which tools, and the wiring between the parts."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, cast

import anyio
import anyio.from_thread

from agent_session.activity import ActivityGate
from agent_session.dispatch import Dispatcher
from agent_session.errors import MissingModelError, SettingsError
from agent_session.events import QueueUpdate, Warning
from agent_session.history import branch_of
from agent_session.llm.client import ModelClient, ThinkingLevel
from agent_session.logs import get_logger
from agent_session.meter import ContextMeter
from agent_session.model_state import ApiKey, ModelState, check_thinking_level
from agent_session.models import Model
from agent_session.parts import Parts
from agent_session.queues import MessageQueue
from agent_session.recorder import Recorder
from agent_session.request_shape import RequestShape, default_system_prompt
from agent_session.settings import Settings
from agent_session.tools.registry import ToolRegistry, ToolSpecifier
from agent_session.tools.search_history import search_history
from session_store import SessionManager


def check_arguments(settings: object, extensions: object, thinking_level: str | None) -> None:
    """What a type checker says, for programs that use none: each of these would go wrong late, or in silence.

    Raises:
        SettingsError: an argument of the wrong kind.
    """
    if not isinstance(settings, Settings):
        raise SettingsError("settings", f"must be Settings(...), not {type(settings).__name__}")
    if isinstance(extensions, str | Path) or not isinstance(extensions, Iterable):
        raise SettingsError("extensions", f"must be a sequence, for example [setup] or ['name'], not {extensions!r}")
    if thinking_level is not None:
        check_thinking_level(thinking_level)


def open_manager(manager: SessionManager | None, resume: str | Path | None, cwd: Path) -> SessionManager:
    """The given log; else the one `resume` names ("latest", a path or an id); else a new one in the default folder.

    Raises:
        ValueError: both were given.
        SessionStoreError: it cannot be opened; the class says why.
    """
    if manager is not None:
        if resume is not None:
            raise ValueError("give either session_manager or resume, not both")
        if not isinstance(manager, SessionManager):
            raise TypeError(
                f"session_manager is a SessionManager, not {type(manager).__name__}; a file is `resume=path`"
            )
        return manager
    if resume is None:
        return SessionManager.create(cwd)
    if resume == "latest":
        return SessionManager.continue_recent(cwd)
    return SessionManager.open(SessionManager.find(resume))


def choose_model(given: str | Model | None, manager: SessionManager, settings: Settings) -> Model:
    """As given, else as in the log, else the setting, else `AGENT_SESSION_MODEL`.

    Raises:
        MissingModelError: none of the four says one.
    """
    if given is not None:
        return Model.of(given)
    projection = manager.projection
    if projection.provider and projection.model_id:
        return Model(f"{projection.provider}/{projection.model_id}")
    named = settings.model or os.environ.get("AGENT_SESSION_MODEL")
    if not named:
        raise MissingModelError
    return Model(named)


def choose_thinking_level(given: ThinkingLevel | None, manager: SessionManager, settings: Settings) -> ThinkingLevel:
    if given is not None:
        return given
    if manager.leaf_id is not None:
        return cast("ThinkingLevel", manager.projection.thinking_level)
    return settings.thinking_level or "off"


def build_parts(
    *,
    manager: SessionManager,
    dispatcher: Dispatcher,
    gate: ActivityGate,
    settings: Callable[[], Settings],
    model: str | Model | None,
    thinking_level: ThinkingLevel | None,
    client: ModelClient | None,
    api_key: ApiKey | None,
    tools: Sequence[ToolSpecifier] | None,
    system_prompt: str | None,
    append_system_prompt: str | None,
    interaction: Any,
    deps: Any,
    cwd: Path,
) -> Parts:
    """Everything one session is made of, wired. Raises what the parts raise on wrong arguments."""
    models = ModelState(
        choose_model(model, manager, settings()),
        choose_thinking_level(thinking_level, manager, settings()),
        client=client,
        api_key=api_key,
    )
    prompt = default_system_prompt(cwd) if system_prompt is None else system_prompt
    if append_system_prompt:
        prompt = f"{prompt}\n\n{append_system_prompt}"
    history_tool = search_history(lambda: branch_of(manager))
    shape = RequestShape(
        ToolRegistry.resolve(tools, always=[history_tool]), system_prompt=prompt, always=history_tool.name
    )

    def queue_changed() -> None:
        dispatcher.report(
            QueueUpdate(
                steering=tuple(item.text for item in queue.waiting("steer")),
                follow_up=tuple(item.text for item in queue.waiting("follow_up")),
                next_turn=tuple(item.text for item in queue.waiting("next_turn")),
            )
        )

    queue = MessageQueue(queue_changed)
    loop_thread = threading.get_ident()

    def warn(text: str) -> None:
        # The log is synced and closed in a thread; listeners are called on the event loop.
        if threading.get_ident() == loop_thread:
            dispatcher.report(Warning(text=text))
        else:
            anyio.from_thread.run_sync(dispatcher.report, Warning(text=text))

    manager.on_warning = warn
    return Parts(
        cwd=cwd,
        manager=manager,
        settings=settings,
        dispatcher=dispatcher,
        gate=gate,
        queue=queue,
        recorder=Recorder(manager, dispatcher, is_durable=lambda: settings().durability == "turn"),
        models=models,
        shape=shape,
        meter=ContextMeter(manager, models, shape),
        log=get_logger(session_id=manager.session_id),
        interaction=interaction,
        deps=deps,
    )
