"""Realistic sessions of any length, streamed to a file: the same seed gives the same bytes.

Rounds of a coding agent: what somebody asks, then answers that call a tool and results of 0.2 to 30 KB, branches that
were left with a summary, labels, extension state, and about every thousand entries a compaction with its checkpoint,
as the runtime writes them. Memory does not depend on the length.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from session_store.codec import encode_entry, encode_header
from session_store.entries import (
    BranchSummaryEntry,
    CompactionEntry,
    CustomEntry,
    Entry,
    LabelEntry,
    MessageEntry,
    ModelChangeEntry,
    SessionHeader,
    SessionInfoEntry,
    ThinkingLevelChangeEntry,
)
from session_store.messages import (
    AssistantMessage,
    Content,
    Cost,
    Json,
    Message,
    TextContent,
    ThinkingContent,
    ToolCall,
    ToolResultMessage,
    Usage,
    UserMessage,
)
from session_store.totals import UsageTotals

BETWEEN_COMPACTIONS = 1_000
KEPT_ENTRIES = 60
BEHIND_THE_LAST = 90
"""About how many entries stand behind the last compaction, so that the context is the same at any length."""

_BEGAN = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)
_RESULT_BYTES = (200, 30_000)
_POOL_BYTES = 1 << 20
_WRITE_BYTES = 1 << 20
_SAMPLE = (
    "the file parses each line and returns an index of offsets while the caller keeps reading until nothing is left "
    "def class return import self.path for item in sorted(found) assert result == expected raise ValueError error "
    'src/store/index.py tests/test_index.py {"key": "value", "count": 42} if not entries: continue — naïve façade'
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What a session is to be like: `entries` lines below the header; without `compacted` nothing is compacted."""

    entries: int
    seed: int = 0
    compacted: bool = True


def write_session(path: Path, shape: Shape) -> int:
    """Write one; how many bytes the file has."""
    written = 0
    with path.open("wb", buffering=_WRITE_BYTES) as file:
        for line in lines_of(shape):
            file.write(line)
            written += len(line)
    return written


def lines_of(shape: Shape) -> Iterator[bytes]:
    """The header's line and exactly `shape.entries` more, each with its newline."""
    dice = random.Random(shape.seed)
    header = SessionHeader(id=f"{dice.getrandbits(64):016x}", timestamp=_iso(0), cwd="/home/me/project")
    yield encode_header(header)
    author = _Author(shape=shape, dice=dice)
    for entry in author.entries():
        line = encode_entry(entry)
        author.bytes_written += len(line)
        yield line


def _iso(number: int) -> str:
    return f"{_BEGAN + timedelta(seconds=7 * number):%Y-%m-%dT%H:%M:%S}.000Z"


