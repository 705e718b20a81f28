"""What values look like at a prompt and in a notebook."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from typing import Any, get_args

import pytest
from typing_extensions import override

import agent_session
import agent_session.testing
import session_store
from agent_session import (
    AgentSession,
    AgentSettled,
    AssistantMessage,
    CompactionOutcome,
    CompactionSettings,
    Cost,
    Event,
    MessageUpdate,
    Model,
    ModelRequestError,
    QueueUpdate,
    SessionManager,
    Settings,
    SyncSession,
    TextContent,
    ToolCall,
    Usage,
    UserMessage,
)
from agent_session.testing import ScriptedModel, fail, hang, reply
from session_store.entries import CompactionEntry, Entry, MessageEntry, SessionHeader
from session_store.messages import Message
from session_store.showing import Brief
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


def public_classes() -> list[type]:
    """Every public class whose objects a person may have at hand."""
    modules: tuple[Any, ...] = (agent_session, session_store, agent_session.testing)
    found = {value for module in modules for name in module.__all__ if isinstance(value := getattr(module, name), type)}
    return sorted((kind for kind in found if not getattr(kind, "_is_protocol", False)), key=lambda kind: kind.__name__)


@pytest.mark.parametrize("kind", public_classes(), ids=lambda kind: kind.__name__)
def test_no_public_object_is_shown_by_its_address_or_with_all_that_it_holds(kind: type) -> None:
    # Mutation: take the `__repr__` of RunHandle away, or `repr=False` from an event.
    shows: object = kind.__repr__
    assert shows is not object.__repr__
    assert not hasattr(shows, "__wrapped__"), "made by `dataclass`, without a bound"


@pytest.mark.parametrize(
    "kind", [kind for kind in public_classes() if issubclass(kind, Brief)], ids=lambda kind: kind.__name__
)
def test_what_is_shown_by_its_fields_is_one_short_line_whatever_they_hold(kind: Any) -> None:
    # Mutation: do not bound the line.
    huge = kind.__new__(kind)
    for field in dataclasses.fields(kind):
        object.__setattr__(huge, field.name, {EVIL: (EVIL,) * 1_000})
    assert re.fullmatch(rf"{kind.__name__}\([^\x00-\x1f\x7f-\x9f]*\)", repr(huge))
    assert len(repr(huge)) < 300


def test_a_field_that_holds_much_leaves_room_for_those_after_it() -> None:
    # Mutation: show fields as they are, and cut only the line.
    line = repr(QueueUpdate(steering=("Look at the parser. " * 50,), follow_up=("Then rest.",)))
    assert line.startswith("QueueUpdate(steering=('Look at")
    assert line.endswith("follow_up=('Then rest.',))")


def test_fields_that_have_their_default_are_left_out() -> None:
    # Mutation: show them all.
    assert repr(Model("openai/gpt-5-mini", images=True)) == "Model(id='openai/gpt-5-mini', images=True)"
    assert repr(AgentSettled(aborted=True)) == "AgentSettled(aborted=True)"
    assert repr(Settings()) == "Settings()"
    compaction = CompactionSettings(reserve_tokens=9_000, enabled=True)
    assert repr(Settings(compaction=compaction)) == "Settings(compaction=CompactionSettings(reserve_tokens=9000))"


async def test_contexts_and_branches_say_how_much_there_is() -> None:
    # Mutation: give `messages` as a plain tuple, or `transcript` as the iterator of a list.
    async with ScriptedModel([reply("Hello.")] * 3) as model:
        session = AgentSession(model.model, client=model, tools=(), session_manager=SessionManager.in_memory())
        assert repr(session.messages) == "<0 messages>"
        await session.prompt("Hi.")
        two = '[0] <UserMessage "Hi.">, [1] <AssistantMessage stop, scripted/model: "Hello.">'
        assert repr(session.messages) == f"<2 messages: {two}>"
        assert repr(session.messages[:1]) == '(<UserMessage "Hi.">,)'
        for _ in range(2):
            await session.prompt("What ends the parser too early, and why did nobody see it? " * 9)
        line = repr(session.messages)
        assert line.startswith('<6 messages: [0] <UserMessage "Hi.">, … [5] <AssistantMessage stop')
        assert Table(session.messages._repr_html_()).cells[:2] == ["6 messages", "[0]"]  # type: ignore[attr-defined]
        assert repr(session.transcript) == "<the entries of the branch, root first: iterate it, or list(...) it>"
        assert repr(session.dropped()).startswith("<messages that the context no longer shows")
        await session.close()


async def test_a_run_says_what_was_asked_since_when_it_runs_and_how_it_is_read() -> None:
    # Mutation: leave out how it ended.
    async with ScriptedModel([hang(after=2), reply("Done."), fail(400, "no")]) as model:
        session = AgentSession(model.model, client=model, tools=(), session_manager=SessionManager.in_memory())
        async with session.run("Think.") as run:
            async for event in run:
                if isinstance(event, MessageUpdate):
                    break
            assert re.fullmatch(
                r'<RunHandle "Think\.", running for \d\.\d s, [1-9]\d* characters of text: `async for event in` it, '
                r"await \.result\(\), \.text>",
                repr(run),
            )
        assert re.match(r'<RunHandle "Think\.", aborted after \d\.\d s, ', repr(run))
        async with session.run("Go on.") as run:
            await run.result()
        assert re.match(r'<RunHandle "Go on\.", done after \d\.\d s, 5 characters of text: ', repr(run))
        async with session.run("And now?") as run:
            with pytest.raises(ModelRequestError):
                await run.result()
        assert re.match(r'<RunHandle "And now\?", failed after \d\.\d s \(ModelRequestError\), ', repr(run))
        async with session.events() as stream:
            assert repr(stream) == "<EventStream, 0 events not yet read: `async for event in` it>"
        await session.close()
        assert "closed" in repr(stream)


def test_subscriptions_say_to_what_and_how_they_are_taken_off() -> None:
    # Mutation: return the bare closure from `subscribe`.
    model = ScriptedModel()
    with SyncSession(model.model, client=model, session_manager=SessionManager.in_memory()) as session:

        def look(event: Event) -> None:
            pass

        where = f"{test_subscriptions_say_to_what_and_how_they_are_taken_off.__name__}.<locals>.look"
        for subscribe in (session.subscribe, session._session.subscribe):
            assert repr(subscribe(look)) == f"<listener {where}: call this to take it off>"
        subscription = session.on("warning")
        assert repr(subscription).startswith("<Subscription to warning, without a handler: ")
        subscription(look)
        assert "handled by test_subscriptions" in repr(subscription)
        assert repr(session.on).startswith("<on: on(event, handler)")


USAGE = "with session.run(...) as run:"


def test_a_run_that_is_not_entered_says_how_it_is() -> None:
    # Mutation: give the context manager of `contextlib` itself.
    with SyncSession("openai/scripted", session_manager=SessionManager.in_memory()) as session:
        run: Any = session.run("Hi.")
        assert repr(run).startswith(f'<session.run("Hi."), not begun: `{USAGE}`')
        misuses: list[Callable[[], object]] = [lambda: list(run), lambda: next(run), lambda: run.text]
        for misuse in misuses:
            with pytest.raises((TypeError, AttributeError), match=re.escape(f"`{USAGE}`")):
                misuse()
        assert session.is_idle
        with pytest.raises(TypeError, match=r"with session\.events"):
            list(session.events())  # type: ignore[call-overload]


async def test_a_run_that_is_awaited_or_entered_by_the_wrong_word_says_how_it_is_entered() -> None:
    # Mutation: leave `__await__` or `__enter__` out of the block.
    async with ScriptedModel([reply("Hello.")]) as model:
        session = AgentSession(model.model, client=model, tools=(), session_manager=SessionManager.in_memory())
        run: Any = session.run("Hi.")
        usage = re.escape(f"`async {USAGE}`")
        with pytest.raises(TypeError, match=usage):
            await run
        with pytest.raises(TypeError, match=usage):
            async for _ in run:
                pass
        with pytest.raises(TypeError, match=usage), run:
            pass
        assert session.is_idle
        async with run as handle:
            assert str(await handle.result()) == "Hello."
        with pytest.raises(RuntimeError, match="is over"):
            await run.__aenter__()
        await session.close()
