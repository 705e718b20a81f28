"""Whose key goes where."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_session import AgentSession, CompactionSettings, Settings
from agent_session.testing import FakeProvider, reply
from session_store import SessionManager
from tests.session.scene import SUMMARY, words


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
