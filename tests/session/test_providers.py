"""A session does the same whatever its provider speaks: tools, an overflow, a compaction, and on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from agent_session import AgentSession, Model, SessionManager, Settings
from agent_session.testing import FakeProvider, Step, always, calls, collect, fail, pairs_ok, reply
from tests.llm.clients import KEY, SECONDS, SPEAKERS, Speaker

SUMMARY = "The user asked for a list of files; there is one, notes.txt."

# litellm looks for certificates on the event loop, and uses what its libraries have deprecated: its own affairs.
LITELLM = [pytest.mark.allow_blocking, pytest.mark.filterwarnings("ignore")]


@pytest.mark.parametrize(
    "speaker",
    [pytest.param(one, id=one.name, marks=LITELLM if "litellm" in one.name else []) for one in SPEAKERS],
)
async def test_a_run_with_tools_goes_over_the_window_is_compacted_and_goes_on(tmp_path: Path, speaker: Speaker) -> None:
    # Mutation: take the refusal for a bad request in any of the clients; leave a result out of a conversation.
    (tmp_path / "notes.txt").write_text("remember the milk")
    batch: list[tuple[str, Any]] = [("ls", {"path": "."}), ("read", {"path": "notes.txt"})]
    steps: list[Step] = [
        calls(batch, text="I look.", thinking="Where to begin?", usage="auto"),
        reply("There is a note: " + "about milk " * 60, usage="auto"),
        fail(400, "prompt is too long: 1201 tokens > 1200 maximum"),
        reply("The note is about milk.", usage="auto"),
    ]
    settings = Settings().merged({"compaction": {"reserve_tokens": 100, "keep_recent_tokens": 100}})
    async with FakeProvider(steps, summaries=[always(reply(SUMMARY, usage=(50, 0, 0, 9)))]) as provider:
        client = speaker.connect(provider.base_url, KEY)
        manager = SessionManager.create(tmp_path, session_dir=tmp_path / "sessions")
        with anyio.fail_after(SECONDS):
            async with AgentSession(
                Model(speaker.model.id, context_window=4_000, max_output_tokens=1_000),
                session_manager=manager,
                client=client,
                settings=settings,
                system_prompt="Be short.",
                tools=["ls", "read"],
                cwd=tmp_path,
            ) as session:
                with collect(session) as events:
                    await session.prompt("What is in the files here? " + "Look well. " * 40)
                    answer = await session.prompt("And in one sentence?")
                context = list(session.messages)
        await client.aclose()
    assert str(answer) == "The note is about milk."
    assert events.names.count("compaction_end") == 1
    assert pairs_ok(context)
    assert SUMMARY in provider.requests[-1].text
    assert any("remember the milk" in str(message) for message in provider.requests[1].messages)
