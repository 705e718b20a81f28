"""A session on a scripted provider over HTTP with a small window and a file of its own, and what it told."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from agent_session import AgentSession, CompactionEnd, Event, ExtensionFailed, Model, Settings
from agent_session.llm.anthropic import AnthropicClient
from agent_session.llm.client import ModelClient
from agent_session.testing import FakeProvider, Step, always, reply
from session_store import CompactionEntry, Message, SessionManager, ToolResultMessage, pairs_ok

SYSTEM_PROMPT = "Answer."
SUMMARY = "## Goal\nDo the task.\n\n## Next Steps\nGo on."


@dataclass
class Scene:
    session: AgentSession
    provider: FakeProvider
    path: Path
    events: list[Event] = field(default_factory=list)
    expects_failures: bool = False

    @property
    def names(self) -> list[str]:
        """Names of what was told, in order, without the pieces of streamed answers."""
        return [event.name for event in self.events if event.name != "message_update"]

    def told(self, *names: str) -> list[str]:
        """Of what was told, these only."""
        return [name for name in self.names if name in names]

    def of(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def outcomes(self) -> list[str]:
        return [event.outcome.status for event in self.of(CompactionEnd)]

    def lines(self, type_: str | None = None) -> list[dict[str, Any]]:
        """What is in the file, entry by entry, the header left out."""
        entries = [orjson.loads(line) for line in self.path.read_bytes().splitlines()][1:]
        return [entry for entry in entries if type_ is None or entry["type"] == type_]

    @property
    def compactions(self) -> list[CompactionEntry]:
        """The compaction entries of the branch, oldest first."""
        return [entry for entry in self.session.session_manager.get_branch() if isinstance(entry, CompactionEntry)]

    @property
    def chat_requests(self) -> list[Any]:
        return [request for request in self.provider.requests if not request.is_summary]

    @property
    def summary_requests(self) -> list[Any]:
        return [request for request in self.provider.requests if request.is_summary]

    def check_whole(self) -> None:
        """What holds after anything: idle, usable, and a context that is a valid request."""
        assert self.session.is_idle
        assert not self.session.is_compacting
        assert pairs_ok(self.session.messages)
        starts, ends = self.names.count("before_compact"), self.names.count("compaction_end")
        assert starts == ends
        # A listener or handler that failed unnoticed would make its test pass for nothing.
        assert self.expects_failures or not self.of(ExtensionFailed), self.of(ExtensionFailed)


@asynccontextmanager
async def scene(
    tmp_path: Path,
    steps: Iterable[Step],
    *,
    summaries: Iterable[Step] | None = (always(reply(SUMMARY)),),
    window: int = 1_000,
    reserve: int = 100,
    keep: int = 200,
    provider_window: int | None = None,
    model: str = "openai/scripted",
    tools: Sequence[Any] = (),
    extensions: Sequence[Any] = (),
    manager: SessionManager | None = None,
    compaction: dict[str, Any] | None = None,
    retry: dict[str, Any] | None = None,
    check: bool = True,
    **options: Any,
) -> AsyncIterator[Scene]:
    """`summaries` are the summariser's steps, by default the same answer to each; None: one list for both.

    A model of Anthropic's is spoken to in its own format.
    """
    settings = options.pop("settings", None) or Settings().merged(
        {
            "compaction": {"reserve_tokens": reserve, "keep_recent_tokens": keep, **(compaction or {})},
            "retry": {"base_delay_seconds": 0.0, **(retry or {})},
        }
    )
    provider = FakeProvider(steps, summaries=summaries, context_window=provider_window)
    async with provider, _client_for(model, provider) as client:
        log = manager if manager is not None else SessionManager.create(tmp_path, session_dir=tmp_path / "sessions")
        session = AgentSession(
            Model(model, context_window=window),
            session_manager=log,
            client=client,
            tools=tools,
            system_prompt=SYSTEM_PROMPT,
            extensions=extensions,
            settings=settings,
            cwd=tmp_path,
            **options,
        )
        assert log.path is not None
        stage = Scene(session, provider, log.path)
        session.subscribe(stage.events.append)
        async with session:
            yield stage
            if check:
                stage.check_whole()


@asynccontextmanager
async def _client_for(model: str, provider: FakeProvider) -> AsyncIterator[ModelClient]:
    is_claude = Model(model).is_claude
    client = AnthropicClient(provider.base_url, "scripted-key") if is_claude else provider.client
    try:
        yield client
    finally:
        await client.aclose()


def filled(count: int = 3, size: int = 60) -> list[Any]:
    """The answers that `fill` gets."""
    return [reply(words(size, f"answer {number}")) for number in range(count)]


async def fill(stage: Scene, count: int = 3, size: int = 60) -> None:
    """A few finished prompts, so that there is something to compact; what was told of them is forgotten."""
    for number in range(count):
        await stage.session.prompt(words(size, f"question {number}"))
    stage.events.clear()


def texts(messages: Iterable[Message]) -> list[str]:
    return [str(getattr(message, "text", getattr(message, "summary", ""))) for message in messages]


def words(count: int, mark: str = "") -> str:
    """Text of about `count` tokens, in plain English words, marked so that it can be found again."""
    return f"{mark} " + " ".join(["word"] * count)


def results(messages: Iterable[Message]) -> list[ToolResultMessage]:
    return [message for message in messages if isinstance(message, ToolResultMessage)]


def veto_on(reason: str | None = None) -> Callable[[Any], None]:
    """An extension that vetoes compactions, all or those of one reason."""
    from agent_session import Veto

    def setup(api: Any) -> None:
        @api.on("before_compact")
        def veto(event: Any) -> Veto | None:
            return Veto("not now") if reason in (None, event.reason) else None

    return setup
