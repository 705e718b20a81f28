"""Python statements that may `await` at the top level: whether they are complete, running them, telling what failed.

Rule: what a statement raises is shown, as Python's own prompt does; only SystemExit leaves.
"""

from __future__ import annotations

import ast
import codeop
import itertools
import linecache
import sys
import traceback
from collections.abc import Awaitable, Callable, Iterator
from types import CodeType
from typing import Any

from agent_session.errors import AgentSessionError
from session_store import SessionStoreError

FLAGS = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT


class Statements:
    """Statements in one namespace. `perform` calls what it is given and awaits what comes of it."""

    def __init__(self, namespace: dict[str, Any], perform: Callable[[Callable[[], Any]], Awaitable[None]]) -> None:
        self.namespace = namespace
        self._perform = perform
        self._numbers = itertools.count(1)
        self._compiler = codeop.CommandCompiler()
        self._compiler.compiler.flags |= FLAGS

    def is_complete(self, source: str) -> bool:
        """Whether nothing is missing. What is wrong already is complete; a block ends with an empty line."""
        try:
            if self._compiler(source, "<prompt>", "exec") is None:
                return False
            last = ast.parse(source).body[-1:]
        except (SyntaxError, OverflowError, ValueError):
            return True
        return source.endswith("\n") or not any(hasattr(statement, "body") for statement in last)

    async def run(self, source: str) -> None:
        """Run what was typed, statement by statement; values of expressions are shown.

        Raises:
            SystemExit: a statement did.
        """
        name = f"<prompt {next(self._numbers)}>"
        linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
        try:
            for code in _compiled(source, name):
                await self._perform(lambda code=code: eval(code, self.namespace))  # type: ignore[misc]  # noqa: S307 - it is what a prompt is for
        except KeyboardInterrupt:
            _say("\nKeyboardInterrupt")
        except (AgentSessionError, SessionStoreError) as error:
            _say(f"{type(error).__name__}: {error}")
        except Exception as error:  # noqa: BLE001 - whatever was typed
            _say(_traceback(error, name))


def _compiled(source: str, name: str) -> Iterator[CodeType]:
    module = compile(source, name, "exec", flags=FLAGS | ast.PyCF_ONLY_AST, dont_inherit=True)
    assert isinstance(module, ast.Module)
    for statement in module.body:
        yield compile(ast.Interactive([statement]), name, "single", flags=FLAGS, dont_inherit=True)


def _traceback(error: Exception, name: str) -> str:
    """As Python tells it, from the statement on."""
    told = traceback.TracebackException.from_exception(error)
    depths = [depth for depth, frame in enumerate(told.stack) if frame.filename == name]
    told.stack[:] = told.stack[depths[0] :] if depths else []
    return "".join(told.format()).rstrip("\n")


def _say(text: str) -> None:
    sys.stdout.flush()
    print(text, file=sys.stderr, flush=True)
