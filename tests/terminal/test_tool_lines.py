"""A tool's call on the screen: what it is asked for when it begins, what came of it when it ends."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest

from agent_session.events import Event, ToolExecutionEnd, ToolExecutionStart
from agent_session.terminal.console import make_console
from agent_session.terminal.screen import Screen
from session_store.messages import TextContent

_STYLE = re.compile(r"\x1b\[[\d;]*m")
DIFF = "--- a/x.py\n+++ b/x.py\n@@ -1,3 +1,3 @@\n same\n-old\n+new\n same\n"


def begun(tool: str, call_id: str = "a", **arguments: Any) -> Event:
    return ToolExecutionStart(call_id=call_id, tool_name=tool, arguments=arguments)


def ended(tool: str, text: str, call_id: str = "a", *, is_error: bool = False, details: Any = None) -> Event:
    return ToolExecutionEnd(
        call_id=call_id,
        tool_name=tool,
        content=(TextContent(text),),
        is_error=is_error,
        duration=0.25,
        details=details,
    )


def lines_of(*events: Event, width: int = 80, is_terminal: bool = False) -> list[str]:
    file = io.StringIO()
    screen = Screen(make_console(file, is_terminal=is_terminal, width=width))
    for event in events:
        screen.listen(event)
    return [line.rstrip() for line in _STYLE.sub("", file.getvalue()).splitlines()]


def test_a_command_is_shown_whole_when_it_begins() -> None:
    # Mutation: show a call when it ends; or cut its command at 60 characters.
    command = "pytest -q tests/one_folder/test_a_module.py tests/another_folder/test_another_module.py -k units"
    assert lines_of(begun("bash", command=command)) == [f"  bash     {command}"]
    wrapped = lines_of(begun("bash", command=command), width=60, is_terminal=True)
    assert len(wrapped) == 3
    assert "".join(line[11:] + " " for line in wrapped).strip() == command


def test_of_a_command_of_many_lines_the_first_are_shown_and_the_rest_is_counted() -> None:
    # Mutation: show every line; or do not say that there are more.
    shown = lines_of(begun("bash", command="\n".join(f"echo {number}" for number in range(30)), timeout=5))
    assert shown[0] == "  bash     echo 0"
    assert shown[1:] == [*(f"           echo {number}" for number in range(1, 8)), "           ... 22 lines more"]


def test_of_what_a_command_printed_the_last_lines_are_shown_and_its_end() -> None:
    # Mutation: show the first lines; or show them below the outcome.
    printed = "\n".join(f"test {number}" for number in range(8))
    shown = lines_of(begun("bash", command="make"), ended("bash", f"{printed}\n\n[exit code 2]", is_error=True))
    assert shown == [
        "  bash     make",
        "           ... 3 lines before",
        *(f"           test {number}" for number in range(3, 8)),
        "           failed, exit code 2, 0.25 s",
    ]


def test_a_long_line_of_output_takes_one_line_of_the_screen() -> None:
    # Mutation: leave out `truncate`.
    assert lines_of(ended("bash", f"{'x' * 500}\n\n[exit code 0]"), width=40, is_terminal=True)[0] == (
        "  bash     " + "x" * 29
    )


def test_an_edit_shows_what_it_changed_and_a_write_how_much_it_wrote() -> None:
    # Mutation: leave `details` out of the event; or show the old and the new text as arguments.
    edit = begun("edit", path="x.py", old_text="old", new_text="new"), ended("edit", "Replaced", details={"diff": DIFF})
    assert lines_of(*edit) == [
        "  edit     x.py",
        "           @@ -1,3 +1,3 @@",
        "           -old",
        "           +new",
        "           ok, +1 -1 lines, 0.25 s",
    ]
    written = ended("write", "Created", details={"bytes": 1_233, "created": True})
    assert lines_of(begun("write", path="x.py", content="a" * 1_233), written) == [
        "  write    x.py",
        "           ok, 1,233 bytes created, 0.25 s",
    ]


def test_of_a_long_diff_the_beginning_is_shown_and_the_rest_is_counted() -> None:
    # Mutation: show the whole diff.
    diff = "--- a\n+++ b\n@@ -0,0 +1,40 @@\n" + "".join(f"+{number}\n" for number in range(40))
    shown = lines_of(begun("edit", path="x.py"), ended("edit", "Replaced", details={"diff": diff}))
    assert len(shown) == 15
    assert shown[-2:] == ["           ... 29 lines more", "           ok, +40 -0 lines, 0.25 s"]


def test_results_that_come_in_another_order_name_their_call() -> None:
    # Mutation: always leave the name out of the line of the end.
    shown = lines_of(
        begun("read", "a", path="a.txt"),
        begun("read", "b", path="b.txt"),
        ended("read", "one", "a"),
        ended("read", "b.txt: no such file", "b", is_error=True),
    )
    assert shown == [
        "  read     a.txt",
        "  read     b.txt",
        "  read     a.txt  ok, 1 line, 0.25 s",
        "  read     b.txt  failed, b.txt: no such file, 0.25 s",
    ]


def test_a_tool_that_nobody_knows_shows_its_arguments_by_name() -> None:
    # Mutation: show the values alone; or all of a long one.
    assert lines_of(begun("lookup", label="bug", limit=3)) == ["  lookup   label='bug' limit=3"]
    assert len(lines_of(begun("lookup", label="x" * 5_000))[0]) < 250


@pytest.mark.parametrize("evil", ["\x1b[2J", "\x9b31m", "\x07"])
def test_neither_a_command_nor_its_output_can_command_the_terminal(evil: str) -> None:
    # Mutation: in `subject` or in `result_lines` leave out `printable`.
    events = [
        begun("bash", command=f"a{evil}b"),
        begun("read", "b", path="b.txt"),
        ended("bash", f"c{evil}d\n\n[exit code 0]"),
        ended("edit", "x", details={"diff": f"--- a\n+++ b\n@@ -1 +1 @@\n+e{evil}f\n"}),
        ended("lookup", f"g{evil}h", is_error=True),
    ]
    assert evil[0] not in "\n".join(lines_of(*events))


def test_details_of_another_shape_are_no_reason_to_fail() -> None:
    # Mutation: take `details["diff"]` for a text whatever it is.
    shapes: tuple[Any, ...] = (None, [], {"diff": 3}, {"diff": ""}, {"bytes": "many"})
    for details in shapes:
        for tool in ("edit", "write", "bash", "read"):
            assert lines_of(ended(tool, "x", details=details))[-1].endswith(", 0.25 s")
