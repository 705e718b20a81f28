"""`@tool`: a typed function becomes a tool."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import anyio
import anyio.from_thread
import pytest
from pydantic import BaseModel, Field

from agent_session.errors import ToolError
from agent_session.tools import ToolContext, ToolRegistry, ToolResult, tool
from tests.tools.calls import call, context_in, shown


class Point(BaseModel):
    x: int
    y: int = 0


def schema_of(made: Any) -> Any:
    (definition,) = ToolRegistry([made]).definitions()
    return definition.parameters


def test_signature_and_docstring_are_what_a_model_is_told():
    @tool
    def search(query: str, limit: int = 10, kind: Literal["text", "code"] = "text", under: str | None = None) -> str:
        """Search the index.

        Finds whole words only.

        Args:
            query: what to look for; it may
                be a phrase
            limit (int): how many results: at most 50
            kind: where

        Returns:
            the lines found
        """
        return ""

    assert search.name == "search"
    assert search.description == "Search the index.\n\nFinds whole words only."
    assert search.execution_mode == "parallel"
    assert schema_of(search) == {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "query": {"type": "string", "description": "what to look for; it may be a phrase"},
            "limit": {"type": "integer", "default": 10, "description": "how many results: at most 50"},
            "kind": {"type": "string", "enum": ["text", "code"], "default": "text", "description": "where"},
            "under": {"type": "string"},
        },
        "required": ["query"],
    }


def test_a_docstring_without_sections_is_the_description():
    @tool
    def now() -> str:
        """The time: in UTC.

        note: to the second
        """
        return ""

    assert now.description == "The time: in UTC.\n\nnote: to the second"
    assert schema_of(now) == {"type": "object", "additionalProperties": False, "properties": {}}


def test_name_description_and_mode_may_be_given():
    @tool(name="look_up", description="Look it up.", execution_mode="sequential")
    def function(word: Annotated[str, Field(min_length=2, description="its own words")]) -> str:
        """Other.

        Args:
            word: other words
        """
        return word

    assert (function.name, function.description, function.execution_mode) == ("look_up", "Look it up.", "sequential")
    assert schema_of(function)["properties"] == {
        "word": {"type": "string", "minLength": 2, "description": "its own words"}
    }


# Mutation: `create_model` with the parameters' own names.
async def test_parameters_may_be_called_like_attributes_of_a_pydantic_model(context: ToolContext):
    @tool
    async def export(
        schema: str, json: bool, copy: int = 1, model_config: str = "", _private: int = 2
    ) -> dict[str, Any]:
        return {"schema": schema, "json": json, "copy": copy, "model_config": model_config, "_private": _private}

    result = await call(export, context, schema="s", json=True, _private=3)
    assert shown(result) == '{"schema":"s","json":true,"copy":1,"model_config":"","_private":3}'
    assert list(schema_of(export)["properties"]) == ["schema", "json", "copy", "model_config", "_private"]


# Mutation: the check for ToolContext in `_parameters` is left out.
async def test_the_context_is_given_and_is_not_in_the_schema(folder: Path):
    @tool
    async def who(greeting: str, context: ToolContext) -> str:
        return f"{greeting} {context.session_id} {context.deps}"

    @tool
    async def perhaps(ctx: ToolContext | None = None) -> str:
        return ctx.call_id if ctx is not None else "nobody"

    context = context_in(folder, deps="db")
    assert shown(await call(who, context, greeting="hello")) == "hello session-1 db"
    assert shown(await call(perhaps, context)) == "call-1"
    assert list(schema_of(who)["properties"]) == ["greeting"]


async def test_arguments_arrive_as_the_types_of_the_signature(context: ToolContext):
    @tool
    def move(points: list[Point], to: Path) -> str:
        return f"{sum(point.x for point in points)} {to.name}"

    assert shown(await call(move, context, points=[{"x": 1}, {"x": "2"}], to="a/b")) == "3 b"
    with pytest.raises(ToolError, match=r'points\[1\]\.x: input should be a valid integer.*got "two"'):
        await call(move, context, points=[{"x": 1}, {"x": "two"}], to="a")


async def test_a_default_that_is_no_json_and_one_that_can_change_are_each_calls_own(context: ToolContext):
    @dataclass
    class Unset:
        pass

    @tool
    def collect(item: str, into: list[str] = [], unset: Annotated[Any, "marker"] = Unset()) -> list[str]:  # noqa: B006, B008
        into.append(item)
        return into

    assert shown(await call(collect, context, item="a")) == '["a"]'
    assert shown(await call(collect, context, item="b")) == '["b"]'
    assert "unset" in schema_of(collect)["properties"]


class Adder:
    def __init__(self, start: int) -> None:
        self.start = start

    def __call__(self, amount: int) -> int:
        return self.start + amount

    async def twice(self, amount: int) -> int:
        return self.start + 2 * amount


async def test_methods_and_callable_objects_are_functions_too(context: ToolContext):
    assert shown(await call(tool(Adder(1)), context, amount=2)) == "3"
    assert shown(await call(tool(Adder(1).twice), context, amount=2)) == "5"
    assert tool(Adder(1).twice).name == "twice"
    assert tool(name="add")(Adder(1)).name == "add"


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (lambda x: x, "has no annotation"),
        (eval("lambda *args: 1"), "by name only"),
        (eval("lambda a, /: 1"), "by name only"),
    ],
)
def test_a_function_a_model_cannot_call_is_refused_when_the_tool_is_made(function: Any, why: str):
    with pytest.raises(TypeError, match=why):
        tool(function)


def test_annotations_that_cannot_be_resolved_or_told_are_refused_when_the_tool_is_made():
    def unknown(x: Nowhere) -> None: ...  # type: ignore[name-defined] # noqa: F821

    def lock(x: threading.Event) -> None: ...

    with pytest.raises(TypeError, match=r"'unknown' cannot be resolved \(name 'Nowhere' is not defined\)"):
        tool(unknown)
    with pytest.raises(TypeError, match="a parameter of tool 'lock' is of a type that JSON cannot give"):
        tool(lock)


# Mutation: `execute` calls a plain function in the loop.
async def test_a_plain_function_runs_in_a_thread_and_reports_to_the_loop(folder: Path):
    heard: list[tuple[str, int]] = []

    @tool
    def work(context: ToolContext) -> int:
        context.report("half")
        context.report("done")
        return threading.get_ident()

    context = context_in(folder, report=lambda text: heard.append((text, threading.get_ident())))
    worker = int(shown(await call(work, context)))
    here = threading.get_ident()
    assert worker != here
    assert heard == [("half", here), ("done", here)]


async def test_an_async_function_runs_in_the_loop(context: ToolContext):
    @tool
    async def work() -> int:
        return threading.get_ident()

    assert shown(await call(work, context)) == str(threading.get_ident())


# Mutation: abandon_on_cancel=False (the cancellation then waits for the thread); or `_ThreadReports` stays open.
async def test_a_cancelled_plain_function_holds_up_nobody_and_reports_no_more(folder: Path):
    heard: list[str] = []
    started, go_on, ended = anyio.Event(), threading.Event(), threading.Event()

    @tool
    def stuck(context: ToolContext) -> None:
        anyio.from_thread.run_sync(started.set)
        go_on.wait(5)
        context.report("too late")
        ended.set()

    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: call(stuck, context_in(folder, report=heard.append)))
            await started.wait()
            group.cancel_scope.cancel()
        assert not ended.is_set()
        go_on.set()
        await anyio.to_thread.run_sync(ended.wait, 5)
    assert ended.is_set()
    assert heard == []


async def test_what_a_tool_raises_is_raised(context: ToolContext):
    @tool
    def refuse() -> ToolResult:
        raise ToolError("no such customer")

    with pytest.raises(ToolError, match="no such customer"):
        await call(refuse, context)
