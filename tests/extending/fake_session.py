"""A session small enough to see through: what extensions are handed, and everything they did to it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio

from agent_session.compaction.types import CompactionResult, FileOps
from agent_session.events import Event, ExtensionFailed, Warning
from agent_session.extending.clock import paused
from agent_session.extending.extension_set import ExtensionSet
from agent_session.extending.view import DeliverAs, Interaction
from agent_session.hooks import BeforeCompact, CompactionScope, SessionCompact, ToolCallEvent
from agent_session.llm.client import ThinkingLevel
from agent_session.models import Model
from agent_session.owned_tasks import OwnedTasks
from agent_session.settings import CompactionSettings, Settings
from agent_session.tools.types import Tool
from session_store.entries import CompactionEntry, Entry
from session_store.errors import InvalidBoundaryError
from session_store.messages import AssistantMessage, Content, Message, TextContent, ToolCall, UserMessage


class Stubborn:
    """A handler that swallows cancellation until it is let go (at the latest when its session closes), then answers."""

    def __init__(self, answer: Any = None) -> None:
        self.answer = answer
        self.started = anyio.Event()
        self.let_go = anyio.Event()
        self.ended = anyio.Event()
        self.cancellations = 0

    async def __call__(self, event: Event) -> Any:
        self.started.set()
        while not self.let_go.is_set():
            try:
                await self.let_go.wait()
            except asyncio.CancelledError:  # noqa: ASYNC103 - what it is for
                self.cancellations += 1
        self.ended.set()
        return self.answer


class FakeSession:
    """Satisfies `SessionView`; `extensions` is the real machinery on top of it."""

    def __init__(self, *, hook_timeout: float = 5.0, interaction: Interaction | None = None) -> None:
        self.session_id = "s1"
        self.session_name: str | None = None
        self.cwd = Path("/project")
        self.model = Model("test/model")
        self.thinking_level: ThinkingLevel = "off"
        self.leaf_id: str | None = "leaf"
        self.is_idle = True
        self.settings = Settings(hook_timeout=hook_timeout)
        self.messages: Sequence[Message] = ()
        self.system_prompt = "be brief"
        self.interaction = interaction
        self.asked: list[tuple[Any, ...]] = []
        self.entries: dict[str, Any] = {}
        self.tools: dict[str, Tool] = {}
        self.overflow_patterns: list[re.Pattern[str]] = []
        self.events: list[Event] = []
        self.crashes: list[tuple[str, BaseException]] = []
        self.grace_until: float | None = None
        self.owned = OwnedTasks(lambda name, error: self.crashes.append((name, error)))
        self.extensions = ExtensionSet(
            self, hook_timeout=lambda: self.settings.hook_timeout, tasks=self.owned, grace=lambda: self.grace_until
        )

        self._stubborn: list[Stubborn] = []

    def stubborn(self, answer: Any = None) -> Stubborn:
        self._stubborn.append(Stubborn(answer))
        return self._stubborn[-1]

    def let_everybody_go(self) -> None:
        for handler in self._stubborn:
            handler.let_go.set()

    def context_usage(self) -> None:
        return None

    def request_compaction(self, instructions: str | None = None) -> None:
        self.asked.append(("compaction", instructions))

    def request_abort(self) -> None:
        self.asked.append(("abort",))

    def send_message(self, content: str | Sequence[Content], *, deliver_as: DeliverAs) -> None:
        self.asked.append(("message", content, deliver_as))

    def append_entry(self, custom_type: str, data: Any) -> str:
        self.entries[custom_type] = data
        return "entry"

    def get_entry_data(self, custom_type: str) -> Any:
        return self.entries.get(custom_type)

    def set_label(self, entry_id: str, label: str | None) -> None:
        self.asked.append(("label", entry_id, label))

    def register_tool(self, tool: Tool, owner: str) -> Callable[[], None]:
        self.tools[tool.name] = tool
        return lambda: self.tools.__delitem__(tool.name)

    def register_overflow_pattern(self, pattern: re.Pattern[str]) -> Callable[[], None]:
        self.overflow_patterns.append(pattern)
        return lambda: self.overflow_patterns.remove(pattern)

    def report(self, event: Event) -> None:
        self.events.append(event)

    @property
    def failures(self) -> list[ExtensionFailed]:
        return [event for event in self.events if isinstance(event, ExtensionFailed)]

    @property
    def warnings(self) -> list[str]:
        return [event.text for event in self.events if isinstance(event, Warning)]


@asynccontextmanager
async def open_session(
    *, hook_timeout: float = 5.0, interaction: Interaction | None = None
) -> AsyncIterator[FakeSession]:
    """A session whose abandoned handlers are gone when the block ends."""
    session = FakeSession(hook_timeout=hook_timeout, interaction=interaction)
    try:
        yield session
    finally:
        session.let_everybody_go()
        with anyio.fail_after(5, shield=True):
            assert await session.owned.cancel_all() == ()


class FakeCompaction:
    """What the runtime does for a `before_compact` handler: a summary made by `summarizing`, a known boundary."""

    def __init__(self, summarizing: Callable[[], Any] | None = None) -> None:
        self._summarizing = summarizing
        self.cancel_called = False

    async def summarize(self, **asked: Any) -> CompactionResult:
        with paused():
            if self._summarizing is not None:
                await self._summarizing()
        return CompactionResult(f"summary with {asked['prompt'] or asked['instructions'] or 'nothing'}")

    def text(self, messages: Sequence[Message] | None) -> str:
        return "text"

    def check_boundary(self, first_kept_entry_id: str) -> None:
        if first_kept_entry_id != "kept":
            raise InvalidBoundaryError(first_kept_entry_id, "it is not on this branch")

    def branch_entries(self) -> Sequence[Entry]:
        return ()

    def cancel(self) -> None:
        self.cancel_called = True


def before_compact(services: FakeCompaction | None = None) -> BeforeCompact:
    call = ToolCall("c1", "read", {"path": "a.py", "lines": [1, 2]})
    return BeforeCompact(
        reason="threshold",
        instructions=None,
        will_retry=False,
        model="test/model",
        settings=CompactionSettings(),
        tokens_before=1000,
        threshold=900,
        messages_to_summarize=(UserMessage(content=(TextContent("do it"),)), AssistantMessage(content=(call,))),
        turn_prefix_messages=(),
        is_split_turn=False,
        previous_summary=None,
        file_ops=FileOps(),
        first_kept_entry_id="kept",
        scope=CompactionScope(services or FakeCompaction()),
    )


def session_compact() -> SessionCompact:
    entry = CompactionEntry(
        id="e9", parent_id="leaf", timestamp="2025-01-01T00:00:00.000Z", summary="made", first_kept_entry_id="kept"
    )
    return SessionCompact(
        reason="threshold", entry=entry, from_hook=False, will_retry=False, scope=CompactionScope(FakeCompaction())
    )


def tool_call(**arguments: Any) -> ToolCallEvent:
    return ToolCallEvent(call_id="c1", tool_name="bash", arguments=arguments)
