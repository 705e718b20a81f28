"""The session as its extensions see it: `extending.view.SessionView` over the session's parts.

Everything here returns at once. What asks for something leaves it where the run finds it at its next safe point;
on an idle session the work becomes a task that the session owns.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from agent_session.compaction.types import CompactionRequest
from agent_session.events import Event
from agent_session.extending.view import DeliverAs, Interaction
from agent_session.llm.client import ThinkingLevel
from agent_session.meter import ContextUsage
from agent_session.models import Model
from agent_session.parts import CompactionAsk, Parts
from agent_session.settings import Settings
from agent_session.tools.types import Tool
from session_store.ids import now_ms
from session_store.messages import Content, Message, UserMessage, as_content


class RuntimeView:
    """`parts` gives the parts of the open session, `wake` starts what is asked of an idle one."""

    def __init__(self, parts: Callable[[], Parts], wake: Callable[[], None], request_abort: Callable[[], None]) -> None:
        self._get_parts = parts
        self._wake = wake
        self._request_abort = request_abort

    @property
    def _parts(self) -> Parts:
        return self._get_parts()

    @property
    def session_id(self) -> str:
        return self._parts.manager.session_id

    @property
    def session_name(self) -> str | None:
        return self._parts.manager.name

    @property
    def cwd(self) -> Path:
        return self._parts.cwd

    @property
    def model(self) -> Model:
        return self._parts.models.model

    @property
    def thinking_level(self) -> ThinkingLevel:
        return self._parts.models.thinking_level

    @property
    def leaf_id(self) -> str | None:
        return self._parts.manager.leaf_id

    @property
    def is_idle(self) -> bool:
        return self._parts.gate.is_idle

    @property
    def settings(self) -> Settings:
        return self._parts.settings()

    @property
    def messages(self) -> Sequence[Message]:
        return [item.message for item in self._parts.meter.context()]

    @property
    def system_prompt(self) -> str:
        return self._parts.shape.system_prompt

    @property
    def interaction(self) -> Interaction | None:
        return self._parts.interaction  # type: ignore[no-any-return]

    def context_usage(self) -> ContextUsage:
        return self._parts.meter.usage(self._parts.settings().compaction)

    def request_compaction(self, instructions: str | None = None) -> None:
        request = CompactionRequest(reason="manual", instructions=instructions)
        self._parts.compaction_asks.append(CompactionAsk(request))
        self._wake()

    def request_abort(self) -> None:
        self._request_abort()

    def send_message(self, content: str | Sequence[Content], *, deliver_as: DeliverAs) -> None:
        self._parts.queue.put(deliver_as, UserMessage(content=as_content(content), timestamp=now_ms()))
        self._wake()

    def append_entry(self, custom_type: str, data: Any) -> str:
        return self._appended(lambda log: log.append_custom(custom_type, data))

    def get_entry_data(self, custom_type: str) -> Any:
        return self._parts.manager.get_custom(custom_type)

    def set_label(self, entry_id: str, label: str | None) -> None:
        self._appended(lambda log: log.append_label(entry_id, label))

    def register_tool(self, tool: Tool, owner: str) -> Callable[[], None]:
        registry = self._parts.shape.registry
        registry.add(tool)
        return lambda: registry.remove(tool.name)

    def register_overflow_pattern(self, pattern: re.Pattern[str]) -> Callable[[], None]:
        return self._parts.models.add_overflow_pattern(pattern)

    def report(self, event: Event) -> None:
        self._parts.dispatcher.report(event)

    def _appended(self, append: Callable[..., Any]) -> str:
        entry = self._parts.recorder.append_now(append)
        self._wake()
        return entry.id
