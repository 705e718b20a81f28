"""One prompt until it settles: agent runs, turns, retries, and the one place that decides to compact.

`check` is called before each request and once after the last turn of a run, so a prompt of T turns makes T + 1
checks. The order of events is the specification's: a run ends (`agent_end`) before the compaction that follows its
last turn or an overflow, and `agent_settled` is the last.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence

import anyio

from agent_session.compaction.applied import in_words
from agent_session.compaction.trigger import is_over
from agent_session.compaction.types import CompactionReason, CompactionRequest
from agent_session.compactor import Compactor
from agent_session.errors import ContextCannotFitError, ModelError
from agent_session.events import (
    AgentEnd,
    AgentStart,
    MessageDiscarded,
    RetryEnd,
    RetryStart,
    TurnEnd,
    TurnStart,
    Warning,
)
from agent_session.image_pruning import prune_images
from agent_session.llm.finish import is_overflow_finish
from agent_session.llm.retry import delay_for
from agent_session.parts import Parts
from agent_session.prompting import open_run
from agent_session.queues import Lane
from agent_session.recovery import judge, length_overflow
from agent_session.tool_execution import recorded_results, run_calls
from agent_session.turn import Answer, ask_model
from session_store.ids import new_id
from session_store.messages import AssistantMessage, Message, ToolResultMessage, UserMessage

# A context that we count this many times smaller than the limit was refused for something else.
_MOST_MISCOUNT = 4


class Run:
    """State of one prompt. `last` is the newest answer recorded, `error` what it ended with."""

    def __init__(self, parts: Parts, compactor: Compactor) -> None:
        self._parts = parts
        self._compactor = compactor
        self.last: AssistantMessage | None = None
        self.error: Exception | None = None
        self.is_retrying = False
        self._recorded: list[Message] = []
        self._is_agent_running = False
        self._turns = 0
        self._open_turn: int | None = None
        self._turn_begins = 0  # in `_recorded`
        self._compactions = 0
        self._recoveries_left = 0
        self._is_window_exceeded = False
        self._session_log = parts.log
        self._id = new_id()
        self._log = parts.log.bind(run=self._id)

    async def execute(self, prompt: UserMessage | None) -> None:
        """Run until nothing is left to do. `prompt` None: deliver what is queued.

        The provider's errors end in `error`; those of the log and `ContextCannotFitError` are raised.
        """
        parts = self._parts
        parts.log = self._log
        parts.log.info("run.start", model=parts.models.model.id)
        opening = await open_run(parts, prompt)
        if opening is None:
            return
        for change in parts.models.log_changes(parts.manager):
            await parts.recorder.append(change)  # type: ignore[arg-type]
        await parts.recorder.answer_open_calls()
        self._recoveries_left = parts.settings().compaction.overflow_recoveries
        await self._agent_run(opening, is_prompted=prompt is not None)
        # What was queued while the last compaction was made gets its answer in the same prompt.
        while self.error is None and parts.queue.starts_a_run:
            await self._agent_run((), is_prompted=False)

    def end_logging(self, *, is_aborted: bool) -> None:
        self._parts.log = self._session_log
        self._log.info("run.end", turns=self._turns, aborted=is_aborted, error=str(self.error) if self.error else None)

    async def end_agent_run(self, *, will_retry: bool = False) -> None:
        """Tell the end of an agent run that was begun; for the ways out that did not."""
        await self._end_turn()
        if self._is_agent_running:
            self._is_agent_running = False
            recorded, self._recorded = tuple(self._recorded), []
            await self._parts.dispatcher.notify(AgentEnd(messages=recorded, will_retry=will_retry))

    async def _end_turn(self) -> None:
        """Tell the end of a turn that was begun, with what it recorded."""
        if self._open_turn is not None:
            index, self._open_turn = self._open_turn, None
            recorded = self._recorded[self._turn_begins :]
            answers = [message for message in recorded if isinstance(message, AssistantMessage)]
            results = tuple(message for message in recorded if isinstance(message, ToolResultMessage))
            await self._parts.dispatcher.notify(
                TurnEnd(turn_index=index, message=answers[-1] if answers else None, tool_results=results)
            )

    # Agent runs ---------------------------------------------------------------------------------

    async def _agent_run(self, opening: Sequence[Message], *, is_prompted: bool) -> None:
        """From `agent_start` to `agent_end` and the compaction after it, again after a recovered overflow."""
        await self._start_agent(is_retry=False)
        # Where the queue started this run: something must be said before the model is asked.
        if not is_prompted and not (await self._deliver("steer") or await self._deliver("follow_up", limit=1)):
            await self.end_agent_run()  # it was taken back meanwhile
            return
        for message in opening:
            await self._record(message)
        if is_prompted:
            await self._deliver("next_turn")
        while True:
            failed = await self._until_stopped()
            if failed is None:
                await self.end_agent_run()
                await self._check(before_request=False)
                return
            is_overflow = judge(failed.message, failed.error, self._window) == "overflow"
            can_recover = is_overflow and self._recoveries_left > 0 and self._parts.settings().compaction.enabled
            await self.end_agent_run(will_retry=can_recover)
            overflow = failed.error or length_overflow(failed.message, self._window)
            ending = await self._recover(failed, overflow) if can_recover else overflow
            if ending is not None:
                self.error = ending
                return
            await self._start_agent(is_retry=True)

    async def _start_agent(self, *, is_retry: bool) -> None:
        self._is_agent_running = True
        await self._parts.dispatcher.notify(AgentStart(is_retry=is_retry))

    async def _until_stopped(self) -> Answer | None:
        """Turn after turn; None when the model is done and nobody steers, else the attempt that failed."""
        parts = self._parts
        await self._deliver("steer")
        while True:
            await self._check(before_request=True)
            index = self._turns
            self._turns += 1
            parts.log = self._log.bind(turn=index)
            self._open_turn, self._turn_begins = index, len(self._recorded)
            await parts.dispatcher.notify(TurnStart(turn_index=index))
            answer = await self._ask_until_answered(index)
            verdict = judge(answer.message, answer.error, self._window)
            if verdict in ("failed", "overflow"):
                await self._end_turn()
                return answer
            self._recoveries_left = parts.settings().compaction.overflow_recoveries
            self._is_window_exceeded = verdict == "exceeded"
            try:
                batch = await run_calls(parts, answer.message)
            finally:
                # In call order; those that were recorded before an abort as well.
                self._recorded.extend(recorded_results(parts, answer.entry.id))
            await self._end_turn()
            parts.log.info("turn.end", stop_reason=answer.message.stop_reason, calls=len(batch.results))
            is_steered = await self._deliver("steer")
            if is_steered or (batch.results and not batch.is_final):
                continue
            if not await self._deliver("follow_up", limit=1):
                return None

    # Requests -----------------------------------------------------------------------------------

    async def _ask_until_answered(self, index: int) -> Answer:
        """One turn's answer, with the retries that transient failures get, and one without refused images."""
        parts, attempt, has_pruned = self._parts, 0, False
        retry = parts.settings().retry
        why_not: str | None = "aborted"
        try:
            while True:
                answer = await self._ask(index)
                self.last = answer.message
                self._recorded.append(answer.message)
                error = answer.error
                why_not = str(error) if error is not None else None
                if error is None:
                    await self._note_report(answer)
                    break
                self._note_limit(error)
                await parts.dispatcher.notify(MessageDiscarded(reason=str(error)))
                await anyio.lowlevel.checkpoint_if_cancelled()
                if not has_pruned and (has_pruned := await prune_images(parts, error)):
                    continue
                delay = delay_for(attempt + 1, retry, error, now=time.time(), random=random.random)
                if delay is None:
                    break
                attempt += 1
                self.is_retrying = True
                await parts.dispatcher.notify(
                    RetryStart(attempt=attempt, max_retries=retry.max_retries, delay=delay, error=str(error))
                )
                why_not = "aborted"
                await anyio.sleep(delay)
        finally:
            self.is_retrying = False
            if attempt:
                with anyio.CancelScope(shield=True):
                    await parts.dispatcher.notify(RetryEnd(success=why_not is None, attempt=attempt, error=why_not))
        return answer

    async def _ask(self, index: int) -> Answer:
        try:
            return await ask_model(self._parts, index)
        except anyio.get_cancelled_exc_class():
            newest = self._parts.manager.projection.messages[-1:]
            message = newest[0].message if newest else None
            if isinstance(message, AssistantMessage) and message.is_failed and message is not self.last:
                self.last = message
                self._recorded.append(message)
            raise

    async def _record(self, message: Message) -> None:
        entry = await self._parts.recorder.record(message)
        self._recorded.append(entry.message)

    async def _deliver(self, lane: Lane, limit: int | None = None) -> bool:
        """Record what waits in a lane; what an abort interrupts goes back to its place."""
        queue = self._parts.queue
        items = queue.take(lane, limit)
        try:
            for item in items:
                entry = await self._parts.recorder.record(
                    item.message,
                    on_stored=lambda item=item: queue.delivered(item),  # type: ignore[misc]
                )
                self._recorded.append(entry.message)
        finally:
            queue.restore(items)
        return bool(items)

    # Compaction ---------------------------------------------------------------------------------

    @property
    def _is_undone(self) -> bool:
        """Whether somebody took the newest compaction back: then only an overflow makes another one by itself."""
        newest = self._parts.manager.projection.compaction
        return newest is not None and newest.is_undo

    @property
    def _window(self) -> int:
        return self._parts.meter.budget(self._parts.settings().compaction).limit

    def _note_limit(self, error: ModelError) -> None:
        """What a refusal for size says of the limit: its number, or else that this context is above it.

        A finish reason alone says nothing of it: some providers stop with it in a small context, too.
        """
        if error.kind != "overflow":
            return
        parts = self._parts
        if error.requested_input is not None:
            parts.meter.learn_refused(error.requested_input)
        refused = parts.meter.measure().tokens
        if error.limit is not None:
            parts.models.learn_limit(error.limit)
        elif not is_overflow_finish(error.code or "") and refused >= self._window // _MOST_MISCOUNT:
            parts.models.learn_limit(refused, is_measured=True)

    async def _note_report(self, answer: Answer) -> None:
        """What the provider counted of the request: more than a measured limit lifts it, far too little is told."""
        parts, usage = self._parts, answer.message.usage
        if usage.is_reported:
            parts.models.lift_limit(usage.input + usage.cache_read + usage.cache_write)
        if (low := parts.meter.distrusts(answer.entry.id)) is not None:
            model, (sent, counted) = parts.models.model.id, low
            await self._warn_once(
                f"dropped front of {model}",
                f"{model}: of about {sent:,} tokens that were sent the provider counted {counted:,}; its server seems "
                "to drop the front of the conversation. Raise its context size (num_ctx of Ollama, --ctx-size of "
                f"llama.cpp), or say how large it is: Model({model!r}, context_window=...)",
            )

    async def _check(self, *, before_request: bool) -> None:
        """A safe point: honour what handlers asked for, then compact if the context is too large.

        Raises:
            ContextCannotFitError: before a request, where system prompt and tools alone do not fit.
        """
        parts = self._parts
        await anyio.lowlevel.checkpoint_if_cancelled()
        if parts.compaction_asks:
            ask = parts.compaction_asks.pop(0)
            try:
                await self._compactor.run(ask.request)
            finally:
                # Also where the whole run is cancelled: somebody waits for it.
                ask.resolve(self._compactor.last_outcome)
        settings = parts.settings().compaction
        if not settings.enabled:
            return
        budget = parts.meter.budget(settings)
        if not parts.models.model.is_window_known:
            await self._warn_once(
                f"window of {parts.models.model.id}",
                f"nothing is known of the window of {parts.models.model.id}: {budget.window:,} tokens are assumed; "
                "Model(id, context_window=...) says what it is, on the command line --context-window",
            )
        if budget.warning:
            await self._warn_once(budget.warning, budget.warning)
        if budget.is_overhead_too_large:
            if before_request:
                raise ContextCannotFitError(
                    "the system prompt and the tool definitions leave no room for messages",
                    limit=budget.limit,
                    largest_items=[("system prompt and tool definitions", budget.overhead)],
                )
            return
        reason: CompactionReason = "overflow" if self._is_window_exceeded else "threshold"
        if reason == "threshold" and (self._is_undone or not is_over(parts.meter.measure(), budget)):
            return
        self._is_window_exceeded = False
        if not parts.backoff.should_attempt(reason):
            return
        allowed = settings.max_compactions_per_run or 1 + self._turns // 3
        if reason == "threshold" and self._compactions >= allowed:
            await self._warn_once(
                f"cap of {self._id}",
                f"no more compactions in this run: {self._compactions} did not keep the context under "
                f"{budget.threshold:,} tokens; largest: {in_words(self._compactor.maker.largest_items())}",
            )
            return
        outcome = await self._compactor.run(CompactionRequest(reason=reason))
        if outcome.status == "applied":
            self._compactions += 1

    async def _recover(self, failed: Answer, overflow: ModelError) -> Exception | None:
        """After an overflow: take the attempt out of the context and compact. None: ask again.

        Else the error to end with: the overflow, or, where nothing can make it fit, one that names what is too large.
        """
        parts = self._parts
        await anyio.lowlevel.checkpoint_if_cancelled()
        self._recoveries_left -= 1
        if not failed.message.is_failed:
            await parts.recorder.append(lambda log: log.append_context_edit(failed.entry.id, None))
        request = CompactionRequest(reason="overflow", will_retry=True, refused_tokens=overflow.requested_input)
        outcome = await self._compactor.run(request)
        if outcome.status == "applied":
            return None
        overflow.add_note(f"compaction: {outcome}")
        cannot_fit = outcome.error if isinstance(outcome.error, ContextCannotFitError) else None
        if outcome.status == "skipped" and parts.meter.measure().tokens >= self._window // 2:
            cannot_fit = self._compactor.maker.cannot_fit("the provider refused the context, and no part of it can go")
        if cannot_fit is not None:
            cannot_fit.__cause__ = overflow
            return cannot_fit
        overflow.__cause__ = outcome.error
        return overflow

    async def _warn_once(self, about: str, text: str) -> None:
        """Once for the session; what is about this run alone carries its id."""
        if about not in self._parts.warned:
            self._parts.warned.add(about)
            await self._parts.dispatcher.notify(Warning(text=text))
