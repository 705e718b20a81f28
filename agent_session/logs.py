"""Logging: structlog in front, the standard logger `agent_session` behind. Nothing is printed unless a program asks.

The rules: the standard logger has a null handler and no level of its own, so that a program's `logging` configuration
alone decides what is heard; structlog is configured for these loggers only, never globally, and is imported when the
first record has a listener; every value passes `redact` before any handler sees it, so that no key reaches a log.

A record's message reads `compaction.end session_id=… status=applied`; the same values are attributes of the record
(`record.session_id`), for handlers that write fields. Bound by the runtime: `session_id`, `run`, `turn`,
`compaction_id`.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping, MutableMapping
from typing import TYPE_CHECKING, Any

from typing_extensions import override

if TYPE_CHECKING:
    from pathlib import Path

    from agent_session.log_file import LogFile

LOGGER_NAME = "agent_session"
REDACTED = "[redacted]"

_logger = logging.getLogger(LOGGER_NAME)
_logger.addHandler(logging.NullHandler())

# Names of credentials. `token` only as the last word: `max_tokens` and `tokens_before` are sizes.
_SECRET_NAME = re.compile(
    r"api[-_]?key|authorization|cookie|credential|passw(or)?d|passphrase|private[-_]?key|secret|(^|[-_.]|[a-z])token$",
    re.IGNORECASE,
)
# What a credential looks like inside a text: providers repeat the key they refuse in their error.
_SECRET_TEXT = re.compile(
    r"\b(?:sk|pk|rk|xai|gsk|hf|ghp|gho|pat)[-_][A-Za-z0-9*_-]{8,}"
    r"|\bAIza[A-Za-z0-9_-]{20,}"
    r"|\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"
    r"|\b(?:bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,}"
    r"|(?<=://)[^/\s:@]+:[^/\s@]+(?=@)",
    re.IGNORECASE,
)
# What `logging.LogRecord` has itself; an `extra` of that name would be refused.
_RECORD_NAMES = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}
# Frames from `logging` to who called a `Logger` method: three of structlog's, `_emit`, the method, the caller.
_CALLER_DEPTH = 6


def redact(value: Any, name: str = "") -> Any:
    """`value` without credentials: by the `name` it is filed under, and by what its text looks like."""
    if _SECRET_NAME.search(name) and not isinstance(value, (bool, int, float, type(None))):
        return REDACTED
    if isinstance(value, str):
        return _SECRET_TEXT.sub(REDACTED, value)
    if isinstance(value, Mapping):
        return {key: redact(item, str(key)) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [redact(item) for item in value]
    if isinstance(value, (bool, int, float, type(None))):
        return value
    return _SECRET_TEXT.sub(REDACTED, str(value))


class Logger:
    """A logger with values bound to it. Safe to keep, cheap to call where nobody listens.

    Events are dotted names (`compaction.end`), facts are keywords. `exc_info` takes an exception, or True for the one
    being handled.
    """

    __slots__ = ("_bound",)

    def __init__(self, bound: Mapping[str, object]) -> None:
        self._bound = dict(bound)

    def bind(self, **values: object) -> Logger:
        """A logger that also says these values."""
        return Logger({**self._bound, **values})

    def unbind(self, *names: str) -> Logger:
        """A logger that no longer says these."""
        return Logger({name: value for name, value in self._bound.items() if name not in names})

    def debug(self, event: str, **values: object) -> None:
        self._emit(logging.DEBUG, event, values)

    def info(self, event: str, **values: object) -> None:
        self._emit(logging.INFO, event, values)

    def warning(self, event: str, **values: object) -> None:
        self._emit(logging.WARNING, event, values)

    def error(self, event: str, **values: object) -> None:
        self._emit(logging.ERROR, event, values)

    def exception(self, event: str, **values: object) -> None:
        """An error, with the traceback of the exception being handled."""
        self._emit(logging.ERROR, event, {"exc_info": True, **values})

    def log(self, level: int, event: str, **values: object) -> None:
        """`level` is one of `logging`'s."""
        self._emit(level, event, values)

    def _emit(self, level: int, event: str, values: Mapping[str, object]) -> None:
        # Every method calls this directly, so that the caller is always equally far away (`_CALLER_DEPTH`).
        if is_heard(level):
            _structured(self._bound).log(level, event, **values)

    @override
    def __repr__(self) -> str:
        return f"Logger({', '.join(f'{name}={value!r}' for name, value in redact(self._bound).items())})"


def get_logger(**bound: object) -> Logger:
    """The package's logger, with `bound` in every record: `get_logger(session_id=session.session_id)`."""
    return Logger(bound)


def is_heard(level: int) -> bool:
    """Whether a record of this level would reach a handler that does something."""
    if not _logger.isEnabledFor(level):
        return False
    logger: logging.Logger | None = _logger
    while logger is not None:
        if any(not isinstance(handler, logging.NullHandler) for handler in logger.handlers):
            return True
        logger = logger.parent if logger.propagate else None
    return False


def configure_file_log(path: str | os.PathLike[str] | Path, *, level: int = logging.INFO) -> LogFile:
    """Write the records of this package to a file, one JSON object a line, from a thread of its own.

    For programs and the command line; the library never calls it. The file is appended to and made with mode 0600.
    Close what is returned to write out what waits and let go of the file.

    Raises:
        OSError: the file cannot be opened.
    """
    from agent_session.log_file import LogFile  # noqa: PLC0415 - threads and queues only for who asks

    return LogFile(_logger, path, level=level)


def _structured(bound: Mapping[str, object]) -> Any:
    import structlog  # noqa: PLC0415 - 0.1 s, paid by the first record that has a listener

    return structlog.wrap_logger(
        _logger,
        processors=[structlog.processors.format_exc_info, _redacted, _as_record],
        wrapper_class=structlog.stdlib.BoundLogger,
        context_class=dict,
    ).bind(**bound)


def _redacted(_logger: object, _method: str, event_dict: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    return {name: redact(value, name) for name, value in event_dict.items()}


def _as_record(
    _logger: object, _method: str, event_dict: MutableMapping[str, Any]
) -> tuple[tuple[str], dict[str, Any]]:
    """The arguments of `logging.Logger.log`: a message for people, the values for handlers that write fields."""
    event = str(event_dict.pop("event", ""))
    exception = event_dict.pop("exception", None)
    values = dict(event_dict)
    message = " ".join([event, *(f"{name}={_quoted(value)}" for name, value in values.items())])
    if exception:
        message = f"{message}\n{exception}"
        values["exception"] = exception
    fields = {f"{name}_" if name in _RECORD_NAMES else name: value for name, value in values.items()}
    # The message is finished: a `%` in it must not be read as a placeholder, so no arguments are passed.
    return (message,), {"extra": {"event": event, **fields}, "stacklevel": _CALLER_DEPTH}


def _quoted(value: object) -> str:
    text = str(value)
    return repr(text) if not text or any(mark in text for mark in " =\"'\n\t") else text
