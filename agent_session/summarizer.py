"""Asking a model for a summary: bounded input, refused answers, retries, and what it cost.

The conversation goes in as plain text, cut into chunks that the summary model's own window takes; each chunk updates
the summary of those before it. With `summary_input="prefix"` it is asked for in one more message of the live
conversation instead, for as long as that fits; the text is what it falls back to. No request is sent that is known
not to fit. Nothing of the session is changed here.
"""

from __future__ import annotations

import random
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

import anyio

from agent_session.compaction.chunks import Chunks, chunked
from agent_session.compaction.prompts import SUMMARY_SYSTEM_PROMPT, check_summary, prefix_prompt, summary_prompt
from agent_session.compaction.serialize import conversation_text
from agent_session.compaction.text_tokens import estimate_text_tokens
from agent_session.compaction.tokens import estimate_fixed_request_tokens
from agent_session.errors import ContextOverflowError, ModelError, ModelRequestError, SummarizationError
from agent_session.llm.anthropic_payload import API as ANTHROPIC_API
from agent_session.llm.builder import MessageBuilder
from agent_session.llm.client import Finish, ModelRequest, ThinkingLevel
from agent_session.llm.retry import delay_for
from agent_session.models import Model
from agent_session.parts import Parts
from agent_session.recorder import add_usage
from agent_session.request_building import build_request, prepare
from session_store.ids import new_id, now_ms
from session_store.messages import AssistantMessage, Message, TextContent, Usage, UserMessage

Progress: TypeAlias = Callable[[int, int], Awaitable[None]]
"""(chunk, chunks), counting from 1, before each call."""

# What the instruction and the labels take beside the texts that are counted, in tokens.
_PROMPT_TOKENS = 1_000

# After a refusal for size, the part of the room that is tried next; a provider that counts more than we do.
_TIGHTER = 0.6
_MOST_TIGHTENINGS = 2

MOST_EXCESS = 2
"""A summary this many times longer than it may be was written without regard to that; less may be our estimate's."""

_LEAST_ROOM_TOKENS = 500
"""Of history in one call, also for a window that is smaller than any real one."""

_LEAST_SUMMARY_TOKENS = 500
"""What a summary is expected to take at least, where it is forecast."""

_TOKENS_PER_WORD = 4 / 3


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
    """What to summarise, and how. `prompt` replaces the default instruction.

    `max_tokens` is the most that the summary may take; None leaves it to the settings. `most_words` is what it is told,
    where more would be longer than what it replaces. `calls_kept_back` are for what comes after this order.
    """

    messages: Sequence[Message]
    kind: Literal["history", "turn_prefix"] = "history"
    previous_summary: str | None = None
    instructions: str | None = None
    pinned: Sequence[str] = ()
    prompt: str | None = None
    model: str | None = None
    max_tokens: int | None = None
    most_words: int | None = None
    calls_kept_back: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """What a summary is expected to take: calls, and tokens of the model `model`."""

    model: Model
    calls: int
    usage: Usage


