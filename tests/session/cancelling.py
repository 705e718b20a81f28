"""Cancelling a coroutine at the n-th suspension in it, for every n in turn; those of tasks that it starts count too."""

from __future__ import annotations

import asyncio
import contextvars
import types
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import anyio

from agent_session import AgentSession

Way = Literal["task", "scope", "abort"]
WAYS: tuple[Way, ...] = ("task", "scope", "abort")
"""By the caller's own task, by a scope around the call, by `session.abort()` from another task."""


@types.coroutine
def _driven(
    work: Coroutine[Any, Any, Any], at: int, cancel: Callable[[], object], seen: list[int]
) -> Generator[Any, Any, Any]:
    value: Any = None
    error: BaseException | None = None
    while True:
        try:
            yielded = work.send(value) if error is None else work.throw(error)
        except StopIteration as stop:
            return stop.value
        value, error = None, None
        seen[0] += 1
        if seen[0] == at:
            cancel()
        try:
            value = yield yielded
        except BaseException as thrown:  # noqa: BLE001 - handed on into the coroutine
            error = thrown


_cancel: contextvars.ContextVar[Callable[[], object] | None] = contextvars.ContextVar("cancel", default=None)
"""In the work that is to be cancelled, and in what it starts: how."""


@contextmanager
def _tasks_driven(at: int, seen: list[int]) -> Iterator[None]:
    """Drive the tasks that the work starts as it is driven itself."""

    async def driven(coroutine: Coroutine[Any, Any, Any], cancel: Callable[[], object]) -> Any:
        return await _driven(coroutine, at, cancel, seen)

    def make_task(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> asyncio.Task[Any]:
        context = options.get("context")
        cancel = _cancel.get() if context is None else context.get(_cancel)
        return asyncio.Task(coroutine if cancel is None else driven(coroutine, cancel), loop=loop, **options)

    loop = asyncio.get_running_loop()
    loop.set_task_factory(make_task)
    try:
        yield
    finally:
        loop.set_task_factory(None)


async def cancelled_at(at: int, way: Way, session: AgentSession, work: Coroutine[Any, Any, Any]) -> tuple[bool, Any]:
    """Run `work` and cancel it at the `at`-th suspension: (whether it got that far, what it returned or raised).

    Cancellation that reaches the caller is returned as the exception it is.
    """
    seen = [0]
    result: list[Any] = []

    async def run(cancel: Callable[[], object]) -> None:
        token = _cancel.set(cancel)
        try:
            with _tasks_driven(at, seen):
                result.append(await _driven(work, at, cancel, seen))
        except asyncio.CancelledError as error:
            result.append(error)
            raise
        except Exception as error:  # noqa: BLE001 - the caller looks at it
            result.append(error)
        finally:
            _cancel.reset(token)

    if way == "scope":
        with anyio.CancelScope() as scope:
            await run(scope.cancel)
    elif way == "task":
        task: asyncio.Task[None] = asyncio.ensure_future(run(lambda: task.cancel()))  # noqa: PLW0108 - bound by then
        await asyncio.wait([task])
    else:
        aborting: list[asyncio.Task[Any]] = []
        await run(
            lambda: aborting.append(
                asyncio.get_running_loop().create_task(session.abort(), context=contextvars.Context())
            )
        )
        for task_ in aborting:
            await task_
    return seen[0] >= at, result[0] if result else None
