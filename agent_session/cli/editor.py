"""The editor at the bottom of a terminal: what is typed, what waits, and the status line under it.

The rule it keeps: it alone draws. Whole lines of output scroll by above it, a line that is still streaming stands on
top of it; both are written only while it is out of the way.
"""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import anyio
from prompt_toolkit import PromptSession
from prompt_toolkit.application import run_in_terminal
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.formatted_text import ANSI, AnyFormattedText
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.shortcuts import CompleteStyle
from prompt_toolkit.styles import Style
from rich.console import Console
from rich.text import Text
from typing_extensions import override

from agent_session.cli.status import Status
from agent_session.terminal.console import takes_unicode
from agent_session.terminal.keyboard import Keyboard

REDRAW_SECONDS = 0.25
FLUSH_SECONDS = 0.03
"""Between two looks at new output: often enough for the eye, seldom enough for a slow connection."""

_STYLE = Style.from_dict({"bottom-toolbar": "noreverse", "bottom-toolbar.text": "noreverse"})


class Above(io.TextIOBase):
    """The file that the screen's console writes to: its lines go above the editor."""

    def __init__(self) -> None:
        self._text = ""
        self._changed = anyio.Event()

    @property
    @override
    def encoding(self) -> str:  # type: ignore[override]
        return sys.stdout.encoding

    @override
    def isatty(self) -> bool:
        return True

    @override
    def write(self, text: str) -> int:
        if text:  # a console that renders for somebody else writes nothing, and nothing is no reason to draw
            self._text += text
            self._changed.set()
        return len(text)

    @property
    def unfinished(self) -> str:
        """The line that is still streaming."""
        return self._text.rpartition("\n")[2]

    @property
    def has_lines(self) -> bool:
        """Whether whole lines wait to be taken."""
        return "\n" in self._text

    async def changed(self) -> None:
        """Return when something was written since it returned last."""
        await self._changed.wait()
        self._changed = anyio.Event()

    def take_lines(self) -> str:
        """The whole lines, their newlines included."""
        lines, newline, self._text = self._text.rpartition("\n")
        return lines + newline


