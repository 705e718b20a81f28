"""One call of a tool: the model's arguments in, the tool's result out.

The rule: what is refused here is refused in words the model can act on (which field, what was wrong, what
was got), as a `ToolError`; and the arguments that were given are never changed, because the log, the
screen and the next request show the same object.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError, to_json

from agent_session.errors import ToolError
from agent_session.tools.types import Tool, ToolResult
from session_store.json_lines import replace_surrogates
from session_store.messages import ImageContent, TextContent, ThinkingContent, ToolCall, UnknownContent

SHOWN_VALUE_CHARACTERS = 80

_BLOCKS = (TextContent, ImageContent, ThinkingContent, ToolCall, UnknownContent)

_JSON_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list,),
    "null": (type(None),),
}


def validate_call(tool: Tool, call: ToolCall) -> Any:
    """`validate` for a call as the model made it.

    Raises:
        ToolError: the arguments were not valid JSON (`rawArguments` in the call's `extra`), or do not fit.
    """
    raw = (call.extra or {}).get("rawArguments")
    if raw is not None:
        raise ToolError(
            f"the arguments of {tool.name} were not valid JSON, so it did not run: {_shown(raw)}. "
            f"Call it again with a complete JSON object"
        )
    return validate(tool, call.arguments)


def validate(tool: Tool, arguments: Mapping[str, Any]) -> Any:
    """What `tool.execute` takes: an instance of its pydantic model, or a dict of its own.

    Against a JSON schema `type`, `required`, `enum`, `properties`, `items` and a false
    `additionalProperties` are checked; everything else in a schema is the tool's own affair.

    Raises:
        ToolError: the arguments do not fit; the text lists every field in the way.
    """
    if not isinstance(arguments, Mapping):
        raise ToolError(f"the arguments of {tool.name} must be a JSON object, not {_shown(arguments)}")
    own = deepcopy(dict(arguments))
    if isinstance(tool.parameters, Mapping):
        problems = list(_schema_problems(tool.parameters, own, ""))
        if problems:
            raise _refusal(tool, problems)
        return own
    try:
        return tool.parameters.model_validate(own)
    except ValidationError as error:
        raise _refusal(tool, [_problem(detail) for detail in error.errors(include_url=False)]) from error


def as_result(value: Any) -> ToolResult:
    """What a tool returned, as a `ToolResult`: text and blocks as they are, None as no output, the rest as JSON.

    Raises:
        ToolError: the value is no JSON.
    """
    if isinstance(value, ToolResult):
        return value
    if value is None:
        return ToolResult()
    if isinstance(value, str):
        return ToolResult(value)
    if isinstance(value, _BLOCKS):
        return ToolResult((value,))
    if isinstance(value, (list, tuple)) and value and all(isinstance(item, _BLOCKS) for item in value):
        return ToolResult(tuple(value))
    try:
        return ToolResult(to_json(value).decode())
    except PydanticSerializationError:
        pass
    try:
        return ToolResult(replace_surrogates(json.dumps(value, ensure_ascii=False)))
    except (TypeError, ValueError) as error:
        raise ToolError(f"the tool returned a {type(value).__name__} that is neither text nor JSON: {error}") from error


def _refusal(tool: Tool, problems: Sequence[str]) -> ToolError:
    lines = "\n".join(f"- {problem}" for problem in problems)
    return ToolError(f"the arguments of {tool.name} do not fit, so it did not run:\n{lines}\n{_expected(tool)}")


def _expected(tool: Tool) -> str:
    schema = tool.parameters if isinstance(tool.parameters, Mapping) else tool.parameters.model_json_schema()
    required = schema.get("required", ())
    fields = [f"{name} (required)" if name in required else name for name in schema.get("properties", {})]
    return f"It takes: {', '.join(fields) or 'no arguments'}"


def _problem(detail: Any) -> str:
    """One of pydantic's errors, with the field first."""
    where = _path(detail["loc"])
    if detail["type"] == "missing":
        return f"{where}: required, but missing"
    if detail["type"] == "extra_forbidden":
        return f"{where}: there is no such field"
    message = detail["msg"]
    return f"{where}: {message[:1].lower()}{message[1:]}; got {_shown(detail['input'])}"


def _path(steps: Sequence[int | str]) -> str:
    path = ""
    for step in steps:
        path += f"[{step}]" if isinstance(step, int) else f".{step}" if path else step
    return path or "arguments"


def _shown(value: Any) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False, default=repr)
    except (TypeError, ValueError):
        text = repr(value)
    text = replace_surrogates(text)
    return (
        text if len(text) <= SHOWN_VALUE_CHARACTERS else f"{text[:SHOWN_VALUE_CHARACTERS]}… ({len(text):,} characters)"
    )


def _schema_problems(schema: Mapping[str, Any], value: Any, where: str) -> Iterator[str]:
    declared = schema.get("type", ())
    types = (declared,) if isinstance(declared, str) else tuple(declared)
    if types and not any(_has_type(value, name) for name in types):
        yield f"{where or 'arguments'}: must be {' or '.join(types)}; got {_shown(value)}"
        return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{where or 'arguments'}: must be one of {_shown(schema['enum'])}; got {_shown(value)}"
    if isinstance(value, dict):
        properties: Mapping[str, Any] = schema.get("properties", {})
        for name in schema.get("required", ()):
            if name not in value:
                yield f"{f'{where}.{name}' if where else name}: required, but missing"
        for name, item in value.items():
            inner = f"{where}.{name}" if where else name
            if isinstance(properties.get(name), Mapping):
                yield from _schema_problems(properties[name], item, inner)
            elif name not in properties and schema.get("additionalProperties") is False:
                yield f"{inner}: there is no such field"
    if isinstance(value, list) and isinstance(schema.get("items"), Mapping):
        for index, item in enumerate(value):
            yield from _schema_problems(schema["items"], item, f"{where}[{index}]")


def _has_type(value: Any, name: str) -> bool:
    if isinstance(value, bool):  # bool is an int in Python, and is not one in JSON
        return name == "boolean"
    if name == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _JSON_TYPES.get(name, (object,)))
