"""The provider of a storm: a `ModelClient` in process that does what the plan says, whatever it is asked.

It refuses at its own limit, counted in its own tokens and said in its own words; it hangs, breaks off, and answers a
summariser with anything but a summary. The rule it keeps: what it says depends on the plan and on how many calls of
that sort came before, never on what the runtime asked for.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from random import Random
from typing import Any, Final

import anyio

from agent_session.compaction.prompts import LIVE_INSTRUCTION, SUMMARY_SYSTEM_PROMPT
from agent_session.errors import ModelError
from agent_session.llm.anthropic_payload import API as MESSAGES_API
from agent_session.llm.anthropic_payload import messages_payload
from agent_session.llm.client import (
    Finish,
    ModelRequest,
    PreparedRequest,
    StreamEvent,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    UsageReport,
)
from agent_session.llm.convert import chat_payload
from agent_session.llm.failures import error_from, read_refusal, silence_error, stream_cut_error
from agent_session.llm.finish import stop_reason_for
from agent_session.llm.payload import encode, encode_text
from agent_session.models import Model, ModelCost
from scripts.bench.storm.ledger import Ledger, Spent
from scripts.bench.storm.plans import Plan, PlannedTurn, Step, Weather, Wire
from scripts.bench.storm.rules import Tally, fault_of
from scripts.bench.storm.texts import planted_in, text_of
from session_store.messages import Message, TextContent, Usage

COST: Final = ModelCost(input=3.0, output=15.0, cache_read=0.3, cache_write=3.75)
"""Of the session's model; the smaller one costs a tenth of it."""

_SUMMARY = """\
## Goal
Do what was asked for.

## Progress
### Done
{done}

## Next Steps
Go on.
"""

TOOL = "work"

_REMEMBERED_REQUESTS = 6
"""Prefixes that the cache still has."""

_SETTINGS_OF_CACHE: Final[dict[Wire, tuple[str, ...]]] = {
    "chat": (),
    "messages": ("tool_choice", "thinking", "output_config"),
}
"""What else must be the same in a request for its messages to be in the cache."""


