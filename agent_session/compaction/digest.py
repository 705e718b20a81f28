"""A summary without a model: what the log itself says of the messages that leave the context.

Pure. The rules it keeps: the same messages give the same text, within its limit, in time that follows their length. It
has the sections of a model's summary, so that a model can update it later. The lists of the digest before are gone on
with, never stacked; what a list cannot show any more is counted. Whatever the messages say is inside of list items: no
text can open a section or end one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias, TypeVar

from agent_session.compaction.cutting import head_within
from agent_session.compaction.file_ops import (
    current_request_of,
    with_file_lists,
    without_current_request,
    without_file_lists,
    without_pinned,
)
from agent_session.compaction.listing import ItemList, defused, item_of, items_of, opening_of, text_within
from agent_session.compaction.sections import (
    COMMANDS,
    CONSTRAINTS,
    GOAL,
    LAST_ANSWER,
    LAST_ERRORS,
    OTHER_ATTEMPTS,
    PLACES,
    PREAMBLE,
    USER_SAID,
    Place,
    heading_of,
    sections_of,
    with_headings,
)
from agent_session.compaction.text_tokens import estimate_text_tokens
from agent_session.compaction.types import FileOps
from session_store.json_lines import replace_surrogates
from session_store.messages import (
    AssistantMessage,
    BashExecutionMessage,
    BranchSummaryMessage,
    Content,
    ImageContent,
    Message,
    ToolCall,
    ToolResultMessage,
    UserMessage,
)
from session_store.showing import one_line

COMMAND_TOOLS: Final = frozenset({"bash"})

_MOST_ITEMS: Final = {COMMANDS: 20, LAST_ERRORS: 5, OTHER_ATTEMPTS: 3}
"""How many of the latest are shown; of what the user said, as many as fit."""

_ANSWER_TOKENS = 500
_COMMAND_CHARS = 160
_OUTPUT_CHARS = 160
_OUTPUT_LOOKED_AT = 4_000

# By importance: where room is short, the last of them go first. What is not named here comes after the constraints.
_FIRST: Final = (USER_SAID, GOAL, CONSTRAINTS)
_LAST: Final = (LAST_ANSWER, COMMANDS, LAST_ERRORS, OTHER_ATTEMPTS)
_WEIGHTS: Final = {USER_SAID: 4, GOAL: 2, CONSTRAINTS: 2, COMMANDS: 2}
_LEAST_TOKENS = 24

_Found = TypeVar("_Found")
_Command: TypeAlias = tuple[ToolResultMessage | BashExecutionMessage, ToolCall | None]
"""What was run: the result of a tool with its call, or what the user ran."""

_NOTE_FROM_TOKENS = 200
_NOTE = re.compile(r"^\(From the log, without a model: ([\d,]+) messages?; .*\)$\n?", re.MULTILINE)
_ENDING = re.compile(r"\[(exit code|killed) [^\n]*\]")


def digest(messages: Sequence[Message], *, previous_summary: str | None, file_ops: FileOps, most_tokens: int) -> str:
    """The summary of `messages` and of the one before them, whoever wrote that, in at most `most_tokens`.

    What the user said comes first, an equal share for each message, the oldest in one line where room is short. Room is
    left for the lists of files, which `with_file_lists` adds in half of `most_tokens` at most. With nothing new the
    previous summary stays as it is.
    """
    most = most_tokens - estimate_text_tokens(with_file_lists("", file_ops, most_tokens // 2))
    before = _without_additions(previous_summary or "")
    request = current_request_of(previous_summary)
    if before and not messages and request is None and estimate_text_tokens(before) <= most:
        return before
    memory = _Memory()
    memory.take_summary(before)
    if request is not None:
        memory.take_request(request, most)
    memory.take_messages(messages, most)
    return memory.written(most).rstrip("\n")


def shortened_summary(summary: str, most_tokens: int) -> str:
    """A summary of any length in at most `most_tokens`: of each section head and tail of its share."""
    memory = _Memory()
    memory.take_summary(_without_additions(summary))
    return memory.written(most_tokens)


@dataclass(slots=True)
class _Memory:
    """What a digest says: lists of its own, and the other sections of the summary before it."""

    lists: dict[Place, ItemList] = field(
        default_factory=lambda: {place: ItemList() for place in (USER_SAID, *_LAST)}  # in the order of importance
    )
    carried: dict[Place, str] = field(default_factory=dict)
    messages: int = 0

    # Taking in -----------------------------------------------------------------------------------

    def take_summary(self, summary: str) -> None:
        if (note := _NOTE.search(summary)) is not None:
            self.messages = int(note[1].replace(",", ""))
            summary = summary[: note.start()] + summary[note.end() :]
        for place, text in sections_of(summary).items():
            if place in self.lists:
                self.lists[place] = items_of(text)
            else:
                self.carried[place] = text

    def take_request(self, text: str, most_tokens: int) -> None:
        """The request that stood at the end of the summary: words of the user, unless they are listed already."""
        said = self.lists[USER_SAID].items
        item = item_of(text, most_tokens)
        if item and not (said and opening_of(said[-1]) == opening_of(item)):
            said.append(item)

    def take_messages(self, messages: Sequence[Message], most_tokens: int) -> None:
        self.messages += len(messages)
        said: list[str] = []
        calls: dict[str, ToolCall] = {}
        ran: list[_Command] = []
        failed: list[ToolResultMessage] = []
        attempts: list[str] = []
        answers: list[str] = []
        for message in messages:
            match message:
                case UserMessage(content=content):
                    said.append(message.text + _images_in(content))
                case AssistantMessage():
                    calls.update((call.id, call) for call in message.tool_calls)
                    answers += [message.text] if message.text.strip() else []
                case ToolResultMessage() if message.tool_name in COMMAND_TOOLS:
                    ran.append((message, calls.get(message.tool_call_id)))
                case ToolResultMessage(is_error=True):
                    failed.append(message)
                case BashExecutionMessage(exclude_from_context=False):
                    ran.append((message, None))
                case BranchSummaryMessage(summary=summary):
                    attempts.append(summary)
                case _:  # results are in the log, and what extensions said; systems' messages are no conversation
                    continue
        self._take(USER_SAID, said, lambda text: item_of(text, most_tokens))
        self._take(COMMANDS, ran, _command_line)
        self._take(LAST_ERRORS, failed, lambda result: _line(f"{result.tool_name}: {_shown(result.text)}"))
        self._take(OTHER_ATTEMPTS, attempts, lambda text: item_of(text, most_tokens))
        if answers:
            self.lists[LAST_ANSWER] = ItemList([item_of(answers[-1], _ANSWER_TOKENS)])

    def _take(self, place: Place, found: Sequence[_Found], say: Callable[[_Found], str]) -> None:
        """The latest of what was found, after what is listed already; the others are counted."""
        latest = found[-_MOST_ITEMS.get(place, len(found)) :] if found else found
        listed = self.lists[place]
        listed.left_out += len(found) - len(latest)
        listed.items += [item for one in latest if (item := say(one))]

    # Writing -------------------------------------------------------------------------------------

    def written(self, most_tokens: int) -> str:
        for place, most in _MOST_ITEMS.items():
            self.lists[place].keep_latest(most)
        wanted = {place: tokens for place in _by_importance() if (tokens := self._wanted(place))}
        has_note = bool(self.messages) and most_tokens >= _NOTE_FROM_TOKENS
        room = most_tokens - estimate_text_tokens(self._note(len(wanted))) - 1 if has_note else most_tokens
        said = self.lists[USER_SAID]
        given = _allotted(room, wanted, at_least=min(said.least_tokens, room * 2 // 3) if said.items else 0)
        texts = {
            place: self.lists[place].written(tokens, keeps_first=place == USER_SAID)
            if place in self.lists
            else text_within(self.carried[place], tokens)
            for place, tokens in given.items()
        }
        note = self._note(len(wanted) - len(given)) if has_note else ""
        texts[PREAMBLE] = "\n".join(part for part in (note, texts.get(PREAMBLE)) if part)
        # What little is allotted to tiny limits may be less than a heading and a count.
        return head_within(with_headings(texts), most_tokens)

    def _note(self, sections_left_out: int) -> str:
        count = f"{self.messages:,} message{'' if self.messages == 1 else 's'}"
        parts = [f"From the log, without a model: {count}", "search_history finds them all"]
        if self.carried:
            parts.append("sections without a list are as the last summary left them")
        if sections_left_out:
            parts.append(f"{sections_left_out} section{'' if sections_left_out == 1 else 's'} left out")
        return f"({'; '.join(parts)}.)"

    def _wanted(self, place: Place) -> int:
        if place in self.lists:
            tokens = self.lists[place].tokens
            return min(tokens, _ANSWER_TOKENS) if place == LAST_ANSWER else tokens
        return estimate_text_tokens(self.carried[place]) if place in self.carried else 0


def _by_importance() -> Iterator[Place]:
    yield from _FIRST
    yield from (place for place in PLACES if place not in _FIRST and place not in _LAST)
    yield from _LAST


def _allotted(room: int, wanted: Mapping[Place, int], *, at_least: int) -> dict[Place, int]:
    """Tokens for each place, `at_least` so many for the first: what wants less than its share leaves it to the others.

    Places are admitted in order for as long as there is room for a little of each; the first is in any case.
    """
    admitted: dict[Place, int] = {}
    least = at_least
    for place, tokens in wanted.items():
        least += min(tokens, _LEAST_TOKENS) if admitted else 0
        headings = estimate_text_tokens(heading_of(place)) + 1
        if admitted and least + headings > room:
            break
        admitted[place] = tokens
        room -= headings
    given: dict[Place, int] = {}
    while admitted:
        weight = sum(_WEIGHTS.get(place, 1) for place in admitted)
        shares = {place: max(0, room) * _WEIGHTS.get(place, 1) // weight for place in admitted}
        if shares.get(USER_SAID, at_least) < at_least:
            settled = {USER_SAID: min(at_least, max(0, room))}
        else:
            settled = {place: tokens for place, tokens in admitted.items() if tokens <= shares[place]}
        if not settled:
            return given | shares
        given |= settled
        room -= sum(settled.values())
        admitted = {place: tokens for place, tokens in admitted.items() if place not in settled}
    return given


def _without_additions(summary: str) -> str:
    """The summary as it was before the runtime added to it, which it does again."""
    return defused(without_file_lists(without_pinned(without_current_request(replace_surrogates(summary)))))


def _images_in(content: Sequence[Content]) -> str:
    images = sum(isinstance(block, ImageContent) for block in content)
    return f"\n[{images} image{'' if images == 1 else 's'}, no longer shown]" if images else ""


def _command_line(command: _Command) -> str:
    """`command` (how it ended): the last line of its output."""
    match command:
        case BashExecutionMessage() as message, _:
            ending = "cancelled" if message.cancelled else _ending(message.exit_code)
            return _ran(message.command, f"{ending}, run by the user", message.output)
        case result, call:
            arguments = call.arguments if call is not None else {}
            return _ran(str(arguments.get("command") or "?"), _outcome(result), result.text)


def _ran(command: str, ending: str, output: str) -> str:
    lines = output[-_OUTPUT_LOOKED_AT:].splitlines()
    said = next((line for line in reversed(lines) if line.strip() and not _ENDING.fullmatch(line.strip())), "")
    head = f"`{one_line(command, _COMMAND_CHARS)}` ({ending})"
    return _line(f"{head}: {_shown(said)}" if said else head)


def _shown(text: str) -> str:
    return one_line(text, _OUTPUT_CHARS)


def _line(text: str) -> str:
    return item_of(text, len(text))


def _outcome(result: ToolResultMessage) -> str:
    code = result.details.get("exitCode") if isinstance(result.details, dict) else None
    if isinstance(code, int):
        return _ending(code)
    return "failed" if result.is_error else "ok"


def _ending(exit_code: int | None) -> str:
    if exit_code is None:
        return "no exit code"
    return f"exit code {exit_code}" if exit_code else "ok"
