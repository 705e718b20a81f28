"""What a type checker knows of handlers: mypy --strict over programs that are right, and lines that are wrong."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path
from typing import get_args, get_overloads, get_type_hints

import pytest

import agent_session
from agent_session.events import NOTIFICATIONS
from agent_session.extending.on import N, On
from agent_session.hooks import DECISIONS, EVENTS

PREAMBLE = """
from collections.abc import Callable
from agent_session.compaction.types import CompactionResult
from agent_session.extending.api import ExtensionAPI
from agent_session.extending.context import ExtensionContext
from agent_session.events import AgentEnd, CompactionEnd, Event, Warning
from agent_session.hooks import (
    BeforeCompact, Block, ChangedArguments, Input, MessageEnd, SessionCompact, Summarize, ToolCallEvent, Veto,
)
from session_store.messages import Message

"""

RIGHT = """
def setup(api: ExtensionAPI) -> None:
    @api.on("before_compact")
    async def both(event: BeforeCompact, ctx: ExtensionContext) -> Veto | CompactionResult | None:
        if event.reason == "manual" and ctx.session_name == "scratch":
            return Veto("scratch sessions are not compacted")
        return await event.summarize(instructions="Only decisions.")

    @api.on(BeforeCompact)
    def by_class(event: BeforeCompact) -> Summarize | None:
        return None

    @api.on("tool_call", timeout=None)
    def gate(event: ToolCallEvent) -> Block | ChangedArguments | None:
        return Block("no") if event.tool_name == "bash" else None

    @api.on("message_end")
    def replace(event: MessageEnd) -> Message:
        return event.message

    @api.on("agent_end")
    async def told(event: AgentEnd) -> None: ...

    @api.on(CompactionEnd, timeout=2.5)
    def ended(event: CompactionEnd, ctx: ExtensionContext) -> None: ...

    @api.on("turn_start")
    def anything(event: Event) -> None: ...

    # Decorated handlers stay what they were.
    async def test(event: BeforeCompact, ctx: ExtensionContext) -> None:
        await both(event, ctx)
        summary: Summarize | Veto | CompactionResult | None = by_class(event)

    off: Callable[[], None] = api.on("before_compact", lambda event, ctx: Veto() if event.will_retry else None)
    off()
    api.on(Warning, lambda event: print(event.text))
    api.on("input", told_of_input)()

async def told_of_input(event: Input) -> None: ...
"""

WRONG = {
    "an unknown event": 'api.on("before_compat")',
    "a name of another system": 'api.on("session_before_compact", veto)',
    "an answer of another event": 'api.on("before_compact", block)',
    "an answer of another event, by class": "api.on(BeforeCompact, block)",
    "an answer of another event, decorating": 'api.on("before_compact")(block)',
    "an answer to a notification": 'api.on("agent_end", answer_to_notification)',
    "an answer to a notification, by class": "api.on(AgentEnd, answer_to_notification)",
    "another event": 'api.on("session_compact", veto)',
    "another event, decorating": "api.on(SessionCompact)(veto)",
    "three parameters": 'api.on("before_compact", three)',
    "a limit that is none": 'api.on("before_compact", veto, timeout="1 s")',
}

HANDLERS = """
async def block(event: BeforeCompact) -> Block: return Block("no")
async def veto(event: BeforeCompact) -> Veto: return Veto()
def answer_to_notification(event: AgentEnd) -> Veto: return Veto()
def three(event: BeforeCompact, ctx: ExtensionContext, more: int) -> None: ...

def setup(api: ExtensionAPI) -> None:
"""


@pytest.fixture(scope="module")
def errors_by_line(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """mypy's errors by the text of their line, for both programs in one run."""
    folder = tmp_path_factory.mktemp("typing")
    right = folder / "right.py"
    right.write_text(PREAMBLE + RIGHT)
    wrong = folder / "wrong.py"
    wrong.write_text(PREAMBLE + HANDLERS + textwrap.indent("\n".join(WRONG.values()), "    ") + "\n")
    repository = Path(agent_session.__file__).parent.parent
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", f"--cache-dir={folder / 'cache'}"]
    result = subprocess.run(
        [*command, "--hide-error-context", str(right), str(wrong)],
        check=False,
        cwd=repository,
        env={"MYPYPATH": str(repository), "PATH": ""},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert result.returncode in (0, 1), result.stdout + result.stderr
    errors: dict[str, list[str]] = {}
    for line in result.stdout.splitlines():
        path, _, rest = line.partition(":")
        number, _, text = rest.partition(":")
        if " error:" in text:
            source = Path(path).read_text().splitlines()[int(number) - 1].strip()
            errors.setdefault(source, []).append(f"{Path(path).name}: {text}")
    return errors


@pytest.mark.slow
def test_right_handlers_pass_strict_checking(errors_by_line: dict[str, list[str]]):
    # Mutation: swap two answers in `on.py` -> an error here.
    assert [text for texts in errors_by_line.values() for text in texts if not text.startswith("wrong.py")] == []


@pytest.mark.slow
@pytest.mark.parametrize("what", sorted(WRONG))
def test_a_wrong_handler_is_an_error(what: str, errors_by_line: dict[str, list[str]]):
    # Mutation: add an overload that takes any event and handler -> none of these is an error.
    assert WRONG[what] in errors_by_line


def test_every_event_has_its_overload_and_its_answers():
    known: dict[str, type] = {}
    for overload in get_overloads(On.__call__):
        hints = get_type_hints(overload)
        event, answer = get_args(hints["return"])
        names = [value for member in (hints["event"], *get_args(hints["event"])) for value in get_args(member)]
        name = next((value for value in names if isinstance(value, str)), None)
        if name is None:
            assert event is N
            continue
        assert EVENTS[name] is event
        known[name] = event
        if name in DECISIONS and name != "message_end":
            # Mutation: leave an answer out of its alias -> the two differ.
            assert set(get_args(answer) or (answer,)) == set(DECISIONS[name].answers)
    # Mutation: take an overload or a member of `N` away -> it is missing here.
    assert set(known) == set(EVENTS)
    assert set(N.__constraints__) == set(NOTIFICATIONS.values())
