"""The ledger of a storm: every message, where it went, what was asked of the provider, and what it cost.

It knows each message by its planted token. The rule it holds the runtime to: a message that left the context was in
the input of a summary that was made, or is in the text that stands for it, or is named by the record of loss in the
entry. Nothing else may take one away.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from agent_session import AgentSession
from agent_session.events import CompactionEnd, CompactionStart, EntryAppended, Event, ExtensionFailed, TurnStart
from agent_session.hooks import BeforeCompact
from agent_session.settings import Settings
from scripts.bench.storm.texts import planted_at_start, planted_in
from session_store.entries import CompactionEntry, ContextEditEntry, CustomMessageEntry, MessageEntry
from session_store.messages import (
    AssistantMessage,
    CompactionSummaryMessage,
    Content,
    Message,
    TextContent,
    ToolCall,
    Usage,
)


@dataclass(slots=True)
class Spent:
    """Tokens and dollars; `fresh` is input that no cache had."""

    calls: int = 0
    fresh: int = 0
    cached: int = 0
    output: int = 0
    dollars: float = 0.0

    @property
    def tokens(self) -> int:
        return self.fresh + self.cached + self.output

    def add(self, usage: Usage) -> None:
        self.fresh += usage.input
        self.cached += usage.cache_read
        self.output += usage.output
        self.dollars += usage.cost.total if usage.cost is not None else 0.0


@dataclass(slots=True)
class StepCount:
    """What one step has taken so far."""

    calls: int = 0
    turns: int = 0

    def bound(self, settings: Settings, *, manual: int) -> int:
        """The most provider calls that a step of so many turns may take; `manual` compactions were asked for in it."""
        per_call = 1 + settings.retry.max_retries
        turns = self.turns
        failed = 1 + int(math.log2(turns + 1))
        applied = settings.compaction.max_compactions_per_run or 1 + turns // 3
        attempts = failed + applied + turns + 1 + manual
        return (2 * turns + 1) * per_call + attempts * settings.compaction.max_summary_calls * per_call


@dataclass(slots=True)
class Ledger:
    """What is known of one session under way. `chat` and `summaries` are what its calls took; `work` is the tokens of
    new messages, as the provider counts them.
    """

    chat: Spent = field(default_factory=Spent)
    summaries: Spent = field(default_factory=Spent)
    work: int = 0
    step: StepCount = field(default_factory=StepCount)
    outcomes: Counter[str] = field(default_factory=Counter)
    lost: list[str] = field(default_factory=list)
    invalid: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    _number: int = 0
    _alive: dict[str, str] = field(default_factory=dict)
    _read: set[str] = field(default_factory=set)
    _open_compactions: int = 0
    _seen: dict[int, tuple[Message, str | None]] = field(default_factory=dict)

    def plant(self) -> str:
        """A token that no other message has."""
        self._number += 1
        return f"[[m{self._number:06d}]]"

    # What the provider tells --------------------------------------------------------------------

    def summary_read(self, text: str) -> None:
        """A summary was made from this input."""
        self._read |= planted_in(text)

    def sent(self, messages: Iterable[Message]) -> None:
        """A request for the next answer goes out: all that was not given up must be in it."""
        missing = self._alive.keys() - self._visible(messages)
        if missing:
            self._lose(missing, "missing in a request, and no compaction has taken it")

    # What the session tells ---------------------------------------------------------------------

    def listen(self, session: AgentSession, pinned: str | None) -> None:
        session.subscribe(lambda event: self._hear(event, session, pinned))

    def _hear(self, event: Event, session: AgentSession, pinned: str | None) -> None:
        match event:
            case TurnStart():
                self.step.turns += 1
            case EntryAppended(entry=MessageEntry() as entry):
                self._record(entry.message, entry.id)
            case EntryAppended(entry=CustomMessageEntry(content=content, id=entry_id)):
                first = next((block.text for block in content if isinstance(block, TextContent)), "")
                if token := planted_at_start(first):
                    self._alive[token] = entry_id
            case EntryAppended(entry=ContextEditEntry(replacement=replacement, target_id=target)):
                self._edit(replacement, target)
            case ExtensionFailed(owner=owner, why=why):
                self.faults.append(f"a handler or listener of {owner} failed: {why}")
            case BeforeCompact():
                self._open_compactions += 1
            case CompactionStart():
                self._read.clear()
            case CompactionEnd(outcome=outcome):
                self._open_compactions -= 1
                self.outcomes[f"{outcome.status} {outcome.method or '-'}"] += 1
                if outcome.status == "applied":
                    self._check_applied(session, outcome.entry, pinned)
            case _:
                pass

    def _record(self, message: Message, entry_id: str) -> None:
        if isinstance(message, AssistantMessage) and message.is_failed:
            return
        if (token := self._token(message)) is not None:
            self._alive[token] = entry_id

    def _edit(self, replacement: Sequence[Content] | None, target: str) -> None:
        """An item was taken out, or made smaller: where its token went with the rest, the edit points to it."""
        shown = "".join(block.text for block in replacement or () if isinstance(block, TextContent))
        for token in [token for token, entry_id in self._alive.items() if entry_id == target]:
            if replacement is None or (token not in shown and target in shown):
                del self._alive[token]

    def _check_applied(self, session: AgentSession, entry: CompactionEntry | None, pinned: str | None) -> None:
        gone = self._alive.keys() - self._visible(session.messages)
        named: set[str] = set()
        if entry is not None:
            named = planted_in(entry.summary) | self._named_in(entry, session)
            if pinned is not None and entry.summary.count(pinned) != 1:
                self.faults.append(f"pinned text is {entry.summary.count(pinned)} times in a summary")
        if lost := gone - self._read - named:
            self._lose(lost, f"dropped by {entry.method if entry is not None else 'shrinking'}, and nothing says so")
        self._alive = {token: entry_id for token, entry_id in self._alive.items() if token not in gone}

    def _named_in(self, entry: CompactionEntry, session: AgentSession) -> set[str]:
        """Tokens of the messages that the entry's record of loss speaks of: a range of the branch."""
        record = (entry.details or {}).get("digestOf") if isinstance(entry.details, dict) else None
        if not record:
            return set()
        order = {found.id: place for place, found in enumerate(session.session_manager.get_branch())}
        first, last = order[record["firstEntryId"]], order[record["lastEntryId"]]
        return {token for token, entry_id in self._alive.items() if first <= order.get(entry_id, -1) <= last}

    def at_end(self, session: AgentSession) -> None:
        """What must hold whenever nothing runs."""
        if not session.is_idle:
            self.faults.append("the session is not idle after its verb returned")
        if self._open_compactions:
            self.faults.append(f"{self._open_compactions} before_compact without their compaction_end")
            self._open_compactions = 0

    def _lose(self, tokens: Iterable[str], why: str) -> None:
        for token in sorted(tokens):
            self.lost.append(f"{token} (entry {self._alive.pop(token)}): {why}")

    def _visible(self, messages: Iterable[Message]) -> set[str]:
        return {token for message in messages if (token := self._token(message)) is not None}

    def _token(self, message: Message) -> str | None:
        known = self._seen.get(id(message))
        if known is None:
            known = self._seen[id(message)] = (message, _token_of(message))
        return known[1]


def _token_of(message: Message) -> str | None:
    """The token at the start of a message; a summary may hold many, and has none of its own."""
    if isinstance(message, CompactionSummaryMessage):
        return None
    for block in getattr(message, "content", ()):
        if isinstance(block, TextContent) and (token := planted_at_start(block.text)):
            return token
        if isinstance(block, ToolCall) and (token := planted_at_start(str(block.arguments.get("at", "")))):
            return token
    return None
