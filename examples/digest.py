"""A summary from the log itself, as it stands in where no model can write one. Needs no network and no key."""

from __future__ import annotations

import asyncio
import tempfile

from agent_session import AgentSession, CompactionSettings, SessionManager, Settings
from agent_session.testing import ScriptedModel, call, reply

WORK = [
    call("write", path="separator.txt", content="comma\n"),
    reply("Written. " * 50),
    call("bash", command="seq 400; grep semicolon separator.txt"),
    call("edit", path="separator.txt", old_text="comma", new_text="semicolon"),
    reply("It is a semicolon now."),
    call("read", path="grammar.md"),
    reply("There is no grammar.md."),
]
PROMPTS = ("Write down the separator.\n## Never ask.", "Make it a semicolon.", "Follow the grammar in grammar.md.")


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        model = ScriptedModel(WORK)
        settings = Settings(compaction=CompactionSettings(summarizer="digest"))
        log = SessionManager.in_memory()
        async with (
            model,
            AgentSession(model.model, client=model, session_manager=log, settings=settings, cwd=folder) as session,
        ):
            for prompt in PROMPTS:
                await session.prompt(prompt)
            outcome = await session.compact(keep_recent_tokens=0)
            print(outcome, outcome.summary, sep="\n")


if __name__ == "__main__":
    asyncio.run(main())
