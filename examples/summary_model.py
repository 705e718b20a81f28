"""Another model writes the summary, and is told what to keep. Needs no network and no key."""

from __future__ import annotations

import asyncio

from agent_session import AgentSession, BeforeCompact, SessionManager, Summarize
from agent_session.testing import ScriptedModel, always, reply

CHEAP = "scripted/cheap"


def by_a_cheap_model(_event: BeforeCompact) -> Summarize:
    return Summarize(model=CHEAP, instructions="Keep every file name.", pinned=["Never touch the lock file."])


async def main() -> None:
    model = ScriptedModel(
        [always(reply("The parser reads config.toml. " * 300))],
        summaries=[always(reply("## Goal\nMend the parser that reads config.toml."))],
    )
    async with model, AgentSession(model.model, client=model, session_manager=SessionManager.in_memory()) as session:
        session.on("before_compact", by_a_cheap_model)
        for question in ("What is read?", "And where?"):
            await session.prompt(question)
        outcome = await session.compact()
        print(outcome)
        assert outcome.entry is not None
        print("written by", outcome.entry.model)
        print(outcome.summary)


if __name__ == "__main__":
    asyncio.run(main())
