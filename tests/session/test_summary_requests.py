"""What a summary is asked for with: which key, how long it may be, how long it may be silent, and what it is shown."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import anyio
import orjson
import pytest

from agent_session import (
    AgentSession,
    CompactionError,
    CompactionProgress,
    ImageContent,
    Model,
    ModelRequestError,
    Settings,
    tool,
)
from agent_session.testing import FakeProvider, always, calls, cut, fail, hang, reply, stop
from session_store import SessionManager
from tests.pictures import png
from tests.session.scene import SUMMARY, SYSTEM_PROMPT, fill, filled, scene, words


@tool
def look(at: str) -> str:
    """Look at something.

    Args:
        at: What.
    """
    return words(30, f"seen {at}")


def keys_of(requests: list[Any]) -> list[str]:
    return [request.headers["authorization"].removeprefix("Bearer ") for request in requests]


# Keys ---------------------------------------------------------------------------------------------


async def test_the_key_is_asked_for_anew_for_each_part_of_a_summary_and_for_each_retry(tmp_path: Path) -> None:
    # Mutation: in `Summarizer._answered` resolve the key before the loop, or in `Summarizer.summarize` once for all.
    numbers = iter(range(100))
    summaries: list[Any] = [fail(503, "busy"), always(reply(SUMMARY))]
    async with scene(
        tmp_path,
        filled(4, 150),
        summaries=summaries,
        window=1_600,
        compaction={"enabled": False},
        api_key=lambda: f"key-{next(numbers)}",
    ) as stage:
        await fill(stage, 4, 150)
        assert (await stage.session.compact(keep_recent_tokens=400)).status == "applied"
        assert len(stage.summary_requests) == 4
        assert keys_of(stage.provider.requests) == [f"key-{number}" for number in range(8)]


async def test_a_summary_model_without_a_key_is_replaced_by_the_sessions_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Mutation: in `Summarizer.summarize` go on to the next model only after an answer of the provider.
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    async with FakeProvider(filled(), summaries=[reply(SUMMARY)]) as provider:
        monkeypatch.setenv("OPENAI_BASE_URL", provider.base_url)
        session = AgentSession(
            Model("openai/scripted", context_window=8_000),
            api_key="key",
            session_manager=SessionManager.create(tmp_path, session_dir=tmp_path / "sessions"),
            tools=[],
            cwd=tmp_path,
            settings=Settings().merged({"compaction": {"summary_model": "anthropic/claude"}}),
        )
        async with session:
            for number in range(3):
                await session.prompt(words(60, f"question {number}"))
            outcome = await session.compact()
            assert outcome.entry is not None
            assert outcome.entry.model == session.model.id == "openai/scripted"


# How long -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("summary_input", ["text", "prefix"])
@pytest.mark.parametrize(
    ("settings", "model", "most"),
    [
        pytest.param({"reserve_tokens": 500_000}, {"max_output_tokens": 4_000}, 4_000, id="model"),
        pytest.param({"summary_max_tokens": 700}, {"max_output_tokens": 4_000}, 700, id="setting"),
        pytest.param({"reserve_tokens": 10_000}, {}, 8_000, id="four fifths of the reserve"),
    ],
)
async def test_a_summary_is_asked_for_no_more_than_setting_and_model_allow(
    tmp_path: Path, summary_input: str, settings: dict[str, Any], model: dict[str, Any], most: int
) -> None:
    # Mutation: in `Summarizer._max_tokens` leave the model's output, or the setting, out of the minimum.
    compaction = {"summary_input": summary_input, **settings}
    async with scene(tmp_path, filled(), tools=[look], window=100_000, compaction=compaction) as stage:
        await stage.session.set_model(Model("openai/scripted", context_window=100_000, **model))
        await fill(stage)
        assert (await stage.session.compact()).status == "applied"
        [request] = stage.summary_requests
        assert request.payload["max_tokens"] == most


async def test_a_summary_that_goes_silent_fails_and_one_that_is_only_slow_does_not(tmp_path: Path) -> None:
    # Mutation: in `Summarizer._call` leave `silence_seconds` to the default; in `llm.transport` limit the total time.
    patience = {"summary_silence_seconds": 0.3}
    slow = reply(words(8), chunks=8, pace=0.06)
    summaries = [hang(after=2), hang(), slow]
    async with scene(
        tmp_path, filled(), summaries=summaries, compaction=patience, retry={"max_retries": 0}, window=8_000
    ) as stage:
        await fill(stage)
        for _ in range(2):
            with (
                anyio.fail_after(5),
                pytest.raises(CompactionError, match=r"0\.3 seconds.*summary_silence") as caught,
            ):
                await stage.session.compact()
            assert isinstance(caught.value.outcome.error, ModelRequestError)  # type: ignore[union-attr]
        started = anyio.current_time()
        with anyio.fail_after(5):
            outcome = await stage.session.compact()
        assert outcome.status == "applied"
        assert anyio.current_time() - started > patience["summary_silence_seconds"]


async def test_a_prefix_summary_that_goes_silent_is_asked_for_as_text(tmp_path: Path) -> None:
    # Mutation: in `Summarizer._from_prefix` leave `silence_seconds` to the session's.
    patience = {"summary_silence_seconds": 0.3, "summary_input": "prefix"}
    async with scene(
        tmp_path,
        filled(),
        summaries=[hang(), reply(SUMMARY)],
        tools=[look],
        compaction=patience,
        retry={"max_retries": 0},
        window=20_000,
    ) as stage:
        await fill(stage)
        with anyio.fail_after(5):
            assert (await stage.session.compact()).status == "applied"


# How often ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("failing", [fail(503, "busy"), fail(429, "slow down"), cut(), fail(500, "oops")])
async def test_a_summary_is_asked_for_as_often_as_a_turn_would_be(tmp_path: Path, failing: Any) -> None:
    # Mutation: in `Summarizer._answered` retry what is not for the moment, or once more than the setting.
    async with scene(tmp_path, filled(), summaries=[always(failing)], retry={"max_retries": 2}) as stage:
        await fill(stage)
        with pytest.raises(CompactionError):
            await stage.session.compact()
        assert len(stage.summary_requests) == 3


async def test_an_automatic_summary_that_fails_for_good_leaves_the_run_going(tmp_path: Path) -> None:
    # Mutation: in `Run._check` raise the error of an outcome that failed.
    full = calls([("look", {"at": "a"})], usage=(900, 0, 0, 5))
    steps = [*filled(), full, reply("done", usage=(300, 0, 0, 5))]
    async with scene(
        tmp_path, steps, summaries=[always(fail(503, "busy"))], tools=[look], retry={"max_retries": 1}
    ) as stage:
        await fill(stage)
        assert str(await stage.session.prompt("go")) == "done"
        assert stage.outcomes == ["failed"]
        assert len(stage.summary_requests) == 2


async def test_waiting_to_ask_again_for_a_summary_ends_with_an_abort(tmp_path: Path) -> None:
    # Mutation: in `Summarizer._answered` wait in a shielded scope.
    busy = fail(503, "busy", headers={"Retry-After": "50"})
    async with scene(tmp_path, filled(), summaries=[busy]) as stage:
        await fill(stage)
        outcomes: list[str] = []

        async def compact() -> None:
            outcomes.append((await stage.session.compact()).status)

        with anyio.fail_after(5):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(compact)
                while not stage.summary_requests or not stage.summary_requests[0].is_answered:
                    await anyio.lowlevel.checkpoint()
                await anyio.wait_all_tasks_blocked()
                await stage.session.abort()
        assert outcomes == ["aborted"]
        assert len(stage.summary_requests) == 1


async def test_every_sort_of_call_counts_towards_the_most_there_may_be(tmp_path: Path) -> None:
    # Mutation: in `Summarizer._answered` count one call for each model, or none for the second without thinking.
    limit = {"max_summary_calls": 3, "summary_model": "openai/s", "enabled": False}
    summaries = [always(stop("length", text="## Goal"))]
    async with scene(
        tmp_path, filled(), summaries=summaries, compaction=limit, window=8_000, thinking_level="high"
    ) as stage:
        await fill(stage)
        with pytest.raises(CompactionError, match="max_summary_calls"):
            await stage.session.compact()
        # Two of the summary model, with little thinking and without, then one of the session's.
        assert [request.payload["model"] for request in stage.summary_requests] == ["s", "s", "scripted"]


# What is shown ----------------------------------------------------------------------------------------


async def test_an_image_of_megabytes_is_a_few_words_in_what_the_summariser_reads(tmp_path: Path) -> None:
    # Mutation: in `serialize._text` write the data of images.
    image = ImageContent(base64.b64encode(png(64, 64) + b"\0" * 3_000_000).decode(), "image/png")
    async with scene(tmp_path, filled(4), window=100_000, keep=100) as stage:
        await stage.session.prompt(words(60, "question"), images=[image])
        await fill(stage)
        await stage.session.compact()
        assert "question word" in stage.summary_requests[0].text
        assert all(image.data[:100] not in request.text for request in stage.summary_requests)
        assert sum(len(request.raw) for request in stage.summary_requests) < 20_000
        assert len(stage.chat_requests[0].raw) > 3_000_000


async def test_system_prompt_and_tools_are_the_same_bytes_before_and_after_a_compaction(tmp_path: Path) -> None:
    # Mutation: in `build_request` say in the system prompt that there was a compaction.
    async with scene(tmp_path, [*filled(), reply("on")], tools=[look], window=8_000) as stage:
        await fill(stage)
        await stage.session.compact()
        await stage.session.prompt("go on")
        before, after = (request.raw for request in stage.chat_requests[-2:])
        opening = before[: before.index(b'"role":"user"')]
        assert SYSTEM_PROMPT.encode() in opening
        assert after.startswith(opening)
        declared = orjson.dumps(stage.chat_requests[-1].payload["tools"])
        assert declared in before
        assert declared in after


async def test_another_models_summary_is_never_asked_for_in_the_live_conversation(tmp_path: Path) -> None:
    # Mutation: in `Summarizer.takes_live` do not compare the models.
    prefix = {"summary_input": "prefix", "summary_model": "openai/s"}
    async with scene(tmp_path, filled(), tools=[look], window=20_000, compaction=prefix) as stage:
        await fill(stage)
        await stage.session.compact()
        [request] = stage.summary_requests
        assert request.payload["model"] == "s"
        assert "tools" not in request.payload
        assert "record of the conversation" in request.text


async def test_after_a_refusal_for_size_the_summary_is_never_asked_for_in_the_live_conversation(tmp_path: Path) -> None:
    # Mutation: in `EntryMaker._kept_from` do not look at the reason: the same request would be refused again.
    steps = [*filled(), fail(400, "Input is too long for requested model."), reply("fine")]
    prefix = {"summary_input": "prefix"}
    async with scene(tmp_path, steps, tools=[look], window=20_000, compaction=prefix) as stage:
        await fill(stage)
        assert str(await stage.session.prompt("go")) == "fine"
        assert ["tools" in request.payload for request in stage.summary_requests] == [False]


async def test_how_far_a_summary_is_is_told_with_its_seconds(tmp_path: Path) -> None:
    # Mutation: in `compaction_attempt.summarized` tell no progress, or the clock's own time.
    async with scene(tmp_path, filled(), window=8_000) as stage:
        await fill(stage)
        outcome = await stage.session.compact()
        (progress,) = stage.of(CompactionProgress)
        assert (progress.phase, progress.chunk, progress.chunks) == ("summarizing", 1, 1)
        assert 0 <= progress.seconds <= outcome.duration
