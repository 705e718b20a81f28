"""`agent-session sessions`: what sessions there are, and what was said in one. Only reads."""

from __future__ import annotations

import sys
from pathlib import Path

from rich.table import Table
from rich.text import Text

from agent_session.cli.json_events import json_line
from agent_session.terminal.console import make_console
from agent_session.terminal.screen import Screen
from agent_session.terminal.wording import local_time, shortened, spent
from session_store import SessionManager
from session_store.catalog import SessionInfo
from session_store.codec import encode_entry
from session_store.entries import BranchSummaryEntry, CompactionEntry, Entry, MessageEntry, ModelChangeEntry
from session_store.errors import SessionNotFoundError
from session_store.messages import (
    AssistantMessage,
    CustomMessage,
    Message,
    ToolCall,
    ToolResultMessage,
    UserMessage,
    text_of,
)

ID_CHARS = 8
WHAT_CHARS = 60
RESULT_CHARS = 200


def list_sessions(cwd: Path, *, is_all: bool, is_json: bool) -> None:
    """A row for each session, newest first."""
    infos = SessionManager.list_all() if is_all else SessionManager.list(cwd)
    if is_json:
        for info in infos:
            sys.stdout.buffer.write(json_line(_row(info)))
        return
    console = make_console()
    if not infos:
        console.print(
            "no sessions yet" if is_all else "no sessions of this folder yet; --all lists those of all folders"
        )
        return
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for heading in ("session", "changed"):
        table.add_column(heading, no_wrap=True)
    table.add_column("messages", justify="right", no_wrap=True)
    if is_all:
        table.add_column("folder", overflow="fold")
    table.add_column("about", overflow="ellipsis", no_wrap=True)
    for info in infos:
        cells = [info.id[:ID_CHARS], local_time(info.modified)]
        cells.append("many" if info.message_count is None else str(info.message_count))
        about = f"damaged: {info.damaged}" if info.damaged else info.name or info.first_message or "(nothing was said)"
        row = [Text(cell) for cell in (*cells, *([info.cwd] if is_all else []))]
        table.add_row(*row, Text(shortened(about, WHAT_CHARS), "red" if info.damaged else ""))
    console.print(table, soft_wrap=False)


def show_session(session: str, cwd: Path, *, is_json: bool) -> None:
    """The branch, root first, compacted history included.

    Raises:
        SessionNotFoundError: there is none.
    """
    with SessionManager.open(_found(session, cwd), read_only=True) as manager:
        if is_json:
            for entry in manager.get_branch():
                sys.stdout.buffer.write(encode_entry(entry))
            return
        screen = Screen(make_console())
        screen.line("session", f"{manager.session_id}{f' ({manager.name})' if manager.name else ''}")
        if manager.path is not None:
            screen.path("file", manager.path)
        screen.line("folder", manager.cwd)
        totals = manager.totals
        screen.line("spent", spent(totals.all, totals.compaction))
        branch = manager.get_branch()  # reads all of the file, and so meets what is damaged in it
        for record in manager.damage.records:
            where = f"line {record.line_number}: " if record.line_number is not None else ""
            screen.line("damage", f"{where}{record.detail}", style="red")
        for entry in branch:
            _show(screen, entry)


def _found(session: str, cwd: Path) -> Path:
    if session != "latest":
        return SessionManager.find(session)
    infos = SessionManager.list(cwd)
    if not infos:
        raise SessionNotFoundError("latest")
    return infos[0].path


def _row(info: SessionInfo) -> dict[str, object]:
    return {
        "id": info.id,
        "path": info.path,
        "cwd": info.cwd,
        "name": info.name,
        "created": info.created,
        "modified": info.modified,
        "first_message": info.first_message,
        "message_count": info.message_count,
        "size": info.size,
        "damaged": info.damaged,
    }


def _show(screen: Screen, entry: Entry) -> None:
    match entry:
        case MessageEntry(message=message):
            _show_message(screen, message)
        case CompactionEntry():
            sizes = f"{entry.tokens_before:,} -> {entry.tokens_after or 0:,} tokens"
            if entry.is_undo:
                screen.line("undo", sizes, style="bold green")
                return
            screen.line("compaction", f"{entry.reason or 'applied'}: {sizes}", style="bold green")
            screen.line("summary", shortened(entry.summary, RESULT_CHARS), style="dim")
        case BranchSummaryEntry():
            screen.line("branch", shortened(entry.summary, RESULT_CHARS), style="dim")
        case ModelChangeEntry():
            screen.line("model", f"{entry.provider}/{entry.model_id}")
        case _:
            pass


def _show_message(screen: Screen, message: Message) -> None:
    match message:
        case UserMessage():
            screen.line("user", message.text, style="bold")
        case AssistantMessage():
            if message.text:
                screen.line("assistant", message.text)
            for call in message.content:
                if isinstance(call, ToolCall):
                    arguments = " ".join(f"{name}={value!r}" for name, value in call.arguments.items())
                    screen.line(f"  {call.name}", shortened(arguments, RESULT_CHARS))
            if message.error_message:
                screen.line(message.stop_reason, message.error_message, style="red")
        case ToolResultMessage():
            screen.line("  result", shortened(text_of(message.content), RESULT_CHARS), style="dim")
        case CustomMessage(display=True):
            screen.line("note", text_of(message.content))
        case _:
            pass
