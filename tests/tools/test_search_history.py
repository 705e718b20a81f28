"""`search_history`: a model finds and reads what it no longer has, in a session that offers the tool from the start."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from agent_session import AgentSession, Tool, ToolError, ToolResult, tool
from agent_session.history import branch_of
from agent_session.testing import ScriptedModel, always, call, calls, reply
from agent_session.tools import ToolContext
from agent_session.tools.registry import ToolRegistry
from agent_session.tools.search_history import CHARS_PER_PAGE, HITS_PER_PAGE, search_history
from session_store import SessionManager, ToolCall, ToolResultMessage, UserMessage
from session_store.messages import AssistantMessage, as_content
from tests.session.scene import SUMMARY, words
from tests.tools.calls import call as run
from tests.tools.calls import context_in, shown


@pytest.fixture
def log() -> Iterator[SessionManager]:
    with SessionManager.in_memory() as opened:
        yield opened


@pytest.fixture
def context(folder: Path) -> ToolContext:
    return context_in(folder)


def say(log: SessionManager, *texts: str) -> list[str]:
    return [log.append_message(UserMessage(content=as_content(text))).id for text in texts]


def compacted(log: SessionManager, *texts: str) -> list[str]:
    """Texts that were said and are summarised now; their ids."""
    ids = say(log, *texts)
    log.append_compaction("summary", None, 100)
    return ids


def tool_of(log: SessionManager) -> Tool:
    return search_history(lambda: branch_of(log))


async def search(log: SessionManager, context: ToolContext, **arguments: Any) -> str:
    return shown(await run(tool_of(log), context, **arguments))


async def test_a_query_finds_what_was_summarised_with_ids_newest_first(
    log: SessionManager, context: ToolContext
) -> None:
    # Mutation: in `_search` look at the context, too; in `_hit_line` leave the id out.
    first, second, _ = compacted(log, "The parser stops at line 7.", "A PARSER again", "something else")
    say(log, "the parser that is still here")
    lines = (await search(log, context, query="parser")).splitlines()
    assert lines[0] == '"parser", newest first:'
    assert [line.split()[0] for line in lines[1:-1]] == [second, first]
    assert "user" in lines[1]
    assert lines[1].endswith("summarised: A PARSER again")
    assert lines[-1] == "[entry=ID reads one whole]"


async def test_what_is_not_found_is_said(log: SessionManager, context: ToolContext) -> None:
    # Mutation: in `_search` answer with an empty list.
    compacted(log, "one")
    assert await search(log, context, query="nowhere") == "nothing found in what is no longer in the context"
    assert await search(log, context, query="one", page=2) == "nothing more found in what is no longer in the context"


async def test_words_that_nobody_said_in_a_row_are_looked_for_one_by_one(
    log: SessionManager, context: ToolContext
) -> None:
    # Mutation: in `_search` take any word for enough; or look for single words where the phrase is found.
    both, _, phrase, turned = compacted(
        log, "the window of the parser", "the window", "a broken parser", "parser, broken"
    )
    text = await search(log, context, query="parser window")
    assert 'nobody said just "parser window"' in text
    assert both in text
    assert phrase not in text
    text = await search(log, context, query="broken parser")
    assert phrase in text
    assert both not in text
    assert turned not in text


async def test_without_a_query_all_of_it_is_listed(log: SessionManager, context: ToolContext) -> None:
    # Mutation: in `Branch.search` find nothing without a term.
    ids = compacted(log, "one", "two")
    text = await search(log, context)
    assert [line.split()[0] for line in text.splitlines()[1:-1]] == list(reversed(ids))


async def test_hits_come_in_pages_that_say_whether_there_are_more(log: SessionManager, context: ToolContext) -> None:
    # Mutation: in `_search` take one hit less or more, or leave `skip` out.
    ids = compacted(log, *(f"needle in message {number}" for number in range(2 * HITS_PER_PAGE)))
    listed: list[str] = []
    for page in (1, 2):
        for query in ("needle", "message needle"):
            lines = (await search(log, context, query=query, page=page)).splitlines()
            assert len(lines) == HITS_PER_PAGE + 2
            assert (f"page={page + 1}" in lines[-1]) == (page == 1)
            listed += [line.split()[0] for line in lines[1:-1]] if query == "needle" else []
    assert listed == list(reversed(ids))


async def test_an_entry_is_read_whole_in_pages(log: SessionManager, context: ToolContext) -> None:
    # Mutation: in `_read` lose the character at the end of a page; in `message_texts` shorten.
    text = "".join(f"line {number} of a long text\n" for number in range(2_500)) + "needle"
    (entry_id,) = compacted(log, text)
    first = await run(tool_of(log), context, entry=entry_id)
    pages = first.details["pages"]
    assert pages == -(-len(f"[User]\n{text}") // CHARS_PER_PAGE)
    read = ""
    for page in range(1, pages + 1):
        part = await search(log, context, entry=entry_id, page=page)
        assert len(part) < CHARS_PER_PAGE + 100
        body, _, note = part.rpartition("\n")
        assert note == f"[page {page} of {pages} of {entry_id}]"
        read += body
    assert read == f"[User]\n{text}"
    assert (await run(tool_of(log), context, entry=entry_id, query="NEEDLE")).details["page"] == pages
    with pytest.raises(ToolError, match=f"has {pages} pages"):
        await search(log, context, entry=entry_id, page=pages + 1)


async def test_a_short_entry_is_read_without_a_note(log: SessionManager, context: ToolContext) -> None:
    # Mutation: in `_read` note the page always.
    (entry_id,) = compacted(log, "short")
    assert await search(log, context, entry=entry_id) == "[User]\nshort"


async def test_an_id_that_is_no_message_of_this_branch_is_refused(log: SessionManager, context: ToolContext) -> None:
    # Mutation: in `Branch.message` look at all entries of the log.
    first, left = say(log, "one", "left")
    log.branch(first)
    for entry_id in ("nowhere", left, log.append_custom("state", {}).id, "x" * 10_000):
        with pytest.raises(ToolError, match="no message") as refused:
            await search(log, context, entry=entry_id)
        assert len(str(refused.value)) < 250


async def test_what_was_shortened_in_the_context_is_read_as_it_was(log: SessionManager, context: ToolContext) -> None:
    # Mutation: in `Branch.messages` project with the edits.
    log.append_message(AssistantMessage(content=(ToolCall("c1", "look", {}),), provider="acme", model="m"))
    result = log.append_message(
        ToolResultMessage(tool_call_id="c1", tool_name="look", content=as_content("all of the output"))
    )
    log.append_context_edit(result.id, "[… search_history …]")
    assert "shortened: all of the output" in await search(log, context, query="output")
    assert await search(log, context, entry=result.id) == "[Result of look]\nall of the output"


async def test_what_the_tool_said_itself_is_not_found_again(log: SessionManager, context: ToolContext) -> None:
    # Mutation: in `_searched_texts` keep the tool's own calls, or its results.
    (entry_id,) = say(log, "the needle")
    own = ToolCall("c1", "search_history", {"query": "needle"})
    log.append_message(AssistantMessage(content=(own,), provider="acme", model="m"))
    log.append_message(
        ToolResultMessage(tool_call_id="c1", tool_name="search_history", content=as_content("found: needle"))
    )
    log.append_compaction("summary", None, 100)
    text = await search(log, context, query="needle")
    assert text.count("summarised:") == 1
    assert entry_id in text


async def test_a_long_history_is_looked_through_beside_the_event_loop(
    log: SessionManager, context: ToolContext
) -> None:
    # Mutation: in `execute` search without the thread.
    compacted(log, *(f"message {number} " + "word " * 500 for number in range(2_000)))
    turns = 0

    async def turning() -> None:
        nonlocal turns
        while True:
            await anyio.lowlevel.checkpoint()
            turns += 1

    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(turning)
            await anyio.lowlevel.checkpoint()
            turns = 0
            await tool_of(log).execute(tool_of(log).parameters(query="no such thing"), context)  # type: ignore[operator]
            tasks.cancel_scope.cancel()
    assert turns > 10


# In a session -----------------------------------------------------------------------------------


@tool
def look(at: str) -> str:
    """Look."""
    return at


def tools_sent(model: ScriptedModel) -> list[list[str]]:
    """The definitions of each request that was no summary's, as JSON."""
    asked = [request for request in model.requests if not request.is_summary]
    return [[json.dumps(offered) for offered in request.payload.get("tools", [])] for request in asked]


