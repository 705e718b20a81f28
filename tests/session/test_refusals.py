"""What a session makes of refusals, over HTTP: one recovery for sizes, no repetition, no wait that is too long."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import anyio
import pytest

from agent_session import (
    AgentSession,
    ContextOverflowError,
    ExtensionFailed,
    Model,
    ModelClient,
    ModelRequest,
    ModelRequestError,
    PreparedRequest,
    RateLimitError,
    SessionManager,
    Settings,
    Warning,
)
from agent_session.testing import FakeProvider, always, collect, cut, fail, reply, stop
from tests.session.scene import SUMMARY, fill, filled, scene, texts, words

# Sizes -----------------------------------------------------------------------------------------------


# Mutation: in `llm.retry.is_retryable` look at the status first; in `classify` at 5xx before the words.
@pytest.mark.parametrize("status", [400, 408, 413, 422, 500, 503])
async def test_an_overflow_is_seen_before_a_retry_whatever_its_status(tmp_path: Path, status: int) -> None:
    refusal = fail(status, "requested 12000 tokens but only 2000 available")
    async with scene(tmp_path, [*filled(), refusal, reply("fine")], window=8_000) as stage:
        await fill(stage)
        assert str(await stage.session.prompt("go")) == "fine"
        assert [entry.reason for entry in stage.compactions] == ["overflow"]
        assert "retry_start" not in stage.names
        refused, again = stage.chat_requests[-2:]
        assert refused.raw != again.raw


# Mutation: in `Run._note_limit` learn nothing; in `token_counts` take the larger number.
async def test_the_limit_in_the_refusals_words_is_what_the_session_works_with(tmp_path: Path) -> None:
    refusal = fail(400, "Die Anfrage ist zu lang: 12.000 Tokens, erlaubt sind höchstens 2.048.")
    async with scene(tmp_path, [*filled(), refusal, reply("fine")], window=8_000) as stage:
        await fill(stage)
        await stage.session.prompt("go")
        assert 1_500 < stage.session.context_usage().threshold < 2_048


async def test_a_model_that_nothing_is_known_of_is_warned_of_once_and_recovers_all_the_same(tmp_path: Path) -> None:
    # Mutation: in `Run._check` do not warn, or at each check; take recovery for a matter of known windows.
    refusal = fail(400, "Prompt contains 9000 tokens, too large for model with 2000 maximum context length")
    settings = Settings().merged({"compaction": {"reserve_tokens": 100, "keep_recent_tokens": 200}})
    async with FakeProvider([*filled(), refusal, reply("fine")], summaries=[always(reply(SUMMARY))]) as provider:
        manager = SessionManager.create(tmp_path, session_dir=tmp_path / "sessions")
        async with AgentSession(
            Model("nobody/knows-this-one"),
            session_manager=manager,
            client=provider.client,
            settings=settings,
            tools=[],
            cwd=tmp_path,
        ) as session:
            with collect(session) as events:
                for number in range(3):
                    await session.prompt(words(60, f"question {number}"))
                answer = await session.prompt("go")
    assert str(answer) == "fine"
    assert events.names.count("compaction_end") == 1
    warnings = [event.text for event in events if isinstance(event, Warning)]
    assert len([text for text in warnings if "nothing is known of the window" in text]) == 1


# Budgets, settings, other refusals -------------------------------------------------------------------


async def test_a_request_above_the_budget_of_a_minute_is_neither_compacted_nor_sent_again(tmp_path: Path) -> None:
    # Mutation: in `classify` take it for an overflow, or for a busy minute.
    refusal = fail(
        413,
        "Request too large for model on tokens per minute (TPM): Limit 8000, Requested 20449, please reduce it",
        code="rate_limit_exceeded",
    )
    async with scene(tmp_path, [*filled(), refusal], window=8_000) as stage:
        await fill(stage)
        with pytest.raises(RateLimitError, match="waiting cannot help") as caught:
            await stage.session.prompt("go")
        assert (caught.value.kind, caught.value.limit) == ("request_exceeds_rate_budget", 8_000)
        assert len(stage.provider.requests) == 4
        assert stage.outcomes == []


@pytest.mark.parametrize(
    ("says", "kind"),
    [
        ("max_tokens: 9000 > 8192, the maximum allowed number of output tokens", "output_setting"),
        ("messages.3: tool_use ids were found without tool_result blocks", "pairing"),
        ("image exceeds 5 MB maximum: 6291456 bytes > 5242880 bytes", "content"),
        ("Invalid 'tools[0].function.name': string too long. Expected maximum length 64.", "bad_request"),
    ],
)
async def test_a_400_that_is_no_overflow_is_sent_once_and_compacts_nothing(
    tmp_path: Path, says: str, kind: str
) -> None:
    # Mutation: drop the look-alike from `llm.overflow`; in `is_retryable` retry its kind.
    async with scene(tmp_path, [*filled(), fail(400, says)], window=8_000) as stage:
        await fill(stage)
        with pytest.raises(ModelRequestError) as caught:
            await stage.session.prompt("go")
        assert caught.value.kind == kind
        assert len(stage.provider.requests) == 4
        assert stage.outcomes == []


async def test_a_wait_of_days_is_not_waited_but_told(tmp_path: Path) -> None:
    # Mutation: in `delay_for` cap the wait in place of giving up.
    async with scene(tmp_path, [fail(429, "slow down", headers={"Retry-After": "1000000"})]) as stage:
        now = time.time()
        with anyio.fail_after(1), pytest.raises(RateLimitError) as caught:
            await stage.session.prompt("go")
        assert caught.value.retry_at == pytest.approx(now + 1_000_000, abs=60)
        assert len(stage.provider.requests) == 1


async def test_a_server_that_refuses_to_report_usage_answers_all_the_same(tmp_path: Path) -> None:
    # Mutation: in `OpenAICompatibleClient._conceded` give None.
    refusal = fail(400, "Unrecognized request argument supplied: stream_options")
    async with scene(tmp_path, [refusal, reply("fine")]) as stage:
        answer = await stage.session.prompt("go")
        assert answer is not None
        assert (str(answer), answer.usage.estimated) == ("fine", True)
        assert "retry_start" not in stage.names


# How answers end -------------------------------------------------------------------------------------


@pytest.mark.parametrize("reason", ["model_context_window_exceeded", "model_length", "MODEL_LENGTH"])
async def test_an_answer_that_filled_the_window_is_void_and_the_context_is_compacted(
    tmp_path: Path, reason: str
) -> None:
    # Mutation: leave the word out of `finish._OVERFLOW_FINISH`.
    steps = [*filled(), stop(reason, text="half an ans"), reply("whole answer")]
    async with scene(tmp_path, steps, window=8_000) as stage:
        await fill(stage)
        assert str(await stage.session.prompt("go")) == "whole answer"
        assert [entry.reason for entry in stage.compactions] == ["overflow"]
        assert "half an ans" not in texts(stage.session.messages)


async def test_a_window_that_stays_full_ends_the_prompt(tmp_path: Path) -> None:
    # Mutation: recover from a finish reason without counting it.
    full = stop("model_context_window_exceeded", text="half")
    async with scene(tmp_path, [*filled(), full, full], window=8_000) as stage:
        await fill(stage)
        with pytest.raises(ContextOverflowError, match="model_context_window_exceeded"):
            await stage.session.prompt("go")
        assert stage.outcomes == ["applied"]
        assert len(stage.chat_requests) == 5


@pytest.mark.parametrize(("reason", "is_known"), [("abort", False), ("foo", False), ("eos", True), ("stop", True)])
async def test_any_other_reason_ends_the_turn_with_a_warning_where_nobody_knows_it(
    tmp_path: Path, reason: str, is_known: bool
) -> None:
    # Mutation: in `stop_reason_for` take an unknown reason for an error, or for a call of tools.
    async with scene(tmp_path, [stop(reason, text="all I say")]) as stage:
        assert str(await stage.session.prompt("go")) == "all I say"
        assert len(stage.provider.requests) == 1
        warnings = [event.text for event in stage.of(Warning) if reason in event.text]
        assert len(warnings) == (0 if is_known else 1)


async def test_an_answer_that_was_cut_off_is_asked_for_again_and_its_beginning_stays_in_the_log(tmp_path: Path) -> None:
    # Mutation: in `DirectClient` end a stream without its final event as a plain stop.
    async with scene(tmp_path, [cut(after=5, text="one two three four five"), reply("whole")]) as stage:
        assert str(await stage.session.prompt("go")) == "whole"
        reasons = [line["message"].get("stopReason") for line in stage.lines("message")]
        assert reasons == [None, "error", "stop"]
        assert texts(stage.session.messages) == ["go", "whole"]


# What extensions teach -------------------------------------------------------------------------------


def teaches(pattern: str) -> Any:
    def setup(api: Any) -> None:
        api.overflow_pattern(pattern)

    return setup


async def test_an_extension_teaches_how_a_provider_says_too_long_until_it_is_unloaded(tmp_path: Path) -> None:
    # Mutation: in `ExtensionAPI.overflow_pattern` register nothing, or no withdrawal; in `build_request` leave it out.
    refusal = fail(400, "E-4711: ANFRAGE ABGELEHNT")
    steps = [*filled(), refusal, refusal, reply("fine"), refusal]
    async with scene(tmp_path, steps, window=8_000) as stage:
        await fill(stage)
        with pytest.raises(ModelRequestError):
            await stage.session.prompt("before")
        extension = await stage.session.load(teaches("E-4711.*abgelehnt"))
        assert str(await stage.session.prompt("with it")) == "fine"
        assert [entry.reason for entry in stage.compactions] == ["overflow"]
        await extension.unload()
        with pytest.raises(ModelRequestError):
            await stage.session.prompt("after")
        assert stage.outcomes == ["applied"]


class Watching:
    """A client that notes what it is asked, and leaves the rest to another."""

    def __init__(self, client: ModelClient) -> None:
        self._client = client
        self.requests: list[ModelRequest] = []
        self.api = client.api
        self.stream = client.stream
        self.aclose = client.aclose

    def prepare(self, request: ModelRequest) -> PreparedRequest:
        self.requests.append(request)
        return self._client.prepare(request)


async def test_every_request_carries_what_extensions_taught_the_summarys_too(tmp_path: Path) -> None:
    # Mutation: in `Summarizer._call` leave `overflow_patterns` out.
    async with FakeProvider(filled(), summaries=[always(reply(SUMMARY))]) as provider:
        client = Watching(provider.client)
        manager = SessionManager.create(tmp_path, session_dir=tmp_path / "sessions")
        async with AgentSession(
            Model("openai/scripted", context_window=8_000),
            session_manager=manager,
            client=client,
            settings=Settings().merged({"compaction": {"keep_recent_tokens": 100}}),
            tools=[],
            extensions=[teaches("E-4711")],
            cwd=tmp_path,
        ) as session:
            for number in range(3):
                await session.prompt(words(60, f"question {number}"))
            await session.compact()
    assert len(client.requests) == len(provider.requests) > 3
    assert all([known.pattern for known in request.overflow_patterns] == ["E-4711"] for request in client.requests)


@pytest.mark.parametrize("pattern", ["(", "", ".*", "x?"])
async def test_a_pattern_that_is_none_or_means_everything_is_refused_where_it_is_registered(
    tmp_path: Path, pattern: str
) -> None:
    # Mutation: compile the pattern when the first refusal comes; take one that matches an empty text.
    async with scene(tmp_path, [fail(400, "no")], extensions=[teaches(pattern)]) as stage:
        stage.expects_failures = True
        with pytest.raises(ModelRequestError):
            await stage.session.prompt("go")
        (failure,) = stage.of(ExtensionFailed)
        assert (failure.event, "overflow_pattern" in failure.why) == ("load", True)
        assert stage.outcomes == []
