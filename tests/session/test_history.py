"""What was said and is no longer in the context: listed whole, found again, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_session import RecordedMessage, SearchHit, SyncSession, tool
from agent_session.testing import ScriptedModel, always, calls, fail, reply
from session_store import AssistantMessage, SessionManager, SystemMessage, ToolCall, UserMessage
from session_store.messages import BashExecutionMessage, CompactionSummaryMessage, as_content
from tests.session.scene import SUMMARY, fill, filled, scene, texts, words


async def test_what_was_summarised_is_listed_as_it_was_said_and_what_is_in_the_context_is_not(tmp_path: Path) -> None:
    # Mutation: in `Branch.dropped` give everything, or in `_where` take the window for the context.
    async with scene(tmp_path, [*filled(), reply("later")]) as stage:
        await fill(stage)
        assert list(stage.session.dropped()) == []
        before = stage.session.messages
        await stage.session.compact(keep_recent_tokens=100)
        await stage.session.prompt("and now?")
        dropped = list(stage.session.dropped())
        kept = [message for message in stage.session.messages if message in before]
        assert tuple([said.message for said in dropped] + kept) == before
        assert {said.where for said in dropped} == {"summarised"}
        assert [said.role for said in dropped[:2]] == ["user", "assistant"]
        assert [said.id for said in dropped] == [said.entry.id for said in dropped]
        assert repr(dropped[0]).startswith(f"<RecordedMessage {dropped[0].id} (summarised): ")


async def test_every_message_is_in_the_context_or_dropped_through_many_compactions_and_undos(tmp_path: Path) -> None:
    # Mutation: in `branch_of` take the path from the newest compaction on.
    async with scene(tmp_path, filled(8)) as stage:
        said: list[str] = []
        for number in range(8):
            await stage.session.prompt(words(60, f"question {number}"))
            said += [f"question {number}", f"answer {number}"]
            if number % 2:
                await stage.session.compact(keep_recent_tokens=100)
            if number == 5:
                await stage.session.undo_compaction()
            spoken = [
                message for message in stage.session.messages if not isinstance(message, CompactionSummaryMessage)
            ]
            shown = [" ".join(text.split()[:2]) for text in texts(spoken)]
            dropped = [" ".join(message.text.split()[1:3]) for message in stage.session.dropped()]
            assert dropped + shown == said


async def test_failed_attempts_and_what_was_never_sent_were_not_dropped(tmp_path: Path) -> None:
    # Mutation: in `Branch.messages` take the entries of the path as they are.
    log = SessionManager.create(tmp_path, session_dir=tmp_path / "sessions")
    log.append_message(SystemMessage(content=as_content("system")))
    log.append_message(BashExecutionMessage(command="secret", output="x", exclude_from_context=True))
    steps = [fail(400, "no"), *filled(), reply("enough")]
    async with scene(tmp_path, steps, manager=log) as stage:
        with pytest.raises(Exception, match="no"):
            await stage.session.prompt("this fails")
        await fill(stage)
        await stage.session.prompt("more")
        await stage.session.compact(keep_recent_tokens=0)
        dropped = [said.text for said in stage.session.dropped()]
        assert dropped[0] == "[User]\nthis fails"
        assert not [text for text in dropped if "system" in text or "secret" in text]
        assert all(said.text for said in stage.session.dropped())


async def test_an_edit_that_omits_or_shortens_drops_what_was_recorded(tmp_path: Path) -> None:
    # Mutation: in `_where` leave the comparison with what is shown out, or the window.
    async with scene(tmp_path, filled()) as stage:
        await fill(stage)
        log = stage.session.session_manager
        first, answered, second = [line["id"] for line in stage.lines("message")][:3]
        log.append_context_edit(first, None)
        log.append_context_edit(second, "short")
        assert [(said.id, said.where) for said in stage.session.dropped()] == [
            (first, "omitted"),
            (second, "shortened"),
        ]
        assert "question 1" in [*stage.session.dropped()][1].text
        assert answered not in {said.id for said in stage.session.dropped()}
        log.append_context_edit(second, as_content(words(60, "question 1")))
        assert [said.id for said in stage.session.dropped()] == [first]


async def test_a_result_that_was_made_up_for_a_call_is_not_among_what_was_said(tmp_path: Path) -> None:
    # Mutation: in `Branch.messages` yield synthetic results, too; in `branch_of` let them stand for the answer.
    @tool
    def look(at: str) -> str:
        """Look."""
        return at

    async with scene(tmp_path, [calls([("look", {"at": "x"})]), reply("ok")], tools=[look]) as stage:
        await stage.session.prompt("look")
        log = stage.session.session_manager
        result = next(line["id"] for line in stage.lines("message") if line["message"]["role"] == "toolResult")
        log.append_context_edit(result, None)
        assert [said.role for said in stage.session.dropped()] == ["tool_result"]
        # This one was never answered, and what is sent in its place is recorded nowhere.
        unanswered = AssistantMessage(content=(ToolCall("c9", "look", {"at": "y"}),), provider="acme", model="m")
        log.append_message(unanswered)
        log.append_message(UserMessage(content=as_content("go on")))
        assert "interrupted" in texts(stage.session.messages)[-2]
        assert stage.session.search("interrupted") == []


async def test_a_text_is_found_wherever_it_is_now_newest_first(tmp_path: Path) -> None:
    # Mutation: in `Branch.search` go oldest first, or look at what was dropped only.
    async with scene(tmp_path, [*filled(), reply("It is in CONFIG.py.")]) as stage:
        await fill(stage)
        await stage.session.compact(keep_recent_tokens=100)
        await stage.session.prompt("Where is the window set?")
        hits = stage.session.search("Question")
        assert [(hit.role, hit.where) for hit in hits] == [("user", "summarised")] * 3
        assert [hit.snippet.split()[1] for hit in hits] == ["2", "1", "0"]
        (hit,) = stage.session.search("config.PY")
        assert (hit.role, hit.where, hit.snippet) == ("assistant", "context", "It is in CONFIG.py.")
        assert hit.entry_id == stage.lines("message")[-1]["id"]
        assert hit.timestamp == stage.lines("message")[-1]["timestamp"]
        assert repr(hit) == f'<SearchHit {hit.entry_id} assistant (context): "It is in CONFIG.py.">'
        assert stage.session.search("nowhere to be found") == []
        assert [hit.snippet.split()[1] for hit in stage.session.search("question", limit=2)] == ["2", "1"]


@pytest.mark.parametrize(
    ("text", "query", "is_found"),
    [
        pytest.param("one\n  two", "one two", True, id="any white space"),
        pytest.param("a.c", "a.c", True, id="no pattern"),
        pytest.param("abc", "a.c", False, id="a dot is a dot"),
        pytest.param("(((((", "(((", True, id="brackets"),
        pytest.param("Straße ÄÖÜ", "äöü", True, id="any case of any script"),
        pytest.param("日本語のテキスト", "本語", True, id="without words"),
    ],
)
async def test_a_search_takes_plain_text(tmp_path: Path, text: str, query: str, is_found: bool) -> None:
    # Mutation: in `_pattern` leave the escaping out, the case, or the white space.
    async with scene(tmp_path, [reply("ok")]) as stage:
        await stage.session.prompt(text)
        assert bool(stage.session.search(query)) == is_found


async def test_a_search_for_nothing_is_refused(tmp_path: Path) -> None:
    # Mutation: in `search_branch` find everything.
    async with scene(tmp_path, [reply("ok")]) as stage:
        await stage.session.prompt("hello")
        with pytest.raises(ValueError, match="nothing to search for"):
            stage.session.search(" \n")


async def test_arguments_of_calls_and_shell_output_are_found_and_labels_are_not(tmp_path: Path) -> None:
    # Mutation: in `_searched_texts` keep the labels; in `RecordedMessage.text` shorten.
    @tool
    def look(at: str) -> str:
        """Look."""
        return "needle " * 2_000 + "the end"

    steps = [calls([("look", {"at": "haystack"})]), reply("ok")]
    async with scene(tmp_path, steps, tools=[look], window=30_000) as stage:
        await stage.session.prompt("look")
        stage.session.session_manager.append_message(BashExecutionMessage(command="ls", output="pyproject.toml"))
        assert [hit.role for hit in stage.session.search("haystack")] == ["assistant"]
        assert [hit.role for hit in stage.session.search("the end")] == ["tool_result"]
        assert [hit.role for hit in stage.session.search("pyproject")] == ["bash_execution"]
        assert stage.session.search("Result of") == stage.session.search("[User]") == []
        (hit,) = stage.session.search("the end")
        assert len(hit.snippet) < 200
        assert hit.snippet.startswith("…")


async def test_a_search_looks_at_the_branch_of_now(tmp_path: Path) -> None:
    # Mutation: in `branch_of` take all entries of the log.
    async with scene(tmp_path, [*filled(), reply("other")]) as stage:
        await fill(stage)
        await stage.session.navigate_tree(stage.lines("message")[1]["id"])
        await stage.session.prompt("another way")
        assert [hit.snippet.split()[1] for hit in stage.session.search("question")] == ["0"]


def test_without_await_the_same_is_found_dropped_undone_and_previewed(tmp_path: Path) -> None:
    # Mutation: in `SyncInspection.dropped` hand the generator out; in `SyncSession.compact` leave `dry_run` out.
    model = ScriptedModel(filled(), summaries=[always(reply(SUMMARY))])
    log = SessionManager.create(tmp_path, session_dir=tmp_path / "sessions")
    with SyncSession(model.model, client=model, tools=[], session_manager=log) as session:
        for number in range(3):
            session.prompt(words(60, f"question {number}"))
        whole = session.messages
        preview = session.compact(keep_recent_tokens=100, dry_run=True)
        assert preview.status == "preview"
        assert session.messages == whole
        assert session.compact(keep_recent_tokens=100).status == "applied"
        dropped = list(session.dropped())
        assert len(dropped) == preview.entries_summarized
        assert all(isinstance(said, RecordedMessage) for said in dropped)
        hits = session.search("question", limit=2)
        assert [type(hit) for hit in hits] == [SearchHit, SearchHit]
        assert session.undo_compaction().status == "applied"
        assert session.messages == whole
        assert list(session.dropped()) == []
