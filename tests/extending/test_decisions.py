"""Asking handlers: order, folding, copies, and failures that stay the handler's own."""

from __future__ import annotations

from typing import Any

import pytest

from agent_session.compaction.types import CompactionResult
from agent_session.errors import ExtensionError
from agent_session.events import ExtensionFailed
from agent_session.extending.api import ExtensionAPI
from agent_session.extending.context import ExtensionContext
from agent_session.hooks import (
    Amend,
    BeforeCompact,
    BeforeSwitch,
    Block,
    ChangedArguments,
    ChangedInput,
    Context,
    Handled,
    Input,
    MessageEnd,
    ReplacedMessages,
    Summarize,
    ToolCallEvent,
    Veto,
)
from session_store.messages import AssistantMessage, TextContent, ToolCall, UserMessage
from tests.extending.fake_session import before_compact, open_session, session_compact, tool_call


async def test_handlers_run_in_load_order_then_registration_order():
    calls: list[str] = []
    apis: list[ExtensionAPI] = []

    def first(api: ExtensionAPI) -> None:
        apis.append(api)
        api.on("input", lambda event: calls.append("first"))

    def second(api: ExtensionAPI) -> None:
        api.on("input", lambda event: calls.append("second"))

    async with open_session() as session:
        await session.extensions.load_all([first, second])
        session.extensions.on("input", lambda event: calls.append("program"))
        # Registered last, by an extension that was loaded first.
        # Mutation: rank by registration alone -> this one comes last.
        apis[0].on("input", lambda event: calls.append("first, later"))
        await session.extensions.hooks.decide(Input(text="hi"))

    assert calls == ["first", "first, later", "second", "program"]


async def test_each_handler_sees_what_those_before_it_answered():
    async with open_session() as session:
        session.extensions.on("input", lambda event: ChangedInput(text=event.text + "b"))
        session.extensions.on("input", lambda event: ChangedInput(text=event.text + "c"))
        event = await session.extensions.hooks.decide(Input(text="a"))

    # Mutation: hand every handler the event as it arrived -> "ac".
    assert event.text == "abc"
    assert session.events == []


@pytest.mark.parametrize("nothing", [None, {}])
async def test_none_and_an_empty_dict_are_no_opinion(nothing: Any):
    async with open_session() as session:
        session.extensions.on("before_compact", lambda event: CompactionResult("mine"))
        session.extensions.on("before_compact", lambda event: nothing)
        event = await session.extensions.hooks.decide(before_compact())

    # Mutation: leave `answer != {}` out -> the empty dict is a wrong answer and reported.
    assert event.result == CompactionResult("mine")
    assert session.failures == []


async def test_the_first_veto_settles_it_and_nobody_else_is_asked():
    asked: list[str] = []

    async with open_session() as session:
        session.extensions.on("before_compact", lambda event: Veto("not now"))
        session.extensions.on("before_compact", lambda event: asked.append("second"))
        event = await session.extensions.hooks.decide(before_compact())

    # Mutation: leave out the break on `is_settled` -> the second is asked.
    assert event.veto == Veto("not now")
    assert asked == []


async def test_a_second_summary_wins_with_a_warning_that_names_both():
    def sober(api: ExtensionAPI) -> None:
        api.on("before_compact", lambda event: CompactionResult("sober"))

    def poetic(api: ExtensionAPI) -> None:
        api.on("before_compact", lambda event: CompactionResult("poetic"))

    async with open_session() as session:
        one, two = await session.extensions.load_all([sober, poetic])
        event = await session.extensions.hooks.decide(before_compact())

    assert event.result == CompactionResult("poetic")
    (warning,) = event.warnings
    # Mutation: fold with a constant owner -> neither is named.
    assert one.name in warning
    assert two.name in warning


async def test_instructions_of_several_handlers_are_joined():
    async with open_session() as session:
        session.extensions.on("before_compact", lambda event: Summarize(instructions="a", pinned=["p"]))
        session.extensions.on("before_compact", lambda event: Summarize(instructions="b", pinned=("q",)))
        event = await session.extensions.hooks.decide(before_compact())

    assert event.summarize_answer == Summarize(instructions="a\nb", pinned=("p", "q"))


