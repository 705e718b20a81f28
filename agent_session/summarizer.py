"""Asking a model for a summary: bounded input, refused answers, retries, and what it cost.

The conversation goes in as plain text, cut into chunks that the summary model's own window takes; each chunk
updates the summary of those before it. Nothing of the session is changed here.
"""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import anyio

from agent_session.compaction.prompts import SUMMARY_SYSTEM_PROMPT, check_summary, summary_prompt
from agent_session.compaction.serialize import conversation_text
from agent_session.compaction.tokens import estimate_text_tokens
from agent_session.errors import ModelError, ModelRequestError, SummarizationError
from agent_session.llm.builder import MessageBuilder
from agent_session.llm.client import Finish, ModelRequest, ThinkingLevel
from agent_session.llm.retry import delay_for
from agent_session.models import Model
from agent_session.parts import Parts
from agent_session.recorder import add_usage
from session_store.ids import now_ms
from session_store.messages import AssistantMessage, Message, TextContent, Usage, UserMessage

# What the instruction, the labels and the previous summary's own frame take beside the texts, in tokens.
_PROMPT_TOKENS = 1_500


@dataclass(slots=True)
class Spending:
    """Calls made and tokens spent by one compaction, by model; kept whatever became of the calls."""

    calls: int = 0
    by_model: dict[str, Usage] = field(default_factory=dict)

    def add(self, model: str, usage: Usage) -> None:
        self.by_model[model] = add_usage(self.by_model[model], usage) if model in self.by_model else usage

    @property
    def usage(self) -> Usage | None:
        total: Usage | None = None
        for usage in self.by_model.values():
            total = usage if total is None else add_usage(total, usage)
        return total


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryOrder:
    """What to summarise, and how. `prompt` replaces the default instruction."""

    messages: Sequence[Message]
    kind: Literal["history", "turn_prefix"] = "history"
    previous_summary: str | None = None
    instructions: str | None = None
    pinned: Sequence[str] = ()
    prompt: str | None = None
    model: str | None = None
    max_tokens: int | None = None


