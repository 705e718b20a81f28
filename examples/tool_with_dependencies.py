"""A tool that needs something: it is given to the session and found in the context. Needs no network and no key."""

from __future__ import annotations

import asyncio

from agent_session import AgentSession, SessionManager, ToolContext, ToolError, ToolResultMessage, tool
from agent_session.testing import ScriptedModel, call, reply


@tool
async def take(part: str, number: int, context: ToolContext) -> str:
    """Take a number of parts, named in the singular, out of the stock."""
    stock: dict[str, int] = context.deps  # in a program of your own, a connection to a database
    if number > stock.get(part, 0):
        raise ToolError(f"there are only {stock.get(part, 0)} of {part!r}")
    stock[part] -= number
    return f"{stock[part]} left"


async def main() -> None:
    stock = {"bolt": 40, "nut": 7}
    model = ScriptedModel(
        [call("take", part="nut", number=9), call("take", part="nut", number=5), reply("Five it is.")]
    )
    log = SessionManager.in_memory()
    async with model, AgentSession(model.model, client=model, tools=[take], deps=stock, session_manager=log) as session:
        print(await session.prompt("Take nine nuts, or as many as there are."))
        print([message.text for message in session.messages if isinstance(message, ToolResultMessage)], stock)


if __name__ == "__main__":
    asyncio.run(main())
