"""Keys: where a session takes them from, and that they are written nowhere."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from agent_session import AgentSession, CompactionSettings, ModelError, SessionManager, Settings
from agent_session.logs import configure_file_log
from agent_session.testing import FakeProvider, Step, call, fail, reply
from tests.session.scene import SUMMARY, words

KEY = "sk-live-0123456789abcdef"
MODELS = ["openai/scripted", "anthropic/claude-sonnet-4-5"]


@pytest.fixture(params=MODELS)
def model(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@asynccontextmanager
async def opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str, *steps: Step, **options: Any
) -> AsyncIterator[tuple[AgentSession, FakeProvider]]:
    """A session that finds its provider by itself."""
    settings = Settings().merged({"retry": {"base_delay_seconds": 0.0, "max_retries": 1}})
    async with FakeProvider(steps) as provider:
        monkeypatch.setenv(f"{model.partition('/')[0].upper()}_BASE_URL", provider.base_url)
        manager = SessionManager.create(tmp_path, session_dir=tmp_path / "sessions")
        with anyio.fail_after(30):
            async with AgentSession(
                model, session_manager=manager, settings=settings, cwd=tmp_path, **options
            ) as session:
                yield session, provider


def keys_sent(provider: FakeProvider) -> list[str | None]:
    headers = [request.headers for request in provider.requests]
    return [sent.get("x-api-key") or sent.get("authorization", "").removeprefix("Bearer ") for sent in headers]


async def test_the_environment_gives_the_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str) -> None:
    monkeypatch.setenv(f"{model.partition('/')[0].upper()}_API_KEY", KEY)
    async with opened(tmp_path, monkeypatch, model, reply("a")) as (session, provider):
        await session.prompt("hi")
    assert keys_sent(provider) == [KEY]


# Mutation: call it once and keep the answer.
async def test_a_callable_gives_a_key_for_each_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str
) -> None:
    keys = iter(["first", "second"])

    async def fresh() -> str:
        return next(keys)

    steps = (call("ls", path="."), reply("done"))
    async with opened(tmp_path, monkeypatch, model, *steps, api_key=fresh, tools=["ls"]) as (session, provider):
        await session.prompt("hi")
    assert keys_sent(provider) == ["first", "second"]


async def test_a_summary_is_asked_for_with_a_key_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str
) -> None:
    # Mutation: in `Summarizer._answered` give no key.
    keys = iter(f"key-{number}" for number in range(9))
    steps = (*(reply(f"answer {number} " * 60) for number in range(3)), reply(SUMMARY))
    async with opened(tmp_path, monkeypatch, model, *steps, api_key=lambda: next(keys)) as (session, provider):
        for number in range(3):
            await session.prompt(f"question {number} " * 60)
        assert (await session.compact()).status == "applied"
    assert keys_sent(provider) == ["key-0", "key-1", "key-2", "key-3"]


def files_below(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


# Mutation: let `read_refusal` leave the key in, or log the headers.
async def test_a_key_is_in_no_entry_no_log_and_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str
) -> None:
    log_file = configure_file_log(tmp_path / "agent.log", level=logging.DEBUG)
    try:
        steps = (reply("a"), fail(500, f"down for {KEY}"), fail(400, f"no such model for {KEY}"))
        async with opened(tmp_path, monkeypatch, model, *steps, api_key=KEY) as (session, provider):
            await session.prompt("hi")
            with pytest.raises(ModelError) as caught:
                await session.prompt("again")
            shown = f"{caught.value} {caught.value!r} {vars(caught.value)} {session!r}"
    finally:
        await anyio.to_thread.run_sync(log_file.close)
    assert set(keys_sent(provider)) == {KEY}
    assert "no such model" in shown
    assert KEY not in shown
    written = files_below(tmp_path)
    assert {name.rpartition(".")[2] for name in written} >= {"jsonl", "log"}
    assert [name for name, content in written.items() if KEY.encode() in content] == []


async def test_a_given_key_is_never_sent_to_another_provider(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Mutation: in `ModelState.api_key` do not look at the provider.
    async with FakeProvider([reply("a"), reply("b")]) as own, FakeProvider([reply(SUMMARY), reply("c")]) as other:
        monkeypatch.setenv("OPENAI_BASE_URL", own.base_url)
        monkeypatch.setenv("MISTRAL_BASE_URL", other.base_url)
        monkeypatch.setenv("MISTRAL_API_KEY", "key-of-the-other")
        session = AgentSession(
            "openai/one",
            api_key="key-of-the-first",
            session_manager=SessionManager.create(tmp_path, session_dir=tmp_path),
            tools=[],
            settings=Settings(compaction=CompactionSettings(summary_model="mistral/two")),
        )
        async with session:
            for number in range(2):
                await session.prompt(words(60, f"question {number}"))
            assert (await session.compact()).status == "applied"
            await session.set_model("mistral/three")
            await session.prompt("go on")
        assert {request.headers["authorization"] for request in own.requests} == {"Bearer key-of-the-first"}
        assert {request.headers["authorization"] for request in other.requests} == {"Bearer key-of-the-other"}
