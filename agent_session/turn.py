"""One call of the model: build the request, stream the answer, record it.

Whatever happens is in the log afterwards: an answer, a failed attempt with its error, or what had streamed when it
was aborted. Overflows and errors are values here; what to do about them is `run`'s business.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import anyio

from agent_session.errors import ContextOverflowError, ModelError, ModelRequestError
from agent_session.events import MessageDiscarded, MessageStart, MessageUpdate, Warning
from agent_session.llm.builder import MessageBuilder
from agent_session.llm.client import Finish, ResponseId, UsageReport
from agent_session.llm.finish import is_known_finish, is_overflow_finish
from agent_session.parts import Parts
from agent_session.request_building import build_request, prepare
from session_store.entries import MessageEntry
from session_store.ids import now_ms
from session_store.messages import AssistantMessage

_ABORTED = "the run was aborted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """`entry` is where it stands in the log; `error` is set where the attempt failed."""

    message: AssistantMessage
    entry: MessageEntry
    error: ModelError | None = None


async def ask_model(parts: Parts, turn_index: int) -> Answer:
    """Send the context and record what comes back.

    Raises:
        Nothing of the provider's: its errors are in the answer. Cancellation records what had streamed as an
        aborted message, then goes on its way.
    """
    request = await build_request(parts)
    parts.meter.sending(request.messages)
    await parts.recorder.flush()
    await parts.dispatcher.notify(MessageStart(turn_index=turn_index))
    client_api = ""
    builder = MessageBuilder(request, client_api)
    finish: Finish | None = None
    error: ModelError | None = None
    try:
        client = parts.models.client_of(request.model)
        builder = MessageBuilder(request, client.api)
        prepared = await prepare(parts, client, request)
        async with client.stream(prepared) as events:
            async for event in events:
                builder.add(event)
                if isinstance(event, Finish):
                    finish = event
                elif not isinstance(event, UsageReport | ResponseId):
                    await parts.dispatcher.notify(MessageUpdate(delta=event))
        if finish is None:
            error = ModelRequestError("the stream ended without its final event", kind="stream_cut")
        elif is_overflow_finish(finish.raw):
            error = ContextOverflowError(f"the model stopped with {finish.raw}", kind="overflow", code=finish.raw)
    except ModelError as refused:
        error = refused
    except anyio.get_cancelled_exc_class():
        partial = builder.message("aborted", _ABORTED)
        with anyio.CancelScope(shield=True):
            if partial.content:
                await parts.recorder.store(partial)
            else:
                await parts.dispatcher.notify(MessageDiscarded(reason=_ABORTED))
        raise
    except Exception as failure:
        # A client of somebody else's that raises what it should not: the attempt is recorded all the same.
        parts.log.exception("turn.client_failed", model=request.model.id)
        error = ModelRequestError(f"{type(failure).__name__}: {failure}", kind="unknown")
        error.__cause__ = failure
    if error is not None:
        failed = builder.message("error", str(error))
        entry = await _recorded(parts, failed)
        message = entry.message
        assert isinstance(message, AssistantMessage)
        error.message = message
        return Answer(message=message, entry=entry, error=error)
    assert finish is not None
    if not is_known_finish(finish.raw):
        await parts.dispatcher.notify(
            Warning(text=f"{request.model.id} stopped with {finish.raw!r}, a reason nobody here knows: the turn ends")
        )
    entry = await _recorded(parts, builder.message(finish.stop_reason))
    message = entry.message
    assert isinstance(message, AssistantMessage)
    return Answer(message=message, entry=entry)


def aborted(newest: AssistantMessage | None = None) -> AssistantMessage:
    """What an aborted prompt returns: the answer that the abort cut off, or, where none had begun, one without content.

    Never the answer of an earlier turn, which could be taken for the last. One without content is in no log.
    """
    if newest is not None and newest.stop_reason == "aborted":
        return newest
    return AssistantMessage(content=(), stop_reason="aborted", error_message=_ABORTED, timestamp=now_ms())


async def _recorded(parts: Parts, message: AssistantMessage) -> MessageEntry:
    """The answer in the log, also where an abort cuts the handlers of `message_end` off: it was paid for."""
    stored: list[bool] = []
    try:
        return await parts.recorder.record(message, on_stored=lambda: stored.append(True))
    except anyio.get_cancelled_exc_class():
        if not stored:
            # Aborted, so that what a handler had no time to change is never sent.
            kept = message if message.is_failed else replace(message, stop_reason="aborted", error_message=_ABORTED)
            with anyio.CancelScope(shield=True):
                await parts.recorder.store(kept)
        raise