async def test_nothing_a_handler_writes_to_its_event_reaches_the_session():
    arguments = {"command": "ls", "env": {"A": ["1"]}}

    async with open_session() as session:

        @session.extensions.on("tool_call")
        def vandal(event: ToolCallEvent) -> None:
            event.arguments["env"]["A"].append("2")
            event.arguments.clear()

        seen: list[Any] = []
        session.extensions.on("tool_call", lambda event: seen.append(event.arguments))
        event = await session.extensions.hooks.decide(tool_call(**arguments))

    # Mutation: hand out `event` instead of `detached(event)` -> the arguments are empty.
    assert event.arguments == {"command": "ls", "env": {"A": ["1"]}}
    assert arguments == {"command": "ls", "env": {"A": ["1"]}}
    assert seen == [{"command": "ls", "env": {"A": ["1"]}}]


async def test_nothing_a_handler_writes_to_a_message_reaches_the_session():
    compact = before_compact()

    async with open_session() as session:

        @session.extensions.on("before_compact")
        def vandal(event: BeforeCompact) -> None:
            for message in event.dropped:
                if isinstance(message, AssistantMessage):
                    message.tool_calls[0].arguments["lines"].clear()
            event.settings.model_overrides["test/model"] = event.settings
            assert event.scope is compact.scope

        await session.extensions.hooks.decide(compact)

    assert session.failures == []
    # Mutation: share tuples without looking into them -> the call's lines are gone.
    assert compact.dropped[1].tool_calls[0].arguments == {"path": "a.py", "lines": [1, 2]}  # type: ignore[union-attr]
    assert compact.settings.model_overrides == {}


async def test_nothing_a_handler_writes_to_its_answer_afterwards_reaches_the_session():
    kept: dict[str, Any] = {"command": "ls", "list": [1]}

    async with open_session() as session:
        session.extensions.on("tool_call", lambda event: ChangedArguments(kept))
        event = await session.extensions.hooks.decide(tool_call(command="rm"))

    kept["list"].append(2)
    # Mutation: fold `answer` instead of `admitted(answer)` -> [1, 2].
    assert event.arguments == {"command": "ls", "list": [1]}


async def test_a_handler_that_raises_is_reported_once_with_its_name_and_the_default_goes_on():
    async with open_session() as session:

        def careless(api: ExtensionAPI) -> None:
            @api.on("before_compact")
            async def fail(event: BeforeCompact, ctx: ExtensionContext) -> Veto:
                raise LookupError("no such note")

        (extension,) = await session.extensions.load_all([careless])
        session.extensions.on("before_compact", lambda event: CompactionResult("the next one"))
        event = await session.extensions.hooks.decide(before_compact())

    # Mutation: let the exception out -> decide raises.
    assert event.result == CompactionResult("the next one")
    (failure,) = session.failures
    assert failure.owner == extension.name
    assert failure.event == "before_compact"
    assert failure.why == "LookupError: no such note"
    assert isinstance(failure.error, LookupError)
    assert "in fail" in (failure.traceback or "")


async def test_a_failure_is_logged_for_a_program_that_subscribed_to_nothing(caplog: pytest.LogCaptureFixture):
    async with open_session() as session:

        @session.extensions.on("input")
        def careless(event: Input) -> None:
            raise LookupError("no such note")

        await session.extensions.hooks.decide(Input(text="hi"))

    # Mutation: leave the log record out -> nothing is heard of it.
    (record,) = caplog.records
    assert record.name.startswith("agent_session")
    assert "careless" in record.getMessage()
    assert "no such note" in record.getMessage()


