"""The interactive session: lines in, the session's events out, Ctrl-C for what is under way.

The rule it keeps: a line is taken at any time. What it sets off runs in a task of its own, so that a person can steer,
answer or abort while the session works; lines of a pipe wait until the one before is done.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import anyio.abc

from agent_session.cli import failures
from agent_session.cli.arguments import Options
from agent_session.cli.commands import ID_CHARS, Desk, command_names, looks_like_command, run_command
from agent_session.cli.host import Host
from agent_session.cli.line_input import LineInput
from agent_session.cli.opening import loading_teller
from agent_session.cli.person import Person
from agent_session.cli.plain_input import PlainInput
from agent_session.cli.status import Status
from agent_session.events import CompactionEnd, Event
from agent_session.logs import get_logger
from agent_session.session import AgentSession
from agent_session.terminal.console import is_dumb, make_console
from agent_session.terminal.screen import Screen
from agent_session.terminal.wording import counted, shortened
from session_store import SessionManager
from session_store.entries import MessageEntry
from session_store.messages import AssistantMessage, UserMessage

HISTORY = Path(".agent-session") / "history"
NEWEST_CHARS = 300


async def interact(options: Options, cwd: Path) -> int:
    """Until the input ends, or `/quit`; the exit code."""
    return await Conversation(options, cwd).run()


class Conversation:
    """One person, one session at a time."""

    def __init__(self, options: Options, cwd: Path) -> None:
        self._status = Status()
        self.input: LineInput
        if sys.stdin.isatty() and sys.stdout.isatty() and not is_dumb():
            self.screen, self.input = self._with_editor(is_remembered=options.is_stored)
        else:
            self.screen = Screen(make_console(), shows_queue=True)
            self.input = PlainInput(self.screen, is_busy=lambda: self._is_busy)
        self.person = Person(self.screen, undisturbed=self._asking)
        self.host = Host(options, cwd=cwd, interaction=self.person, watch=self._watch)
        self._jobs: anyio.abc.TaskGroup | None = None
        self._running = 0
        self._unsubscribe: list[Callable[[], None]] = []
        self._code = failures.DONE
        self._is_leaving = False
        self._is_compaction_aborted = False

    async def run(self) -> int:
        """The exit code: 1 where a line of a pipe failed, since nobody was there to see it."""
        failure: Exception | None = None
        async with anyio.create_task_group() as around:
            around.start_soon(self.input.serve)
            around.start_soon(self._watch_signals)
            try:
                await self._open()
                async with anyio.create_task_group() as self._jobs:
                    await self._take_lines()
                    await self.host.session.abort()
                self._jobs = None
            except failures.EXPECTED as error:
                failure = error
            finally:
                with anyio.CancelScope(shield=True):
                    await self._close()
            around.cancel_scope.cancel()
        if failure is not None:
            raise failure
        return self._code

    async def _open(self) -> None:
        failure: Exception | None = None
        async with anyio.create_task_group() as answering:
            # What is loaded may ask before the first prompt.
            answering.start_soon(self.person.answer_from, self.input)
            try:
                await self.host.open()
            except failures.EXPECTED as error:
                failure = error  # raised here it would come out in a group
            answering.cancel_scope.cancel()
        if failure is not None:
            raise failure
        self._greet()

    def interrupt(self) -> None:
        """Ctrl-C: the compaction under way, and only it; else the run; else what is typed. A pipe is simply left."""
        if not self.input.is_live or self._jobs is None:
            self._code = failures.INTERRUPTED
            self._leave()
            return
        self.person.take(None)
        session = self.host.session
        if session.is_compacting and not self._is_compaction_aborted:
            self._is_compaction_aborted = session.abort_compaction()
        elif not session.is_idle:
            self._start(self._abort)
        elif not self.input.clear():
            self.screen.line("", "nothing runs; /quit or Ctrl-D leaves", style="dim")
        self.input.redraw()

    # Lines ----------------------------------------------------------------------------------------

    async def _take_lines(self) -> None:
        was_at_end = False
        while True:
            line = await self.input.read()
            if self._is_leaving:
                return
            if self.person.take(line):
                done = None
            elif line is None:
                if was_at_end or self.host.session.is_idle or not self.input.is_live:
                    return
                self.screen.line("", "the agent works: Ctrl-C aborts it, Ctrl-D again leaves", style="dim")
                was_at_end = True
                continue
            elif not line.strip():
                continue
            else:
                done = self._start(self._obey, line)
            was_at_end = False
            if not self.input.is_live:
                await self._until_next_line_is_due(done)

    async def _obey(self, line: str) -> None:
        """A command, or a prompt; on a busy session a prompt is queued as steering."""
        is_command = looks_like_command(line)
        line = line.strip()
        try:
            if is_command:
                await run_command(self._desk, line)
            else:
                await self.host.session.prompt(line, if_busy="steer")
        except failures.EXPECTED as error:
            get_logger().exception("cli.failed")
            say = self.screen.error if is_command else self.screen.failed
            say(failures.explained(error, is_started=True))
            if not self.input.is_live:
                self._code = failures.exit_code(error)

    async def _abort(self) -> None:
        """What was queued and is not sent goes back to the input."""
        texts = await self.host.session.abort()
        if texts:
            self.input.prefill("\n".join(texts))

    async def _until_next_line_is_due(self, done: anyio.Event | None) -> None:
        """The line before is done and nothing runs; or somebody asks, and the next line is the answer."""
        async with anyio.create_task_group() as waiting:

            async def asked() -> None:
                await self.person.wait_until_asked()
                waiting.cancel_scope.cancel()

            async def settled() -> None:
                if done is not None:
                    await done.wait()
                await self.host.session.wait_for_idle()
                waiting.cancel_scope.cancel()

            waiting.start_soon(asked)
            waiting.start_soon(settled)

    def _start(self, job: Callable[..., object], *arguments: object) -> anyio.Event:
        """Run it beside the input; the event is set when it is over."""
        done = anyio.Event()

        async def run() -> None:
            try:
                await job(*arguments)  # type: ignore[misc]
            finally:
                self._running -= 1
                done.set()
                self.input.redraw()

        assert self._jobs is not None
        self._running += 1
        self._jobs.start_soon(run)
        return done

    # Around them ----------------------------------------------------------------------------------

    @property
    def _desk(self) -> Desk:
        return Desk(host=self.host, screen=self.screen, person=self.person, input=self.input, leave=self._leave)

    @property
    def _is_busy(self) -> bool:
        """Whether more will be shown before the next line is due, if one is."""
        if self._is_leaving:
            return True
        is_idle = self.host.is_open and self.host.session.is_idle
        return self.person.question is None and (self._running > 0 or not is_idle)

    @contextmanager
    def _asking(self) -> Iterator[None]:
        self.input.redraw()
        yield

    def _leave(self) -> None:
        self._is_leaving = True
        self.person.take(None)
        self.input.leave()
        if self._jobs is not None and not self.host.session.is_idle:
            self._start(self.host.session.abort)

    def _watch(self, session: AgentSession) -> None:
        """Show this session from now on."""
        while self._unsubscribe:
            self._unsubscribe.pop()()
        self.screen.usage = session.context_usage
        self._status.follow(session)
        self._unsubscribe = [
            session.subscribe(listener)
            for listener in (
                self.screen.listen,
                loading_teller(session, self.screen),
                self._status.listen,
                self._listen,
            )
        ]

    def _listen(self, event: Event) -> None:
        if isinstance(event, CompactionEnd):
            self._is_compaction_aborted = False
        self.input.redraw()

    def _greet(self) -> None:
        session = self.host.session
        self.screen.line("model", session.model.id)
        self.screen.path("folder", session.cwd)
        exchange = _newest_exchange(session.session_manager)
        if exchange:
            self.screen.line("so far", f"{counted(len(session.messages), 'message')} in the context; the newest:")
            for message in exchange:
                text = shortened(message.text, NEWEST_CHARS)
                if isinstance(message, UserMessage):
                    self.screen.line("user", text, style="bold")
                else:
                    ending = f"({message.stop_reason})" if message.is_failed else ""
                    self.screen.line("assistant", f"{text} {ending}".strip())
            self.screen.meter()
        if self.input.is_live:
            self.screen.line("", "/help lists the commands", style="dim")

    async def _close(self) -> None:
        if not self.host.is_open:
            await self.input.flush()
            return
        session = self.host.session
        is_kept = session.path is not None and len(session.session_manager) > 0
        await self.host.close()
        if is_kept and self.input.is_live:
            self.screen.line("resume", f"agent-session --resume {session.session_id[:ID_CHARS]}", style="dim")
        await self.input.flush()

    async def _watch_signals(self) -> None:
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
            async for received in signals:
                if received == signal.SIGINT:
                    self.interrupt()
                else:
                    self._code = failures.TERMINATED
                    self._leave()

    def _with_editor(self, *, is_remembered: bool) -> tuple[Screen, LineInput]:
        from agent_session.cli.editor import Above, Editor  # noqa: PLC0415 - 0.1 s, for terminals alone

        above = Above()
        console = make_console(above, is_terminal=True)
        editor = Editor(
            above,
            console,
            status=self._status,
            question=lambda: self.person.question,
            interrupt=self.interrupt,
            commands=command_names(),
            history=Path.home() / HISTORY if is_remembered else None,
        )
        return Screen(console), editor


def _newest_exchange(manager: SessionManager) -> list[UserMessage | AssistantMessage]:
    """What was said last on the branch, and what was answered to it, also where the answer failed or was aborted."""
    answer: list[UserMessage | AssistantMessage] = []
    for entry in reversed(manager.get_branch()):
        message = entry.message if isinstance(entry, MessageEntry) else None
        if isinstance(message, UserMessage):
            return [message, *answer]
        if isinstance(message, AssistantMessage) and not answer and (message.text or message.is_failed):
            answer = [message]
    return answer
