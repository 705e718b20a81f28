"""The commands that are typed with a slash.

The rule it keeps: a command does what a program would do with the session's verbs, and says what came of it in a line.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from difflib import get_close_matches

import anyio.to_thread

from agent_session.cli.failures import UsageError
from agent_session.cli.host import Host
from agent_session.cli.line_input import LineInput
from agent_session.cli.opening import require_key
from agent_session.cli.person import Person
from agent_session.errors import CompactionError, SessionBusyError
from agent_session.models import Model
from agent_session.terminal.screen import Screen
from agent_session.terminal.wording import local_time, shortened, spent
from session_store import SessionManager
from session_store.catalog import SessionInfo
from session_store.entries import BranchSummaryEntry, CompactionEntry, Entry, MessageEntry
from session_store.forest import TreeNode
from session_store.messages import UserMessage

_COMMAND = re.compile(r"/[A-Za-z]*(?:\s|$)")

ID_CHARS = 8
TEXT_CHARS = 60
TREE_LINES = 60
SESSION_CHOICES = 10
HOW_TO_TYPE = """\
Enter sends; Alt-Enter, or a backslash at its end, begins another line. What is sent while the agent works is queued,
and read before its next step. Ctrl-C aborts a compaction alone, else the run; Ctrl-D leaves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """What commands work with. `leave` ends the program once the command is done."""

    host: Host
    screen: Screen
    person: Person
    input: LineInput
    leave: Callable[[], None]


@dataclass(frozen=True, slots=True)
class Command:
    """`takes` shows what may follow the name."""

    run: Callable[[Desk, str], Awaitable[None]]
    about: str
    takes: str = ""


def looks_like_command(line: str) -> bool:
    """A slash at the very beginning and one word: no path, and nothing that only begins with a slash."""
    return _COMMAND.match(line) is not None


async def run_command(desk: Desk, line: str) -> None:
    """Run what was typed, slash included.

    Raises:
        UsageError: there is no such command.
        AgentSessionError, SessionStoreError, ValueError: what the session's verbs raise.
    """
    name, rest = (*line.split(maxsplit=1), "")[:2]
    command = COMMANDS.get(name)
    if command is None:
        meant = get_close_matches(name, COMMANDS, n=1)
        advice = f"{meant[0]} is one" if meant else "/help lists the ones there are"
        raise UsageError(f"no command {name}; {advice}. A text that begins so is sent with a space before it")
    await command.run(desk, rest)


def command_names() -> list[str]:
    return list(COMMANDS)


# The commands ---------------------------------------------------------------------------------------------------------


async def _help(desk: Desk, _rest: str) -> None:
    for name, command in COMMANDS.items():
        desk.screen.line(name, f"{command.takes:<16}{command.about}")
    desk.screen.line("", HOW_TO_TYPE)


async def _compact(desk: Desk, rest: str) -> None:
    if not desk.host.session.is_idle:
        desk.screen.line("compaction", "asked for; it comes at the next safe point of what runs", style="dim")
    try:
        outcome = await desk.host.session.compact(rest or None, interrupt=False)
    except CompactionError as error:
        if error.outcome is None:
            raise
        return  # its end was told by an event, with the reason
    if outcome.status == "skipped":
        desk.screen.line("compaction", str(outcome), style="dim")


async def _preview(desk: Desk, rest: str) -> None:
    desk.screen.line("compaction", str(await desk.host.session.compact(rest or None, dry_run=True)))


async def _undo(desk: Desk, _rest: str) -> None:
    _require_idle(desk)
    outcome = await desk.host.session.undo_compaction()
    if outcome.status != "applied":
        desk.screen.line("undo", outcome.why or outcome.status, style="dim")
        return
    sizes = f"{outcome.tokens_before:,} -> {outcome.tokens_after or 0:,} tokens"
    desk.screen.line("undo", f"{sizes}; the newest compaction is taken back", style="bold green")


async def _session(desk: Desk, _rest: str) -> None:
    session = desk.host.session
    stats = session.stats()
    desk.screen.line("session", f"{stats.session_id}{f' ({stats.name})' if stats.name else ''}")
    if stats.path is not None:
        desk.screen.path("file", stats.path)
    else:
        desk.screen.line("file", "none: this session is in memory")
    desk.screen.path("folder", session.cwd)
    desk.screen.line("model", f"{session.model.id}, thinking {session.thinking_level}")
    desk.screen.line("messages", f"{stats.context_messages} in the context")
    desk.screen.line("spent", spent(stats.total, stats.compaction))
    desk.screen.meter()


async def _model(desk: Desk, rest: str) -> None:
    session = desk.host.session
    if not rest:
        desk.screen.line("model", f"{session.model.id}; /model provider/name takes another")
        return
    model = Model.of(rest)
    require_key(model)
    if model.id == session.model.id:
        desk.screen.line("model", f"{model.id}, as before")
    await session.set_model(model)


async def _tree(desk: Desk, rest: str) -> None:
    session = desk.host.session
    manager = session.session_manager
    if rest:
        text = await session.navigate_tree(_entry_id(manager, rest.removeprefix("*").strip()))  # as the tree shows it
        desk.screen.line("tree", f"now at {(session.leaf_id or 'the beginning')[:ID_CHARS]}")
        if text is not None:
            desk.input.prefill(text)
        return
    lines = _tree_lines(manager)
    if not lines:
        desk.screen.line("tree", "nothing was said yet")
    if len(lines) > TREE_LINES:
        desk.screen.line("tree", f"{len(lines) - TREE_LINES} earlier ones are left out", style="dim")
    for label, text in lines[-TREE_LINES:]:
        desk.screen.line(label, text, style="bold" if label.startswith("*") else "")


