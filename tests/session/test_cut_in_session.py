"""What a compaction keeps, what the next one makes of it, and that no request is ever invalid."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from agent_session import AssistantMessage, BeforeCompact, CompactionSummaryMessage, ToolResultMessage, tool
from agent_session.testing import call, calls, reply
from session_store import MessageEntry, SessionManager, TextContent, ToolCall, UserMessage, pairs_ok
from tests.session.scene import SUMMARY, scene, texts, words


@tool
def look(at: str) -> str:
    """Look at something."""
    return words(40, f"seen {at}")


async def test_every_message_is_in_a_summary_request_or_in_the_context_after_two_compactions(tmp_path: Path) -> None:
    # Mutation: in `prepare_compaction` start at the first entry after the previous compaction, not at what it kept.
    steps = [reply(words(30, f"answer-{number}")) for number in range(9)]
    async with scene(tmp_path, steps, window=8_000, keep=150) as stage:
        for number in range(6):
            await stage.session.prompt(words(30, f"question-{number}"))
        await stage.session.compact()
        for number in range(6, 9):
            await stage.session.prompt(words(30, f"question-{number}"))
        await stage.session.compact(keep_recent_tokens=70)
        assert len(stage.compactions) == 2
        seen = "\n".join(
            [*(request.last_user_text for request in stage.summary_requests), *texts(stage.session.messages)]
        )
        for number in range(9):
            assert f"question-{number}" in seen
            assert f"answer-{number}" in seen
        assert any(SUMMARY in request.last_user_text for request in stage.summary_requests)


async def test_a_late_result_is_not_sent_where_a_compaction_took_its_call_away(tmp_path: Path) -> None:
    # Mutation: in `build_context` let results without a call through.
    manager = SessionManager.create(tmp_path, session_dir=tmp_path / "sessions")
    manager.append_message(UserMessage(content=(TextContent("do it"),)))
    manager.append_message(
        AssistantMessage(content=(ToolCall("call_x", "look", {"at": "x"}),), stop_reason="toolUse", model="m")
    )
    last = manager.append_message(UserMessage(content=(TextContent("go on"),)))
    manager.append_compaction("summary", last.id, 10)
    manager.append_message(ToolResultMessage(tool_call_id="call_x", tool_name="look", content=(TextContent("seen x"),)))
    async with scene(tmp_path, [reply("fine")], manager=manager) as stage:
        await stage.session.prompt("more")
        assert pairs_ok(stage.session.messages)
        assert "seen x" not in str(stage.provider.requests[0].payload)


async def test_a_compaction_between_two_results_of_a_batch_keeps_the_whole_batch(tmp_path: Path) -> None:
    # Mutation: in `SessionCore.compact` do not look at `interrupt`; in `_ask_for_compaction` do not wait.
    gate = anyio.Event()

    @tool
    async def slow() -> str:
        """Wait."""
        await gate.wait()
        return "slow result"

    @tool
    def fast() -> str:
        """Do not wait."""
        return "fast result"

    steps = [*(reply(words(60, f"answer {number}")) for number in range(3))]
    steps += [calls([("slow", {}), ("fast", {})]), reply("done")]
    async with scene(tmp_path, steps, window=8_000, tools=[slow, fast]) as stage:
        for number in range(3):
            await stage.session.prompt(words(60, f"question {number}"))
        with anyio.fail_after(5):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(stage.session.prompt, "both")
                while "fast result" not in texts(stage.session.messages):
                    await anyio.lowlevel.checkpoint()
                outcome_of: list[object] = []

                async def compact() -> None:
                    outcome_of.append(await stage.session.compact(interrupt=False))

                tasks.start_soon(compact)
                await anyio.wait_all_tasks_blocked()
                assert stage.lines("compaction") == []
                gate.set()
        results = [message.text for message in stage.session.messages if isinstance(message, ToolResultMessage)]
        assert results == ["slow result", "fast result"]
        types = [line["type"] for line in stage.lines()]
        assert len([line for line in stage.lines("message") if line["message"]["role"] == "toolResult"]) == 2
        assert types.index("compaction") > max(
            number
            for number, line in enumerate(stage.lines())
            if line["type"] == "message" and line["message"]["role"] == "toolResult"
        )


async def test_a_tail_that_would_start_with_a_result_starts_with_its_call(tmp_path: Path) -> None:
    # Mutation: in `find_cut` allow tool results as starts.
    steps = [
        *(reply(words(60, f"answer {number}")) for number in range(2)),
        calls([("look", {"at": name}) for name in "abcd"]),
        reply("done"),
    ]
    async with scene(tmp_path, steps, window=8_000, tools=[look]) as stage:
        for number in range(2):
            await stage.session.prompt(words(60, f"question {number}"))
        # Ends with the fourth result: the last answer is taken off by moving back to before it.
        await stage.session.prompt("look at four")
        last_result = [line["id"] for line in stage.lines("message") if line["message"]["role"] == "toolResult"][-1]
        await stage.session.navigate_tree(last_result)
        outcome = await stage.session.compact(keep_recent_tokens=1)
        assert outcome.status == "applied"
        kinds = [type(message) for message in stage.session.messages]
        assert kinds[0] is CompactionSummaryMessage
        assert kinds[1:] == [AssistantMessage, *[ToolResultMessage] * 4]
        assert "look at four" in texts(stage.session.messages)[0]


@pytest.mark.parametrize("keep", [0, 1])
async def test_keeping_nothing_recent_still_leaves_a_valid_context(tmp_path: Path, keep: int) -> None:
    # Mutation: in `prepare_compaction` allow an empty tail: the latest request would be gone.
    steps = [*(reply(words(60, f"answer {number}")) for number in range(3)), reply("fine")]
    async with scene(tmp_path, steps, window=8_000) as stage:
        for number in range(3):
            await stage.session.prompt(words(60, f"question {number}"))
        assert (await stage.session.compact(keep_recent_tokens=keep)).status == "applied"
        assert len(stage.session.messages) >= 2
        assert words(60, "question 2") in "\n".join(texts(stage.session.messages))
        await stage.session.prompt("and then?")
        sent = stage.chat_requests[-1].payload["messages"]
        assert [message["role"] for message in sent[:2]] == ["system", "user"]
        assert sent[-1]["role"] == "user"


async def test_the_kept_tail_is_the_same_entries_word_for_word(tmp_path: Path) -> None:
    # Mutation: in `EntryMaker._stored_form` take the entry before the boundary, or none.
    steps = [reply(words(30, f"answer {number}")) for number in range(5)]
    async with scene(tmp_path, steps, window=8_000, keep=100) as stage:
        for number in range(5):
            await stage.session.prompt(words(30, f"question {number}"))
        before = stage.session.session_manager.projection.messages
        outcome = await stage.session.compact()
        assert outcome.entry is not None
        after = stage.session.session_manager.projection.messages
        kept = len(after) - 1
        assert kept >= 2
        assert after[1:] == before[-kept:]
        # Nothing is in both, and nothing in neither.
        dropped = stage.of(BeforeCompact)[0].dropped
        assert [*dropped, *(item.message for item in after[1:])] == [item.message for item in before]
        assert after[1].entry.id == outcome.entry.first_kept_entry_id


async def test_a_compaction_changes_no_byte_that_is_in_the_file(tmp_path: Path) -> None:
    # Mutation: rewrite the file in `append_compaction_entry`.
    steps = [reply(words(60, f"answer {number}")) for number in range(3)]
    async with scene(tmp_path, steps, window=8_000) as stage:
        for number in range(3):
            await stage.session.prompt(words(60, f"question {number}"))
        before = stage.path.read_bytes()
        await stage.session.compact()
        assert stage.path.read_bytes().startswith(before)
        assert len(stage.path.read_bytes()) > len(before)


async def test_an_old_call_that_nobody_answered_does_not_stop_a_compaction(tmp_path: Path) -> None:
    # Mutation: in `find_cut` take every unanswered call for an open one.
    manager = SessionManager.create(tmp_path, session_dir=tmp_path / "sessions")
    manager.append_message(UserMessage(content=(TextContent("do it"),)))
    manager.append_message(
        AssistantMessage(content=(ToolCall("call_x", "look", {"at": "x"}),), stop_reason="toolUse", model="m")
    )
    for number in range(4):
        manager.append_message(UserMessage(content=(TextContent(words(60, f"question {number}")),)))
        manager.append_message(AssistantMessage(content=(TextContent(words(60, "answer")),), model="m"))
    async with scene(tmp_path, [], manager=manager, window=8_000) as stage:
        assert (await stage.session.compact()).status == "applied"


async def test_the_request_of_a_turn_that_is_cut_in_two_survives_word_for_word(tmp_path: Path) -> None:
    # Mutation: in `EntryMaker.measured` leave `with_current_request` out.
    steps = [call("look", at=f"thing {number}") for number in range(12)] + [reply("done")]
    wish = "Please look at all twelve things and tell me which one is blue."
    async with scene(tmp_path, steps, tools=[look], window=8_000) as stage:
        await stage.session.prompt(wish)
        await stage.session.compact(keep_recent_tokens=120)
        first = texts(stage.session.messages)[0]
        assert "## Current request" in first
        assert wish in first
        kept = stage.lines("message")
        boundary = stage.lines("compaction")[0]["firstKeptEntryId"]
        assert next(line for line in kept if line["id"] == boundary)["message"]["role"] == "assistant"
    reopened = SessionManager.open(stage.path)
    assert isinstance(reopened.get_entry(boundary), MessageEntry)
    assert texts(reopened.build_messages())[0] == first
    reopened.close()


async def test_what_a_compaction_says_is_left_is_what_is_measured_afterwards(tmp_path: Path) -> None:
    # Mutation: in `estimated_after` count the summary that is replaced among what is kept.
    steps = [reply(words(30, f"answer {number}")) for number in range(10)]
    long_summary = [reply(words(120, "first")), reply(SUMMARY)]
    async with scene(tmp_path, steps, summaries=long_summary, window=8_000, keep=150) as stage:
        for number in range(9):
            await stage.session.prompt(words(30, f"question {number}"))
        first = await stage.session.compact(keep_recent_tokens=400)
        assert first.tokens_after == stage.session.context_usage().tokens
        await stage.session.prompt(words(30, "later"))
        second = await stage.session.compact(keep_recent_tokens=200)
        assert second.tokens_after == stage.session.context_usage().tokens
        # What it keeps begins before the first compaction, whose summary leaves all the same.
        ids = [entry.id for entry in stage.session.transcript]
        boundary = stage.compactions[1].first_kept_entry_id
        assert boundary is not None
        assert ids.index(boundary) < ids.index(stage.compactions[0].id)
