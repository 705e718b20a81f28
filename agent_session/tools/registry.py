"""The tools of one session: which there are, in which order, and what a model is told of them.

The rule: the order is the order in which tools were given, whatever was switched on or off since, and a
tool's definition is made once; so equal sets of tools are equal bytes in every request, and a provider's
prefix cache stays warm.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any, TypeAlias

from pydantic import BaseModel, PydanticUserError
from pydantic.json_schema import GenerateJsonSchema

from agent_session.errors import SettingsError, ToolError
from agent_session.llm.client import ToolDefinition
from agent_session.tools.coding import coding_tools
from agent_session.tools.decorator import tool as make_tool
from agent_session.tools.types import Tool

ToolSpecifier: TypeAlias = str | Tool | Callable[..., Any]
"""What `tools=` takes: the name of a built-in tool, `"default"` for all of them, a `Tool`, or a function."""

DEFAULT = "default"

# What the providers accept, and the narrowest of them decides.
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")

# Below these keys of a schema the keys are names, not keywords; and below those the value is data.
_NAMED = ("properties", "$defs", "definitions", "patternProperties", "dependentSchemas")
_DATA = ("default", "enum", "const", "examples")


class ToolRegistry:
    """Tools by name, in order."""

    def __init__(self, tools: Sequence[Tool] = ()) -> None:
        """Raises: SettingsError, see `add`."""
        self._tools: dict[str, Tool] = {}
        self._definitions: dict[str, ToolDefinition] = {}
        for tool in tools:
            self.add(tool)

    @classmethod
    def resolve(cls, tools: Sequence[ToolSpecifier] | None = None, *, always: Sequence[Tool] = ()) -> ToolRegistry:
        """The registry for what a program gave as `tools=`; None is the coding tools.

        Where there are tools at all, those of `always` follow them, unless they were given themselves, by name or by
        a tool of that name. An empty sequence is no tools: some models take none.

        Raises:
            SettingsError: an unknown name (the text lists the known ones), a name twice, or what `add` refuses.
        """
        if isinstance(tools, str):
            raise SettingsError("tools", f"must be a sequence, for example [{tools!r}], not the string {tools!r}")
        specified = coding_tools() if tools is None else tuple(_specified(tools, always))
        given = {tool.name for tool in specified}
        return cls((*specified, *(tool for tool in always if specified and tool.name not in given)))

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._tools)

    def add(self, tool: ToolSpecifier) -> Tool:
        """Append a tool (or make one of a function) and return it.

        Raises:
            SettingsError: the name is taken, or not one that providers accept; or the parameters cannot be
                told to a model: no JSON schema of type object, or none can be made of the model.
        """
        (added,) = _specified([tool])
        if added.name in self._tools:
            raise SettingsError("tools", f"there are two tools named {added.name!r}; leave one out, or rename it")
        self._definitions[added.name] = _definition(added)
        self._tools[added.name] = added
        return added

    def remove(self, name: str) -> None:
        """Take a tool out. Raises: ToolError, see `get`."""
        self.get(name)
        del self._tools[name], self._definitions[name]

    def get(self, name: str) -> Tool:
        """The tool of that name.

        Raises:
            ToolError: there is none; the text, which the model is told, lists those there are.
        """
        try:
            return self._tools[name]
        except KeyError:
            raise ToolError(f"there is no tool {name!r}; the tools are: {', '.join(self._tools) or 'none'}") from None

    def definitions(self, active: Sequence[str] | None = None) -> tuple[ToolDefinition, ...]:
        """What a model is told, in the registry's order; of the `active` names only, where given.

        Raises:
            SettingsError: an active name is unknown.
        """
        if active is None:
            return tuple(self._definitions.values())
        for name in active:
            if name not in self._definitions:
                raise SettingsError("active tools", _unknown(name, self.names))
        return tuple(definition for name, definition in self._definitions.items() if name in active)

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    def __len__(self) -> int:
        return len(self._tools)


def _specified(tools: Sequence[ToolSpecifier], always: Sequence[Tool] = ()) -> Iterator[Tool]:
    by_default = coding_tools()
    built_in = {tool.name: tool for tool in (*by_default, *always)}
    for item in tools:
        if isinstance(item, Tool):
            yield item
        elif item == DEFAULT:
            yield from by_default
        elif isinstance(item, str):
            if item not in built_in:
                raise SettingsError("tools", _unknown(item, (DEFAULT, *built_in)))
            yield built_in[item]
        elif callable(item):
            yield make_tool(item)
        else:
            raise SettingsError("tools", f"{item!r} is no tool: give a name, a Tool or a function")


def _unknown(name: str, known: Sequence[str]) -> str:
    return f"there is no tool {name!r}; known are: {', '.join(known) or 'none'}"


def _definition(tool: Tool) -> ToolDefinition:
    if not _NAME.fullmatch(tool.name):
        raise SettingsError("tools", f"the name {tool.name!r} must be 1 to 64 letters, digits, '_' or '-'")
    return ToolDefinition(name=tool.name, description=tool.description, parameters=_schema(tool))


def _schema(tool: Tool) -> dict[str, Any]:
    parameters: Any = tool.parameters  # a program may give anything
    if isinstance(parameters, type) and issubclass(parameters, BaseModel):
        try:
            schema: dict[str, Any] = _plain(parameters.model_json_schema(schema_generator=_QuietJsonSchema))
        except PydanticUserError as error:
            raise SettingsError("tools", f"no JSON schema for the parameters of {tool.name!r}: {error}") from error
        return schema
    if not isinstance(parameters, Mapping) or parameters.get("type") != "object":
        raise SettingsError(
            "tools",
            f"the parameters of {tool.name!r} must be a pydantic model, or a JSON schema of type object such as "
            f'{{"type": "object", "properties": {{}}}}',
        )
    return deepcopy(dict(parameters))


class _QuietJsonSchema(GenerateJsonSchema):
    """Leaves out a default that is no JSON without a warning: the model need not know it."""

    ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012 - pydantic's own attribute


def _plain(schema: Any, *, keys_are_names: bool = False) -> Any:
    """A schema of pydantic's with what costs tokens in every request and says nothing left out.

    Gone are the titles derived from names; and `T | None = None`, which a field that is not required says
    already, is T: some providers refuse unions.
    """
    if isinstance(schema, list):
        return [_plain(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if keys_are_names:
        return {name: _plain(value) for name, value in schema.items()}
    plain: dict[str, Any] = {}
    for key, value in schema.items():
        if key in _DATA:
            plain[key] = value
        elif key != "title":
            plain[key] = _plain(value, keys_are_names=key in _NAMED)
    match plain:
        case {"anyOf": [dict(only), {"type": "null"}], "default": None, **rest}:
            return {**only, **rest}
        case _:
            return plain
