"""The tools of a session, and what a model is told of them."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from pydantic import BaseModel, Field

from agent_session.errors import SettingsError, ToolError
from agent_session.tools import Tool, ToolContext, ToolRegistry, coding_tools, tool


async def nothing(arguments: Any, context: ToolContext) -> None:
    return None


def made(name: str, parameters: Any = None) -> Tool:
    return Tool(name, "A tool.", parameters or {"type": "object", "properties": {}}, nothing)


def test_none_and_default_are_the_coding_tools():
    assert ToolRegistry.resolve(None).names == (
        "read", "write", "edit", "bash", "grep", "find", "ls",
    )  # fmt: skip
    assert ToolRegistry.resolve(["default"]).names == tuple(item.name for item in coding_tools())
    assert ToolRegistry.resolve([]).names == ()


def test_names_tools_and_functions_keep_their_order():
    def function(x: int) -> int:
        return x

    registry = ToolRegistry.resolve(["bash", made("own"), function, tool(name="other")(function), "read"])
    assert registry.names == ("bash", "own", "function", "other", "read")
    assert registry.get("bash") is coding_tools()[3]
    assert "own" in registry
    assert len(registry) == 5


def test_default_stands_for_all_of_them_among_others():
    assert ToolRegistry.resolve([made("first"), "default", made("last")]).names == (
        "first", "read", "write", "edit", "bash", "grep", "find", "ls", "last",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("tools", "why"),
    [
        (["grap"], "no tool 'grap'; known are: default, read, write, edit, bash, grep, find, ls"),
        (["read", "read"], "two tools named 'read'"),
        (["default", "bash"], "two tools named 'bash'"),
        (["bash", made("bash")], "two tools named 'bash'"),
        ("read", r"a sequence, for example \['read'\]"),
        ([3], "3 is no tool"),
        ([made("a b")], "'a b' must be 1 to 64 letters"),
        ([made("")], "must be 1 to 64"),
        ([made("x" * 65)], "must be 1 to 64"),
        ([made("x", {"properties": {}})], "JSON schema of type object"),
        ([Tool("x", "", 3, nothing)], "JSON schema of type object"),  # type: ignore[arg-type]
    ],
)
def test_what_cannot_be_a_session_s_tools_is_refused(tools: Any, why: str):
    with pytest.raises(SettingsError, match=why):
        ToolRegistry.resolve(tools)


def test_an_unknown_tool_is_answered_with_those_there_are():
    with pytest.raises(ToolError, match="there is no tool 'grep'; the tools are: read, bash"):
        ToolRegistry.resolve(["read", "bash"]).get("grep")


def test_tools_come_and_go_at_run_time():
    registry = ToolRegistry.resolve(["read"])
    added = registry.add(made("own"))
    assert registry.get("own") is added
    with pytest.raises(SettingsError, match="two tools named 'own'"):
        registry.add(made("own"))
    registry.remove("own")
    assert registry.names == ("read",)
    with pytest.raises(ToolError):
        registry.remove("own")


# Mutation: `definitions` in the order of `active`.
def test_the_order_is_the_registry_s_whatever_is_active():
    registry = ToolRegistry.resolve(None)
    some = registry.definitions(["bash", "read"])
    assert [definition.name for definition in some] == ["read", "bash"]
    assert registry.definitions(["read", "bash"]) == some
    with pytest.raises(SettingsError, match="no tool 'grap'; known are: read, write, edit, bash, grep, find, ls"):
        registry.definitions(["grap"])


def as_bytes(registry: ToolRegistry) -> str:
    return json.dumps([[item.name, item.description, dict(item.parameters)] for item in registry.definitions()])


# Mutation: `_schema` goes through a set; or definitions are made anew and a default is `object()`.
def test_equal_tools_are_equal_bytes_in_every_process():
    program = (
        "import json; from tests.tools.test_registry import as_bytes; from agent_session.tools import ToolRegistry\n"
        "print(as_bytes(ToolRegistry.resolve(None)))"
    )
    here = as_bytes(ToolRegistry.resolve(None))
    assert as_bytes(ToolRegistry.resolve(["default"])) == here
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
        )  # fmt: skip
        assert done.stdout.strip() == here


def test_the_schemas_of_the_coding_tools_are_these():
    schemas = {item.name: item.parameters for item in ToolRegistry.resolve(None).definitions()}
    fields = {name: (list(schema["properties"]), schema.get("required", [])) for name, schema in schemas.items()}
    assert fields == {
        "read": (["path", "offset", "limit"], ["path"]),
        "write": (["path", "content"], ["path", "content"]),
        "edit": (["path", "old_text", "new_text"], ["path", "old_text", "new_text"]),
        "bash": (["command", "timeout"], ["command"]),
        "grep": (["pattern", "path", "glob", "ignore_case", "literal", "context", "limit"], ["pattern"]),
        "find": (["pattern", "path", "limit"], ["pattern"]),
        "ls": (["path", "limit"], []),
    }
    assert schemas["read"]["properties"]["offset"] == {
        "type": "integer", "minimum": 1, "description": "The first line to read, counted from 1",
    }  # fmt: skip
    assert "title" not in json.dumps(schemas)


# Mutation: `_plain` without `keys_are_names`, or without `_DATA`.
def test_fields_and_values_called_title_are_no_titles():
    class Inner(BaseModel):
        title: str = "x"

    class Book(BaseModel):
        title: str
        inner: Inner
        properties: dict[str, int] = Field(default={"title": 1})
        subtitle: str | None = None

    (definition,) = ToolRegistry([made("book", Book)]).definitions()
    assert definition.parameters == {
        "$defs": {"Inner": {"properties": {"title": {"default": "x", "type": "string"}}, "type": "object"}},
        "properties": {
            "title": {"type": "string"},
            "inner": {"$ref": "#/$defs/Inner"},
            "properties": {"additionalProperties": {"type": "integer"}, "default": {"title": 1}, "type": "object"},
            "subtitle": {"type": "string"},
        },
        "required": ["title", "inner"],
        "type": "object",
    }


# Mutation: `_schema` returns the given mapping itself.
def test_a_schema_that_is_changed_afterwards_is_not_changed_here():
    schema: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "string"}}}
    registry = ToolRegistry([made("own", schema)])
    schema["properties"]["b"] = {}
    assert registry.definitions()[0].parameters["properties"] == {"a": {"type": "string"}}
