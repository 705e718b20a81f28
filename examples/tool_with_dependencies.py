"""A tool that needs something: make it of a method, and what it needs is in its object. Needs no network and no key."""

from __future__ import annotations

import asyncio

from agent_session import AgentSession, SessionManager, ToolError, ToolResultMessage, tool
from agent_session.testing import ScriptedModel, call, reply


class Stock:
    def __init__(self, count: dict[str, int]) -> None:
        self.count = count  # in a program of your own, a connection to a database

    async def take(self, part: str, number: int) -> str:
        """Take a number of parts, named in the singular, out of the stock."""
        if number > self.count.get(part, 0):
            raise ToolError(f"there are only {self.count.get(part, 0)} of {part!r}")
        self.count[part] -= number
        return f"{self.count[part]} left"


async def main() -> None:
    stock = Stock({"bolt": 40, "nut": 7})
    model = ScriptedModel(
        [call("take", part="nut", number=9), call("take", part="nut", number=5), reply("Five it is.")]
    )
    log = SessionManager.in_memory()
    async with model, AgentSession(model.model, client=model, tools=[tool(stock.take)], session_manager=log) as session:
        print(await session.prompt("Take nine nuts, or as many as there are."))
        print([message.text for message in session.messages if isinstance(message, ToolResultMessage)], stock.count)


if __name__ == "__main__":
    asyncio.run(main())
