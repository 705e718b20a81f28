"""What a scripted model answers: a list of steps, one for each request, in order.

A step says what happens on the provider's side; `ScriptedModel` plays it in process and `FakeProvider` over
HTTP. A script is strict: a request without a step fails, and so do steps that nobody asked for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import anyio
from typing_extensions import override

from agent_session.llm.client import TextDelta, ThinkingDelta, ToolCallDelta
from agent_session.llm.payload import encode_text
from agent_session.testing.recording import RecordedRequest
from session_store.messages import Usage
from session_store.showing import Brief

UsageSpec: TypeAlias = "tuple[int, int, int, int] | Usage | Literal['auto'] | None"
"""(input, cache read, cache write, output), or a `Usage`, or "auto": counted from the request, or None: unreported."""

CallSpec: TypeAlias = "tuple[str, Mapping[str, Any] | str]"
"""A tool's name and its arguments; arguments given as a string are the raw JSON text, which may be broken."""

Delta: TypeAlias = TextDelta | ThinkingDelta | ToolCallDelta
Ending: TypeAlias = Literal["finish", "cut", "drop", "hang", "error"]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Answer(Brief):
    """A stream: deltas, then an ending.

    `ending`: finish (the final event with `finish` as its reason), cut (the body ends without one), drop (the
    connection breaks), hang (nothing more comes), error (an event with `error`). `pieces` is how many deltas the text
    comes in, `pace` the seconds before each delta.
    """

    text: str = ""
    thinking: str | None = None
    calls: tuple[CallSpec, ...] = ()
    usage: UsageSpec = None
    finish: str = "stop"
    ending: Ending = "finish"
    error: Any = None
    pieces: int = 1
    pace: float = 0.0

    def deltas(self, call_ids: Iterator[str]) -> list[Delta]:
        """The deltas, with an id from `call_ids` for every tool call. A call's arguments come in two pieces."""
        deltas: list[Delta] = []
        index = 0
        if self.thinking is not None:
            deltas.append(ThinkingDelta(index, self.thinking))
            index += 1
        if self.text:
            deltas.extend(TextDelta(index, piece) for piece in _split(self.text, self.pieces))
            index += 1
        for name, arguments in self.calls:
            text = arguments if isinstance(arguments, str) else encode_text(arguments)
            first, *rest = _split(text, 2) or [""]
            deltas.append(ToolCallDelta(index, id=next(call_ids), name=name, arguments=first))
            deltas.extend(ToolCallDelta(index, arguments=piece) for piece in rest)
            index += 1
        return deltas

    def reported(self, request: RecordedRequest) -> Usage | None:
        """The usage to report for a request; None for none."""
        match self.usage:
            case None | Usage():
                return self.usage
            case "auto":
                said = "".join((self.text, self.thinking or "", *map(str, self.calls)))
                return Usage(input=max(1, request.tokens), output=max(1, request.count_text(said)))
            case (int(fresh), int(cache_read), int(cache_write), int(output)):
                return Usage(fresh, output, cache_read, cache_write)
            case _:
                raise TypeError(
                    f"usage={self.usage!r} is none of (input, cache read, cache write, output), 'auto', None"
                )


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Refusal(Brief):
    """An error status instead of a stream. `body` replaces the usual error object where it is given."""

    status: int
    text: str
    code: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Any = None


@dataclass(slots=True, eq=False, repr=False)
class Held(Brief):
    """A step that waits for the test: `await step.started.wait()`, then `step.release()`."""

    step: Step
    started: anyio.Event = field(default_factory=anyio.Event, repr=False)
    released: anyio.Event = field(default_factory=anyio.Event, repr=False)

    def release(self) -> None:
        """Let the answer go out. Safe to call before the request came, and twice."""
        self.released.set()


@dataclass(frozen=True, slots=True, repr=False)
class Always(Brief):
    """A step for every further request."""

    step: Step


Step: TypeAlias = "Answer | Refusal | Held | Always | Callable[[RecordedRequest], Step]"
Play: TypeAlias = Answer | Refusal


def reply(
    text: str, *, usage: UsageSpec = None, thinking: str | None = None, chunks: int = 1, pace: float = 0.0
) -> Answer:
    """A plain answer, streamed in `chunks` pieces with `pace` seconds before each."""
    return Answer(text=text, usage=usage, thinking=thinking, pieces=chunks, pace=pace)