async def _fork(desk: Desk, rest: str) -> None:
    _require_idle(desk)
    session = desk.host.session
    entry_id = _entry_id(session.session_manager, rest) if rest else None
    forked = await session.fork(entry_id)
    await desk.host.replace(forked)
    desk.screen.line("fork", f"this is session {forked.session_id} now; the other one stays as it was")


async def _new(desk: Desk, _rest: str) -> None:
    _require_idle(desk)
    session = await desk.host.begin_new()
    desk.screen.line("new", f"session {session.session_id}")


async def _resume(desk: Desk, rest: str) -> None:
    _require_idle(desk)
    present = desk.host.session
    wanted = rest
    if not wanted:
        infos = await anyio.to_thread.run_sync(SessionManager.list, present.cwd)
        found = {_described(info): info for info in infos if info.id != present.session_id}
        if not found:
            desk.screen.line("resume", "there is no other session of this folder")
            return
        chosen = await desk.person.ask("Which session?", list(found)[:SESSION_CHOICES])
        if chosen is None:
            return
        wanted = str(found[chosen].path)
    path = await anyio.to_thread.run_sync(SessionManager.find, wanted)
    if path == present.path:
        desk.screen.line("resume", "that is this session")
        return
    _require_idle(desk)
    manager = await anyio.to_thread.run_sync(SessionManager.open, path)
    session = await desk.host.replace(manager)
    desk.screen.line("resume", f"session {session.session_id}, {len(session.messages)} messages in the context")


async def _later(desk: Desk, rest: str) -> None:
    if not rest:
        raise UsageError("/later TEXT: nothing to say")
    desk.host.session.follow_up(rest)


async def _quit(desk: Desk, _rest: str) -> None:
    desk.leave()


COMMANDS = {
    "/help": Command(_help, "what can be typed"),
    "/compact": Command(_compact, "replace old history by a summary now", "[INSTRUCTIONS]"),
    "/preview": Command(_preview, "what /compact would do and cost", "[INSTRUCTIONS]"),
    "/undo": Command(_undo, "take the newest compaction back; or that undo"),
    "/session": Command(_session, "where this session is, and what it spent"),
    "/model": Command(_model, "the model; or take another from the next request on", "[ID]"),
    "/tree": Command(_tree, "what was said, as a tree; or go back to an entry", "[ENTRY]"),
    "/fork": Command(_fork, "go on in a copy, up to an entry or whole", "[ENTRY]"),
    "/new": Command(_new, "begin a new session"),
    "/resume": Command(_resume, "go on in another session", "[SESSION]"),
    "/later": Command(_later, "say it when the agent would stop", "TEXT"),
    "/quit": Command(_quit, "leave; the session can be resumed"),
}


# What they share ------------------------------------------------------------------------------------------------------


def _require_idle(desk: Desk) -> None:
    if not desk.host.session.is_idle:
        raise SessionBusyError("run", "Ctrl-C aborts it")


def _entry_id(manager: SessionManager, beginning: str) -> str:
    """The one entry whose id begins like that.

    Raises:
        UsageError: there is none, or more than one.
    """
    found = [entry.id for entry in manager if entry.id.startswith(beginning)]
    if len(found) != 1 and beginning not in found:
        raise UsageError(f"{len(found) or 'no'} entries begin with {beginning!r}; /tree shows what there is")
    return beginning if beginning in found else found[0]


def _described(info: SessionInfo) -> str:
    what = shortened(info.name or info.first_message or "(nothing was said)", TEXT_CHARS)
    return f"{info.id[:ID_CHARS]}  {local_time(info.modified)}  {what}"


def _tree_lines(manager: SessionManager) -> list[tuple[str, str]]:
    """(label, text) for what one may go back to, in the order of the tree; indented where it branches."""
    branch = {entry.id for entry in manager.get_branch()}
    lines: list[tuple[str, str]] = []
    waiting: list[tuple[TreeNode, int]] = [(node, 0) for node in reversed(manager.get_tree())]
    while waiting:
        node, depth = waiting.pop()
        text = _entry_text(node.entry)
        if text is not None:
            mark = "*" if node.entry.id in branch else " "
            label = f" [{node.label}]" if node.label else ""
            lines.append((f"{mark} {node.entry.id[:ID_CHARS]}", f"{'  ' * depth}{text}{label}"))
        inner = depth + (len(node.children) > 1)
        waiting.extend((child, inner) for child in reversed(node.children))
    return lines


def _entry_text(entry: Entry) -> str | None:
    match entry:
        case MessageEntry(message=UserMessage() as message):
            return shortened(message.text, TEXT_CHARS)
        case CompactionEntry():
            what = "undo" if entry.is_undo else "compaction"
            return f"({what}: {entry.tokens_before:,} -> {entry.tokens_after or 0:,} tokens)"
        case BranchSummaryEntry():
            return f"(summary of a branch: {shortened(entry.summary, TEXT_CHARS)})"
        case _:
            return None