def session_on(model: ScriptedModel, tmp_path: Path, **options: Any) -> AgentSession:
    return AgentSession(model.model, client=model, session_manager=SessionManager.in_memory(), cwd=tmp_path, **options)


@pytest.mark.parametrize(
    ("tools", "wanted"),
    [
        pytest.param(None, ["read", "write", "edit", "bash", "grep", "find", "ls", "search_history"], id="by default"),
        pytest.param([look], ["look", "search_history"], id="a tool of the program's"),
        pytest.param(["search_history", look], ["search_history", "look"], id="named, in its place"),
        pytest.param(["search_history"], ["search_history"], id="alone"),
        pytest.param([], [], id="no tools at all"),
    ],
)
async def test_it_is_offered_wherever_there_are_tools(tmp_path: Path, tools: Any, wanted: list[str]) -> None:
    # Mutation: in `ToolRegistry.resolve` leave `always` out, add it twice, or to an empty list.
    model = ScriptedModel([reply("ok")])
    async with session_on(model, tmp_path, tools=tools) as session:
        await session.prompt("hello")
        (sent,) = tools_sent(model)
        assert [json.loads(definition)["function"]["name"] for definition in sent] == wanted


async def test_activating_other_tools_leaves_it_and_activating_none_does_not(tmp_path: Path) -> None:
    # Mutation: in `RequestShape.activate` add it to nothing, or not at all.
    model = ScriptedModel([])
    async with session_on(model, tmp_path, tools=["default", look]) as session:
        shape = session._core.parts.shape
        session.set_active_tools(["look"])
        assert [definition.name for definition in shape.tools] == ["look", "search_history"]
        session.set_active_tools([])
        assert shape.tools == ()
        session.set_active_tools(None)
        assert shape.active_tools[-1] == "search_history"