async def test_a_tool_call_whose_handler_fails_is_blocked():
    async with open_session() as session:

        @session.extensions.on("tool_call")
        def gate(event: ToolCallEvent) -> None:
            raise RuntimeError("the list of commands is gone")

        asked: list[str] = []
        session.extensions.on("tool_call", lambda event: asked.append("second"))
        event = await session.extensions.hooks.decide(tool_call(command="rm -rf /"))

    # Mutation: treat `failure_blocks` events like the others -> no block, the tool would run.
    assert event.block is not None
    assert "the list of commands is gone" in event.block.reason
    assert asked == []
    assert len(session.failures) == 1


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ("text", "answered str; before_compact takes Veto, CompactionResult, Summarize or None"),
        (True, "answered bool"),
        ({"cancel": True}, "answered dict"),
        (Block("no"), "answered Block"),
        (CompactionResult("   \n"), "the summary is blank"),
        (CompactionResult(""), "the summary is blank"),
        (CompactionResult(None), "CompactionResult.summary is None, not str"),  # type: ignore[arg-type]
        (CompactionResult(b"bytes"), "CompactionResult.summary is bytes, not str"),  # type: ignore[arg-type]
        (CompactionResult("x", first_kept_entry_id="elsewhere"), "it is not on this branch"),
        (CompactionResult("x", first_kept_entry_id=7), "CompactionResult.first_kept_entry_id is int, not str or None"),  # type: ignore[arg-type]
        (CompactionResult("x", tokens_before="many"), "CompactionResult.tokens_before is str, not int or None"),  # type: ignore[arg-type]
        (CompactionResult("x", tokens_before=True), "CompactionResult.tokens_before is bool, not int or None"),
        (CompactionResult("x", details=["a"]), "CompactionResult.details is list, not dict or None"),  # type: ignore[arg-type]
        (CompactionResult("x", details={"a": {1, 2}}), "CompactionResult.details['a'] is set, not JSON"),
        (CompactionResult("x", details={1: "a"}), "CompactionResult.details key 1 is int, not text"),  # type: ignore[dict-item]
        (CompactionResult("x", usage={"input": 1}), "CompactionResult.usage is dict, not Usage or None"),  # type: ignore[arg-type]
        (Summarize(instructions=5), "Summarize.instructions is int, not str or None"),  # type: ignore[arg-type]
        (Summarize(pinned="text"), "Summarize.pinned is str, not tuple or list"),  # type: ignore[arg-type]
        (Summarize(pinned=["a", 2]), "Summarize.pinned[1] is int, not str"),  # type: ignore[list-item]
        (Veto(3), "Veto.reason is int, not str"),  # type: ignore[arg-type]
        (Veto, "answered type"),
    ],
)
async def test_a_wrong_answer_to_before_compact_is_that_handlers_failure(answer: Any, why: str):
    async with open_session() as session:

        def misled(api: ExtensionAPI) -> None:
            api.on("before_compact", lambda event: answer)

        (extension,) = await session.extensions.load_all([misled])
        before = before_compact()
        event = await session.extensions.hooks.decide(before)

    # Mutation: take `admitted` out, or fold's own checks -> the answer is in the event.
    assert event == before
    (failure,) = session.failures
    assert failure.owner == extension.name
    assert why in failure.why


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (CompactionResult("x"), "answered CompactionResult; session_compact takes Veto, Amend or None"),
        (Amend(summary=" "), "the summary is blank"),
        (Amend(summary=1), "Amend.summary is int, not str or None"),  # type: ignore[arg-type]
        (Amend(first_kept_entry_id="elsewhere"), "it is not on this branch"),
        (Amend(details="text"), "Amend.details is str, not dict or None"),  # type: ignore[arg-type]
        (Amend(details={"a": [object()]}), "Amend.details['a'] is object, not JSON"),
    ],
)
async def test_a_wrong_answer_to_session_compact_is_that_handlers_failure(answer: Any, why: str):
    async with open_session() as session:
        session.extensions.on("session_compact", lambda event: answer)
        before = session_compact()
        event = await session.extensions.hooks.decide(before)

    assert event == before
    (failure,) = session.failures
    assert why in failure.why


async def test_an_amended_entry_is_the_stored_one_with_what_was_changed():
    async with open_session() as session:
        session.extensions.on("session_compact", lambda event: Amend(summary="better", details={"by": "me"}))
        event = await session.extensions.hooks.decide(session_compact())

    assert event.entry.summary == "better"
    assert event.entry.details == {"by": "me"}
    assert event.entry.first_kept_entry_id == "kept"


