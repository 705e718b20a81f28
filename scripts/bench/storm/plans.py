"""What one random session is: its window, its provider, its tools, its weather, and what is done in it, step by step.

Pure. The rule it keeps: everything follows from one seed, and each turn and each call has dice of its own. So all
policies meet the same work and the same weather, and a session without some of its steps is still the same session.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from random import Random
from typing import Final, Literal, TypeAlias

from scripts.bench.storm.texts import KINDS, TextKind

Wire: TypeAlias = Literal["chat", "messages"]
UsageReports: TypeAlias = Literal["whole", "uncached", "none"]
StepKind: TypeAlias = Literal["prompt", "abort", "steer", "compact", "compact_during", "smaller_model"]
Weather: TypeAlias = Literal[
    "fair", "server", "rate", "rejected", "cut", "hang", "overflow_finish", "length", "blank", "refusal", "tool_call",
    "giant", "echo", "overflow",
]  # fmt: skip

_WINDOWS: Final = {4_096: 5, 8_192: 6, 16_384: 4, 32_768: 4, 65_536: 2, 128_000: 2, 200_000: 1.5, 1_000_000: 0.3}

_CHAT_MOODS: Final[tuple[dict[Weather, float], ...]] = (
    {"fair": 1},
    {"fair": 20, "server": 1, "rate": 1, "cut": 1},
    {"fair": 12, "server": 2, "rate": 1, "cut": 1, "hang": 1, "length": 0.5, "overflow_finish": 0.5, "refusal": 0.5},
)
_SUMMARY_MOODS: Final[tuple[dict[Weather, float], ...]] = (
    {"fair": 1},
    {"fair": 8, "server": 1, "rate": 1, "length": 1, "blank": 1, "giant": 1, "echo": 1},
    {
        "fair": 3, "server": 1, "rejected": 1, "length": 1, "blank": 1, "refusal": 1, "tool_call": 1, "hang": 1,
        "cut": 1, "giant": 1, "echo": 1, "overflow": 1,
    },
    {"server": 1},
    {"rejected": 1},
    {"length": 1},
    {"blank": 1, "refusal": 1},
    {"tool_call": 1},
    {"hang": 1},
    {"overflow": 1},
    {"giant": 1},
    {"echo": 1},
)  # fmt: skip

_CALL_TOKENS: Final = 60
"""Of output, for one call with its arguments."""

_LEAST_WINDOW_OF_IMAGES: Final = 16_384
"""An image takes a fixed size, and nobody sends several to a window that holds three."""

WORDINGS: Final = (
    "This model's maximum context length is {limit} tokens. However, your messages resulted in {tokens} tokens.",
    "prompt is too long: {tokens} tokens > {limit} maximum",
    "The input token count ({tokens}) exceeds the maximum number of tokens allowed ({limit}).",
    "Input is too long for requested model.",
    "the request exceeds the available context size; try increasing the context size",
    "prompt too long; exceeded max context length by {over} tokens",
    "Your conversation does not fit into the context window of this model",
)
"""How providers say that a request was too large; what stands in braces are numbers of theirs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One thing done with the session. `turns` answers call tools before the last one; `delay` is seconds into the
    run, for what happens meanwhile; sizes are tokens.
    """

    number: int
    kind: StepKind
    turns: int = 0
    text_kind: TextKind = "prose"
    tokens: int = 20
    images: int = 0
    delay: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedCall:
    """A call of the tool and what it gives: text of a kind and a size, an image, an error, an exception."""

    text_kind: TextKind
    tokens: int
    outcome: Literal["text", "image", "error", "crash"]
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTurn:
    """One answer of the model, in fair weather. No calls: the run is over with it."""

    text_kind: TextKind
    tokens: int
    calls: tuple[PlannedCall, ...]
    thinking_tokens: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One session. `limit` is the provider's, in tokens as it counts them: `factor` times what a plain tokenizer gives.

    `window` is what the session is told, None for nothing. `counts_output`: the provider adds the answer that is asked
    for to the request. `loses_front`: it refuses nothing, and leaves out the front of what is too large.
    """

    seed: int
    wire: Wire
    limit: int
    window: int | None
    max_output: int
    factor: float
    usage: UsageReports
    wording: str
    counts_output: bool
    loses_front: bool
    thinks: bool
    system_tokens: int
    chat_mood: dict[Weather, float]
    summary_mood: dict[Weather, float]
    pinned: str | None
    steps: tuple[Step, ...]

    def only(self, steps: tuple[Step, ...]) -> Plan:
        return replace(self, steps=steps)

    def turn(self, step: Step, number: int) -> PlannedTurn:
        """The `number`-th answer of a step, from 0."""
        dice = Random(f"turn {self.seed}.{step.number}.{number}")
        calls: tuple[PlannedCall, ...] = ()
        if number < step.turns:
            count = dice.choices((1, dice.randint(2, 5), dice.randint(15, 50)), (70, 26, 4))[0]
            count = min(count, max(1, self.max_output // (4 * _CALL_TOKENS)))
            looping = Random(f"loop {self.seed}.{step.number}").random() < 0.1
            calls = (self._call(Random(f"loop call {self.seed}.{step.number}")),) if looping else tuple(
                self._call(dice, 1 / count) for _ in range(count)
            )  # fmt: skip
        return PlannedTurn(
            text_kind=dice.choice(("prose", "code", "cjk")),
            tokens=min(size(dice, self.limit / 8), self.max_output // 4),
            calls=calls,
            thinking_tokens=min(size(dice, self.limit / 10), self.max_output // 4) if self.thinks else 0,
            seconds=dice.uniform(0.5, 20),
        )

    def weather(self, sort: Literal["chat", "summary"], number: int) -> Weather:
        """Of the `number`-th call of its sort in this session."""
        mood = self.chat_mood if sort == "chat" else self.summary_mood
        return Random(f"{sort} {self.seed}.{number}").choices(list(mood), list(mood.values()))[0]

    def _call(self, dice: Random, share: float = 1.0) -> PlannedCall:
        images = 4 if self.limit >= _LEAST_WINDOW_OF_IMAGES else 0
        outcome = dice.choices(("text", "image", "error", "crash"), (88, images, 5, 3))[0]
        kind = dice.choice(KINDS)
        return PlannedCall(
            text_kind=kind,
            tokens=max(5, round(size(dice, self.limit) * max(share, 0.1))),
            outcome=outcome,  # type: ignore[arg-type]
            seconds=dice.choice((0.0, 0.0, dice.uniform(0, 5), dice.uniform(5, 120))),
        )


def size(dice: Random, room: float) -> int:
    """Tokens of one message: mostly a little of the room, at times much of it, now and then several times of it."""
    share = dice.choices(
        (dice.uniform(0.001, 0.03), dice.uniform(0.03, 0.3), dice.uniform(0.3, 1.2), dice.uniform(1.2, 6)),
        (84, 12, 3, 1),
    )[0]
    return max(5, round(share * room))


def plan_of(seed: int, most_window: int = 1_000_000) -> Plan:
    """The session of this seed."""
    dice = Random(f"plan {seed}")
    windows = [window for window in _WINDOWS if window <= most_window]
    limit = dice.choices(windows, [_WINDOWS[window] for window in windows])[0]
    told = dice.choices((1.0, 0.75, 1.5, 2.0), (76, 8, 10, 6))[0]
    thinks = dice.random() < 0.3
    steps = tuple(_step(dice, number, limit) for number in range(dice.randint(4, 16)))
    return Plan(
        seed=seed,
        wire=dice.choice(("chat", "messages")),
        limit=limit,
        window=None if dice.random() < 0.06 and limit >= 32_768 else round(limit * told),
        max_output=max(256, limit // dice.choice((4, 8, 16))),
        factor=math.exp(dice.uniform(math.log(0.6), math.log(1.7))),
        usage=dice.choices(("whole", "uncached", "none"), (60, 15, 25))[0],
        wording=dice.choice(WORDINGS),
        counts_output=dice.random() < 0.2,
        loses_front=dice.random() < 0.03,
        thinks=thinks,
        system_tokens=round(limit * dice.choices((0.005, 0.05, 0.2, 0.9), (70, 20, 8, 2))[0]),
        chat_mood=dice.choices(_CHAT_MOODS, (4, 4, 2))[0],
        summary_mood=dice.choices(_SUMMARY_MOODS, (8, 6, 4, *[1] * (len(_SUMMARY_MOODS) - 3)))[0],
        pinned=f"PINNED {seed}: tabs, never spaces; <b>&amp;</b>\n  exactly so" if dice.random() < 0.2 else None,
        steps=steps,
    )


def _step(dice: Random, number: int, limit: int) -> Step:
    kinds: tuple[StepKind, ...] = ("prompt", "abort", "steer", "compact", "compact_during", "smaller_model")
    return Step(
        number=number,
        kind=dice.choices(kinds, (80, 6, 6, 5, 2, 1))[0],
        turns=dice.choices((0, dice.randint(1, 6), dice.randint(10, 40)), (20, 74, 6))[0],
        text_kind=dice.choice(KINDS),
        tokens=size(dice, limit / 2),
        images=dice.choices((0, 1, 3), (94, 4, 2))[0] if limit >= _LEAST_WINDOW_OF_IMAGES else 0,
        delay=dice.choice((dice.uniform(0, 5), dice.uniform(0, 60), dice.uniform(0, 600))),
    )
