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

    def left_out(item: ProjectedMessage, kind: RepairKind, call_id: str) -> None:
        if on_repair is not None:
            on_repair(ContextRepair(kind=kind, entry_id=item.entry.id, call_id=call_id))

    return _paired(
        projection.messages,
        message_of=_MESSAGE,
        answered=lambda answer, result: ProjectedMessage(answer.entry, result),
        left_out=left_out,
    )


def paired(messages: Iterable[Message]) -> list[Message]:
    """The same for messages that are in no log, such as those that a handler gave."""
    return _paired(
        messages,
        message_of=lambda message: message,
        answered=lambda _, result: result,
        left_out=lambda *_: None,
    )


def is_sent(message: Message) -> bool:
    """Whether a request may carry this message at all. A result is sent where its call is."""
    match message:
        case SystemMessage() | UnknownMessage():
            return False
        case AssistantMessage():
            return not message.is_failed and not _is_empty(message)
        case BashExecutionMessage():
            return not message.exclude_from_context
        case _:
            return True


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


def _paired(
    items: Iterable[_T],
    *,
    message_of: Callable[[_T], Message],
    answered: Callable[[_T, ToolResultMessage], _T],
    left_out: Callable[[_T, RepairKind, str], None],
) -> list[_T]:
    """What is sent of the items: each answer, its results in the order of the calls, then synthetic ones.

    `answered` makes an item of an answer's item and a synthetic result.
    """
    placed: list[_T | _Batch[_T]] = []
    # The latest call with an id owns it, since some providers count their ids anew in each answer. None: the
    # call was made by an answer that is never sent.
    owners: dict[str, _Batch[_T] | None] = {}
    for item in items:
        message = message_of(item)
        if isinstance(message, ToolResultMessage):
            call_id = message.tool_call_id
            if call_id not in owners:
                left_out(item, "orphan_result", call_id)
                continue
            batch = owners[call_id]
            if batch is not None and not batch.take(item, call_id):
                left_out(item, "duplicate_result", call_id)
        elif isinstance(message, AssistantMessage):
            calls = message.tool_calls
            batch = _Batch(item, calls) if calls and is_sent(message) else None
            owners.update((call.id, batch) for call in calls)
            if batch is not None:
                placed.append(batch)
            elif is_sent(message):
                placed.append(item)
        elif is_sent(message):
            placed.append(item)

    result: list[_T] = []
    for place in placed:
        if not isinstance(place, _Batch):
            result.append(place)
            continue
        result.append(place.answer)
        result += [recorded for recorded in place.results if recorded is not None]
        timestamp = _timestamp(message_of(place.answer))
        result += [
            answered(place.answer, synthetic_result(call, timestamp=timestamp))
            for call, recorded in zip(place.calls, place.results, strict=True)
            if recorded is None
        ]
    return result


def _is_empty(message: AssistantMessage) -> bool:
    """Nothing in it that a provider would take: no blocks, or blank text and blank, unsigned thinking only."""
    for block in message.content:
        match block:
            case TextContent(text=text, text_signature=signature):
                if text.strip() or signature:
                    return False
            case ThinkingContent(thinking=thinking, thinking_signature=signature):
                if thinking.strip() or signature:
                    return False
            case _:
                return False
    return True


def _timestamp(message: Message) -> int:
    return message.timestamp if isinstance(message, AssistantMessage) else 0