def test_a_tool_of_that_name_of_the_program_takes_its_place() -> None:
    # Mutation: in `ToolRegistry.resolve` do not look at the names that were given.
    with SessionManager.in_memory() as log:
        own = Tool("search_history", "Another.", {"type": "object", "properties": {}}, _nothing)
        assert ToolRegistry.resolve([own], always=[tool_of(log)]).get("search_history") is own


async def _nothing(_arguments: Any, _context: ToolContext) -> ToolResult:
    return ToolResult()


async def test_a_model_finds_in_a_running_session_what_was_summarised_before(tmp_path: Path) -> None:
    # Mutation: in `build_parts` give the tool the branch as it was when the session began.
    secret = words(200, "The password is swordfish.")
    steps = [reply("noted"), reply("nothing new"), call("search_history", query="password"), reply("swordfish")]
    model = ScriptedModel(steps, summaries=[always(reply(SUMMARY))])
    async with session_on(model, tmp_path, tools=[look]) as session:
        await session.prompt(secret)
        await session.prompt(words(200, "something else"))
        await session.compact(keep_recent_tokens=0)
        assert not [message for message in session.messages if "swordfish" in getattr(message, "text", "")]
        await session.prompt("What was the password?")
        (found,) = [message for message in session.messages if isinstance(message, ToolResultMessage)]
        assert "The password is swordfish." in found.text
        assert not found.is_error


async def test_the_tools_of_a_request_are_the_same_bytes_before_and_after_a_compaction(tmp_path: Path) -> None:
    # Mutation: in `RequestShape.tools` offer it where something was dropped only.
    steps = [reply("one"), calls([("look", {"at": "x"})]), reply("two"), reply("three")]
    model = ScriptedModel(steps, summaries=[always(reply(SUMMARY))])
    async with session_on(model, tmp_path, tools=[look]) as session:
        await session.prompt(words(200, "first"))
        await session.prompt(words(200, "second"))
        await session.compact(keep_recent_tokens=0)
        await session.prompt("third")
        first, *others = tools_sent(model)
        assert "search_history" in first[-1]
        assert others == [first] * 3