class Editor:
    """`status` gives what stands around the input, `question` what is asked; `interrupt` is what Ctrl-C means."""

    def __init__(
        self,
        above: Above,
        console: Console,
        *,
        status: Status,
        question: Callable[[], str | None],
        interrupt: Callable[[], None],
        commands: Iterable[str],
        history: Path | None,
    ) -> None:
        self._above = above
        self._console = console
        self._status = status
        self._question = question
        self._draft = ""
        self._is_leaving = False
        self._keyboard = Keyboard()
        self._prompt: PromptSession[str] = PromptSession(
            message=self._message,
            bottom_toolbar=self._toolbar,
            multiline=True,
            prompt_continuation="  ",
            erase_when_done=True,
            key_bindings=_bindings(interrupt, self._suspend),
            completer=CommandCompleter(tuple(commands)),
            complete_while_typing=False,
            complete_style=CompleteStyle.READLINE_LIKE,
            reserve_space_for_menu=0,
            history=_history(history),
            style=_STYLE,
            input=self._keyboard,
        )

    @property
    def is_live(self) -> bool:
        return True

    async def read(self) -> str | None:
        if self._is_leaving:
            return None
        draft, self._draft = self._draft, ""
        try:
            # Ctrl-C is a key while the editor reads; as a signal it is somebody else's.
            return await self._prompt.prompt_async(default=draft, handle_sigint=False)
        except EOFError:
            return None

    def prefill(self, text: str) -> None:
        """Under what is typed already, so that nothing typed is lost."""
        if not self._prompt.app.is_running:
            self._draft = text
            return
        buffer = self._prompt.default_buffer
        buffer.document = Document(f"{text}\n{buffer.text}" if buffer.text else text)

    def clear(self) -> bool:
        buffer = self._prompt.default_buffer
        had_text = bool(buffer.text)
        buffer.reset()
        return had_text

    def redraw(self) -> None:
        """Lines that wait go first, so that the status line is never ahead of what it is about."""
        if not self._above.has_lines:
            self._prompt.app.invalidate()

    def leave(self) -> None:
        self._is_leaving = True
        if self._prompt.app.is_running and not self._prompt.app.is_done:
            self._prompt.app.exit(exception=EOFError())

    async def serve(self) -> None:
        """Put output above the editor as it comes, and let the seconds in the status line move, until cancelled."""
        async with anyio.create_task_group() as drawing:
            drawing.start_soon(self._draw)
            drawing.start_soon(self._tick)

    async def flush(self) -> None:
        """Write the whole lines there are, and draw what stands below them."""
        if self._above.has_lines:
            await run_in_terminal(self._write_lines)
        self.redraw()

    def _suspend(self) -> None:
        """Hand the terminal back to the shell, as Ctrl-Z does to any program; return when the shell goes on with it."""

        def stop() -> None:
            with self._keyboard.released():
                os.kill(0, signal.SIGTSTP)

        run_in_terminal(stop)

    def _write_lines(self) -> None:
        sys.stdout.write(self._above.take_lines())
        sys.stdout.flush()

    async def _draw(self) -> None:
        while True:
            await self._above.changed()
            await self.flush()
            await anyio.sleep(FLUSH_SECONDS)

    async def _tick(self) -> None:
        while True:
            await anyio.sleep(REDRAW_SECONDS)
            if self._status.is_busy:
                self.redraw()

    def _message(self) -> AnyFormattedText:
        """The unfinished line, what waits, and the prompt itself."""
        question = self._question()
        rows = [self._above.unfinished] if self._above.unfinished else []
        rows += [self._ansi(line) for line in self._status.queue_lines()]
        rows.append(self._ansi(Text.assemble((question, "bold yellow"), " ") if question else Text("> ", "bold")))
        return ANSI("\n".join(rows))

    def _toolbar(self) -> AnyFormattedText:
        line = self._status.line(unicode=takes_unicode(self._console), columns=self._console.width)
        return ANSI(self._ansi(line))

    def _ansi(self, text: Text) -> str:
        with self._console.capture() as captured:
            self._console.print(text, end="", no_wrap=True, overflow="crop", crop=True)
        return captured.get()


class CommandCompleter(Completer):
    """Names of commands after a slash at the very beginning."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self._names = names

    @override
    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        typed = document.text_before_cursor
        if typed.startswith("/") and " " not in typed:
            yield from (Completion(name, start_position=-len(typed)) for name in self._names if name.startswith(typed))


def _bindings(interrupt: Callable[[], None], suspend: Callable[[], None]) -> KeyBindings:
    """Enter sends; Alt-Enter and Ctrl-J begin a new line; Ctrl-C is the program's; Ctrl-Z is the shell's; Ctrl-D on
    nothing ends the input.
    """
    bindings = KeyBindings()

    @bindings.add("enter")
    def send(event: KeyPressEvent) -> None:
        if event.current_buffer.text.endswith("\\"):
            event.current_buffer.delete_before_cursor()
            event.current_buffer.newline(copy_margin=False)
        else:
            event.current_buffer.validate_and_handle()

    @bindings.add("escape", "enter")
    @bindings.add("c-j")
    def new_line(event: KeyPressEvent) -> None:
        event.current_buffer.newline(copy_margin=False)

    @bindings.add("c-c")
    def interrupted(_event: KeyPressEvent) -> None:
        interrupt()

    @bindings.add("c-z")
    def suspended(_event: KeyPressEvent) -> None:
        suspend()

    return bindings


def _history(path: Path | None) -> History:
    if path is None:
        return InMemoryHistory()
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600))
    except OSError:  # a home that cannot be written to keeps no history
        return InMemoryHistory()
    return FileHistory(path)