@pytest.mark.parametrize(
    "messages",
    ["text", [{"role": "user"}], [UserMessage(content="text")], [UserMessage(content=(TextContent(3),))]],  # type: ignore[arg-type]
)
async def test_messages_that_are_none_never_replace_a_context(messages: Any):
    context = Context(messages=(UserMessage(content=(TextContent("hi"),)),))

    async with open_session() as session:
        session.extensions.on("context", lambda event: ReplacedMessages(messages))
        event = await session.extensions.hooks.decide(context)

    # Mutation: check only the answer's own class -> a string becomes a tuple of letters.
    assert event == context
    assert len(session.failures) == 1


async def test_a_list_of_messages_replaces_a_context_as_a_tuple():
    content: Any = [ToolCall("c", "read", {"a": 1})]
    messages: Any = [UserMessage(content=(TextContent("hi"),)), AssistantMessage(content=content)]

    async with open_session() as session:
        session.extensions.on("context", lambda event: ReplacedMessages(messages))
        event = await session.extensions.hooks.decide(Context(messages=()))

    assert session.failures == []
    assert event.messages[1] == AssistantMessage(content=(ToolCall("c", "read", {"a": 1}),))


async def test_a_message_is_replaced_only_by_one_of_its_role():
    user = UserMessage(content=(TextContent("hi"),))

    async with open_session() as session:
        session.extensions.on("message_end", lambda event: AssistantMessage(content=()))
        session.extensions.on("message_end", lambda event: UserMessage(content=(TextContent("redacted"),)))
        event = await session.extensions.hooks.decide(MessageEnd(message=user))

    assert event.message == UserMessage(content=(TextContent("redacted"),))
    assert len(session.failures) == 1


async def test_a_handler_that_answers_a_value_nested_in_itself_is_refused():
    loop: dict[str, Any] = {}
    loop["loop"] = loop

    async with open_session() as session:
        session.extensions.on("tool_call", lambda event: ChangedArguments(loop))
        event = await session.extensions.hooks.decide(tool_call(command="ls"))

    assert event.block is not None
    assert "levels" in event.block.reason


async def test_a_sync_handler_that_raises_a_cancellation_of_its_own_does_not_cancel_the_caller():
    import asyncio

    async with open_session() as session:

        @session.extensions.on("input")
        def confused(event: Input) -> None:
            raise asyncio.CancelledError

        # Mutation: catch only `Exception` around the call -> the caller seems to be cancelled.
        event = await session.extensions.hooks.decide(Input(text="hi"))

    assert event.text == "hi"
    assert session.failures[0].why == "RuntimeError: raised CancelledError of its own"


async def test_an_async_handler_that_ends_cancelled_by_itself_does_not_cancel_the_caller():
    import asyncio

    async with open_session() as session:

        @session.extensions.on("input")
        async def confused(event: Input) -> None:
            future = asyncio.get_running_loop().create_future()
            future.cancel()
            await future

        # Mutation: return `task.result()` without looking at `task.cancelled()` -> CancelledError comes out.
        event = await session.extensions.hooks.decide(Input(text="hi"))

    assert event.text == "hi"
    assert "nobody asked for" in session.failures[0].why


async def test_a_handler_taken_off_by_an_earlier_one_is_not_called_and_one_added_waits_for_the_next_event():
    calls: list[str] = []

    async with open_session() as session:

        @session.extensions.on("input")
        def first(event: Input) -> None:
            unsubscribe()
            session.extensions.on("input", lambda event: calls.append("added"))

        unsubscribe = session.extensions.on("input", lambda event: calls.append("taken off"))
        # Mutation: look the handlers up anew for each step -> "added" is called; do not look at `is_active` ->
        # "taken off" is.
        await session.extensions.hooks.decide(Input(text="hi"))

    assert calls == []


async def test_unsubscribing_twice_takes_off_one_handler_only():
    calls: list[str] = []

    def handler(event: Input) -> None:
        calls.append("called")

    async with open_session() as session:
        first = session.extensions.on("input", handler)
        session.extensions.on("input", handler)
        first()
        first()
        await session.extensions.hooks.decide(Input(text="hi"))
        # Mutation: drop by handler instead of by registration -> nobody is called.
        assert calls == ["called"]
        assert session.extensions.hooks.has(Input)
        assert not session.extensions.hooks.has(BeforeSwitch)


