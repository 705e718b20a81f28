"""Another model and another prompt for the summary of what leaves the context.

As it is: `AgentSession(..., extensions=["custom_compaction"])` asks the session's own summary model for notes in
the order a colleague would want them. Copy the file to change it, or make a `setup` of your own:

    from agent_session import load_shipped
    setup = load_shipped("custom_compaction").custom_compaction(model="openai/gpt-5-mini", prompt="List the decisions.")
    AgentSession(..., extensions=[setup])

The runtime makes the summary: it has the credentials, cuts what does not fit into pieces, carries the previous
summary on and records what it cost. Where it fails, the default summary is made, and `extension_failed` says why.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from agent_session import BeforeCompact, CompactionResult, ExtensionAPI, ExtensionContext

HANDOVER_PROMPT = """\
Write handover notes for a colleague who takes this work over now and can see nothing but your notes.

Use these headings, and leave out none:

## Goal
What the person wants, in their own words where they were exact.
## Constraints & Preferences
What must hold, what must not be done, how they want things done.
## Key Decisions
Each decision with its reason, and what was rejected.
## Progress
Done, in progress, blocked: with the paths of files and the names of functions.
## Next Steps
In order; the first one concrete enough to start at once.
## Critical Context
Error messages, commands, numbers and identifiers that will be needed again, copied exactly.

If notes from before are given, carry forward everything in them that still holds, and correct what does not.
"""

EVERY_REASON = ("threshold", "overflow", "manual")


def custom_compaction(
    *,
    model: str | None = None,
    prompt: str = HANDOVER_PROMPT,
    max_tokens: int | None = None,
    reasons: Collection[str] = EVERY_REASON,
) -> Callable[[ExtensionAPI], None]:
    """A `setup` with these arguments.

    `model` is `provider/name`; None is what the settings say. `prompt` takes the place of the default instruction;
    the runtime adds what was given with
    `compact("...")`. `max_tokens` bounds the summary. Compactions for other
    than these `reasons` are left to the default.
    """

    def setup(api: ExtensionAPI) -> None:
        @api.on("before_compact")
        async def summarize_differently(event: BeforeCompact, ctx: ExtensionContext) -> CompactionResult | None:
            if event.reason not in reasons:
                return None
            api.logger.info("custom_compaction.summarize", reason=event.reason, model=model or ctx.model.id)
            return await event.summarize(prompt=prompt, model=model, max_tokens=max_tokens)

    return setup


setup = custom_compaction()
