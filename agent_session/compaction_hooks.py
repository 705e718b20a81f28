"""The two decisions of a compaction, and what the runtime does for their handlers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol, Self

from typing_extensions import override

from agent_session.answers import Amend, Summarize, Veto
from agent_session.compaction.types import KEEP_NOTHING, CompactionReason, CompactionResult, FileOps
from agent_session.decision import Decision, InvalidAnswer, checked_summary
from agent_session.settings import CompactionSettings
from session_store.entries import CompactionEntry, Entry
from session_store.errors import InvalidBoundaryError
from session_store.messages import Message


class CompactionServices(Protocol):
    """What the runtime does for a `before_compact` handler. Never copied, never part of equality."""

    async def summarize(
        self,
        *,
        instructions: str | None,
        prompt: str | None,
        model: str | None,
        max_tokens: int | None,
        messages: Sequence[Message] | None,
    ) -> CompactionResult: ...

    def text(self, messages: Sequence[Message] | None) -> str: ...

    def check_boundary(self, first_kept_entry_id: str) -> None:
        """Raises InvalidBoundaryError."""
        ...

    def branch_entries(self) -> Sequence[Entry]: ...

    def cancel(self) -> None: ...

    @property
    def cancel_called(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class CompactionScope:
    """The cancel scope of a compaction, as handlers may use it. `event.signal` is the same object."""

    _services: CompactionServices

    def __deepcopy__(self, memo: object) -> CompactionScope:
        return self

    def cancel(self) -> None:
        """End this compaction: its outcome is `aborted`."""
        self._services.cancel()

    abort = cancel

    @property
    def cancel_called(self) -> bool:
        return self._services.cancel_called

    aborted = cancel_called


def _checked_boundary(services: CompactionServices, entry_id: str | None) -> None:
    if entry_id is None or entry_id == KEEP_NOTHING:
        return
    if not isinstance(entry_id, str):
        raise InvalidAnswer(f"first_kept_entry_id is {type(entry_id).__name__}, not an entry id")
    try:
        services.check_boundary(entry_id)
    except InvalidBoundaryError as error:
        raise InvalidAnswer(str(error)) from error


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class BeforeCompact(Decision):
    """A compaction is about to start.

    `dropped` is all that leaves the context, in order: `messages_to_summarize`, then, where one long turn is
    cut in two (`is_split_turn`), `turn_prefix_messages`. Sizes are tokens. Answer with `Veto`, with a
    `CompactionResult` of your own, or with `Summarize` to add to what the default summariser is told.
    """

    name: ClassVar[str] = "before_compact"
    answers: ClassVar[tuple[type, ...]] = (Veto, CompactionResult, Summarize)
    reason: CompactionReason
    instructions: str | None
    will_retry: bool
    model: str
    settings: CompactionSettings
    tokens_before: int
    threshold: int
    messages_to_summarize: tuple[Message, ...]
    turn_prefix_messages: tuple[Message, ...]
    is_split_turn: bool
    previous_summary: str | None
    file_ops: FileOps
    first_kept_entry_id: str
    scope: CompactionScope
    veto: Veto | None = None
    result: CompactionResult | None = None
    summarize_answer: Summarize | None = None

    @property
    def dropped(self) -> tuple[Message, ...]:
        return self.messages_to_summarize + self.turn_prefix_messages

    @property
    def signal(self) -> CompactionScope:
        return self.scope

    @property
    def branch_entries(self) -> Sequence[Entry]:
        """The whole branch, root first; read from the log when asked for."""
        return self.scope._services.branch_entries()

    def text(self, messages: Sequence[Message] | None = None) -> str:
        """The bounded, delimited text that the default summariser would be given."""
        return self.scope._services.text(messages)

    async def summarize(
        self,
        *,
        instructions: str | None = None,
        prompt: str | None = None,
        model: str | None = None,
        max_tokens: int | None = None,
        messages: Sequence[Message] | None = None,
    ) -> CompactionResult:
        """A summary by the runtime, with its credentials: everything dropped, the previous summary included.

        `prompt` replaces the default instruction, `instructions` are added to it. Usage is recorded.

        Raises:
            SummarizationError: no usable summary came back.
            ModelError: the provider refused.
        """
        return await self.scope._services.summarize(
            instructions=instructions, prompt=prompt, model=model, max_tokens=max_tokens, messages=messages
        )

    @property
    @override
    def is_settled(self) -> bool:
        return self.veto is not None

    @override
    def _folded(self, answer: Any, owner: str) -> Self:
        if isinstance(answer, Veto):
            return replace(self, veto=answer, decided_by=owner)
        if isinstance(answer, CompactionResult):
            checked_summary(answer.summary)
            _checked_boundary(self.scope._services, answer.first_kept_entry_id)
            return self._replacing("summary", owner, self.result is not None, result=answer)
        earlier = self.summarize_answer or Summarize()
        merged = Summarize(
            instructions="\n".join(text for text in (earlier.instructions, answer.instructions) if text) or None,
            pinned=(*earlier.pinned, *answer.pinned),
            model=answer.model or earlier.model,
        )
        return replace(self, summarize_answer=merged, decided_by=self.decided_by or owner)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SessionCompact(Decision):
    """The compaction entry is ready and not yet stored. Subscribers get it after the append."""

    name: ClassVar[str] = "session_compact"
    answers: ClassVar[tuple[type, ...]] = (Veto, Amend)
    reason: CompactionReason
    entry: CompactionEntry
    from_hook: bool
    will_retry: bool
    scope: CompactionScope
    veto: Veto | None = None

    @property
    @override
    def is_settled(self) -> bool:
        return self.veto is not None

    @override
    def _folded(self, answer: Any, owner: str) -> Self:
        if isinstance(answer, Veto):
            return replace(self, veto=answer, decided_by=owner)
        changes: dict[str, Any] = {}
        if answer.summary is not None:
            checked_summary(answer.summary)
            changes["summary"] = answer.summary
        if answer.details is not None:
            if not isinstance(answer.details, dict):
                raise InvalidAnswer(f"details is {type(answer.details).__name__}, not a dict")
            changes["details"] = answer.details
        if answer.first_kept_entry_id is not None:
            _checked_boundary(self.scope._services, answer.first_kept_entry_id)
            keeps_nothing = answer.first_kept_entry_id == KEEP_NOTHING
            changes["first_kept_entry_id"] = None if keeps_nothing else answer.first_kept_entry_id
        return replace(self, entry=replace(self.entry, **changes), decided_by=owner)
