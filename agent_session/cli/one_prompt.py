"""`agent-session run`: one prompt until it has settled.

The rule it keeps: standard output is for the answer, or with `--json` for events and nothing else; what happens on the
way goes to standard error, unless both are one terminal.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio

from agent_session.cli import failures
from agent_session.cli.arguments import Options
from agent_session.cli.host import Host
from agent_session.cli.json_events import event_line, is_told, json_line
from agent_session.cli.opening import loading_teller
from agent_session.cli.person import Person
from agent_session.cli.plain_input import PlainInput
from agent_session.cli.streams import ReservedOutput
from agent_session.events import SCHEMA_VERSION, Event
from agent_session.hooks import MessageEnd
from agent_session.session import AgentSession
from agent_session.terminal.console import make_console
from agent_session.terminal.progress import ProgressLine
from agent_session.terminal.screen import Screen
from agent_session.terminal.wording import counted
from session_store.messages import AssistantMessage, UserMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """What is asked: what was given on the command line, and below it what was piped in."""

    given: str
    piped: str

    @property
    def text(self) -> str:
        return "\n\n".join(part for part in (self.given, self.piped) if part)

    def show(self, screen: Screen) -> None:
        """What was piped in is known to who piped it, and may be long: its size will do."""
        if self.given:
            screen.line("user", self.given, style="bold")
        if self.piped:
            lines, size = self.piped.count("\n") + 1, len(self.piped.encode())
            screen.line("user", f"standard input, {counted(lines, 'line')}, {counted(size, 'byte')}", style="bold")


@dataclass(slots=True)
class _Ending:
    """How it ended, so far."""

    code: int = failures.DONE
    is_open: bool = False
    message: AssistantMessage | None = None
    error: Exception | None = None


async def run_as_text(options: Options, cwd: Path, prompt: Prompt) -> int:
    """The answer on standard output; the exit code."""
    is_terminal = sys.stdout.isatty()
    screen = Screen(make_console(sys.stdout if is_terminal else sys.stderr), shows_answers=is_terminal)
    has_person = sys.stdin.isatty() and screen.console.is_terminal
    with ProgressLine(screen.console) as progress:
        person = Person(screen, undisturbed=progress.hidden) if has_person else None

        def watch(session: AgentSession) -> None:
            screen.usage = session.context_usage
            session.subscribe(progress.listen)
            session.subscribe(show)
            session.subscribe(loading_teller(session, screen))

        def show(event: Event) -> None:
            match event:
                case MessageEnd(message=UserMessage() as message) if message.text == prompt.text:
                    prompt.show(screen)
                case _:
                    screen.listen(event)

        host = Host(options, cwd=cwd, interaction=person, watch=watch)
        ending = await _run(host, prompt.text, person)
    if ending.error is not None and not ending.is_open:
        raise ending.error
    if ending.error is not None:
        screen.failed(failures.explained(ending.error))
    elif ending.message is not None and not is_terminal and ending.code == failures.DONE:
        print(ending.message.text, flush=True)  # noqa: T201 - the answer
    return ending.code


async def run_as_json(options: Options, cwd: Path, prompt: Prompt) -> int:
    """Events on standard output, one JSON object a line; the exit code."""
    with ReservedOutput() as output:

        def watch(session: AgentSession) -> None:
            output.write(json_line(_opening(session)))
            session.subscribe(listen)

        def listen(event: Event) -> None:
            if is_told(event):
                output.write(event_line(event))

        try:
            host = Host(options, cwd=cwd, interaction=None, watch=watch)
        except failures.EXPECTED as error:
            ending = _Ending(code=failures.exit_code(error), error=error)
        else:
            ending = await _run(host, prompt.text, None, until=output.ended)
        output.write(json_line(_result(ending)))
        await output.drain()
        if output.is_broken:
            return failures.FAILED
    if ending.error is not None:
        print(f"agent-session: {failures.explained(ending.error)}", file=sys.stderr)  # noqa: T201 - for a person
    return ending.code


def _opening(session: AgentSession) -> dict[str, Any]:
    """The first line: which session it is."""
    return {
        "event": "session",
        "schema_version": SCHEMA_VERSION,
        "id": session.session_id,
        "path": session.path,
        "cwd": session.cwd,
        "model": session.model,
    }


def _result(ending: _Ending) -> dict[str, Any]:
    """The last line: how it ended."""
    message = ending.message
    return {
        "event": "result",
        "schema_version": SCHEMA_VERSION,
        "exit_code": ending.code,
        "stop_reason": message.stop_reason if message is not None else None,
        "text": message.text if message is not None else None,
        "error": ending.error,
    }


async def _run(
    host: Host, text: str, person: Person | None, *, until: Callable[[], Awaitable[None]] | None = None
) -> _Ending:
    """The prompt; the first signal aborts it, and so does the return of `until`. The second signal leaves at once.

    What opening the session or the prompt raises is in the ending.
    """
    ending = _Ending()
    async with anyio.create_task_group() as around:
        around.start_soon(_watch_signals, host, ending, around.cancel_scope)
        if until is not None:
            around.start_soon(_abort_after, until, host, ending)
        if person is not None:
            around.start_soon(person.answer_from, PlainInput(person.screen))
        try:
            session = await host.open()
            ending.is_open = True
            if ending.code == failures.DONE:
                ending.message = await session.prompt(text)
        except failures.EXPECTED as error:
            ending.error = error
            ending.code = failures.exit_code(error)
        finally:
            with anyio.CancelScope(shield=True):
                await host.close()
        around.cancel_scope.cancel()
    return ending


async def _watch_signals(host: Host, ending: _Ending, scope: anyio.CancelScope) -> None:
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async for received in signals:
            if ending.code in (failures.INTERRUPTED, failures.TERMINATED):
                scope.cancel()
            ending.code = failures.INTERRUPTED if received == signal.SIGINT else failures.TERMINATED
            if host.is_open:
                await host.session.abort()


async def _abort_after(event: Callable[[], Awaitable[None]], host: Host, ending: _Ending) -> None:
    await event()
    ending.code = failures.FAILED
    if host.is_open:
        await host.session.abort()
