"""Ctrl-C in IPython's terminal while something is awaited: there it would leave that standing, ended by nobody.

IPython runs its event loop for the length of a statement and lets KeyboardInterrupt fly through it. So the first Ctrl-C
is taken here, as `asyncio.run` and notebooks take it. Rule: nowhere else; whoever handles the signal already keeps it.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from agent_session.owned_tasks import entrance


class _Watched:
    """What the next Ctrl-C ends. It is asked once."""

    def __init__(self, end: Callable[[], None]) -> None:
        self.end = end
        self.is_asked = False


_watched: list[_Watched] = []


@contextmanager
def first_calls(end: Callable[[], None]) -> Iterator[None]:
    """Inside of the block the first Ctrl-C calls `end` in the event loop. The next raises KeyboardInterrupt."""
    if not _is_left_standing():
        yield
        return
    watched = _Watched(end)
    _watched.append(watched)
    signal.signal(signal.SIGINT, _press)
    try:
        yield
    finally:
        _watched.remove(watched)
        if not _watched and _is_main_thread() and signal.getsignal(signal.SIGINT) is _press:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def _press(number: int, frame: FrameType | None) -> None:
    """Called by Python between two instructions of the main thread."""
    waiting = [watched for watched in _watched if not watched.is_asked]
    try:
        enter = entrance()
    except RuntimeError:
        # No loop runs: a statement computes, while a run that was left alone waits for the next await.
        signal.default_int_handler(number, frame)
    else:
        for watched in waiting:
            watched.is_asked = True
            enter(watched.end)
        if not waiting:
            signal.default_int_handler(number, frame)


def _is_left_standing() -> bool:
    """Whether what is awaited here would be, by a Ctrl-C."""
    terminal = sys.modules.get("IPython.terminal.interactiveshell")
    return (
        terminal is not None
        and terminal.TerminalInteractiveShell.initialized()
        and _is_main_thread()
        and signal.getsignal(signal.SIGINT) in (signal.default_int_handler, _press)
    )


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
