"""The context: what the next request sends of a projection.

Pure. The rule it keeps: whatever is in the log, the context is a valid request (`pairs_ok`). Left out are
system messages, roles nobody knows, answers that failed or say nothing, with the results of their calls, and
shell output that the user excluded. Every other call is followed at once by exactly one result for it: late
results are moved to their call, results without a call are dropped, and a call without a result gets a
synthetic one, which is not recorded. A message is taken whole or left out whole, never rewritten: providers
refuse answers whose signed parts were touched.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Generic, Literal, TypeAlias, TypeVar

from session_store.messages import (
    AssistantMessage,
    BashExecutionMessage,
    Message,
    SystemMessage,
    TextContent,
    ThinkingContent,
    ToolCall,
    ToolResultMessage,
    UnknownMessage,
)
from session_store.projection import ProjectedMessage, Projection, build_projection
from session_store.showing import Brief

__all__ = [
    "NO_RESULT_TEXT",
    "ContextRepair",
    "ProjectedMessage",
    "Projection",
    "build_context",
    "build_projection",
    "dangling_calls",
    "is_sent",
    "paired",
    "pairs_ok",
    "synthetic_result",
]

NO_RESULT_TEXT = "no result: interrupted before the tool finished"


RepairKind: TypeAlias = Literal["orphan_result", "duplicate_result"]

_T = TypeVar("_T")
_MESSAGE = attrgetter("message")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ContextRepair(Brief):
    """A recorded result that the context leaves out, and why.

    `orphan_result`: no earlier call in the context has its id. `duplicate_result`: the call has one already.
    """

    kind: RepairKind
    entry_id: str
    call_id: str


def build_context(
    projection: Projection, *, on_repair: Callable[[ContextRepair], None] | None = None
) -> list[ProjectedMessage]:
    """The messages that the next request sends, in order.

    A synthetic result carries the entry of the answer that made the call. `on_repair` is told of each recorded result
    that was left out.
    """
    return _context_pairing(on_repair).with_all(projection.messages)


class GrowingContext:
    """`build_context` for a projection that goes on: only what is new in it is looked at."""

    def __init__(self, on_repair: Callable[[ContextRepair], None]) -> None:
        self._on_repair = on_repair
        self._projection: Projection | None = None
        self._rewrites = 0
        self._taken = 0
        self._pairing = _context_pairing(on_repair)

    def of(self, projection: Projection) -> list[ProjectedMessage]:
        """What `build_context` gives; `on_repair` is told what is new of it."""
        if projection is not self._projection or projection.rewrites != self._rewrites:
            self._projection, self._rewrites, self._taken = projection, projection.rewrites, 0
            self._pairing = _context_pairing(self._on_repair)
        new = projection.messages[self._taken :]
        self._taken += len(new)
        return self._pairing.with_all(new)


def paired(messages: Iterable[Message]) -> list[Message]:
    """The same for messages that are in no log, such as those that a handler gave."""
    pairing: _Pairing[Message] = _Pairing(
        message_of=lambda message: message,
        answered=lambda _, result: result,
        left_out=lambda *_: None,
    )
    return pairing.with_all(messages)


def is_sent(message: Message) -> bool:
    """Whether a request may carry this message at all. A result is sent where its call is."""
    if isinstance(message, AssistantMessage):
        return not message.is_failed and not _is_empty(message)
    if isinstance(message, BashExecutionMessage):
        return not message.exclude_from_context
    return not isinstance(message, SystemMessage | UnknownMessage)


def dangling_calls(projection: Projection) -> list[ToolCall]:
    """Calls of the last batch that nobody answered, where that batch is the last thing a model can see.

    They need a recorded result before the next message (a crash or an abort left them). Unanswered calls
    further up are answered by `build_context`, those of failed answers by nobody.
    """
    answered: Counter[str] = Counter()
    for item in reversed(projection.messages):
        message = item.message
        if isinstance(message, ToolResultMessage):
            answered[message.tool_call_id] += 1
        elif is_sent(message):
            if not isinstance(message, AssistantMessage):
                return []
            open_calls: list[ToolCall] = []
            for call in message.tool_calls:
                if answered[call.id]:
                    answered[call.id] -= 1
                else:
                    open_calls.append(call)
            return open_calls
        elif isinstance(message, AssistantMessage):  # it failed: results behind it that have its ids are its own
            for call in message.tool_calls:
                answered.pop(call.id, None)
    return []


def synthetic_result(call: ToolCall, *, timestamp: int) -> ToolResultMessage:
    """What a call gets that was interrupted. `timestamp` is Unix milliseconds."""
    return ToolResultMessage(
        tool_call_id=call.id,
        tool_name=call.name,
        content=(TextContent(NO_RESULT_TEXT),),
        is_error=True,
        timestamp=timestamp,
    )


def pairs_ok(messages: Iterable[Message]) -> bool:
    """Whether each call is followed at once by exactly one result for it, and each result follows its call."""
    unanswered: Counter[str] = Counter()
    for message in messages:
        if isinstance(message, ToolResultMessage):
            if not unanswered[message.tool_call_id]:
                return False
            unanswered[message.tool_call_id] -= 1
        else:
            if unanswered.total():
                return False
            if isinstance(message, AssistantMessage):
                unanswered = Counter(call.id for call in message.tool_calls)
    return not unanswered.total()


class _Batch(Generic[_T]):
    """The calls of one answer, each with its place for a result."""

    __slots__ = ("answer", "calls", "results")

    def __init__(self, answer: _T, calls: Sequence[ToolCall]) -> None:
        self.answer = answer
        self.calls = calls
        self.results: list[_T | None] = [None] * len(calls)

    def take(self, result: _T, call_id: str) -> bool:
        """Put a result at its call; False where each call of that id has one."""
        for index, call in enumerate(self.calls):
            if call.id == call_id and self.results[index] is None:
                self.results[index] = result
                return True
        return False


class _Pairing(Generic[_T]):
    """What is sent of items that come one after the other: each answer, its results in the order of the calls, then
    synthetic ones.

    `answered` makes an item of an answer's item and a synthetic result.
    """

    def __init__(
        self,
        *,
        message_of: Callable[[_T], Message],
        answered: Callable[[_T, ToolResultMessage], _T],
        left_out: Callable[[_T, RepairKind, str], None],
    ) -> None:
        self._message_of = message_of
        self._answered = answered
        self._left_out = left_out
        self._settled: list[_T] = []  # the beginning of what is sent, which nothing that comes can change
        self._placed: list[_T | _Batch[_T]] = []  # what comes after it
        # The latest call with an id owns it, since some providers count their ids anew in each answer. None: the
        # call was made by an answer that is never sent.
        self._owners: dict[str, _Batch[_T] | None] = {}

    def with_all(self, items: Iterable[_T]) -> list[_T]:
        """Take the items, and give what is sent of all that were taken so far."""
        for item in items:
            self._take(item, self._message_of(item))
        self._settle()
        return [*self._settled, *(item for place in self._placed for item in self._sent_of(place))]

    def _take(self, item: _T, message: Message) -> None:
        if isinstance(message, ToolResultMessage):
            self._take_result(item, message.tool_call_id)
        elif not isinstance(message, AssistantMessage):
            if is_sent(message):
                self._placed.append(item)
        elif calls := message.tool_calls:
            batch = _Batch(item, calls) if is_sent(message) else None
            for call in calls:
                self._owners[call.id] = batch
            if batch is not None:
                self._placed.append(batch)
        elif is_sent(message):
            self._placed.append(item)

    def _take_result(self, item: _T, call_id: str) -> None:
        if call_id not in self._owners:
            self._left_out(item, "orphan_result", call_id)
            return
        batch = self._owners[call_id]
        if batch is not None and not batch.take(item, call_id):
            self._left_out(item, "duplicate_result", call_id)

    def _settle(self) -> None:
        for count, place in enumerate(self._placed):
            if isinstance(place, _Batch) and None in place.results:
                del self._placed[:count]
                return
            self._settled += self._sent_of(place)
        self._placed.clear()

    def _sent_of(self, place: _T | _Batch[_T]) -> list[_T]:
        if not isinstance(place, _Batch):
            return [place]
        recorded = [found for found in place.results if found is not None]
        sent = [place.answer, *recorded]
        if len(recorded) < len(place.calls):
            timestamp = _timestamp(self._message_of(place.answer))
            sent += [
                self._answered(place.answer, synthetic_result(call, timestamp=timestamp))
                for call, found in zip(place.calls, place.results, strict=True)
                if found is None
            ]
        return sent


def _context_pairing(on_repair: Callable[[ContextRepair], None] | None) -> _Pairing[ProjectedMessage]:
    def left_out(item: ProjectedMessage, kind: RepairKind, call_id: str) -> None:
        if on_repair is not None:
            on_repair(ContextRepair(kind=kind, entry_id=item.entry.id, call_id=call_id))

    return _Pairing(
        message_of=_MESSAGE,
        answered=lambda answer, result: ProjectedMessage(answer.entry, result),
        left_out=left_out,
    )


def _is_empty(message: AssistantMessage) -> bool:
    """Nothing in it that a provider would take: no blocks, or blank text and blank, unsigned thinking only."""
    for block in message.content:
        if isinstance(block, TextContent):
            if _says(block.text) or block.text_signature:
                return False
        elif not isinstance(block, ThinkingContent) or _says(block.thinking) or block.thinking_signature:
            return False
    return True


def _says(text: str) -> bool:
    """Whether there is more than white space in it; a long text is not gone through."""
    return bool(text) and not text.isspace()


def _timestamp(message: Message) -> int:
    return message.timestamp if isinstance(message, AssistantMessage) else 0
