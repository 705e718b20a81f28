"""Calling a session's verbs from tasks of their own."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable
from typing import Any

import anyio

from agent_session import AgentSession


async def alone(work: Awaitable[Any]) -> Any:
    """The result of `work`, awaited in a task of its own that inherits nothing."""

    async def run() -> Any:
        return await work

    with anyio.fail_after(5):
        return await asyncio.create_task(run(), context=contextvars.Context())


async def now(call: Callable[[], Any]) -> Any:
    return call()


def check_nothing_left(session: AgentSession) -> None:
    assert session.is_idle
    assert session._core.owned.names == ()
    assert not session.is_compacting
