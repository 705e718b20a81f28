"""What every request of a session has in common: the system prompt and the tool definitions.

Both are byte-stable from request to request, so that a provider's prefix cache holds; nothing that changes with
the hour or the turn belongs in them.
"""

from __future__ import annotations

from pathlib import Path

from agent_session.llm.client import ToolDefinition
from agent_session.tools.registry import ToolRegistry

_DEFAULT = """You are a coding agent that works on the user's project with the tools you are given.

- Look before you change: read the files that matter, then make the smallest change that does the job.
- Run the project's own checks after a change, and go on until they pass or you can say why they cannot.
- Say what you did in a few plain sentences. Do not claim what you have not seen.

Working directory: {cwd}"""


def default_system_prompt(cwd: Path) -> str:
    return _DEFAULT.format(cwd=cwd)


class RequestShape:
    """`always` is a tool that is offered beside any others, whatever is activated."""

    def __init__(self, registry: ToolRegistry, *, system_prompt: str, always: str | None = None) -> None:
        self.registry = registry
        self._always = always
        self._base = system_prompt
        self._of_run: str | None = None
        self._active: tuple[str, ...] | None = None
        self._tools: tuple[ToolDefinition, ...] | None = None
        self._names: tuple[str, ...] = ()

    @property
    def base_system_prompt(self) -> str:
        return self._base

    @property
    def system_prompt(self) -> str:
        return self._base if self._of_run is None else self._of_run

    def override_system_prompt(self, text: str | None) -> None:
        """For one run; None goes back to the session's own."""
        self._of_run = text if text != self._base else None

    @property
    def active_tools(self) -> tuple[str, ...]:
        return self.registry.names if self._active is None else self._active

    def activate(self, names: tuple[str, ...] | None) -> None:
        """Offer only these, with the one that is always offered; None offers all, an empty tuple none.

        Raises:
            SettingsError: a name that is no tool of this session.
        """
        if names and self._always is not None and self._always in self.registry and self._always not in names:
            names = (*names, self._always)
        self.registry.definitions(names)
        self._active = names
        self._tools = None

    @property
    def tools(self) -> tuple[ToolDefinition, ...]:
        if self._tools is None or self._names != self.registry.names:
            self._names = self.registry.names
            self._tools = self.registry.definitions(self._active)
        return self._tools