def call(name: str, /, **arguments: Any) -> Answer:
    """An answer that calls one tool; its usage is not reported (`calls` can)."""
    return calls([(name, arguments)])


def calls(batch: Sequence[CallSpec], *, text: str = "", usage: UsageSpec = None, thinking: str | None = None) -> Answer:
    """An answer that calls several tools at once, with text before them."""
    return Answer(text=text, calls=tuple(batch), usage=usage, thinking=thinking, finish="tool_calls")


def stop(reason: str, *, text: str = "", usage: UsageSpec = None, calls: Sequence[CallSpec] = ()) -> Answer:
    """An answer that ends with this finish reason, in the provider's words."""
    return Answer(text=text, calls=tuple(calls), usage=usage, finish=reason)


def fail(
    status: int, text: str = "", *, code: str | None = None, headers: Mapping[str, str] | None = None, body: Any = None
) -> Refusal:
    """An error status. `body` (text, or any JSON value) is sent instead of the usual error object."""
    return Refusal(status=status, text=text, code=code, headers=dict(headers or {}), body=body)


def cut(*, after: int = 1, text: str = "An answer that is cut off here", drop: bool = False) -> Answer:
    """A stream that ends after `after` pieces of text without its final event; with `drop` the connection breaks."""
    return Answer(text=text if after else "", pieces=max(1, after), ending="drop" if drop else "cut")


def hang(*, after: int = 0, text: str = "An answer that never ends") -> Answer:
    """A stream that goes silent after `after` pieces of text; with 0 not even the headers come."""
    return Answer(text=text if after else "", pieces=max(1, after), ending="hang")


def stream_error(payload: Any, *, text: str = "") -> Answer:
    """A stream with status 200 that says, after `text`, that it failed. `payload` is the event's data."""
    return Answer(text=text, ending="error", error=payload)


def hold(step: Step) -> Held:
    """The step, but only when the test says so."""
    return Held(step)


def always(step: Step) -> Always:
    """The step for every further request; it is never left over."""
    return Always(step)


class Script:
    """The steps that are left. `take` gives the next one; `faults` says what the test got wrong."""

    def __init__(self, steps: Iterable[Step], summaries: Iterable[Step] | None = None) -> None:
        self._steps = deque(steps)
        self._summaries = None if summaries is None else deque(summaries)
        self._unexpected: list[str] = []
        self._call_number = 0

    @override
    def __repr__(self) -> str:
        return f"<Script, {self.remaining:,} steps left>"

    @property
    def separates_summaries(self) -> bool:
        """Whether the summariser's requests have a list of their own."""
        return self._summaries is not None

    @property
    def remaining(self) -> int:
        """How many steps are left, `always` not counted."""
        return sum(not isinstance(step, Always) for steps in (self._steps, self._summaries or ()) for step in steps)

    async def take(self, request: RecordedRequest) -> Play:
        """The next step for this request, after whatever holds it.

        Raises:
            AssertionError: there is none.
        """
        summaries = self._summaries
        steps = summaries if summaries is not None and request.is_summary else self._steps
        if not steps:
            sort = "summary request" if steps is summaries else "request"
            self._unexpected.append(f"unexpected {sort} (number {request.number}): {request.last_user_text[:200]!r}")
            raise AssertionError(self._unexpected[-1])
        step = steps[0] if isinstance(steps[0], Always) else steps.popleft()
        while True:
            if isinstance(step, Answer | Refusal):
                return step
            if isinstance(step, Held):
                step.started.set()
                await step.released.wait()
                step = step.step
            elif isinstance(step, Always):
                step = step.step
            else:
                step = step(request)

    def call_ids(self) -> Iterator[str]:
        """Ids for tool calls, never the same one twice in a script."""
        while True:
            self._call_number += 1
            yield f"call_{self._call_number}"

    def assert_done(self) -> None:
        """Check that every step was asked for, and nothing else was.

        Raises:
            AssertionError: steps are left, or there were requests without a step.
        """
        faults = list(self._unexpected)
        if left := self.remaining:
            kept = [step for steps in (self._steps, self._summaries or ()) for step in steps]
            faults.append(f"{left} unused steps, the first: {kept[0]!r}")
        if faults:
            raise AssertionError("; ".join(faults))


def _split(text: str, pieces: int) -> list[str]:
    """`text` in at most `pieces` parts of about the same length; none for an empty text."""
    size = max(1, -(-len(text) // max(1, pieces)))
    return [text[start : start + size] for start in range(0, len(text), size)]
