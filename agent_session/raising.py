"""Errors of verbs that do their work elsewhere, raised where the verb was called: without the way through the threads.

Rule: what was raised on purpose says everything by its text; frames of the user's own code that led to it are kept. Any
other error may be a fault, and where it came from is what one wants to know: it loses the frames of machinery alone.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FunctionType, TracebackType
from typing import Any, TypeVar

import session_store
from agent_session.errors import AgentSessionError
from session_store import SessionStoreError

C = TypeVar("C", bound=type)

_OURS = Path(__file__).parent
_STORE = Path(session_store.__file__).parent
_LIBRARY = Path(os.__file__).parent
_INSTALLED = "site-packages"

_MACHINERY = {
    *(str(_OURS / f"{name}.py") for name in ("blocks", "loop_thread", "owned_tasks", "raising", "session_thread")),
    *(str(_OURS / f"{name}.py") for name in ("sync", "sync_handles", "sync_inspection")),
    *(str(_LIBRARY / f"{name}.py") for name in ("contextlib", "queue", "threading")),
}
_MACHINERY_FOLDERS = (f"{_LIBRARY / 'asyncio'}{os.sep}", f"{os.sep}{_INSTALLED}{os.sep}anyio{os.sep}")

_ENTRIES = ("__init__", "__enter__", "__exit__", "__next__", "__call__")


def at_the_call(kind: C) -> C:
    """A class decorator: what its public methods and properties raise begins at them."""
    for name, member in list(vars(kind).items()):
        if name.startswith("_") and name not in _ENTRIES:
            continue
        if isinstance(member, FunctionType):
            setattr(kind, name, _raising_here(member))
        elif isinstance(member, property) and member.fget is not None:
            setattr(kind, name, property(_raising_here(member.fget), member.fset, member.fdel, member.__doc__))
    return kind


def _raising_here(verb: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(verb)
    def call(*arguments: Any, **options: Any) -> Any:
        try:
            return verb(*arguments, **options)
        except StopIteration:
            raise
        except BaseException as error:
            for link in _chain(error):
                link.__traceback__ = _kept(link, is_said=isinstance(error, AgentSessionError | SessionStoreError))
            raise  # again, and so this frame is not in it

    return call


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error, and those that led to it as far as they are shown."""
    link: BaseException | None = error
    while link is not None:
        yield link
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)


def _kept(error: BaseException, *, is_said: bool) -> TracebackType | None:
    """What is left of its traceback. `is_said`: what happened is said on purpose, by this error or one it led to."""
    entries = [entry for entry in _entries(error.__traceback__) if not _is_machinery(_file(entry))]
    if is_said:
        entries = [entry for entry in entries if _is_theirs(_file(entry))]
    elif isinstance(error, ValueError | TypeError | OSError) and all(_is_ours(_file(entry)) for entry in entries):
        entries = entries[-1:]  # an argument that is wrong: the verbs say which errors they raise for those
    kept: TracebackType | None = None
    for entry in reversed(entries):
        kept = TracebackType(kept, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return kept


def _entries(traceback: TracebackType | None) -> Iterator[TracebackType]:
    while traceback is not None:
        yield traceback
        traceback = traceback.tb_next


def _file(entry: TracebackType) -> str:
    return entry.tb_frame.f_code.co_filename


def _is_machinery(file: str) -> bool:
    return file in _MACHINERY or any(folder in file for folder in _MACHINERY_FOLDERS)


def _is_theirs(file: str) -> bool:
    """Code of who uses the session: their program, their extension."""
    return not _is_ours(file) and _INSTALLED not in Path(file).parts


def _is_ours(file: str) -> bool:
    """This package's, the log's, or the standard library's, with what `dataclasses` and `import` make."""
    path = Path(file)
    is_made = file == "<string>" or file.startswith("<frozen ")
    is_here = any(path.is_relative_to(root) for root in (_OURS, _STORE, _LIBRARY))
    return is_made or (is_here and _INSTALLED not in path.parts)
