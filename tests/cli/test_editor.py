"""The editor, in this process: its keys from a pseudo-terminal, what it draws only counted."""

from __future__ import annotations

import io
import os

import anyio
import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.output import DummyOutput
from rich.console import Console
from rich.text import Text
from typing_extensions import override

from agent_session.cli.editor import Above, Editor
from agent_session.cli.status import Status


class Drawn(Status):
    """Notes, each time the status line is drawn, what has been written above it by then."""

    def __init__(self, out: io.BytesIO) -> None:
        super().__init__()
        self.above: list[bytes] = []
        self._out = out

    @override
    def line(self, *, unicode: bool, columns: int) -> Text:
        self.above.append(self._out.getvalue())
        return Text("ready")


async def test_the_status_line_is_never_ahead_of_the_lines_it_is_about(monkeypatch: pytest.MonkeyPatch) -> None:
    # Mutation: in `Editor.redraw` draw also while lines wait; or in `flush` draw before they are written.
    master, slave = os.openpty()
    out = io.BytesIO()
    with os.fdopen(slave) as keys, create_app_session(output=DummyOutput()), anyio.fail_after(5):
        monkeypatch.setattr("sys.stdin", keys)
        monkeypatch.setattr("sys.stdout", io.TextIOWrapper(out, "utf-8"))
        above, drawn = Above(), Drawn(out)
        editor = Editor(
            above,
            Console(file=above),  # type: ignore[arg-type]
            status=drawn,
            question=lambda: None,
            interrupt=lambda: None,
            commands=(),
            history=None,
        )
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(editor.read)
            while not drawn.above:
                await anyio.lowlevel.checkpoint()
            drawn.above.clear()
            above.write("tool ok\n")
            editor.redraw()
            assert not editor._prompt.app.invalidated
            await editor.flush()
            while not drawn.above:
                await anyio.lowlevel.checkpoint()
            assert set(drawn.above) == {b"tool ok\n"}
            editor.leave()
    os.close(master)
