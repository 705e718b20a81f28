"""The prompt: opens a session, runs statement after statement, closes the session.

Rule: a mistake of the user is one line on standard error and exit status 2.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any

import anyio

import agent_session
from agent_session import notices
from agent_session.echo import Echo
from agent_session.errors import AgentSessionError
from agent_session.repl.interrupts import Interrupts
from agent_session.repl.reading import PROMPT, piped, typed
from agent_session.repl.statements import Statements
from agent_session.session import AgentSession
from session_store import SessionManager, SessionStoreError

EPILOG = """\
The key of a provider is read from <PROVIDER>_API_KEY, another address from <PROVIDER>_BASE_URL. `agent-session` is the
command line for people who do not want to write Python."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the prompt until `exit()` or the end of input; the exit status."""
    options = _parser().parse_args(arguments)
    try:
        session = AgentSession(
            options.named_model or options.model,
            resume=options.resume,
            session_manager=SessionManager.in_memory() if options.no_session else None,
        )
        return anyio.run(_serve, session)
    except (AgentSessionError, SessionStoreError, ValueError) as error:
        print(f"python -m agent_session: {error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m agent_session",
        description="A Python prompt with `session` at hand and `await` at the top level.",
        epilog=EPILOG,
    )
    model = parser.add_mutually_exclusive_group()
    says = "provider/name; without it the log's, else AGENT_SESSION_MODEL"
    model.add_argument("model", nargs="?", help=says)
    model.add_argument("--model", dest="named_model", metavar="ID", help="the same, as of agent-session")
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--resume", metavar="WHICH", nargs="?", const="latest", help="go on with a session: latest, an id or a path"
    )
    where.add_argument("--no-session", action="store_true", help="keep nothing on disk")
    return parser


async def _serve(session: AgentSession) -> int:
    namespace: dict[str, Any] = {"__name__": "__main__", "session": session, "agent_session": agent_session}
    is_terminal = sys.stdin.isatty()
    if is_terminal:
        sys.ps1 = PROMPT  # as Python itself says that somebody is there
    echo = Echo()
    async with AsyncExitStack() as stack:
        if sys.stdout.isatty():
            session.subscribe(echo.show)
            stack.enter_context(notices.shown_by_the_caller())
        await stack.enter_async_context(session)
        interrupts = await stack.enter_async_context(Interrupts.watched(session))
        statements = Statements(namespace, interrupts.perform)
        # Between statements lines go above the one that is typed, each when it is whole.
        echo.is_alone = lambda: interrupts.is_performing
        if is_terminal:
            print(f"{session.model.id}, {session.path or 'nothing is kept on disk'}")
            print('For example: await session.prompt("..."), await session.compact(), help(session). Ctrl-D ends it.')
        read = typed(statements.is_complete, namespace) if is_terminal else piped(statements.is_complete)
        try:
            while (source := await read()) is not None:
                await statements.run(source)
        except SystemExit as end:
            return _status(end.code)
    return 0


def _status(code: object) -> int:
    """As the interpreter takes what `exit()` was given."""
    if code is None or isinstance(code, int):
        return int(code or 0)
    print(code, file=sys.stderr)
    return 1