class Summarizer:
    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def text(self, messages: Sequence[Message]) -> str:
        """The delimited text the summariser is given."""
        return conversation_text(messages, nonce=secrets.token_hex(8))

    async def summarize(
        self,
        order: SummaryOrder,
        spending: Spending,
        *,
        progress: Callable[[int, int], Awaitable[None]] | None = None,
    ) -> tuple[str, str]:
        """(summary, id of the model that wrote it). The summary model first, the session's as fallback.

        `progress(chunk, chunks)` is awaited before each call, counting from 1.

        Raises:
            SummarizationError: an answer that is no summary, or more calls than `max_summary_calls`.
            ModelError: the provider refused both models, retries included.
        """
        session_model = self._parts.models.model
        wanted = order.model or self._parts.settings().compaction.summary_model
        models = [await self._parts.models.resolve(Model.of(wanted))] if wanted and wanted != session_model.id else []
        models.append(session_model)
        for number, model in enumerate(models):
            try:
                return await self._with_model(model, order, spending, progress), model.id
            except (ModelError, SummarizationError) as error:
                if number == len(models) - 1:
                    raise
                self._parts.log.warning("summary.fallback", model=model.id, error=str(error))
        raise AssertionError("unreachable: the last model returns or raises")

    async def _with_model(
        self,
        model: Model,
        order: SummaryOrder,
        spending: Spending,
        progress: Callable[[int, int], Awaitable[None]] | None,
    ) -> str:
        max_tokens = self._max_tokens(model, order)
        room = self._input_limit(model) - max_tokens - _PROMPT_TOKENS
        chunks = self._chunks(order.messages, max(room - max_tokens, 500))
        summary = order.previous_summary
        for number, chunk in enumerate(chunks, start=1):
            if progress is not None:
                await progress(number, len(chunks))
            instruction = summary_prompt(
                conversation=chunk,
                previous_summary=summary,
                instructions=order.instructions,
                pinned=order.pinned,
                kind=order.kind,
                prompt=order.prompt,
            )
            summary = await self._call(model, instruction, max_tokens, spending)
        assert summary is not None
        return summary

    def _max_tokens(self, model: Model, order: SummaryOrder) -> int:
        """The summary's own limit: the setting, the model's output, and a quarter of its window at most."""
        budget = self._parts.meter.budget(self._parts.settings().compaction)
        wanted = order.max_tokens or budget.summary_max_tokens
        return max(1, min(wanted, model.output_limit, self._input_limit(model) // 4))

    def _input_limit(self, model: Model) -> int:
        limit = min(model.context_limit, model.max_input_tokens or model.context_limit)
        if model.id == self._parts.models.model.id and self._parts.models.learned_limit:
            limit = min(limit, self._parts.models.learned_limit)
        return limit

    def _chunks(self, messages: Sequence[Message], room: int) -> list[str]:
        """Texts of consecutive messages, each within `room` tokens unless one message alone is larger."""
        nonce = secrets.token_hex(8)
        chunks: list[list[Message]] = [[]]
        filled = 0
        for message in messages:
            tokens = estimate_text_tokens(conversation_text([message], nonce=nonce))
            if chunks[-1] and filled + tokens > room:
                chunks.append([])
                filled = 0
            chunks[-1].append(message)
            filled += tokens
        return [conversation_text(chunk, nonce=nonce) for chunk in chunks]

    async def _call(self, model: Model, instruction: str, max_tokens: int, spending: Spending) -> str:
        """One summary call, with one more where the first stopped for length while thinking."""
        session_thinks = self._parts.models.thinking_level != "off" and model.reasoning is not False
        levels: list[ThinkingLevel] = ["minimal", "off"] if session_thinks else ["off"]
        for level in levels:
            message = await self._request(model, instruction, level, max_tokens, spending)
            if message.stop_reason == "length" and level != levels[-1]:
                continue
            try:
                return check_summary(message)
            except ValueError as error:
                raise SummarizationError(f"the summary of {model.id} is not usable: {error}") from None
        raise AssertionError("unreachable: the last level returns or raises")

    async def _request(
        self, model: Model, instruction: str, level: ThinkingLevel, max_tokens: int, spending: Spending
    ) -> AssistantMessage:
        settings = self._parts.settings()
        if spending.calls >= settings.compaction.max_summary_calls:
            raise SummarizationError(
                f"no summary within {spending.calls} calls (compaction.max_summary_calls); "
                "raise it, or set compaction.summary_model to one with a larger window"
            )
        spending.calls += 1
        attempt = 0
        while True:
            request = ModelRequest(
                model=model,
                messages=(UserMessage(content=(TextContent(instruction),), timestamp=now_ms()),),
                system_prompt=SUMMARY_SYSTEM_PROMPT,
                thinking_level=level,
                max_output_tokens=max_tokens,
                session_id=self._parts.manager.session_id,
                api_key=await self._parts.models.api_key(model),
                silence_seconds=settings.compaction.summary_silence_seconds,
            )
            try:
                return await self._stream(model, request, spending)
            except ModelError as error:
                delay = delay_for(attempt + 1, settings.retry, error, now=time.time(), random=random.random)
                if delay is None:
                    raise
                attempt += 1
                self._parts.log.info("summary.retry", attempt=attempt, delay=delay, error=str(error))
                await anyio.sleep(delay)

    async def _stream(self, model: Model, request: ModelRequest, spending: Spending) -> AssistantMessage:
        client = self._parts.models.client_of(model)
        builder = MessageBuilder(request, client.api)
        finish: Finish | None = None
        try:
            async with client.stream(client.prepare(request)) as events:
                async for event in events:
                    builder.add(event)
                    if isinstance(event, Finish):
                        finish = event
        finally:
            # Also what a cut or cancelled call reported was paid for.
            usage = builder.message().usage
            if usage.is_reported:
                spending.add(model.id, usage)
        if finish is None:
            raise ModelRequestError("the summary's stream ended without its final event", kind="stream_cut")
        return builder.message(finish.stop_reason)
