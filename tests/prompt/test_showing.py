"""What values look like at a prompt and in a notebook."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any, get_args

import pytest
from typing_extensions import override

from agent_session import (
    AgentSession,
    AssistantMessage,
    CompactionOutcome,
    Cost,
    SessionManager,
    SyncSession,
    TextContent,
    ToolCall,
    Usage,
    UserMessage,
)
from agent_session.testing import ScriptedModel, reply
from session_store.entries import CompactionEntry, Entry, MessageEntry, SessionHeader
from session_store.messages import Message
from session_store.totals import UsageSum

EVIL = "\x1b[2J<script>\nalert(1)\r\x07" + "very long " * 200
KINDS = [*get_args(Message), *get_args(Entry), SessionHeader, Usage, Cost, UsageSum]


class Table(HTMLParser):
    """The text of an HTML table's cells; refuses tags that no table of ours has."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.cells: list[str] = []
        self.feed(text)

    @override
    def handle_starttag(self, tag: str, attrs: object) -> None:
        assert tag in {"table", "caption", "tr", "th", "td", "br"}
        if tag in {"caption", "th", "td"}:
            self.cells.append("")

    @override
    def handle_data(self, data: str) -> None:
        self.cells[-1] += data


def evil(kind: type[Any]) -> Any:
    """A value of the kind with the same hostile text in every field that takes text."""

    def values() -> Iterator[tuple[str, Any]]:
        for field in dataclasses.fields(kind):
            declared = str(field.type)
            if declared.startswith("str"):
                yield field.name, EVIL
            elif "Content" in declared:
                yield field.name, (TextContent(EVIL),)
            elif declared == "Message":
                yield field.name, UserMessage(content=(TextContent(EVIL),))
            elif declared == "Usage":
                yield field.name, Usage(1, 2)
            elif declared in ("Json", "Any"):
                yield field.name, {EVIL: EVIL}

    return kind(**dict(values()))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_whatever_is_in_a_value_it_is_one_short_line_and_a_table_of_text(kind: type[Any]) -> None:
    # Mutation: do not clean the line in `Shown.__repr__`, or do not escape in `table`.
    value = evil(kind)
    line = repr(value)
    assert re.fullmatch(rf"<{kind.__name__}[^\x00-\x1f\x7f-\x9f]*>", line)
    assert len(line) < 260
    cells = Table(value._repr_html_()).cells
    assert cells[0] == kind.__name__
    assert all(len(cell) < 2_000 for cell in cells)


def test_the_lines_say_what_matters() -> None:
    # Mutation: leave the cost, a call or the reason out of its line.
    usage = Usage(1_000, 200, 30, cost=Cost(total=0.0123))
    answer = AssistantMessage(
        content=(TextContent("Let me look."), ToolCall("1", "read", {})), provider="openai", model="gpt", usage=usage
    )
    assert repr(usage) == "<Usage 1,230 tokens (1,000 input, 30 cache read, 200 output), $0.0123>"
    assert repr(answer) == '<AssistantMessage stop, openai/gpt, calls read: "Let me look.">'
    assert repr(MessageEntry(id="a1", parent_id=None, timestamp="", message=answer)) == f"<MessageEntry a1 {answer!r}>"
    entry = CompactionEntry(
        id="b2", parent_id="a1", timestamp="", summary="## Goal", first_kept_entry_id="a1", tokens_before=9_000,
        tokens_after=800, reason="manual", method="model",
    )  # fmt: skip
    assert repr(entry) == '<CompactionEntry b2 (manual, model): 9,000 -> 800 tokens, "## Goal">'


def test_an_outcome_is_its_line_and_its_table_has_the_numbers() -> None:
    # Mutation: leave the fields out of the table.
    outcome = CompactionOutcome(
        status="applied", reason="manual", method="model", tokens_before=148_211, tokens_after=21_904,
        entries_summarized=412, cost=0.0411,
    )  # fmt: skip
    assert repr(outcome) == "applied (manual, model): 148,211 -> 21,904 tokens, 412 entries summarised, $0.0411"
    assert {"tokens before", "148,211", "entries summarized", "412"} <= set(Table(outcome._repr_html_()).cells)


async def test_a_session_shows_its_state_its_context_and_what_it_spent() -> None:
    # Mutation: show the table of a session as it was opened, or open a session by showing it.
    async with ScriptedModel([reply("Hello.", usage=(900, 0, 0, 100))], context_window=10_000) as model:
        session = AgentSession(model.model, client=model, tools=(), session_manager=SessionManager.in_memory())
        assert repr(session) == "<AgentSession, not opened>"
        assert Table(session._repr_html_()).cells == ["session", "state", "not opened"]
        await session.prompt("Hi.")
        cells = Table(session._repr_html_()).cells
        assert {"idle", "scripted/model"} <= set(cells)
        assert "1,000 of 10,000 tokens (10 %, reported)" in cells[cells.index("context") + 1]
        assert "1,000 tokens" in cells[cells.index("spent") + 1]
        assert {"requests", "1"} <= set(Table(session.stats()._repr_html_()).cells)
        assert {"percent of the window", "10"} <= set(Table(session.context_usage()._repr_html_()).cells)
        await session.close()
        assert "closed" in Table(session._repr_html_()).cells


def test_a_session_of_its_own_thread_shows_the_same() -> None:
    # Mutation: name the other class in the line.
    model = ScriptedModel()
    session = SyncSession(model.model, client=model, session_manager=SessionManager.in_memory())
    assert repr(session) == "<SyncSession, not opened>"
    with session:
        assert re.fullmatch("<SyncSession [0-9a-f]+, scripted/model, idle>", repr(session))
        assert "idle" in Table(session._repr_html_()).cells
    assert "closed" in Table(session._repr_html_()).cells
