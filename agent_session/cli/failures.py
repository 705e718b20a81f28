"""What went wrong, for a person: one sentence that says what to do, and the exit code.

The rule it keeps: no traceback for anything that a user can cause.
"""

from __future__ import annotations

import os
import re

from agent_session.errors import (
    AgentSessionError,
    ExtensionLoadError,
    MissingCredentialsError,
    MissingModelError,
    ModelError,
    SettingsError,
)
from session_store.errors import SessionLockedError, SessionNotFoundError, SessionStoreError

DONE = 0
FAILED = 1
WRONG_USE = 2
NO_MODEL = 3
INTERRUPTED = 130
TERMINATED = 143

KEYLESS_HINT = "A server that needs no key is named with --base-url, another model with --model."
DEMO_HINT = "`agent-session demo` shows a session at work without either."

_FOR_PROGRAMS = re.compile(r",? or give \w+\(\w+=[^)]*\)")

EXPECTED = (AgentSessionError, SessionStoreError, ValueError, OSError)
"""What may be raised to a user; anything else is a fault of this program."""


class UsageError(ValueError):
    """The command line says something that cannot be."""


def explained(error: BaseException, *, is_started: bool = False) -> str:
    """The error in a user's words. To who has a session already, the options of the command line are no help."""
    match error:
        case MissingModelError():
            return (
                "no model: give --model provider/name (for example --model openai/gpt-5-mini), or set "
                f"AGENT_SESSION_MODEL, or `model` in ~/.agent-session/settings.json. {DEMO_HINT}"
            )
        case MissingCredentialsError(status=None) if not is_started:  # with a status it is a key that was refused
            return f"{_for_a_user(error)}. {KEYLESS_HINT} {DEMO_HINT}"
        case ModelError():
            return _for_a_user(error)
        case SessionLockedError():
            who = "this program itself" if error.pid == os.getpid() else f"process {error.pid or '?'}"
            return f"{error.path}: in use by {who}; close it there, or begin a new session"
        case SessionNotFoundError() if error.why is not None:
            return f"no session {error.what!r}: {error.why}"
        case SessionNotFoundError() if os.sep in error.what:
            return f"no file {error.what}: what has a {os.sep} in it is a session's path, not its id"
        case SessionNotFoundError():
            return f"no session {error.what!r}; `agent-session sessions list --all` names the ones there are"
        case FileNotFoundError(filename=None):
            return "the folder in which this was started is gone"
        case OSError() if error.filename is not None and error.strerror:
            return f"{os.fsdecode(error.filename)}: {error.strerror}"
        case _:
            return str(error) or type(error).__name__


def _for_a_user(error: BaseException) -> str:
    """Without what only a program can do about it, and without the full stop."""
    return _FOR_PROGRAMS.sub("", str(error)).rstrip(".") or type(error).__name__


def alone(error: Exception) -> Exception:
    """The error itself, where a group of tasks holds nothing but it."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def exit_code(error: BaseException) -> int:
    """As `--help` lists them."""
    match error:
        case MissingModelError() | MissingCredentialsError():
            return NO_MODEL
        case SettingsError() | SessionNotFoundError() | ExtensionLoadError() | ValueError():
            return WRONG_USE
        case _:
            return FAILED
