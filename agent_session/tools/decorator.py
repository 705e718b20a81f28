"""`@tool`: a typed function becomes a `Tool`.

The signature is the schema, the docstring is what the model reads. A parameter annotated `ToolContext` is
given by the runtime and hidden from the model. A plain function runs in a thread; when its call is
cancelled the session goes on at once and what the function still does or returns is dropped, since a thread
cannot be stopped from outside.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal, get_args, get_type_hints, overload

import anyio.to_thread
from pydantic import BaseModel, ConfigDict, Field, PydanticUserError, create_model
from pydantic.fields import FieldInfo

from agent_session.tools.types import ExecuteTool, Tool, ToolContext

_SECTION = re.compile(
    r"^(args|arguments|parameters|returns?|yields?|raises|examples?|notes?|warnings?|see also|attributes):\s*$",
    re.IGNORECASE,
)
_PARAMETER = re.compile(r"^\*{0,2}(?P<name>\w+)\s*(\([^)]*\))?\s*:\s*(?P<text>.*)$")


@overload
def tool(function: Callable[..., Any], /) -> Tool: ...


@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    execution_mode: Literal["parallel", "sequential"] = "parallel",
) -> Callable[[Callable[..., Any]], Tool]: ...


def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    execution_mode: Literal["parallel", "sequential"] = "parallel",
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Make a `Tool` of a function, as `@tool` or `@tool(name=…, execution_mode="sequential")`.

    `name` and `description` default to the function's name and to its docstring without the section of
    arguments, whose lines (`path: where to look`) describe the parameters.

    Raises:
        TypeError: a parameter has no annotation, or one that cannot be resolved or that JSON cannot give; or
            it is positional-only or `*args`. Raised when the tool is made, not when it is called.
    """

    def make(function: Callable[..., Any]) -> Tool:
        own_name = name or str(getattr(function, "__name__", type(function).__name__))
        text, described = _documentation(function)
        fields, injected = _parameters(function, own_name, described)
        return Tool(
            name=own_name,
            description=text if description is None else description,
            parameters=_model(own_name, fields),
            execute=_executor(function, tuple(fields), injected),
            execution_mode=execution_mode,
        )

    return make if function is None else make(function)


def _documentation(function: Callable[..., Any]) -> tuple[str, dict[str, str]]:
    """The docstring's text before its first section, and what its `Args:` say of each parameter."""
    text: list[str] = []
    described: dict[str, str] = {}
    section, indent, current = "", 0, ""
    for line in (inspect.getdoc(function) or "").splitlines():
        if found := _SECTION.match(line):
            section, indent, current = found[1].lower(), 0, ""
        elif not section:
            text.append(line)
        elif section in ("args", "arguments", "parameters") and line.strip():
            depth = len(line) - len(line.lstrip())
            indent = indent or depth
            if depth == indent and (entry := _PARAMETER.match(line.strip())):
                current = entry["name"]
                described[current] = entry["text"].strip()
            elif current:
                described[current] = f"{described[current]} {line.strip()}".strip()
    return "\n".join(text).strip(), described


def _parameters(
    function: Callable[..., Any], tool_name: str, described: dict[str, str]
) -> tuple[dict[str, tuple[Any, FieldInfo]], tuple[str, ...]]:
    """The fields of the model, and the names of the parameters that take the context."""
    signature = inspect.signature(function)
    hints = _hints(function, tool_name)
    fields: dict[str, tuple[Any, FieldInfo]] = {}
    injected: list[str] = []
    for parameter in signature.parameters.values():
        what = f"parameter {parameter.name!r} of tool {tool_name!r}"
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise TypeError(f"{what} is {parameter.kind.description}: a model gives arguments by name only")
        if parameter.name not in hints:
            raise TypeError(f"{what} has no annotation: its type is what the model is told")
        hint = hints[parameter.name]
        if hint is ToolContext or ToolContext in get_args(hint):
            injected.append(parameter.name)
            continue
        given: dict[str, Any] = {"alias": parameter.name}
        if parameter.name in described and not _describes_itself(hint):
            given["description"] = described[parameter.name]
        if parameter.default is not parameter.empty:
            given["default"] = parameter.default
        fields[parameter.name] = (hint, Field(**given))
    return fields, tuple(injected)


def _hints(function: Callable[..., Any], tool_name: str) -> dict[str, Any]:
    target = _routine(function)
    known = {"ToolContext": ToolContext, **getattr(inspect.unwrap(target), "__globals__", {})}
    try:
        return get_type_hints(target, globalns=known, include_extras=True)
    except NameError as error:
        raise TypeError(
            f"an annotation of tool {tool_name!r} cannot be resolved ({error}): import or define the type "
            f"at module level, not under TYPE_CHECKING or inside a function"
        ) from error


def _routine(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function itself, or the method that makes an object callable."""
    if inspect.isroutine(function):
        return function
    method: Callable[..., Any] = type(function).__call__
    return method


def _describes_itself(hint: Any) -> bool:
    metadata = getattr(hint, "__metadata__", ())
    return any(isinstance(item, FieldInfo) and item.description for item in metadata)


def _model(tool_name: str, fields: dict[str, tuple[Any, FieldInfo]]) -> type[BaseModel]:
    # Attribute names are apart from the names that the model uses, so that a parameter may be called
    # `schema`, `json` or `copy` like an attribute of every pydantic model.
    attributes: dict[str, Any] = {f"parameter_{name}": field for name, field in fields.items()}
    try:
        model: type[BaseModel] = create_model(tool_name, __config__=ConfigDict(extra="forbid"), **attributes)
    except PydanticUserError as error:
        raise TypeError(f"a parameter of tool {tool_name!r} is of a type that JSON cannot give: {error}") from error
    return model


def _executor(function: Callable[..., Any], names: tuple[str, ...], injected: tuple[str, ...]) -> ExecuteTool:
    is_async = inspect.iscoroutinefunction(_routine(function))

    async def execute(arguments: Any, context: ToolContext) -> Any:
        given = {name: getattr(arguments, f"parameter_{name}") for name in names}
        if is_async:
            return await function(**given, **dict.fromkeys(injected, context))
        reports = _ThreadReports(context)
        try:
            return await anyio.to_thread.run_sync(
                lambda: function(**given, **dict.fromkeys(injected, reports.context)), abandon_on_cancel=True
            )
        finally:
            reports.is_open = False

    return execute


class _ThreadReports:
    """Carries `report` from the thread to the loop; what an abandoned thread still reports is dropped."""

    def __init__(self, context: ToolContext) -> None:
        self.is_open = True
        self._report = context.report
        self.context = replace(context, report=self._from_thread)

    def _from_thread(self, text: str) -> None:
        from anyio import from_thread  # noqa: PLC0415 - 20 ms that only a reporting thread needs

        if self.is_open:
            from_thread.run_sync(self._in_loop, text)

    def _in_loop(self, text: str) -> None:
        if self.is_open:
            self._report(text)
