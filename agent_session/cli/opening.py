"""From what was said on the command line to a session's log and model.

The rule it keeps: what cannot work is refused before a file is made.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

from agent_session.cli.arguments import Options
from agent_session.composition import choose_model, open_manager
from agent_session.errors import MissingCredentialsError
from agent_session.events import Event, MessageStart
from agent_session.llm import anthropic
from agent_session.llm.endpoint import (
    api_key_for,
    api_key_variable,
    base_url_for,
    base_url_variable,
    is_known_host,
)
from agent_session.models import Model
from agent_session.session import AgentSession
from agent_session.settings import Settings
from agent_session.terminal.screen import Screen
from session_store import SessionManager


def opened_manager(options: Options, settings: Settings, cwd: Path) -> SessionManager:
    """The log, opened for writing.

    Raises:
        MissingModelError: nothing names a model.
        MissingCredentialsError: the model's provider wants a key, and there is none.
        SessionStoreError: the log cannot be opened.
    """
    if options.resume is not None:
        manager = open_manager(None, options.resume, cwd)
        try:
            _reach(choose_model(options.model, manager, settings), options)
        except BaseException:
            manager.close()
            raise
        return manager
    in_memory = SessionManager.in_memory(cwd)
    _reach(choose_model(options.model, in_memory, settings), options)
    return SessionManager.create(cwd) if options.is_stored else in_memory


def loading_teller(session: AgentSession, screen: Screen) -> Callable[[Event], None]:
    """A listener that says to who watches why the first request takes so long: litellm is loaded for it, in seconds."""

    def listen(event: Event) -> None:
        if isinstance(event, MessageStart) and screen.console.is_terminal and _needs_litellm(session.model):
            screen.line("model", "loading litellm, which speaks to this provider; that takes some seconds", style="dim")

    return listen


def require_key(model: Model) -> None:
    """Refuse a model whose provider's own service would refuse it for want of a key.

    Raises:
        MissingCredentialsError: the variable to set is named.
    """
    address = base_url_for(model.provider)
    if address is not None and is_known_host(model.provider, address) and api_key_for(model.provider) is None:
        raise MissingCredentialsError(f"no key for {model.id}: set {api_key_variable(model.provider)}", kind="auth")


def _reach(model: Model, options: Options) -> None:
    if options.base_url is not None:
        # As if the user had set it: clients look it up for each request, and so do those of a later model's provider.
        os.environ[base_url_variable(model.provider)] = options.base_url
    require_key(model)


def _needs_litellm(model: Model) -> bool:
    is_direct = model.provider == anthropic.PROVIDER or base_url_for(model.provider) is not None
    return not is_direct and "litellm" not in sys.modules
