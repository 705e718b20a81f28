"""What one types at the plain Python prompt: no `await`, no block, no event loop. Needs no network and no key."""

from __future__ import annotations

from agent_session import SessionManager, SyncSession
from agent_session.testing import ScriptedModel, always, reply

# At a prompt of your own: session = SyncSession("openai/gpt-5-mini")
model = ScriptedModel(
    [reply("An empty line ends the parser too early. " * 200), reply("A flag would do. " * 200)],
    summaries=[always(reply("## Goal\nMend the parser.\n\n## Next Steps\nTry the flag."))],
)
session = SyncSession(model.model, client=model, session_manager=SessionManager.in_memory())

message = session.prompt("What ends the parser too early?", on_text=lambda text: None)
print(repr(message))
print(session.context_usage())

session.prompt("How can it be mended?", on_text=lambda text: None)
print(session.compact("Keep the decisions about the parser"))
print(*map(repr, session.messages), sep="\n")
print(session)
# Nothing is closed: the interpreter's exit does it.
