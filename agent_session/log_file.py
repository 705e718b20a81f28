"""A log file: one JSON object a line, written by a thread of its own.

The rule: the caller, often the event loop, only puts the record into a queue; formatting and writing happen elsewhere.
`logs.configure_file_log` is the way in.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import queue
from datetime import UTC, datetime
from logging.handlers import QueueHandler, QueueListener
from types import TracebackType
from typing import Self

from typing_extensions import override

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}


class LogFile:
    """Records of one logger, on their way to a file until `close()`. A context manager.

    Raises:
        OSError: the file cannot be opened.
    """

    def __init__(self, logger: logging.Logger, path: str | os.PathLike[str], *, level: int) -> None:
        self.path = os.fspath(path)
        os.close(os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600))
        self._file = logging.FileHandler(self.path, encoding="utf-8", errors="backslashreplace")
        self._file.setFormatter(JsonLines())
        self._logger = logger
        records: queue.SimpleQueue[logging.LogRecord] = queue.SimpleQueue()
        self._handler = QueueHandler(records)
        self._handler.setLevel(level)
        self._listener = QueueListener(records, self._file)
        self._level_before = logger.level
        # Without a level of its own the logger would ask the root's, which is WARNING unless somebody chose.
        if not logger.isEnabledFor(level):
            logger.setLevel(level)
        logger.addHandler(self._handler)
        self._listener.start()
        self._is_open = True
        atexit.register(self.close)

    def close(self) -> None:
        """Write what waits, let go of the file, leave the logger as it was. Safe to call twice."""
        if not self._is_open:
            return
        self._is_open = False
        atexit.unregister(self.close)
        self._logger.removeHandler(self._handler)
        if all(isinstance(handler, logging.NullHandler) for handler in self._logger.handlers):
            self._logger.setLevel(self._level_before)
        self._listener.stop()
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @override
    def __repr__(self) -> str:
        return f"LogFile({self.path!r}, {'open' if self._is_open else 'closed'})"


class JsonLines(logging.Formatter):
    """`time` (ISO-8601, UTC), `level`, `event`, then the record's own values."""

    @override
    def format(self, record: logging.LogRecord) -> str:
        values = {name: value for name, value in vars(record).items() if name not in _STANDARD}
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": values.pop("event", None) or record.getMessage(),
            **values,
        }
        return json.dumps(line, ensure_ascii=False, default=str)
