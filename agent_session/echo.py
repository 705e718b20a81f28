"""What a call shows in a terminal while it waits: text as it streams, and a line for what else happens.

Plain text: whoever wants colours and a meter has the command line. What is not part of the answer, such as a warning,
is told by `agent_session.notices`, on a line of its own.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TextIO

from agent_session import notices
from agent_session.events import (
    AgentSettled,
    Event,
    MessageDiscarded,
    MessageStart,
    MessageUpdate,
    RetryStart,
    ToolExecutionEnd,
    ToolExecutionStart,
)
from agent_session.llm.client import TextDelta
from agent_session.llm.payload import encode_text
from session_store.showing import one_line, printable


class Echo:
    """`show` takes a session's events. `out` None is what `sys.stdout` is at the time.

    `is_alone` says whether nobody else writes there now: a line is then shown as it grows.
    """

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = out
        self.is_alone: Callable[[], bool] = lambda: True
        self._is_mid_line = False

    def show(self, event: Event) -> None:
        """Write what the event says, if a person wants to know it."""
        match event:
            case MessageUpdate(delta=TextDelta(text=text)):
                self._write(printable(text))
            case MessageStart() | AgentSettled():
                self._end_line()
            case MessageDiscarded(reason=reason):
                self._line(f"this answer does not count: {reason}")
            case RetryStart(delay=delay, error=error):
                self._line(f"again in {delay:.1f} s: {error}")
            case ToolExecutionStart(tool_name=name, arguments=arguments):
                self._line(f"{name} {encode_text(arguments)}")
            case ToolExecutionEnd(tool_name=name, is_error=True):
                self._line(f"{name} failed")
            case _ if notices.line_of(event) is not None:
                self._end_line()
                notices.tell(event)
            case _:
                pass

    def _line(self, text: str) -> None:
        self._end_line()
        self._write(f"[{one_line(text)}]\n")

    def _end_line(self) -> None:
        if self._is_mid_line:
            self._write("\n")

    def _write(self, text: str) -> None:
        out = self._out or sys.stdout
        if text and out is not None:
            out.write(text)
            if self.is_alone():
                out.flush()
            self._is_mid_line = not text.endswith("\n")
