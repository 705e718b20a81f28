"""One session of a storm, from its first step to its verdict, on the virtual clock.

The rule it keeps: whatever happens, a step ends in time, with a value or with an error that the runtime means to raise;
and once the weather is calm a small prompt is answered. What does neither is stuck.
"""

from __future__ import annotations

import base64
import os
import random
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any, Final

import anyio

from agent_session import AgentSession, Settings
from agent_session.compaction.shrink import LEAST_TOKENS
from agent_session.compaction.text_tokens import estimate_text_tokens
from agent_session.compaction.tokens import estimate_message_tokens
from agent_session.errors import AgentSessionError, ContextCannotFitError, ContextOverflowError
from agent_session.hooks import Summarize
from agent_session.testing import pairs_ok
from agent_session.tools.types import Tool, ToolContext, ToolResult
from scripts.bench.storm import virtual_time
from scripts.bench.storm.ledger import Ledger, Spent, StepCount
from scripts.bench.storm.plans import Plan, Step
from scripts.bench.storm.policies import Policy
from scripts.bench.storm.provider import TOOL, StormProvider, tool_text
from scripts.bench.storm.rules import MOST
from scripts.bench.storm.texts import text_of
from session_store import SessionManager
from session_store.errors import SessionStoreError
from session_store.messages import ImageContent, Message, TextContent, ToolResultMessage

TYPED = (AgentSessionError, SessionStoreError)
"""What a verb may raise."""

_LONGEST_STEP_SECONDS: Final = 30 * 24 * 3_600.0
_CALM_ATTEMPTS: Final = 3
_CALLS_PAST_BOUND: Final = 4
"""Times the bound: a step that takes so many calls is ended."""

_MOST_TURNS: Final = 80

_ROOM_NEEDED: Final = 2.2
"""What must fit does where it takes less than one part in so many of the room."""

