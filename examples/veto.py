"""A handler that says no: the first compaction is vetoed, the second is not. Needs no network and no key."""

from __future__ import annotations

import asyncio

from agent_session import AgentSession, BeforeCompact, CompactionEnd, SessionManager, Veto
from agent_session.testing import ScriptedModel, always, reply

in_progress = {"release notes"}


def keep_what_is_in_progress(event: BeforeCompact) -> Veto | None:
    if in_progress and event.reason != "overflow":
        return Veto(f"still at work on the {', '.join(in_progress)}")
    return None


async def main() -> None:
    model = ScriptedModel(
        [reply(f"Answer {number}. " * 400) for number in range(3)],
        summaries=[always(reply("## Goal\nThree questions were answered.\n"))],
    )
    async with model, AgentSession(model.model, client=model, session_manager=SessionManager.in_memory()) as session:
        session.on("before_compact", keep_what_is_in_progress)

        @session.on("compaction_end")
        def told(event: CompactionEnd) -> None:
            print(event.outcome)

        for number in range(3):
            await session.prompt(f"Question {number}?")
        await session.compact()
        in_progress.clear()
        await session.compact()


if __name__ == "__main__":
    asyncio.run(main())
