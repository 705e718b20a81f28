"""What extensions may see of a session and ask of it: the port between handlers and the runtime.

`AgentSession` satisfies `SessionView`; the contexts and APIs handed to extensions narrow it further. Reading
never waits; a request is left and honoured at the session's next safe point, so that nothing a handler asks
for can wait for the handler itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias

from agent_session.events import Event
from agent_session.llm.client import ThinkingLevel
from agent_session.models import Model
from agent_session.settings import Settings
from agent_session.tools.types import ContextUsageView, Tool
from session_store.messages import Content, Message

DeliverAs: TypeAlias = Literal["steer", "follow_up", "next_turn"]
NotifyLevel: TypeAlias = Literal["info", "warning", "error"]


class Interaction(Protocol):
    """A person at the other end: the command line's, a notebook's, an editor's."""

    async def confirm(self, title: str, detail: str, default: bool) -> bool:
        """Yes or no; `default` is what an empty answer means."""
        ...

    async def ask(self, question: str, choices: Sequence[str]) -> str | None:
        """One of `choices`, or any text where there are none; None: no answer."""
        ...

    def notify(self, text: str, level: NotifyLevel) -> None:
        """Show it, without waiting."""
        ...


class SessionView(Protocol):
    """A session as its extensions know it. `cwd` is where it works; sizes are tokens."""

    @property
    def session_id(self) -> str: ...
    @property
    def session_name(self) -> str | None: ...
    @property
    def cwd(self) -> Path: ...
    @property
    def model(self) -> Model: ...
    @property
    def thinking_level(self) -> ThinkingLevel: ...
    @property
    def leaf_id(self) -> str | None: ...
    @property
    def is_idle(self) -> bool: ...
    @property
    def settings(self) -> Settings: ...
    @property
    def messages(self) -> Sequence[Message]: ...
    @property
    def system_prompt(self) -> str: ...
    @property
    def interaction(self) -> Interaction | None: ...

    def context_usage(self) -> ContextUsageView | None: ...

    def request_compaction(self, instructions: str | None = None) -> None: ...

    def request_abort(self) -> None: ...

    def send_message(self, content: str | Sequence[Content], *, deliver_as: DeliverAs) -> None: ...

    def append_entry(self, custom_type: str, data: Any) -> str:
        """The id of the new `custom` entry."""
        ...

    def get_entry_data(self, custom_type: str) -> Any:
        """The newest data of that type on the branch, or None."""
        ...

    def set_label(self, entry_id: str, label: str | None) -> None: ...

    def register_tool(self, tool: Tool, owner: str) -> Callable[[], None]:
        """Offer it to the model from the next request on; returns what takes it away again."""
        ...

    def register_overflow_pattern(self, pattern: re.Pattern[str]) -> Callable[[], None]:
        """Take refusals it is found in for overflows, from the next request on; returns what takes it away again."""
        ...

    def report(self, event: Event) -> None:
        """Tell the subscribers, without waiting for them."""
        ...
