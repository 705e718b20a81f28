"""One run, event by event, as a front end would show it. Needs no network and no key."""

from __future__ import annotations

import asyncio

from agent_session import AgentSession, MessageUpdate, SessionManager, TextDelta, ToolExecutionEnd, ToolExecutionStart
from agent_session.testing import ScriptedModel, call, reply


async def main() -> None:
    model = ScriptedModel([call("bash", command="echo hello"), reply("It says hello.", chunks=4)])
    async with model, AgentSession(model.model, client=model, session_manager=SessionManager.in_memory()) as session:
        async with session.run("What does it say?") as run:
            async for event in run:
                match event:
                    case MessageUpdate(delta=TextDelta(text=text)):
                        print(text, end="", flush=True)
                    case ToolExecutionStart():
                        print(f"[{event.tool_name} {event.arguments}]")
                    case ToolExecutionEnd():
                        print(f"[took {event.duration:.1f} s{', failed' if event.is_error else ''}]")
                    case _:
                        pass
            print()
        message = await run.result()
        print(repr(message))


if __name__ == "__main__":
    asyncio.run(main())
