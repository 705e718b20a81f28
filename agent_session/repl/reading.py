"""Where statements come from: a terminal with history and completion, or a pipe.

Rule: both give whole statements, and None at the end.
"""

from __future__ import annotations

import os
import re
import rlcompleter
import sys
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import anyio.to_thread
from typing_extensions import override

if TYPE_CHECKING:
    from prompt_toolkit.completion import CompleteEvent, Completer, Completion
    from prompt_toolkit.document import Document
    from prompt_toolkit.history import History
    from prompt_toolkit.key_binding import KeyBindings

IsComplete: TypeAlias = Callable[[str], bool]
Read: TypeAlias = Callable[[], Awaitable[str | None]]

PROMPT, CONTINUED = ">>> ", "... "
INDENT = "    "
HISTORY_NAME = "python_history"
MOST_COMPLETIONS = 500
_DOTTED = re.compile(r"[\w.]+")


def history_path() -> Path:
    """Beside the user's settings."""
    return Path.home() / ".agent-session" / HISTORY_NAME


def piped(is_complete: IsComplete) -> Read:
    """Statements from standard input, line by line, without a prompt."""

    async def read() -> str | None:
        source = ""
        while True:
            line: str = await anyio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True)
            source += line
            statement = source.removesuffix("\n")
            if not line:
                return source or None
            if is_complete(statement):
                return statement

    return read


def typed(is_complete: IsComplete, namespace: dict[str, Any]) -> Read:
    """Statements from a person, in several lines where need be. Tab completes, Ctrl-R searches the history."""
    from prompt_toolkit import PromptSession  # noqa: PLC0415 - 0.1 s, for a terminal alone
    from prompt_toolkit.patch_stdout import patch_stdout  # noqa: PLC0415

    from agent_session.terminal.keyboard import Keyboard  # noqa: PLC0415

    prompts: PromptSession[str] = PromptSession(
        PROMPT,
        multiline=True,
        prompt_continuation=lambda _width, _number, wraps: "" if wraps else CONTINUED,
        completer=_completer(namespace),
        complete_while_typing=False,
        history=_history(history_path()),
        enable_history_search=True,
        key_bindings=_keys(is_complete),
        input=Keyboard(),
    )

    async def read() -> str | None:
        while True:
            try:
                # What a run of the session prints meanwhile goes above the line that is typed.
                with patch_stdout(raw=True):
                    return await prompts.prompt_async(handle_sigint=False)
            except KeyboardInterrupt:
                continue  # the line is thrown away
            except EOFError:
                return None

    return read


def _keys(is_complete: IsComplete) -> KeyBindings:
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent  # noqa: PLC0415

    keys = KeyBindings()

    @keys.add("enter")
    def enter(event: KeyPressEvent) -> None:
        """Run what is complete; else go on in the next line, indented as this one."""
        buffer = event.current_buffer
        line = buffer.document.current_line_before_cursor
        before, _, last = buffer.text.rpartition("\n")
        statement = buffer.text if last.strip() or not before else before + "\n"
        if buffer.document.is_cursor_at_the_end and is_complete(statement):
            buffer.validate_and_handle()
            return
        indent = line[: len(line) - len(line.lstrip())]
        buffer.insert_text("\n" + indent + (INDENT if line.rstrip().endswith(":") else ""))

    @keys.add("tab")
    def tab(event: KeyPressEvent) -> None:
        """Indent at the beginning of a line, complete elsewhere."""
        buffer = event.current_buffer
        if not buffer.document.current_line_before_cursor.strip():
            buffer.insert_text(INDENT)
        elif buffer.complete_state:
            buffer.complete_next()
        else:
            buffer.start_completion(insert_common_part=True)

    return keys


def _completer(namespace: dict[str, Any]) -> Completer:
    from prompt_toolkit.completion import Completer, Completion  # noqa: PLC0415

    class NameCompleter(Completer):
        """Names of the namespace, and attributes of what is in it. Properties are named, never read."""

        def __init__(self) -> None:
            self._names = rlcompleter.Completer(namespace)

        @override
        def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
            word = document.get_word_before_cursor(pattern=_DOTTED)
            for number in range(MOST_COMPLETIONS):
                found = self._names.complete(word, number) if word else None
                if found is None:
                    return
                yield Completion(found, start_position=-len(word), display=found.rpartition(".")[2])

    return NameCompleter()


def _history(path: Path) -> History:
    """What was typed before; the file is its owner's alone. Without a place for it, of this time only."""
    from prompt_toolkit.history import FileHistory, InMemoryHistory  # noqa: PLC0415

    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600))
    except OSError:
        return InMemoryHistory()
    return FileHistory(str(path))