class StormProvider:
    """`is_calm` ends the bad weather. `is_past_limit`: the last request was too large, in truth. `stop` is called where
    one step takes more calls than any bound allows.
    """

    def __init__(self, plan: Plan, ledger: Ledger, stop: Callable[[], None]) -> None:
        self._plan = plan
        self._ledger = ledger
        self._stop = stop
        self._tally = Tally(plan)
        self._step = plan.steps[0] if plan.steps else Step(number=0, kind="prompt")
        self._turn = 0
        self._numbers = {"chat": 0, "summary": 0}
        self._calls = 0
        self._recent: list[tuple[object, Sequence[Message]]] = []
        self._signatures: set[str] = set()
        self.is_calm = False
        self.is_past_limit = False
        self.most_calls = 100_000
        self.model = self._model("storm/main", 1.0, 1.0)
        self.small = self._model("storm/small", 0.5, 0.1)

    @property
    def api(self) -> str:
        return MESSAGES_API if self._plan.wire == "messages" else "openai-completions"

    def begin(self, step: Step) -> None:
        """The step whose turns are played from now on."""
        self._step, self._turn = step, 0

    def counted(self, text: str) -> int:
        """Tokens of a text as this provider counts them."""
        return self._tally.text(text)

    def counted_message(self, message: Message) -> float:
        """Tokens of a message of the context, its framing included."""
        return self._tally.message(message)

    def limit_of(self, model: Model) -> int:
        return self._plan.limit // (2 if model.name == self.small.name else 1)

    def prepare(self, request: ModelRequest) -> PreparedRequest:
        payload = messages_payload(request) if self._plan.wire == "messages" else chat_payload(request)
        return PreparedRequest(request=request, payload=payload)

    async def aclose(self) -> None:
        """Nothing is open."""

    @asynccontextmanager
    async def stream(self, prepared: PreparedRequest) -> AsyncIterator[AsyncIterator[StreamEvent]]:
        """Play what is planned for this call.

        Raises:
            ModelError: the weather, the limit, or a request that no provider takes.
        """
        request = prepared.request
        ledger = self._ledger
        is_summary = request.system_prompt == SUMMARY_SYSTEM_PROMPT or _said_last(request).startswith(LIVE_INSTRUCTION)
        sort = "summary" if is_summary else "chat"
        spent = ledger.summaries if is_summary else ledger.chat
        spent.calls += 1
        ledger.step.calls += 1
        if ledger.step.calls > self.most_calls:
            self._stop()
        number = self._numbers[sort]
        self._numbers[sort] += 1
        weather: Weather = "fair" if self.is_calm else self._plan.weather(sort, number)  # type: ignore[arg-type]
        if (fault := fault_of(prepared.payload, self._plan.wire, self._signatures)) is not None:
            ledger.invalid.append(f"{sort} request {number}: {fault}")
            raise self._refusal(request, 400, fault)
        if not is_summary:
            ledger.sent(request.messages)
        tokens = self._tally.request(request)
        await anyio.sleep(0.2)
        if (overflow := self._overflow(request, tokens, weather)) is not None:
            raise overflow
        if weather in ("server", "rate", "rejected"):
            raise self._bad_weather(request, weather)
        usage = self._usage(prepared, tokens)
        events = self._summary(request, weather) if is_summary else self._answer(request, weather)
        yield self._counted(request, events, usage, spent, weather, is_summary=is_summary)

    # Refusals -----------------------------------------------------------------------------------

    def _overflow(self, request: ModelRequest, tokens: int, weather: Weather) -> ModelError | None:
        limit = self.limit_of(request.model)
        asked = tokens + ((request.max_output_tokens or 0) if self._plan.counts_output else 0)
        self.is_past_limit = asked > limit and not self._plan.loses_front
        if weather != "overflow" and not self.is_past_limit:
            return None
        text = self._plan.wording.format(limit=limit, tokens=max(asked, limit + 1), over=max(1, asked - limit))
        return self._refusal(request, 400, text)

    def _bad_weather(self, request: ModelRequest, weather: Weather) -> ModelError:
        match weather:
            case "server":
                return self._refusal(request, 503, "overloaded, come back later")
            case "rate":
                return self._refusal(request, 429, "rate limit reached for requests, try again in 7s")
            case _:
                return self._refusal(request, 400, "this request was rejected")

    @staticmethod
    def _refusal(request: ModelRequest, status: int, text: str) -> ModelError:
        return error_from(
            read_refusal(status, encode({"error": {"message": text}})),
            model_id=request.model.id,
            now=time.time(),
            patterns=request.overflow_patterns,
        )

    # Answers ------------------------------------------------------------------------------------

    async def _counted(
        self,
        request: ModelRequest,
        events: AsyncIterator[StreamEvent],
        usage: Usage,
        spent: Spent,
        weather: Weather,
        *,
        is_summary: bool,
    ) -> AsyncIterator[StreamEvent]:
        """The events with what they cost at their end, however that comes."""
        output = 0.0
        said = False
        try:
            async for event in events:
                match event:
                    case TextDelta(text=text) | ThinkingDelta(thinking=text) | ToolCallDelta(arguments=text):
                        output += self._tally.text(text)
                    case Finish():
                        said = True
                        report = replace(usage, output=max(0 if weather == "length" else 1, round(output)))
                        if self._plan.usage != "none":
                            yield UsageReport(self._reported(report))
                    case _:
                        pass
                yield event
        finally:
            spent.add(request.model.priced(replace(usage, output=round(output))))
            if said and not is_summary and weather != "overflow_finish":
                self._turn += 1
                self._ledger.work += round(output)
            if said and is_summary and weather in ("fair", "giant", "echo"):
                self._ledger.summary_read(_text_of(request))

    async def _answer(self, request: ModelRequest, weather: Weather) -> AsyncIterator[StreamEvent]:
        turn = self._plan.turn(self._step, self._turn)
        if self.is_calm:
            turn = replace(turn, calls=(), tokens=20, thinking_tokens=0)
        dice = Random(f"answer {self._plan.seed}.{self._step.number}.{self._turn}")
        await anyio.sleep(turn.seconds)
        if weather == "length":
            yield Finish("length", "length")
            return
        index = 0
        if turn.thinking_tokens and request.thinking_level != "off":
            signature = dice.randbytes(dice.choice((60, 600, 1_500))).hex()
            self._signatures.add(signature)
            yield ThinkingDelta(0, text_of("prose", turn.thinking_tokens, dice), signature)
            index = 1
        if not turn.calls or dice.random() < 0.7:
            yield TextDelta(index, f"{self._ledger.plant()} {text_of(turn.text_kind, turn.tokens, dice)}")
            index += 1
        if weather == "hang":
            await anyio.sleep(request.silence_seconds)
            raise silence_error(request.model.id, request.silence_seconds)
        if weather == "cut":
            raise stream_cut_error(request.model.id)
        for place, event in enumerate(self._call_events(turn, index)):
            await anyio.sleep(0.01 * place)
            yield event
        raw = {"overflow_finish": "model_context_window_exceeded", "refusal": "refusal"}.get(weather, "")
        raw = raw or ("tool_calls" if turn.calls else "stop")
        yield Finish(stop_reason_for(raw, has_tool_calls=bool(turn.calls)), raw)

    def _call_events(self, turn: PlannedTurn, index: int) -> list[ToolCallDelta]:
        events: list[ToolCallDelta] = []
        for place, planned in enumerate(turn.calls):
            self._calls += 1
            arguments = {
                "at": self._ledger.plant(),
                "kind": planned.text_kind,
                "tokens": planned.tokens,
                "outcome": planned.outcome,
                "seconds": planned.seconds,
            }
            events.append(
                ToolCallDelta(index + place, id=f"call_{self._calls}", name=TOOL, arguments=encode_text(arguments))
            )
        return events

    async def _summary(self, request: ModelRequest, weather: Weather) -> AsyncIterator[StreamEvent]:
        dice = Random(f"summary {self._plan.seed}.{self._numbers['summary']}")
        await anyio.sleep(dice.uniform(2, 40))
        room = request.max_output_tokens or 1_000
        # What a model writes, in characters: within what it was allowed, with room to spare.
        words = text_of("prose", min(700, max(20, room // 3)), dice)
        match weather:
            case "hang":
                yield TextDelta(0, "## Goal\n")
                await anyio.sleep(request.silence_seconds)
                raise silence_error(request.model.id, request.silence_seconds)
            case "cut":
                yield TextDelta(0, "## Goal\n")
                raise stream_cut_error(request.model.id)
            case "length":
                yield TextDelta(0, words)
                yield Finish("length", "length")
                return
            case "blank":
                yield TextDelta(0, " \n ")
            case "refusal":
                yield TextDelta(0, "I cannot help with that.")
                yield Finish("refusal", "refusal")
                return
            case "tool_call":
                yield ToolCallDelta(0, id="call_of_summary", name=TOOL, arguments="{}")
                yield Finish("toolUse", "tool_calls")
                return
            case "giant":
                yield TextDelta(0, _SUMMARY.format(done=text_of("prose", self._plan.limit, dice)))
            case "echo":
                yield TextDelta(0, _text_of(request)[: room * 4])
            case _:
                yield TextDelta(0, _SUMMARY.format(done=words))
        yield Finish("stop", "stop")

    # Counting -----------------------------------------------------------------------------------

    def _usage(self, prepared: PreparedRequest, tokens: int) -> Usage:
        """What the input takes, the longest prefix that was sent lately as read from the cache."""
        request = prepared.request
        settings = [prepared.payload.get(name) for name in _SETTINGS_OF_CACHE[self._plan.wire]]
        key = (request.model.id, request.system_prompt, request.tools, settings)
        shared = 0
        for known, messages in self._recent:
            if known == key:
                same = zip(messages, request.messages, strict=False)
                shared = max(shared, next((n for n, (a, b) in enumerate(same) if a is not b), len(messages)))
        self._recent = [*self._recent[1 - _REMEMBERED_REQUESTS :], (key, request.messages)]
        if self._plan.loses_front:
            tokens = min(tokens, self.limit_of(request.model))
        cached = min(tokens, self._tally.front(request, shared)) if shared else 0
        return Usage(input=tokens - cached, cache_read=cached)

    def _reported(self, usage: Usage) -> Usage:
        if self._plan.usage == "whole":
            return usage
        return replace(usage, input=usage.input + usage.cache_read, cache_read=0)

    def _model(self, name: str, share: float, price: float) -> Model:
        window = self._plan.window
        return Model(
            name,
            context_window=round(window * share) if window is not None else None,
            max_output_tokens=self._plan.max_output,
            reasoning=self._plan.thinks,
            images=True,
            cost=replace(COST, **{part: getattr(COST, part) * price for part in COST.__slots__}),
        )


def _said_last(request: ModelRequest) -> str:
    return str(getattr(request.messages[-1], "text", ""))


def _text_of(request: ModelRequest) -> str:
    """All text of a summary's input. The live conversation is read whole: calls by their planted tokens."""
    texts: list[str] = []
    for message in request.messages:
        for block in getattr(message, "content", ()):
            if isinstance(block, TextContent):
                texts.append(block.text)
            elif (arguments := getattr(block, "arguments", None)) is not None:
                texts += planted_in(str(arguments.get("at", "")))
        texts.append(str(getattr(message, "summary", "")))
    return "\n".join(texts)


def tool_text(arguments: Any, token: str, seed: int) -> str:
    """What the tool gives for these arguments, planted."""
    dice = Random(f"tool {seed} {arguments['kind']} {arguments['tokens']}")
    return f"{token} {text_of(arguments['kind'], arguments['tokens'], dice)}"
