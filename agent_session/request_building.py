"""The session's next request, as every call over the live context makes it: a turn's, and a summary's over its prefix.

The rule it keeps: one way to build it, hooks included, so that two requests of a session differ only by their tail.
"""

from __future__ import annotations

from dataclasses import replace

from agent_session.compaction.trigger import clamp_output_tokens
from agent_session.hooks import BeforeRequest, Context
from agent_session.llm.client import ModelClient, ModelRequest, PreparedRequest
from agent_session.llm.handover import hand_over
from agent_session.parts import Parts


async def build_request(parts: Parts) -> ModelRequest:
    """The context as it is now, with system prompt, tools and limits; handlers of `context` have had their say."""
    settings = parts.settings()
    context = parts.meter.context()
    budget = parts.meter.budget(settings.compaction)
    measurement = parts.meter.measure()
    messages = tuple(item.message for item in context)
    if parts.dispatcher.hooks.has(Context):
        messages = (await parts.dispatcher.decide(Context(messages=messages))).messages
    return ModelRequest(
        model=parts.models.model,
        messages=messages,
        system_prompt=parts.shape.system_prompt,
        tools=parts.shape.tools,
        thinking_level=parts.models.thinking_level,
        max_output_tokens=clamp_output_tokens(parts.models.model, budget, measurement.tokens),
        session_id=parts.manager.session_id,
        api_key=await parts.models.api_key(parts.models.model),
        silence_seconds=settings.retry.silence_seconds,
        overflow_patterns=parts.models.overflow_patterns,
    )


async def prepare(parts: Parts, client: ModelClient, request: ModelRequest) -> PreparedRequest:
    """The payload that the client makes of what its model may be sent; handlers of `before_request` have the last say.

    Whatever the log holds and handlers of `context` made of it, the messages are in order before the client sees them.
    """
    messages = hand_over(request.messages, model=request.model, api=client.api, declares_tools=bool(request.tools))
    prepared = client.prepare(replace(request, messages=messages))
    if not parts.dispatcher.hooks.has(BeforeRequest):
        return prepared
    event = await parts.dispatcher.decide(
        BeforeRequest(model=request.model.id, payload=prepared.payload, headers=prepared.headers)
    )
    return PreparedRequest(request=prepared.request, payload=event.payload, headers=event.headers)
