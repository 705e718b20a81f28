"""The demonstration, act by act: one session driven through everything that can happen to its context.

The rule it keeps: an act does what a program would do with the public API, and notes what it saw. What the model says
is in `scenario`, how it looks in `screen`, whether it was as promised in `account`.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass
from pathlib import Path

import anyio.to_thread

from agent_session.compaction.text_tokens import estimate_text_tokens
from agent_session.demo import scenario
from agent_session.demo.account import Account, Evidence
from agent_session.demo.killing import Kill, kill_while_compacting
from agent_session.demo.opening import SETTINGS, local_client, resumed
from agent_session.demo.project import Project, make_project
from agent_session.demo.scenario import BOASTFUL_MODEL, HONEST_MODEL, WINDOW, Scenario
from agent_session.demo.screen import ID_CHARS, Screen
from agent_session.llm.openai_compatible import OpenAICompatibleClient
from agent_session.session import AgentSession
from agent_session.terminal.wording import shortened, spent
from agent_session.testing import FakeProvider
from session_store import SessionManager
from session_store.context import ProjectedMessage, build_context
from session_store.entries import CompactionEntry

EXTENSION = Path(__file__).with_name("keep_red_tests.py")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """What every act works with."""

    screen: Screen
    account: Account
    project: Project
    script: Scenario
    provider: FakeProvider
    client: OpenAICompatibleClient

    def act(self, number: int, title: str) -> None:
        """Begin an act."""
        self.account.act = number
        self.screen.act(number, title)

    def watch(self, session: AgentSession) -> AgentSession:
        """The same session, its events told to the account and to the screen."""
        for watcher in (self.account, self.screen):
            watcher.usage = session.context_usage
            session.subscribe(watcher.listen)
        return session


async def demonstrate(screen: Screen, folder: Path, *, pace: float) -> tuple[Evidence, Path]:
    """Play all acts in `folder`; what was seen, and the session's file. `pace`: seconds between pieces of an answer.

    Raises:
        AgentSessionError: a verb failed that should not have.
        SessionStoreError: the log could not be used.
        DemonstrationError: the process that was to be killed did not come so far.
        AssertionError: the script was not used up, or something else was asked.
    """
    project = make_project(folder / "project")
    script = scenario.scenario(project, pace=pace)
    async with (
        FakeProvider(
            script.answers, summaries=script.summaries, context_window=WINDOW, count_text=estimate_text_tokens
        ) as provider,
        local_client(provider.base_url) as client,
    ):
        screen.line("provider", f"{provider.base_url}, takes {WINDOW:,} tokens")
        screen.path("project", project.root)
        stage = Stage(
            screen=screen, account=Account(), project=project, script=script, provider=provider, client=client
        )
        path, context = await _first_sitting(stage, folder / "sessions")
        kill = await _killed_sitting(stage, path)
        is_same_context, summary_was_sent = await _last_sitting(stage, path, context)
    stored, damage = _read_again(path)
    evidence = Evidence(
        rows=tuple(stage.account.rows),
        kill=kill,
        is_same_context=is_same_context,
        stored=stored,
        damage=damage,
        troubles=tuple(stage.account.troubles),
        tests_pass=await anyio.to_thread.run_sync(project.tests_pass),
        summary_was_sent=summary_was_sent,
    )
    return evidence, path


async def _first_sitting(stage: Stage, session_dir: Path) -> tuple[Path, list[ProjectedMessage]]:
    """The session's file, and the context as it was when the session was closed."""
    manager = SessionManager.create(stage.project.root, session_dir=session_dir)
    session = AgentSession(
        HONEST_MODEL, session_manager=manager, client=stage.client, settings=SETTINGS, cwd=stage.project.root
    )
    async with stage.watch(session):
        stage.act(1, "A long turn passes the threshold between two tool steps")
        await session.prompt(scenario.FIX)

        stage.act(2, "A last answer passes it: compacted, and nothing further is asked")
        await session.prompt(scenario.REVIEW)

        stage.act(3, "The model claims twice what its provider takes: an overflow")
        await session.set_model(BOASTFUL_MODEL)
        await session.prompt(scenario.ADD_UP)

        stage.act(4, f'By hand: session.compact("{scenario.KEEP}")')
        await session.compact(scenario.KEEP)

        stage.act(5, "An extension vetoes a compaction, and writes the next summary")
        extension = await session.load(EXTENSION)
        stage.screen.line("extension", f"{extension.name} loaded")
        await session.prompt(scenario.WEEKS)
        await extension.unload()
        assert manager.path is not None
        return manager.path, build_context(manager.projection)


async def _killed_sitting(stage: Stage, path: Path) -> Kill:
    stage.act(6, "Another process resumes the session; kill -9 while it compacts")
    kill = await kill_while_compacting(
        path, stage.project.root, stage.provider.base_url, scenario.KEEP_WEEKS, stage.script.held
    )
    stage.screen.line("process", f"{kill.pid} has the session's lock, and waits for the summary")
    stage.screen.listen(kill.start)
    stage.account.note_kill(kill)
    ended = "by itself" if kill.signal is None else f"of {signal.Signals(kill.signal).name}"
    verdict = "the same bytes" if kill.is_same_file else "NOT the same bytes"
    stage.screen.line("process", f"{kill.pid} died {ended}", style="red")
    stage.screen.line("file", f"{kill.size_before:,} bytes before, {kill.size_after:,} after: {verdict}")
    return kill


async def _last_sitting(stage: Stage, path: Path, before: list[ProjectedMessage]) -> tuple[bool, bool]:
    """Whether the context is the one of before, and whether the newest summary was sent to the provider."""
    stage.act(7, "Resumed here: the same context; compaction and prompt go on")
    async with stage.watch(resumed(path, stage.project.root, stage.client)) as session:
        after = build_context(session.session_manager.projection)
        _show_contexts(stage.screen, before, after)
        outcome = await session.compact(scenario.KEEP_WEEKS)
        await session.prompt(scenario.LAST)
        was_sent = outcome.summary is not None and outcome.summary in stage.provider.requests[-1].text
        stats = session.stats()
        stage.screen.line("spent", spent(stats.total, stats.compaction))
        return after == before, was_sent


def _show_contexts(screen: Screen, before: list[ProjectedMessage], after: list[ProjectedMessage]) -> None:
    known = {item.entry.id: item.message for item in before}
    screen.line("context", f"{len(before)} messages before, {len(after)} after:")
    for item in after:
        message = item.message
        verdict = "same" if known.get(item.entry.id) == message else "DIFFERS"
        text = getattr(message, "text", "") or getattr(message, "summary", "") or "(calls of tools)"
        role = type(message).__name__.removesuffix("Message")
        screen.line(f"  {verdict}", f"{item.entry.id[:ID_CHARS]}  {role:<17} {shortened(text, 40)}", style="dim")


def _read_again(path: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Ids of the compactions in the file, and what is damaged in it."""
    with SessionManager.open(path, read_only=True) as manager:
        stored = tuple(entry.id for entry in manager.get_branch() if isinstance(entry, CompactionEntry))
        return stored, tuple(record.detail for record in manager.damage.records)