async def test_handled_input_goes_no_further():
    async with open_session() as session:
        session.extensions.on("input", lambda event: Handled("it was a greeting"))
        session.extensions.on("input", lambda event: ChangedInput(text="changed"))
        event = await session.extensions.hooks.decide(Input(text="hi"))

    assert event.handled == Handled("it was a greeting")
    assert event.text == "hi"


async def test_handlers_of_failures_are_told_of_them_and_their_own_failures_go_to_subscribers_only():
    told: list[ExtensionFailed] = []

    async with open_session() as session:

        @session.extensions.on("extension_failed")
        def one(event: ExtensionFailed) -> None:
            told.append(event)
            raise RuntimeError("failing at failures")

        @session.extensions.on("extension_failed")
        def two(event: ExtensionFailed) -> None:
            told.append(event)
            raise RuntimeError("failing too")

        session.extensions.on("input", lambda event: Veto())  # type: ignore[call-overload]
        # Mutation: notify failures of failures too -> this never ends.
        await session.extensions.hooks.decide(Input(text="hi"))

    assert [event.event for event in told] == ["input", "input"]
    assert [failure.event for failure in session.failures] == ["input", "extension_failed", "extension_failed"]


@pytest.mark.parametrize(
    ("event", "advice"),
    [
        ("before_compat", "did you mean before_compact"),
        ("nonsense", "there are: agent_end"),
        (int, "is no event"),
        (Veto, "is no event"),
        (None, "is no event"),
    ],
)
async def test_an_unknown_event_is_refused_with_what_is_near_it(event: Any, advice: str):
    async with open_session() as session:
        with pytest.raises(ExtensionError, match=advice):
            session.extensions.on(event, lambda event: None)


@pytest.mark.parametrize("what", ["compact", "tree", "fork", "switch"])
async def test_the_names_of_pi_are_synonyms(what: str):
    async with open_session() as session:
        register: Any = session.extensions.on
        register(f"session_before_{what}", lambda event: None)

        from agent_session.hooks import DECISIONS

        assert session.extensions.hooks.has(DECISIONS[f"before_{what}"])


async def test_a_handler_takes_the_context_only_if_it_has_a_place_for_it():
    seen: list[Any] = []

    class Watcher:
        def method(self, event: Input) -> None:
            seen.append("method")

        def __call__(self, event: Input, ctx: ExtensionContext) -> None:
            seen.append(("object", type(ctx)))

    async with open_session() as session:
        on: Any = session.extensions.on
        on("input", lambda event, ctx: seen.append(("two", type(ctx))))
        on("input", lambda event, kept="kept": seen.append(kept))
        on("input", lambda event, ctx=None: seen.append(("named", type(ctx))))
        on("input", lambda *both: seen.append(("all", len(both))))
        on("input", Watcher().method)
        on("input", Watcher())
        on("input", seen.append)
        await session.extensions.hooks.decide(Input(text="hi"))

    assert session.failures == []
    # Mutation: count every second parameter -> `kept` is a context.
    assert seen == [
        ("two", ExtensionContext),
        "kept",
        ("named", ExtensionContext),
        ("all", 2),
        "method",
        ("object", ExtensionContext),
        Input(text="hi"),
    ]


@pytest.mark.parametrize("handler", [lambda: None, lambda a, b, c: None, lambda event, *, must: None, "text", None])
async def test_a_handler_that_cannot_be_called_with_an_event_is_refused_when_it_is_registered(handler: Any):
    async with open_session() as session:
        on: Any = session.extensions.on
        with pytest.raises(ExtensionError, match="handler"):
            on("input")(handler) if handler is not None else on("input", 5)


@pytest.mark.parametrize("timeout", [0, -1, float("nan")])
async def test_a_limit_that_is_none_is_refused(timeout: float):
    async with open_session() as session:
        with pytest.raises(ExtensionError, match="timeout"):
            session.extensions.on("input", lambda event: None, timeout=timeout)
