"""An extension: no compaction while the tests fail, and plain notes of its own as the summary once they pass.

While tests are red, their output is what the model works from: it stays word for word. An overflow is never vetoed,
since the prompt would end there. The notes are made from what leaves the context, without asking a model.
"""

from __future__ import annotations

from collections.abc import Iterator

from agent_session import (
    AssistantMessage,
    BeforeCompact,
    CompactionResult,
    ExtensionAPI,
    ToolResultEvent,
    UserMessage,
    Veto,
)


def setup(api: ExtensionAPI) -> None:
    """Watch the test runs, and decide about compactions."""
    is_red = False

    @api.on("tool_result")
    def watch(event: ToolResultEvent) -> None:
        nonlocal is_red
        if event.tool_name == "bash" and "run-tests" in event.arguments["command"]:
            is_red = event.is_error

    @api.on("before_compact")
    def decide(event: BeforeCompact) -> Veto | CompactionResult | None:
        if event.reason == "overflow":
            return None
        if is_red:
            return Veto("the tests fail, and their output has to stay in view")
        return CompactionResult("\n".join(_notes(event)))


def _notes(event: BeforeCompact) -> Iterator[str]:
    yield "## Notes by keep_red_tests, without a model"
    for message in event.dropped:
        if isinstance(message, UserMessage):
            yield f"- asked: {message.text}"
        elif isinstance(message, AssistantMessage):
            for call in message.tool_calls:
                yield f"- {call.name}: {call.arguments.get('command') or call.arguments.get('path')}"
    yield "- the tests passed when these notes were written"
    if event.previous_summary:
        yield f"\n## Earlier\n{event.previous_summary}"
