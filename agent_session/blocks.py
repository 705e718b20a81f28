"""What `run` and `events` give: a block for `with` or `async with`, that says so where it is used otherwise.

Rule: nothing is begun before the block is entered, and it is entered once.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, AbstractContextManager
from types import TracebackType
from typing import Generic, Literal, NoReturn, TypeAlias, TypeVar

from typing_extensions import override

from agent_session.raising import at_the_call
from session_store.showing import quoted

T = TypeVar("T")

State: TypeAlias = Literal["not begun", "under way", "over"]


class _Block:
    """`call` is how it was made, `usage` the line that opens it with what can be done in it."""

    def __init__(self, call: str, usage: str) -> None:
        self._call = call
        self._usage = usage
        self._state: State = "not begun"

    def _enter(self) -> None:
        if self._state != "not begun":
            raise RuntimeError(f"{self._call} is {self._state}: each block takes a call of its own")
        self._state = "under way"

    def _misused(self) -> NoReturn:
        raise TypeError(f"{self._call} is a block: {self._usage}")

    __iter__ = __next__ = __aiter__ = __anext__ = __await__ = _misused

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"{self._call} is a block and has no {name!r} itself: {self._usage}", name=name, obj=self)

    @override
    def __repr__(self) -> str:
        return f"<{self._call}, {self._state}: {self._usage}>"


@at_the_call
class Block(_Block, AbstractContextManager[T], Generic[T]):
    """For `with`."""

    def __init__(self, opened: AbstractContextManager[T], call: str, usage: str) -> None:
        super().__init__(call, usage)
        self._opened = opened

    @override
    def __enter__(self) -> T:
        self._enter()
        return self._opened.__enter__()

    @override
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        self._state = "over"
        return self._opened.__exit__(kind, error, traceback)

    async def __aenter__(self) -> NoReturn:
        self._misused()

    async def __aexit__(self, *error: object) -> None:
        """There, so that `async with` comes as far as being told."""


class AsyncBlock(_Block, AbstractAsyncContextManager[T], Generic[T]):
    """For `async with`."""

    def __init__(self, opened: AbstractAsyncContextManager[T], call: str, usage: str) -> None:
        super().__init__(call, usage)
        self._opened = opened

    @override
    async def __aenter__(self) -> T:
        self._enter()
        return await self._opened.__aenter__()

    @override
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        self._state = "over"
        # It shields what it has to: here there is nothing to clean up.
        return await self._opened.__aexit__(kind, error, traceback)  # noqa: ASYNC102

    def __enter__(self) -> NoReturn:
        self._misused()

    def __exit__(self, *error: object) -> None:
        """There, so that `with` comes as far as being told."""


def run_block(opened: AbstractContextManager[T], text: str) -> AbstractContextManager[T]:
    """`SyncSession.run`."""
    usage = "`with session.run(...) as run:`, and in it `for event in run: ...`, run.result() or run.text"
    return Block(opened, _run_of(text), usage)


def async_run_block(opened: AbstractAsyncContextManager[T], text: str) -> AbstractAsyncContextManager[T]:
    """`AgentSession.run`."""
    usage = (
        "`async with session.run(...) as run:`, and in it `async for event in run: ...`, await run.result() or run.text"
    )
    return AsyncBlock(opened, _run_of(text), usage)


def events_block(opened: AbstractContextManager[T]) -> AbstractContextManager[T]:
    """`SyncSession.events`."""
    return Block(opened, "session.events()", "`with session.events() as stream:`, and in it `for event in stream: ...`")


def async_events_block(opened: AbstractAsyncContextManager[T]) -> AbstractAsyncContextManager[T]:
    """`AgentSession.events`."""
    usage = "`async with session.events() as stream:`, and in it `async for event in stream: ...`"
    return AsyncBlock(opened, "session.events()", usage)


def _run_of(text: object) -> str:
    return f"session.run({quoted(text) if isinstance(text, str) else type(text).__name__})"
