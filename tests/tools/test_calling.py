"""The model's arguments in, the tool's result out."""

from __future__ import annotations

from copy import deepcopy
from datetime import date
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict

from agent_session.errors import ToolError
from agent_session.tools import Tool, ToolContext, ToolResult, as_result, validate, validate_call
from agent_session.tools.bash import BASH
from agent_session.tools.edit import EDIT
from agent_session.tools.read import READ
from session_store.messages import ImageContent, TextContent, ToolCall


async def nothing(arguments: Any, context: ToolContext) -> None:
    return None


SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "days": {"type": ["integer", "null"]},
        "unit": {"enum": ["C", "F"]},
        "at": {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["city"],
    "additionalProperties": False,
}
WEATHER = Tool("weather", "The weather.", SCHEMA, nothing)


def refusal(tool: Tool, arguments: Any) -> str:
    with pytest.raises(ToolError) as refused:
        validate(tool, arguments)
    return str(refused.value)


def test_a_refusal_says_which_field_what_was_wrong_and_what_was_got():
    assert refusal(READ, {"offset": 0, "limit": "many", "file": "a.py"}) == (
        "the arguments of read do not fit, so it did not run:\n"
        "- path: required, but missing\n"
        "- offset: input should be greater than or equal to 1; got 0\n"
        '- limit: input should be a valid integer, unable to parse string as an integer; got "many"\n'
        "- file: there is no such field\n"
        "It takes: path (required), offset, limit"
    )
    assert "- old_text: required, but missing\n" in refusal(EDIT, {"path": "a", "new_text": ""})
    assert "- timeout: input should be greater than 0; got -1\n" in refusal(BASH, {"command": "ls", "timeout": -1})
    assert "- timeout: input should be a finite number" in refusal(BASH, {"command": "ls", "timeout": float("inf")})


def test_a_large_value_is_shown_short():
    text = refusal(READ, {"path": ["x" * 100_000]})
    assert len(text) < 400
    assert '["xxx' in text
    assert "(100,004 characters)" in text


def test_what_a_model_plainly_means_is_taken():
    assert validate(READ, {"path": "a", "offset": "3", "limit": None}).offset == 3
    assert validate(EDIT, {"path": "a", "oldText": "x", "newText": "y"}).old_text == "x"


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({}, "city: required, but missing"),
        ({"city": 3}, "city: must be string; got 3"),
        ({"city": "x", "days": "3"}, 'days: must be integer or null; got "3"'),
        ({"city": "x", "days": True}, "days: must be integer or null; got true"),
        ({"city": "x", "days": 1.5}, "days: must be integer or null; got 1.5"),
        ({"city": "x", "unit": "K"}, 'unit: must be one of ["C", "F"]; got "K"'),
        ({"city": "x", "at": {}}, "at.x: required, but missing"),
        ({"city": "x", "at": {"x": "1"}}, 'at.x: must be number; got "1"'),
        ({"city": "x", "tags": ["a", 1]}, "tags[1]: must be string; got 1"),
        ({"city": "x", "town": "y"}, "town: there is no such field"),
    ],
)
def test_arguments_are_checked_against_a_json_schema(arguments: dict[str, Any], problem: str):
    text = refusal(WEATHER, arguments)
    assert f"\n- {problem}\n" in text
    assert text.endswith("It takes: city (required), days, unit, at, tags")


def test_arguments_that_fit_a_json_schema_are_given_as_a_dict():
    arguments = {"city": "x", "days": 2.0, "unit": "C", "at": {"x": 1, "y": 2}, "tags": []}
    assert validate(WEATHER, arguments) == arguments


# Mutation: `validate` without deepcopy.
@pytest.mark.parametrize("parameters", [SCHEMA, None])
def test_the_given_arguments_are_never_changed(parameters: Any):
    class Loose(BaseModel):
        model_config = ConfigDict(extra="allow")
        at: Any

    given = {"city": "x", "at": {"x": 1}, "tags": ["a"]}
    before = deepcopy(given)
    own = validate(Tool("t", "", parameters or Loose, nothing), given)
    at = own["at"] if isinstance(own, dict) else own.at
    at["x"] = 2
    assert given == before


def test_arguments_that_are_no_object_are_refused():
    assert refusal(READ, ["a"]) == 'the arguments of read must be a JSON object, not ["a"]'


# Mutation: `validate_call` looks at `arguments` only: {} fits a tool that requires nothing.
def test_arguments_that_were_no_json_are_refused_as_such():
    harmless = Tool("list", "", {"type": "object", "properties": {}}, nothing)
    call = ToolCall("1", "list", {}, extra={"rawArguments": '{"path": "a'})
    with pytest.raises(
        ToolError, match=r"arguments of list were not valid JSON, so it did not run.*complete JSON object"
    ):
        validate_call(harmless, call)
    assert validate_call(harmless, ToolCall("1", "list", {})) == {}


class Answer(BaseModel):
    n: int


IMAGE = ImageContent("aGk=", "image/png")


@pytest.mark.parametrize(
    ("value", "content"),
    [
        ("text", "text"),
        (None, ""),
        (IMAGE, (IMAGE,)),
        ([TextContent("a"), IMAGE], (TextContent("a"), IMAGE)),
        ({"a": [1, None, True]}, '{"a":[1,null,true]}'),
        ([], "[]"),
        (0, "0"),
        (False, "false"),
        ("é", "é"),
        (Answer(n=1), '{"n":1}'),
        ({"on": date(2025, 1, 2)}, '{"on":"2025-01-02"}'),
        (2**70, str(2**70)),
        ({"a": "ok \ud83d"}, '{"a": "ok \ufffd"}'),
    ],
)
def test_what_a_tool_returns_becomes_a_result(value: Any, content: Any):
    assert as_result(value) == ToolResult(content)


def test_a_result_stays_what_it_is_and_no_output_says_so():
    result = ToolResult("x", details={"a": 1}, is_error=True, terminate=True)
    assert as_result(result) is result
    assert as_result(None).blocks == (TextContent("(no output)"),)


def test_a_value_that_is_no_json_is_refused():
    with pytest.raises(ToolError, match="the tool returned a object that is neither text nor JSON"):
        as_result(object())
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(ToolError, match="neither text nor JSON"):
        as_result(loop)
