"""Which model answers, how hard it thinks, and what was learnt about its limits and how they are said.

The one owner of all these. A model or level that was given and differs from the log's is logged as a change just
before the first request, never on open.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TypeAlias, get_args

import anyio.to_thread

from agent_session.catalogue import completed
from agent_session.errors import SettingsError
from agent_session.llm.client import ModelClient, ThinkingLevel
from agent_session.llm.select import client_for
from agent_session.models import Model
from session_store import SessionManager

ApiKey: TypeAlias = str | Callable[[], str | Awaitable[str | None] | None]


def check_thinking_level(level: str) -> None:
    """Raises: SettingsError, the level is none that there is."""
    if level not in get_args(ThinkingLevel):
        raise SettingsError("thinking_level", f"{level!r} is none of {', '.join(get_args(ThinkingLevel))}")


class ModelState:
    def __init__(
        self,
        model: Model,
        thinking_level: ThinkingLevel,
        *,
        client: ModelClient | None = None,
        api_key: ApiKey | None = None,
    ) -> None:
        self._model = model
        self._thinking_level = thinking_level
        self._given_client = client
        self._clients: dict[str, ModelClient] = {}
        self._api_key = api_key
        self._key_provider = model.provider
        self._learned_limit: int | None = None
        self._is_limit_measured = False
        self._overflow_patterns: tuple[re.Pattern[str], ...] = ()

    @property
    def model(self) -> Model:
        return self._model

    @property
    def thinking_level(self) -> ThinkingLevel:
        return self._thinking_level

    @property
    def learned_limit(self) -> int | None:
        """Tokens: the smallest limit that an overflow error of this model named, or the size of what it refused."""
        return self._learned_limit

    @property
    def overflow_patterns(self) -> tuple[re.Pattern[str], ...]:
        """What extensions taught of how a request is refused for its length; part of every request."""
        return self._overflow_patterns

    def add_overflow_pattern(self, pattern: re.Pattern[str]) -> Callable[[], None]:
        """Returns what takes this one away again."""
        self._overflow_patterns = (*self._overflow_patterns, pattern)

        def withdraw() -> None:
            left = list(self._overflow_patterns)
            left.remove(pattern)
            self._overflow_patterns = tuple(left)

        return withdraw

    def select(self, model: Model) -> None:
        if model.id != self._model.id:
            self._learned_limit = None
        self._model = model

    async def complete(self) -> None:
        """Fill in what the catalogue knows of the selected model."""
        model = self._model
        known = await self.resolve(model)
        if self._model is model:
            self._model = known

    @staticmethod
    async def resolve(model: Model) -> Model:
        """The model with what the catalogue knows of it; a file is read for that, in a thread."""
        return await anyio.to_thread.run_sync(completed, model)

    def think(self, level: ThinkingLevel) -> None:
        """Raises: SettingsError, see `check_thinking_level`."""
        check_thinking_level(level)
        self._thinking_level = level

    def learn_limit(self, limit: int | None, *, is_measured: bool = False) -> None:
        """What an error said only ever lowers the limit. Numbers too small to be a window are ignored.

        `is_measured`: nobody named the number, it is the size of what was refused.
        """
        if limit is None or limit < 256 or (self._learned_limit is not None and limit >= self._learned_limit):
            return
        self._learned_limit, self._is_limit_measured = limit, is_measured

    def lift_limit(self, taken: int) -> None:
        """The model took this many tokens: a limit below it that was only measured was none."""
        if self._learned_limit is not None and self._is_limit_measured and taken > self._learned_limit:
            self._learned_limit = None

    def learn_no_images(self) -> None:
        """A refusal said that the model takes none, whatever the catalogue knows."""
        self._model = replace(self._model, images=False)

    def client_of(self, model: Model) -> ModelClient:
        """The given client serves every model; without one, one client for each provider.

        Raises:
            ModelError: nothing speaks to that provider.
        """
        if self._given_client is not None:
            return self._given_client
        if model.provider not in self._clients:
            self._clients[model.provider] = client_for(model)
        return self._clients[model.provider]

    async def api_key(self, model: Model) -> str | None:
        """The key that was given, resolved anew for each request; None for who finds its own.

        It is the key of the provider that the session was opened with: no other one is ever sent it.
        """
        if self._given_client is None and model.provider != self._key_provider:
            return None
        if not callable(self._api_key):
            return self._api_key
        key = self._api_key()
        return await key if inspect.isawaitable(key) else key

    def log_changes(self, manager: SessionManager) -> list[Callable[[SessionManager], object]]:
        """The appends that bring the log up to this state, none when it agrees."""
        projection = manager.projection
        changes: list[Callable[[SessionManager], object]] = []
        if (projection.provider, projection.model_id) != (self._model.provider, self._model.name):
            changes.append(lambda log: log.append_model_change(self._model.provider, self._model.name))
        if projection.thinking_level != self._thinking_level:
            changes.append(lambda log: log.append_thinking_level_change(self._thinking_level))
        return changes

    async def aclose(self) -> None:
        """Close the clients made here; a given one belongs to whoever gave it."""
        for client in self._clients.values():
            await client.aclose()
        self._clients.clear()
