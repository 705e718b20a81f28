"""What went wrong, for a person: one sentence that says what to do, and the exit code.

The rule it keeps: no traceback for anything that a user can cause.
"""

from __future__ import annotations

import os

from agent_session.errors import (
    AgentSessionError,
    ExtensionLoadError,
    MissingCredentialsError,
    MissingModelError,
    SettingsError,
)
from session_store.errors import SessionLockedError, SessionNotFoundError, SessionStoreError

DONE = 0
FAILED = 1
WRONG_USE = 2
NO_MODEL = 3
INTERRUPTED = 130
TERMINATED = 143

DEMO_HINT = "`agent-session demo` shows a session at work without either."

EXPECTED = (AgentSessionError, SessionStoreError, ValueError, OSError)
"""What may be raised to a user; anything else is a fault of this program."""


class UsageError(ValueError):
    """The command line says something that cannot be."""


def explained(error: BaseException) -> str:
    """The error in a user's words."""
    match error:
        case MissingModelError():
            return (
                "no model: give --model provider/name (for example --model openai/gpt-5-mini), or set "
                f"AGENT_SESSION_MODEL, or `model` in ~/.agent-session/settings.json. {DEMO_HINT}"
            )
        case MissingCredentialsError():
            return (
                f"{error} A server that needs no key is named with --base-url, another model with --model. {DEMO_HINT}"
            )
        case SessionLockedError():
            return f"{error.path}: in use by process {error.pid or '?'}; close it there, or begin a new session"
        case SessionNotFoundError():
            return f"no session {error.what!r}; `agent-session sessions list --all` names the ones there are"
        case OSError() if error.filename is not None and error.strerror:
            return f"{os.fsdecode(error.filename)}: {error.strerror}"
        case _:
            return str(error) or type(error).__name__


def exit_code(error: BaseException) -> int:
    """As `--help` lists them."""
    match error:
        case MissingModelError() | MissingCredentialsError():
            return NO_MODEL
        case SettingsError() | SessionNotFoundError() | ExtensionLoadError() | ValueError():
            return WRONG_USE
        case _:
            return FAILED
