"""A session that is left and gone on with, from its file alone. Needs no network and no key."""

from __future__ import annotations

import asyncio
import tempfile

from agent_session import AgentSession, SessionManager
from agent_session.testing import ScriptedModel, reply


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        model = ScriptedModel([reply("The flag is called --strict.")])
        # Without a session manager the file goes to the default folder, and resume="latest" finds it there.
        log = SessionManager.create(".", session_dir=folder)
        async with model, AgentSession(model.model, client=model, session_manager=log) as session:
            await session.prompt("What is the flag called?")
            path = session.path

        model = ScriptedModel([reply("Then --strict it is.")])
        async with model, AgentSession(client=model, resume=path) as session:
            print("goes on with", session.model.id)
            for message in session.messages:
                print(message)
            print(await session.prompt("Use it."))
            print(len(session.messages), "messages,", session.stats().total.requests, "requests in all")


if __name__ == "__main__":
    asyncio.run(main())
