"""The session's one way into its log.

Rule: decide, append, tell. A message's decision may be cancelled; the append is synchronous, and nothing is told
about an entry before it is in the file. Entries that a full disk holds back are told when they are written.
What came to nothing but cost money (a vetoed compaction's summary) is owed, and written as one `usage` entry just
before the next entry.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import TypeVar

import anyio
import anyio.to_thread

from agent_session.dispatch import Dispatcher
from agent_session.events import EntryAppended, Event, Warning
from agent_session.hooks import MessageEnd, ToolResultEvent
from session_store import Entry, MessageEntry, SessionManager
from session_store.context import dangling_calls
from session_store.errors import SessionWriteError
from session_store.ids import now_ms
from session_store.messages import Cost, Message, TextContent, ToolResultMessage, Usage

T = TypeVar("T")

INTERRUPTED = (
    "The call was interrupted before it gave a result. It may have had effects: check before running it again."
)


def add_usage(first: Usage, second: Usage) -> Usage:
    """The sum; its cost is None where one of the two is unknown."""
    cost = None
    if first.cost is not None and second.cost is not None:
        parts = ("input", "output", "cache_read", "cache_write", "total")
        cost = Cost(**{part: getattr(first.cost, part) + getattr(second.cost, part) for part in parts})
    return Usage(
        input=first.input + second.input,
        output=first.output + second.output,
        cache_read=first.cache_read + second.cache_read,
        cache_write=first.cache_write + second.cache_write,
        cost=cost,
        estimated=first.estimated or second.estimated,
    )


class Recorder:
    def __init__(self, manager: SessionManager, dispatcher: Dispatcher, *, is_durable: Callable[[], bool]) -> None:
        self.manager = manager
        self._dispatcher = dispatcher
        self._is_durable = is_durable
        self._untold: list[tuple[Entry, tuple[Event, ...]]] = []
        self._owed: dict[str, Usage] = {}
        self._is_unsynced = False
        self._has_warned_of_syncs = False

    # Messages ---------------------------------------------------------------------------------

    async def record(
        self, message: Message, *, result: ToolResultEvent | None = None, on_stored: Callable[[], None] | None = None
    ) -> MessageEntry:
        """Ask `message_end`, append, tell. `on_stored` is called right after the append, before any await.

        `result` is the `tool_result` event whose subject this message is; subscribers get it with the stored entry.
        """
        decided = await self._dispatcher.decide(MessageEnd(message=message), tell=False)
        return await self.store(decided.message, result=result, on_stored=on_stored)

    async def store(
        self, message: Message, *, result: ToolResultEvent | None = None, on_stored: Callable[[], None] | None = None
    ) -> MessageEntry:
        """Append without asking: for what must be kept although the run was cancelled. Then tell."""
        entry = self.commit(lambda log: log.append_message(message))
        if on_stored is not None:
            on_stored()
        events: list[Event] = [MessageEnd(message=entry.message, entry=entry)]
        if result is not None:
            events.append(replace(result, entry=entry))
        await self.announce((entry, tuple(events)))
        return entry

    async def answer_open_calls(self) -> None:
        """Record one synthetic result for each call that a crash or an abort left open at the leaf."""
        for call in dangling_calls(self.manager.projection):
            await self.store(
                ToolResultMessage(
                    tool_call_id=call.id,
                    tool_name=call.name,
                    content=(TextContent(INTERRUPTED),),
                    is_error=True,
                    timestamp=now_ms(),
                )
            )

    # Everything else --------------------------------------------------------------------------

    async def append(self, append: Callable[[SessionManager], Entry]) -> Entry:
        """Any other entry: `append` calls one verb of the manager. Then tell."""
        entry = self.commit(append)
        await self.announce((entry, ()))
        return entry

    def append_now(self, append: Callable[[SessionManager], Entry]) -> Entry:
        """The same for a caller that cannot await: told with the next entry, or by `announce()`."""
        entry = self.commit(append)
        self._untold.append((entry, ()))
        return entry

    def commit(self, append: Callable[[SessionManager], T]) -> T:
        """Append, and tell nobody yet: a commit point, synchronous. What is stored is to be told with `announce`."""
        self._pay()
        stored = append(self.manager)
        self._is_unsynced = True
        return stored

    def place_of(self, entry_id: str, text: str) -> str:
        """Where the full text of an item that is shrunk will be, in words; nothing is written."""
        return f"{self.manager.blobs.path_of(text)} (or search_history, entry {entry_id})"

    def store_aside(self, text: str) -> None:
        """Write a full text to the side file that `place_of` named."""
        # On a disk that refuses, the entry in the log still has it, and the words name that too.
        with suppress(OSError):
            self.manager.blobs.put(text)

    async def announce(self, *entries: tuple[Entry, tuple[Event, ...]]) -> None:
        """Tell of entries, those first that a failed write has held back."""
        self._is_unsynced = True
        self._untold.extend(entries)
        if self.manager.pending:
            return  # the log has warned of it
        ready, self._untold = self._untold, []
        for entry, events in ready:
            await self._dispatcher.notify(EntryAppended(entry=entry))
            for event in events:
                await self._dispatcher.tell(event)

    async def flush(self) -> None:
        """Return when what was appended is as durable as the setting says. A disk that refuses is a warning."""
        if not self._is_unsynced or self.manager.path is None or not self._is_durable():
            return
        self._is_unsynced = False
        try:
            await anyio.to_thread.run_sync(self.manager.sync)
        except SessionWriteError as error:
            self._is_unsynced = True
            # Of what could not be written the log has warned itself.
            if not error.pending and not self._has_warned_of_syncs:
                self._has_warned_of_syncs = True
                await self._dispatcher.notify(Warning(text=str(error)))
        except BaseException:
            # Cancelled before the thread began: whoever flushes next has it to do.
            self._is_unsynced = True
            raise
        else:
            self._has_warned_of_syncs = False

    @property
    def has_untold(self) -> bool:
        """Whether entries are in the file that nobody was told of yet."""
        return bool(self._untold) and not self.manager.pending

    # Costs of what came to nothing --------------------------------------------------------------

    def owe(self, model: str, usage: Usage) -> None:
        """A compaction that was not applied cost this. `model` is `provider/name`."""
        self._owed[model] = add_usage(self._owed[model], usage) if model in self._owed else usage

    @property
    def owed(self) -> dict[str, Usage]:
        """By model, not yet in the log but already in the totals."""
        return dict(self._owed)

    def _pay(self) -> None:
        """Write what is owed. Told with the next entry that is told, also where the entry it goes before is refused."""
        for model, usage in self.owed.items():
            provider, _, name = model.partition("/")
            entry = self.manager.append_usage("compaction", provider, name, usage)
            del self._owed[model]
            self._untold.append((entry, ()))
            self._is_unsynced = True