_PIXEL = ImageContent(
    base64.b64encode(
        bytes.fromhex(
            "89504e470d0a1a0a0000000d4948445200000001000000010806000000"
            "1f15c4890000000d49444154789c6360000002000001e221bc330000000049454e44ae426082"
        )
    ).decode(),
    "image/png",
)
_TOOL_SCHEMA: Final = {
    "type": "object",
    "properties": {"at": {"type": "string"}, "kind": {"type": "string"}, "tokens": {"type": "integer"}},
    "required": ["at", "kind", "tokens"],
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What became of one session. `stuck`, `lost`, `invalid`, `faults` and `over_bound` are empty where all is well.

    `steepest` is the largest share of its bound that a step's calls took. `limped`: after the storm more than one small
    prompt was needed. `errors` are the typed errors that steps ended with, by class; `needless` are those for size,
    although what must be kept would have fitted, and more beside it.
    """

    seed: int
    policy: str
    stuck: tuple[str, ...]
    over_bound: tuple[str, ...]
    lost: tuple[str, ...]
    invalid: tuple[str, ...]
    faults: tuple[str, ...]
    outcomes: Counter[str]
    errors: Counter[str]
    needless: tuple[str, ...]
    limped: bool
    steepest: float
    chat: Spent
    summaries: Spent
    work: int
    virtual_seconds: float

    @property
    def failures(self) -> tuple[str, ...]:
        return (
            *(f"stuck: {text}" for text in self.stuck),
            *(f"over the bound: {text}" for text in self.over_bound),
            *(f"lost: {text}" for text in self.lost),
            *(f"invalid: {text}" for text in self.invalid),
            *(f"fault: {text}" for text in self.faults),
        )


def judged(plan: Plan, policy: Policy) -> Verdict:
    """Run the session of this plan under this policy; the same again gives the same verdict."""
    drive = Drive(plan, policy)
    random.seed(plan.seed)
    with _ids_of(plan.seed):
        try:
            virtual_time.run(drive.run)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the finding
            drive.stuck.append(f"{drive.where}: {_first(error)!r}")
    return drive.verdict()


@contextmanager
def _ids_of(seed: int) -> Iterator[None]:
    """Ids and the names of temporary folders that are made meanwhile come from the seed: they stand in texts, and how
    many tokens a text has depends on its letters and digits.
    """
    dice = random.Random(f"ids {seed}")
    random_bytes, os.urandom = os.urandom, dice.randbytes
    names, tempfile._name_sequence = tempfile._name_sequence, (dice.randbytes(8).hex() for _ in count())  # type: ignore[attr-defined]
    try:
        yield
    finally:
        os.urandom, tempfile._name_sequence = random_bytes, names  # type: ignore[attr-defined]


class Drive:
    def __init__(self, plan: Plan, policy: Policy) -> None:
        self._plan = plan
        self._policy = policy
        self._ledger = Ledger()
        self._provider = StormProvider(plan, self._ledger, self._stop)
        self._scope: anyio.CancelScope | None = None
        self.stuck: list[str] = []
        self.where = "opening"
        self._over_bound: list[str] = []
        self._errors: Counter[str] = Counter()
        self._steepest = 0.0
        self._needless: list[str] = []
        self._limped = False
        self._seconds = 0.0
        self._system_prompt = text_of("prose", plan.system_tokens, random.Random(plan.seed))
        self._settings = Settings().merged({"compaction": dict(policy.compaction(plan))})

    def verdict(self) -> Verdict:
        ledger = self._ledger
        return Verdict(
            seed=self._plan.seed,
            policy=self._policy.name,
            stuck=tuple(self.stuck),
            over_bound=tuple(self._over_bound),
            lost=tuple(ledger.lost),
            invalid=tuple(ledger.invalid),
            faults=tuple(ledger.faults),
            outcomes=ledger.outcomes,
            errors=self._errors,
            needless=tuple(self._needless),
            limped=self._limped,
            steepest=self._steepest,
            chat=ledger.chat,
            summaries=ledger.summaries,
            work=ledger.work,
            virtual_seconds=self._seconds,
        )

    async def run(self) -> None:
        plan = self._plan
        began = anyio.current_time()
        session = AgentSession(
            self._provider.model,
            session_manager=SessionManager.in_memory(),
            client=self._provider,
            tools=[Tool(TOOL, "Do a piece of work.", _TOOL_SCHEMA, self._work)],
            system_prompt=self._system_prompt,
            settings=self._settings,
            thinking_level="medium" if plan.thinks else "off",
        )
        if (pinned := plan.pinned) is not None:
            session.on("before_compact", lambda event: Summarize(pinned=[pinned]))
        self._ledger.listen(session, pinned)
        async with session:
            for step in plan.steps:
                if not await self._bounded(step, session, self._deed(step, session)):
                    return
            await self._calm(session)
        self._seconds = anyio.current_time() - began

    # Steps --------------------------------------------------------------------------------------

    def _deed(self, step: Step, session: AgentSession) -> Callable[[], Awaitable[object]]:
        match step.kind:
            case "compact":
                return session.compact
            case "smaller_model":
                return lambda: session.set_model(self._provider.small)
            case _:
                return lambda: self._prompt(step, session)

    async def _prompt(self, step: Step, session: AgentSession) -> None:
        """The prompt, and what happens while it runs."""
        async with anyio.create_task_group() as beside:
            if step.kind != "prompt":
                beside.start_soon(self._meanwhile, step, session)
            said = self._said(step)
            try:
                await session.prompt(said, images=[_PIXEL] * step.images)
            except TYPED as error:
                self._errors[type(error).__name__] += 1
                is_refused = isinstance(error, ContextOverflowError) and self._provider.is_past_limit
                if (is_refused or isinstance(error, ContextCannotFitError)) and self._fits(said, session):
                    self._needless.append(f"{self.where}: {_first(error)!r}"[:300])
        await session.wait_for_idle()

    async def _meanwhile(self, step: Step, session: AgentSession) -> None:
        await anyio.sleep(step.delay)
        try:
            match step.kind:
                case "abort":
                    await session.abort()
                case "steer":
                    session.steer(f"{self._planted()} and mind the tests")
                case "compact_during":
                    await session.compact(interrupt=False)
                case _:
                    pass
        except TYPED as error:
            self._errors[type(error).__name__] += 1

    def _fits(self, said: str, session: AgentSession) -> bool:
        """Whether what nobody may give up leaves more than half of the room free, by the provider's count and by the
        session's own: the system prompt, the request, and of a request under way the last batch, its results cut short.
        """
        text = self._system_prompt + said
        answer, results = _last_batch(session.messages) if said else ((), ())
        ours = estimate_text_tokens(text) + sum(map(estimate_message_tokens, answer))
        ours += sum(min(estimate_message_tokens(result), LEAST_TOKENS) for result in results)
        theirs = self._provider.counted(text) + sum(map(self._provider.counted_message, answer))
        theirs += sum(min(self._provider.counted_message(result), LEAST_TOKENS * MOST) for result in results)
        limit, threshold = self._provider.limit_of(session.model), session.context_usage().threshold
        return theirs * _ROOM_NEEDED < limit and ours * _ROOM_NEEDED < threshold

    def _said(self, step: Step) -> str:
        text = text_of(step.text_kind, step.tokens, random.Random(f"said {self._plan.seed}.{step.number}"))
        self._ledger.work += self._provider.counted(text)
        return f"{self._planted()} {text}"

    def _planted(self) -> str:
        return self._ledger.plant()

    async def _bounded(self, step: Step, session: AgentSession, deed: Callable[[], Awaitable[object]]) -> bool:
        """Do it within all bounds; False where it had to be ended."""
        ledger = self._ledger
        self.where = f"step {step.number} ({step.kind})"
        ledger.step = StepCount()
        manual = 1 if step.kind in ("compact", "compact_during") else 0
        self._provider.begin(step)
        self._provider.most_calls = _CALLS_PAST_BOUND * StepCount(turns=_MOST_TURNS).bound(
            self._settings, manual=manual
        )
        self._scope = scope = anyio.CancelScope(deadline=anyio.current_time() + _LONGEST_STEP_SECONDS)
        try:
            with scope:
                await deed()
        except TYPED as error:
            self._errors[type(error).__name__] += 1
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the finding
            self.stuck.append(f"{self.where}: raised {_first(error)!r}")
        if scope.cancelled_caught:
            self.stuck.append(f"{self.where}: it did not end ({ledger.step.calls} calls)")
            return False
        ledger.at_end(session)
        if not pairs_ok(session.messages):
            ledger.faults.append(f"{self.where}: the context is not a valid request")
        bound = ledger.step.bound(self._settings, manual=manual)
        self._steepest = max(self._steepest, ledger.step.calls / bound)
        if ledger.step.calls > bound:
            self._over_bound.append(f"{self.where}: {ledger.step.calls} calls, {bound} are allowed")
        return True

    async def _calm(self, session: AgentSession) -> None:
        """After the storm a small prompt is answered, at the latest after some that fail with a typed error."""
        self._provider.is_calm = True
        if not self._fits("", session):
            return
        failed = ""
        for attempt in range(_CALM_ATTEMPTS):
            step = Step(number=1_000 + attempt, kind="prompt", turns=0)
            answers: list[Any] = []

            async def deed(step: Step = step, answers: list[Any] = answers) -> None:
                answers.append(await session.prompt(self._said(step)))

            before = self._errors.copy()
            if not await self._bounded(step, session, deed):
                return
            if answers:
                self._limped = attempt > 0
                return
            failed = ", ".join(self._errors - before)
        self.stuck.append(f"after the storm: {_CALM_ATTEMPTS} small prompts failed, the last with {failed}")

    # The tool -----------------------------------------------------------------------------------

    async def _work(self, arguments: Any, context: ToolContext) -> ToolResult:
        await anyio.sleep(arguments.get("seconds", 0.0))
        token = self._planted()
        outcome = arguments.get("outcome", "text")
        if outcome == "error":
            return ToolResult(f"{token} it failed", is_error=True)
        if outcome == "crash":
            raise RuntimeError(f"{token} the tool crashed")
        text = tool_text(arguments, token, self._plan.seed)
        self._ledger.work += self._provider.counted(text)
        return ToolResult((TextContent(text), _PIXEL) if outcome == "image" else text)

    def _stop(self) -> None:
        if self._scope is not None:
            self._scope.cancel()


def _last_batch(messages: Sequence[Message]) -> tuple[Sequence[Message], Sequence[Message]]:
    """The answer whose results end the context, and those results; nothing where something else was said since."""
    start = len(messages)
    while start and isinstance(messages[start - 1], ToolResultMessage):
        start -= 1
    return (messages[start - 1 : start], messages[start:]) if start < len(messages) else ((), ())


def _first(error: BaseException) -> BaseException:
    """What is inside the groups that tasks wrap around it."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
