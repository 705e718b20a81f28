"""When a session compacts by itself, and what is told in which order."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from agent_session import AgentStart, CompactionEnd, EntryAppended, SessionCompact, SessionStart, ToolContext, tool
from agent_session.testing import call, calls, fail, reply, stop
from session_store import SessionManager
from tests.session.scene import SUMMARY, fill, scene, texts, words

COMPACTION = ("before_compact", "compaction_start", "session_compact", "compaction_end")
RUN = ("agent_start", "turn_start", "turn_end", *COMPACTION, "agent_end", "agent_settled")


@tool
def look(at: str) -> str:
    """Look at something.

    Args:
        at: what to look at.
    """
    return words(40, f"seen {at}")


async def test_a_full_context_is_compacted_after_the_last_turn_and_nothing_more_is_asked(tmp_path: Path) -> None:
    # Mutation: in `Run._agent_run` check before `end_agent_run`, or ask again after an applied compaction.
    steps = [reply(words(60, f"answer {number}")) for number in range(3)] + [reply("full", usage=(950, 0, 0, 5))]
    async with scene(tmp_path, steps) as stage:
        await fill(stage)
        stage.events.clear()
        answer = await stage.session.prompt("last")
        assert str(answer) == "full"
        assert stage.told(*RUN) == ["agent_start", "turn_start", "turn_end", "agent_end", *COMPACTION, "agent_settled"]
        assert len(stage.chat_requests) == 4
        assert [entry.reason for entry in stage.compactions] == ["threshold"]
        assert stage.compactions[0].method == "model"
        assert stage.compactions[0].tokens_before == 955


async def test_a_full_context_is_compacted_between_two_tool_steps_and_the_run_goes_on(tmp_path: Path) -> None:
    # Mutation: in `Run._until_stopped` check only before the first request.
    steps = [
        *(reply(words(60, f"answer {number}")) for number in range(3)),
        calls([("look", {"at": "a"})], usage=(940, 0, 0, 10)),
        reply("done", usage=(300, 0, 0, 5)),
    ]
    async with scene(tmp_path, steps, tools=[look]) as stage:
        await fill(stage)
        stage.events.clear()
        answer = await stage.session.prompt("look around")
        assert str(answer) == "done"
        assert stage.told(*RUN) == [
            "agent_start",
            *("turn_start", "turn_end"),
            *COMPACTION,
            *("turn_start", "turn_end"),
            "agent_end",
            "agent_settled",
        ]
        last = stage.chat_requests[-1].payload["messages"]
        assert [message["role"] for message in last] == ["system", "user", "user", "assistant", "tool"]
        assert "seen a" in str(last[-1])


async def test_thirty_tool_steps_compact_on_the_way_and_end_in_one_answer(tmp_path: Path) -> None:
    # Mutation: raise the context's threshold check to once a run.
    steps: list[Any] = [*(call("look", at=f"thing {number}") for number in range(30)), reply("all seen")]
    async with scene(
        tmp_path, steps, tools=[look], compaction={"max_compactions_per_run": 10}, provider_window=1_000, check=True
    ) as stage:
        answer = await stage.session.prompt("look at thirty things")
        assert str(answer) == "all seen"
        assert len(stage.compactions) >= 2
        assert set(stage.outcomes) == {"applied"}
        assert len(stage.chat_requests) == 31


async def test_an_overflow_is_compacted_away_and_the_request_is_repeated_once(tmp_path: Path) -> None:
    # Mutation: in `Run._recover` return True without compacting; in `_agent_run` leave out `end_agent_run`, or tell a
    # first start where it is a second.
    steps: list[Any] = [
        *(reply(words(60, f"answer {number}")) for number in range(3)),
        fail(400, "This model's maximum context length is 900 tokens. However, your messages resulted in 990 tokens."),
        reply("after all"),
    ]
    async with scene(tmp_path, steps, window=8_000) as stage:
        await fill(stage)
        stage.events.clear()
        answer = await stage.session.prompt("again")
        assert str(answer) == "after all"
        assert stage.told(*RUN) == [
            *("agent_start", "turn_start", "turn_end", "agent_end"),
            *COMPACTION,
            *("agent_start", "turn_start", "turn_end", "agent_end"),
            "agent_settled",
        ]
        assert [event.is_retry for event in stage.of(AgentStart)] == [False, True]
        end = stage.of(CompactionEnd)[0]
        assert (end.reason, end.will_retry, end.outcome.status) == ("overflow", True, "applied")
        assert stage.session.context_usage().threshold < 900
        kept = [line["message"] for line in stage.lines("message")]
        assert [message["stopReason"] for message in kept if message["role"] == "assistant"][-2:] == ["error", "stop"]
        assert "error" not in [getattr(message, "stop_reason", None) for message in stage.session.messages]


async def test_a_manual_compaction_says_what_it_did(tmp_path: Path) -> None:
    # Mutation: drop `instructions` in `EntryMaker._order`.
    steps = [reply(words(60, f"answer {number}")) for number in range(3)]
    async with scene(tmp_path, steps, summaries=[reply(SUMMARY, usage=(500, 0, 0, 50))], window=8_000) as stage:
        await fill(stage)
        stage.events.clear()
        outcome = await stage.session.compact("Keep the second question")
        assert stage.told(*RUN) == list(COMPACTION)
        assert (outcome.status, outcome.reason, outcome.method) == ("applied", "manual", "model")
        assert outcome.tokens_after is not None
        assert outcome.tokens_after < outcome.tokens_before
        assert str(outcome).startswith("applied (manual, model): ")
        assert "Keep the second question" in stage.summary_requests[0].last_user_text
        assert outcome.usage is not None
        assert outcome.usage.total_tokens == 550
        assert stage.session.stats().compaction.total_tokens == 550
        assert stage.session.is_idle


async def test_the_entry_is_not_in_the_file_when_it_is_decided_and_is_there_when_it_is_told(tmp_path: Path) -> None:
    # Mutation: in `Compactor._attempt` append before deciding `session_compact`, or tell `compaction_end` first.
    seen: dict[str, int] = {}

    def watch(api: object) -> None:
        @api.on("session_compact")  # type: ignore[attr-defined]
        def deciding(event: SessionCompact) -> None:
            seen["decided"] = len(stage.lines("compaction"))

        @api.on("compaction_end")  # type: ignore[attr-defined]
        def ended(event: CompactionEnd) -> None:
            seen["ended"] = len(stage.lines("compaction"))

    steps = [reply(words(60)) for _ in range(3)]
    async with scene(tmp_path, steps, window=8_000, extensions=[watch]) as stage:
        stage.session.subscribe(
            lambda event: (
                seen.setdefault("told", len(stage.lines("compaction"))) if isinstance(event, SessionCompact) else None
            )
        )
        await fill(stage)
        outcome = await stage.session.compact()
        assert outcome.status == "applied", outcome
        assert seen == {"decided": 0, "told": 1, "ended": 1}
        end, compacted = stage.of(CompactionEnd)[0], stage.of(SessionCompact)[0]
        stored = stage.session.session_manager.get_latest_compaction_entry()
        assert end.outcome.entry == compacted.entry == outcome.entry == stored


async def test_nothing_comes_between_the_last_answer_and_the_append(tmp_path: Path) -> None:
    # Mutation: in `Compactor._commit` await anything before the append.
    seen: list[int] = []

    def deciding(event: SessionCompact) -> None:
        # Called as soon as anything is awaited.
        asyncio.get_running_loop().call_soon(lambda: seen.append(len(stage.lines("compaction"))))

    steps = [reply(words(60)) for _ in range(3)]
    async with scene(tmp_path, steps, window=8_000) as stage:
        stage.session.on("session_compact", deciding)
        await fill(stage)
        assert (await stage.session.compact()).status == "applied"
        assert seen == [1]


async def test_every_entry_is_in_the_file_before_it_is_told(tmp_path: Path) -> None:
    # Mutation: in `Recorder.store` announce before the append.
    missing: list[str] = []

    def check(event: object) -> None:
        if isinstance(event, EntryAppended) and event.entry.id not in {line["id"] for line in stage.lines()}:
            missing.append(event.entry.id)

    async with scene(tmp_path, [call("look", at="x"), reply("ok")], tools=[look]) as stage:
        stage.session.subscribe(check)
        await stage.session.prompt("go")
        assert stage.of(EntryAppended)
        assert missing == []


async def test_usage_from_before_a_compaction_is_never_used_again(tmp_path: Path) -> None:
    # Mutation: in `compaction.trigger.measure` take the newest usage wherever it stands.
    steps: list[Any] = [reply(words(60, f"answer {number}")) for number in range(3)]
    steps += [reply("full", usage=(950, 0, 0, 5)), reply("fresh")]
    async with scene(tmp_path, steps) as stage:
        await fill(stage)
        await stage.session.prompt("fill it")
        stage.session.session_manager.append_custom_message("note", "something else")
        await stage.session.prompt("go on")
        assert len(stage.compactions) == 1


async def test_a_failed_compaction_leaves_the_usage_and_the_next_turn_tries_again(tmp_path: Path) -> None:
    # Mutation: in `Backoff.record` start with `2**failures - 1` checks to pass.
    steps: list[Any] = [reply(words(60, f"answer {number}")) for number in range(3)]
    steps += [reply("95 %", usage=(950, 0, 0, 5)), reply("after it", usage=(300, 0, 0, 5))]
    async with scene(tmp_path, steps, summaries=[fail(400, "no"), reply(SUMMARY)]) as stage:
        await fill(stage)
        await stage.session.prompt("first")
        assert stage.outcomes == ["failed"]
        assert stage.session.context_usage().tokens == 955
        await stage.session.prompt("second")
        assert stage.outcomes == ["failed", "applied"]
        # The very next check, before the request, and not the one behind it.
        assert [request.is_summary for request in stage.provider.requests][-3:] == [True, True, False]


async def test_without_reported_usage_the_estimate_decides(tmp_path: Path) -> None:
    # Mutation: in `measure` return 0 tokens where no usage was reported.
    steps = [reply(words(120, f"answer {number}"), usage=(0, 0, 0, 0)) for number in range(5)]
    async with scene(tmp_path, steps) as stage:
        await fill(stage, count=5, size=120)
        assert stage.compactions
        assert not stage.session.context_usage().is_reported


@pytest.mark.parametrize(
    ("usage", "compactions"),
    [
        pytest.param((10, 490, 0, 20), 0, id="the cached part is counted once"),
        pytest.param((5, 950, 0, 5), 1, id="the cached part is counted"),
    ],
)
async def test_cached_tokens_occupy_the_window_once(
    tmp_path: Path, usage: tuple[int, int, int, int], compactions: int
) -> None:
    # Mutation: in `llm.usage` leave the cached tokens in `input`, or leave `cache_read` out of the sum.
    steps = [*(reply(words(60, f"answer {number}")) for number in range(3)), reply("cached", usage=usage)]
    async with scene(tmp_path, steps) as stage:
        await fill(stage)
        await stage.session.prompt("go")
        assert len(stage.compactions) == compactions
        if not compactions:
            assert stage.session.context_usage().tokens == 520


async def test_a_good_answer_to_too_much_input_is_kept_and_compacted_after(tmp_path: Path) -> None:
    # Mutation: in `recovery.judge` take "exceeded" for "ok", or for "overflow".
    steps = [*(reply(words(60, f"answer {number}")) for number in range(3)), reply("good", usage=(1_200, 0, 0, 5))]
    async with scene(tmp_path, steps) as stage:
        await fill(stage)
        assert str(await stage.session.prompt("go")) == "good"
        assert [entry.reason for entry in stage.compactions] == ["overflow"]
        assert texts(stage.session.messages)[-1] == "good"
        assert len(stage.chat_requests) == 4
        assert stage.of(CompactionEnd)[0].will_retry is False


async def test_an_answer_to_too_much_input_is_compacted_after_once(tmp_path: Path) -> None:
    # Mutation: in `Run._check` do not take `_is_window_exceeded` back: what is queued meanwhile would compact again.
    steps = [
        *(reply(words(60, f"answer {number}")) for number in range(3)),
        reply("good", usage=(1_200, 0, 0, 5)),
        reply("and more"),
    ]
    async with scene(tmp_path, steps) as stage:
        await fill(stage)

        def queue(event: object) -> None:
            if isinstance(event, CompactionEnd):
                stage.session.follow_up(words(40, "one thing"))

        unsubscribe = stage.session.subscribe(queue)
        stage.session.subscribe(lambda event: unsubscribe() if isinstance(event, CompactionEnd) else None)
        await stage.session.prompt("go")
        assert stage.outcomes == ["applied"]


@pytest.mark.parametrize(
    ("usage", "content", "is_overflow"),
    [
        pytest.param((990, 0, 0, 0), "", True, id="99 % of the window"),
        pytest.param((100, 890, 0, 0), "", True, id="most of it from a cache"),
        pytest.param((900, 0, 0, 0), "", False, id="less than that"),
        pytest.param((995, 0, 0, 5), "The answ", False, id="it said something"),
        pytest.param(None, "", False, id="nobody knows"),
    ],
)
async def test_a_stop_for_length_is_an_overflow_where_the_input_left_no_room(
    tmp_path: Path, usage: Any, content: str, is_overflow: bool
) -> None:
    # Mutation: in `recovery.judge` ask for another share, count fresh input only, or do not look at what was said.
    steps = [
        *(reply(words(60, f"answer {number}")) for number in range(3)),
        stop("length", text=content, usage=usage),
        *([reply("after all")] if is_overflow else []),
    ]
    async with scene(tmp_path, steps) as stage:
        await fill(stage)
        await stage.session.prompt("go")
        assert ("overflow" in [entry.reason for entry in stage.compactions]) == is_overflow


async def test_an_answer_cut_before_its_first_token_by_a_full_window_is_an_overflow(tmp_path: Path) -> None:
    # Mutation: in `recovery.judge` leave the case of stop "length" out.
    steps = [
        *(reply(words(60, f"answer {number}")) for number in range(3)),
        stop("length", usage=(995, 0, 0, 0)),
        reply("after all"),
    ]
    async with scene(tmp_path, steps) as stage:
        await fill(stage)
        assert str(await stage.session.prompt("go")) == "after all"
        assert [entry.reason for entry in stage.compactions] == ["overflow"]
        edits = stage.lines("context_edit")
        assert [edit["replacement"] for edit in edits] == [None]


async def test_opening_a_full_session_asks_nothing_of_a_model(tmp_path: Path) -> None:
    # Mutation: check in `SessionCore.start`.
    manager = SessionManager.create(tmp_path, session_dir=tmp_path / "sessions")
    steps = [*(reply(words(60, f"answer {number}")) for number in range(3)), reply("95 %", usage=(950, 0, 0, 5))]
    async with scene(tmp_path, steps, manager=manager, compaction={"enabled": False}) as stage:
        await fill(stage)
        await stage.session.prompt("fill it")
    async with scene(tmp_path, [reply("fine")], manager=SessionManager.open(stage.path)) as again:
        assert again.provider.requests == []
        assert [event.reason for event in again.of(SessionStart)] == ["resume"]
        await again.session.prompt("go on")
        assert [request.is_summary for request in again.provider.requests] == [True, False]


async def test_a_smaller_model_compacts_before_its_first_request(tmp_path: Path) -> None:
    # Mutation: in `Run._until_stopped` check only after turns.
    from agent_session import Model

    steps = [*(reply(words(150, f"answer {number}")) for number in range(3)), reply("small one")]
    async with scene(tmp_path, steps, window=8_000) as stage:
        await fill(stage, size=150)
        await stage.session.set_model(Model("openai/small", context_window=1_000))
        await stage.session.prompt("go")
        assert [request.is_summary for request in stage.provider.requests][-2:] == [True, False]


async def test_tools_can_see_how_full_the_context_is(tmp_path: Path) -> None:
    # Mutation: in `tool_execution._execute` leave `context_usage` out.
    seen: list[int] = []

    @tool
    def fullness(context: ToolContext) -> str:
        """How full is it?"""
        usage = context.context_usage()
        assert usage is not None
        seen.append(usage.threshold)
        return "ok"

    async with scene(tmp_path, [call("fullness"), reply("ok")], tools=[fullness]) as stage:
        await stage.session.prompt("go")
        assert seen == [stage.session.context_usage().threshold]