class Summarizer:
    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def text(self, messages: Sequence[Message]) -> str:
        """The delimited text the summariser is given."""
        return conversation_text(messages, nonce=new_id())

    async def summarize(
        self, order: SummaryOrder, spending: Spending, *, progress: Progress | None = None
    ) -> tuple[str, str]:
        """(summary, id of the model that wrote it). The summary model first, the session's as fallback.

        Raises:
            SummarizationError: an answer that is no summary, or more calls than `max_summary_calls`.
            ModelError: the provider refused both models, retries included.
        """
        models = await self._models(order)
        for number, model in enumerate(models):
            try:
                return await self._with_model(model, order, spending, progress), model.id
            except (ModelError, SummarizationError) as error:
                if number == len(models) - 1:
                    raise
                self._parts.log.warning("summary.fallback", model=model.id, error=str(error))
        raise AssertionError("unreachable: the last model returns or raises")

    async def summarize_live(
        self, order: SummaryOrder, kept_from: str, spending: Spending, *, progress: Progress | None = None
    ) -> str | None:
        """The summary asked for at the end of the live conversation; None where that is impossible or came to nothing.

        `kept_from` is the text that opens what stays verbatim.
        """
        model = self._parts.models.model
        if not await self.takes_live(order):
            return None
        if progress is not None:
            await progress(1, 1)
        try:
            return await self._from_prefix(model, order, kept_from, spending)
        except (ModelError, SummarizationError) as error:
            self._parts.log.warning("summary.prefix_failed", model=model.id, error=str(error))
            return None

    async def takes_live(self, order: SummaryOrder) -> bool:
        """Whether the live conversation can be the input: it is read by the session's model, and fits its window."""
        model = self._parts.models.model
        if order.prompt is not None or (await self._models(order))[0].id != model.id:
            return False
        used = self._parts.meter.measure().tokens
        return used + self._beside(order, self._max_tokens(model, order)) <= self._input_limit(model)

    async def forecast(self, orders: Sequence[SummaryOrder], *, is_live: bool) -> Forecast:
        """What the summaries would take if the first model answered each call; nothing is sent.

        Raises:
            SummarizationError: the history takes more calls than there may be.
        """
        spending = Spending()
        read = written = 0
        model = (await self._models(orders[0]))[0]
        for order in orders:
            max_tokens = self._max_tokens(model, order)
            length = min(max_tokens, max(_LEAST_SUMMARY_TOKENS, self._parts.meter.ledger.total(order.messages) // 10))
            if order.most_words is not None:
                length = min(length, round(order.most_words * _TOKENS_PER_WORD))
            if is_live:
                texts, calls, previous = 0, 1, self._parts.meter.measure().tokens
            else:
                chunks = self._chunks(model, order, max_tokens, spending, tightenings=0)
                ratio, calls = self._parts.meter.calibration.ratio(model.id), len(chunks.texts)
                texts = round(sum(map(estimate_text_tokens, chunks.texts)) * ratio)
                previous = round(estimate_text_tokens(chunks.previous_summary or "") * ratio)
            read += texts + previous + _PROMPT_TOKENS * calls + length * (calls - 1)
            written += length * calls
            spending.calls += calls
        usage = Usage(input=read, output=written, estimated=True)
        return Forecast(model=model, calls=spending.calls, usage=model.priced(usage))

    async def _models(self, order: SummaryOrder) -> list[Model]:
        session_model = self._parts.models.model
        wanted = order.model or self._parts.settings().compaction.summary_model
        models = [await self._parts.models.resolve(Model.of(wanted))] if wanted and wanted != session_model.id else []
        return [*models, session_model]

    async def _with_model(
        self, model: Model, order: SummaryOrder, spending: Spending, progress: Progress | None
    ) -> str:
        max_tokens = self._max_tokens(model, order)
        tightenings = 0
        while True:
            chunks = self._chunks(model, order, max_tokens, spending, tightenings=tightenings)
            try:
                return await self._from_text(model, order, chunks, spending, progress)
            except ContextOverflowError as error:
                tightenings += 1
                if tightenings > _MOST_TIGHTENINGS:
                    raise
                if model.id == self._parts.models.model.id:
                    self._parts.models.learn_limit(error.limit)

    async def _from_text(
        self,
        model: Model,
        order: SummaryOrder,
        chunks: Chunks,
        spending: Spending,
        progress: Progress | None,
    ) -> str:
        summary = chunks.previous_summary
        for number, chunk in enumerate(chunks.texts, start=1):
            if progress is not None:
                await progress(number, len(chunks.texts))
            instruction = summary_prompt(
                conversation=chunk,
                previous_summary=summary,
                instructions=order.instructions,
                pinned=order.pinned,
                kind=order.kind,
                prompt=order.prompt,
                most_words=order.most_words,
            )
            max_tokens = self._max_tokens(model, order)
            summary = await self._call(model, instruction, max_tokens, spending)
            written = estimate_text_tokens(summary)
            if number < len(chunks.texts) and written > max_tokens * MOST_EXCESS:
                raise SummarizationError(
                    f"the summary of {model.id} has {written:,} tokens instead of at most {max_tokens:,}, and each of "
                    "the other parts would cost as much"
                )
        assert summary is not None
        return summary

    def _chunks(
        self, model: Model, order: SummaryOrder, max_tokens: int, spending: Spending, *, tightenings: int
    ) -> Chunks:
        limit = round(self._input_limit(model) / self._parts.meter.calibration.ratio(model.id))
        room = max(_LEAST_ROOM_TOKENS, limit - self._beside(order, max_tokens))
        left = self._parts.settings().compaction.max_summary_calls - spending.calls - order.calls_kept_back
        try:
            return chunked(
                order.messages,
                previous_summary=order.previous_summary,
                room_tokens=round(room * _TIGHTER**tightenings),
                summary_tokens=max_tokens,
                most_chunks=left,
                nonce=new_id(),
            )
        except ValueError as error:
            raise SummarizationError(
                f"no summary by {model.id}: {error}; raise compaction.max_summary_calls, or set "
                "compaction.summary_model to one with a larger window"
            ) from None

    def _max_tokens(self, model: Model, order: SummaryOrder) -> int:
        """The summary's own limit: the order, the setting, the model's output, and a quarter of its window at most."""
        budget = self._parts.meter.budget(self._parts.settings().compaction)
        wanted = budget.summary_max_tokens if order.max_tokens is None else order.max_tokens
        return max(1, min(wanted, model.output_limit, self._input_limit(model) // 4))

    def _input_limit(self, model: Model) -> int:
        limit = min(model.context_limit, model.max_input_tokens or model.context_limit)
        if model.id == self._parts.models.model.id and self._parts.models.learned_limit:
            limit = min(limit, self._parts.models.learned_limit)
        return limit

    def _thinks(self, model: Model) -> bool:
        return self._parts.models.thinking_level != "off" and model.reasoning is not False

    @staticmethod
    def _beside(order: SummaryOrder, max_tokens: int) -> int:
        """Tokens that a summary call takes beside the history."""
        texts = (order.instructions or "", order.prompt or "", *order.pinned)
        return max_tokens + _PROMPT_TOKENS + sum(map(estimate_text_tokens, texts))

    async def _from_prefix(self, model: Model, order: SummaryOrder, kept_from: str, spending: Spending) -> str:
        """The next request of the session with the instruction at its end: its bytes begin with those before it."""
        request = await build_request(self._parts)
        instruction = prefix_prompt(
            kept_from=kept_from,
            instructions=order.instructions,
            pinned=order.pinned,
            most_words=order.most_words,
        )
        asked = UserMessage(content=(TextContent(instruction),), timestamp=now_ms())
        max_tokens = self._max_tokens(model, order)
        if self._thinks(model):
            # Thinking stays as it is, and so does its budget, which follows from the limit of the answer: to the
            # provider's cache another one would be another prefix.
            max_tokens = max(max_tokens, (request.max_output_tokens or 0) - estimate_text_tokens(instruction))
        # Anthropic's cache loses the messages where tools are forbidden; there the instruction alone does that.
        loses_cache = model.is_claude or self._parts.models.client_of(model).api == ANTHROPIC_API
        request = replace(
            request,
            messages=(*request.messages, asked),
            tool_choice="auto" if loses_cache else "none",
            max_output_tokens=max_tokens,
            silence_seconds=self._parts.settings().compaction.summary_silence_seconds,
        )
        message = await self._answered(request, spending, is_live=True)
        return _checked(message, model)

    # Calls ---------------------------------------------------------------------------------------

    async def _call(self, model: Model, instruction: str, max_tokens: int, spending: Spending) -> str:
        """One summary call, with one more where the first stopped for length while thinking."""
        levels: list[ThinkingLevel] = ["minimal", "off"] if self._thinks(model) else ["off"]
        for level in levels:
            request = ModelRequest(
                model=model,
                messages=(UserMessage(content=(TextContent(instruction),), timestamp=now_ms()),),
                system_prompt=SUMMARY_SYSTEM_PROMPT,
                thinking_level=level,
                max_output_tokens=max_tokens,
                session_id=self._parts.manager.session_id,
                silence_seconds=self._parts.settings().compaction.summary_silence_seconds,
                overflow_patterns=self._parts.models.overflow_patterns,
            )
            message = await self._answered(request, spending)
            if message.stop_reason != "length" or level == levels[-1]:
                return _checked(message, model)
        raise AssertionError("unreachable: the last level returns or raises")

    async def _answered(self, request: ModelRequest, spending: Spending, *, is_live: bool = False) -> AssistantMessage:
        """One call of the few there may be, with the retries that transient failures get."""
        settings = self._parts.settings()
        if spending.calls >= settings.compaction.max_summary_calls:
            raise SummarizationError(
                f"no summary within {spending.calls} calls (compaction.max_summary_calls); "
                "raise it, or set compaction.summary_model to one with a larger window"
            )
        spending.calls += 1
        attempt = 0
        while True:
            request = replace(request, api_key=await self._parts.models.api_key(request.model))
            try:
                return await self._stream(request, spending, is_live=is_live)
            except ModelError as error:
                delay = delay_for(attempt + 1, settings.retry, error, now=time.time(), random=random.random)
                if delay is None:
                    raise
                attempt += 1
                self._parts.log.info("summary.retry", attempt=attempt, delay=delay, error=str(error))
                await anyio.sleep(delay)

    async def _stream(self, request: ModelRequest, spending: Spending, *, is_live: bool) -> AssistantMessage:
        client = self._parts.models.client_of(request.model)
        prepared = await prepare(self._parts, client, request) if is_live else client.prepare(request)
        builder = MessageBuilder(request, client.api)
        finish: Finish | None = None
        try:
            async with client.stream(prepared) as events:
                async for event in events:
                    builder.add(event)
                    if isinstance(event, Finish):
                        finish = event
        finally:
            # Also what a cut or cancelled call reported was paid for; what nobody reported is no zero.
            so_far = builder.message()
            usage = so_far.usage
            if usage.is_reported or so_far.content or finish is not None:
                spending.add(request.model.id, usage)
        if finish is None:
            raise ModelRequestError("the summary's stream ended without its final event", kind="stream_cut")
        if usage.is_reported:
            self._require_all_was_read(request, usage)
        return builder.message(finish.stop_reason)

    def _require_all_was_read(self, request: ModelRequest, usage: Usage) -> None:
        """A summary of a text whose front the server dropped would lose that silently.

        Raises:
            SummarizationError: the provider counted far less than was sent.
        """
        meter, counted = self._parts.meter, usage.input + usage.cache_read + usage.cache_write
        sent = estimate_fixed_request_tokens(request.system_prompt, request.tools)
        sent += meter.ledger.total(request.messages)
        if meter.calibration.is_cut(request.model.id, sent=sent, reported=counted):
            raise SummarizationError(
                f"{request.model.id} counted {counted:,} tokens of about {sent:,} that were sent to be summarised: its "
                "server seems to drop the front of a prompt; raise its context size, or set compaction.summary_model"
            )


def _checked(message: AssistantMessage, model: Model) -> str:
    try:
        return check_summary(message)
    except ValueError as error:
        raise SummarizationError(f"the summary of {model.id} is not usable: {error}") from None