@dataclass(slots=True)
class _Author:
    """Makes up one session, entry by entry, and keeps what its checkpoints say."""

    shape: Shape
    dice: random.Random
    number: int = 0
    bytes_written: int = 0
    leaf: str | None = None
    totals: UsageTotals = field(default_factory=UsageTotals)
    state: int = 0
    level: str = "off"
    model: str = "large-1"
    asked: list[tuple[int, str]] = field(default_factory=list)
    """Where something was asked on this branch: number and id, since the last compaction's boundary."""

    def entries(self) -> Iterator[Entry]:
        last = max(1, self.shape.entries - BEHIND_THE_LAST)
        next_compaction = min(BETWEEN_COMPACTIONS, last)
        source = self._rounds()
        while self.number < self.shape.entries:
            entry = next(source)
            self.totals.add(entry)
            self.number += 1
            yield entry
            if self.shape.compacted and self.number >= next_compaction and self.number < self.shape.entries:
                entry = self._compaction()
                self.number += 1
                next_compaction = self.number + BETWEEN_COMPACTIONS
                if next_compaction > last:
                    next_compaction = last if self.number < last else self.shape.entries + 1
                yield entry
                self.totals.add(entry)

    def _rounds(self) -> Iterator[Entry]:
        yield ModelChangeEntry(**self._lead(), provider="acme", model_id=self.model)
        yield SessionInfoEntry(**self._lead(), name="a long session")
        while True:
            yield self._says(UserMessage(content=(self._text(40, 900),), timestamp=self._ms()), asks=True)
            for _ in range(self.dice.randint(1, 8)):
                yield from self._call()
            yield self._says(self._answer((self._text(200, 2_500),), "stop"))
            yield from self._asides()

    def _call(self) -> Iterator[Entry]:
        name = self.dice.choice(("read", "bash", "grep", "edit"))
        calls = [
            ToolCall(f"call_{self.dice.getrandbits(48):012x}", name, {"path": "src/store/index.py", "at": self.number})
            for _ in range(1 if self.dice.random() < 0.85 else 2)
        ]
        yield self._says(self._answer((self._thinking(), self._text(30, 400), *calls), "toolUse"))
        for call in calls:
            smallest, largest = _RESULT_BYTES
            size = int(smallest * (largest / smallest) ** (self.dice.random() ** 1.48))
            content = (TextContent(self._slice(size)),)
            yield self._says(
                ToolResultMessage(
                    tool_call_id=call.id, tool_name=name, content=content, details={"exit": 0}, timestamp=self._ms()
                )
            )

    def _asides(self) -> Iterator[Entry]:
        chance = self.dice.random()
        if chance < 0.3:
            self.state += 1
            yield CustomEntry(**self._lead(), custom_type="todo", data={"done": self.state, "note": self._slice(80)})
        elif chance < 0.33 and self.asked:
            yield LabelEntry(**self._lead(), target_id=self.asked[-1][1], label=f"mark {self.number}")
        elif chance < 0.35:
            self.level = self.dice.choice(("off", "low", "high"))
            yield ThinkingLevelChangeEntry(**self._lead(), thinking_level=self.level)
        elif chance < 0.42 and len(self.asked) > 3:
            yield self._left_branch()

    def _left_branch(self) -> BranchSummaryEntry:
        """Back to something asked a little earlier: what came after it is another branch from now on."""
        left = self.leaf
        place = -self.dice.randint(1, 3)
        self.leaf = self.asked[place][1]
        del self.asked[place:][1:]
        return BranchSummaryEntry(**self._lead(), from_id=left, summary=self._slice(400))

    def _compaction(self) -> CompactionEntry:
        boundary = next((asked for asked in self.asked if asked[0] >= self.number - KEPT_ENTRIES), self.asked[-1])
        self.asked = [asked for asked in self.asked if asked[0] >= boundary[0]]
        checkpoint: Json = {
            "provider": "acme",
            "modelId": self.model,
            "thinkingLevel": self.level,
            "name": "a long session",
            "activeTools": ["read", "bash", "grep", "edit"],
            "totals": {model: spent.to_json() for model, spent in self.totals.by_model.items()},
            "totalsByKind": {kind: spent.to_json() for kind, spent in self.totals.by_kind.items()},
            "entries": self.number,
            "bytes": self.bytes_written,
            "custom": {"todo": {"done": self.state, "note": ""}},
        }
        return CompactionEntry(
            **self._lead(),
            summary=self._slice(6_000),
            first_kept_entry_id=boundary[1],
            tokens_before=160_000,
            usage=self._usage(),
            reason="threshold",
            method="model",
            model=f"acme/{self.model}",
            tokens_after=20_000,
            duration_ms=9_000,
            checkpoint=checkpoint,
        )

    # Pieces -------------------------------------------------------------------------------------

    def _lead(self) -> dict[str, Any]:
        parent, self.leaf = self.leaf, f"{self.dice.getrandbits(64):016x}"
        return {"id": self.leaf, "parent_id": parent, "timestamp": _iso(self.number)}

    def _says(self, message: Message, *, asks: bool = False) -> MessageEntry:
        lead = self._lead()
        if asks:
            self.asked.append((self.number, lead["id"]))
        return MessageEntry(**lead, message=message)

    def _answer(self, content: tuple[Content, ...], stop: str) -> AssistantMessage:
        return AssistantMessage(
            content=content,
            api="openai-completions",
            provider="acme",
            model=self.model,
            usage=self._usage(),
            stop_reason=stop,
            response_id=f"resp_{self.dice.getrandbits(64):016x}",
            timestamp=self._ms(),
        )

    def _usage(self) -> Usage:
        output = self.dice.randint(50, 900)
        cost = Cost(input=0.001, output=output / 1e5, cache_read=0.002, cache_write=0.0, total=0.003 + output / 1e5)
        return Usage(input=self.dice.randint(100, 4_000), output=output, cache_read=40_000, cost=cost)

    def _thinking(self) -> ThinkingContent:
        return ThinkingContent(self._slice(self.dice.randint(50, 500)), thinking_signature=self._slice(120))

    def _text(self, smallest: int, largest: int) -> TextContent:
        return TextContent(self._slice(self.dice.randint(smallest, largest)))

    def _slice(self, size: int) -> str:
        start = self.dice.randrange(len(_POOL) - size)
        return _POOL[start : start + size]

    def _ms(self) -> int:
        return int(_BEGAN.timestamp() * 1000) + 7_000 * self.number


def _pool() -> str:
    dice = random.Random(20260105)
    words = _SAMPLE.split()
    parts: list[str] = []
    size = 0
    while size < _POOL_BYTES:
        word = dice.choice(words)
        parts.append(word)
        size += len(word) + 1
    return " ".join(part if number % 12 else f"{part}\n" for number, part in enumerate(parts))


_POOL = _pool()
