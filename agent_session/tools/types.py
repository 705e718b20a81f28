"""What a tool is: its description, its context while it runs, its result."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias

from pydantic import BaseModel

from session_store.blobs import BlobStore
from session_store.messages import Content, TextContent, as_content
from session_store.showing import Brief


@dataclass(frozen=True, slots=True, repr=False)
class ToolResult(Brief):
    """What a tool gives back. `content` is text or blocks for the model; `details` is JSON for the log and the
    screen, never sent. `terminate`: when every result of a batch says so, the run ends without another call.
    """

    content: str | tuple[Content, ...] = ""
    details: Any = None
    is_error: bool = False
    terminate: bool = False

    @property
    def blocks(self) -> tuple[Content, ...]:
        return as_content(self.content) if self.content else (TextContent("(no output)"),)


class Confirm(Protocol):
    """Yes or no from the person. `default` is what an empty answer means, and the answer where nobody is there."""

    async def __call__(self, title: str, detail: str = "", /, *, default: bool = False) -> bool: ...


class ContextUsageView(Protocol):
    """See `session.context_usage()`."""

    @property
    def tokens(self) -> int: ...

    @property
    def threshold(self) -> int: ...


async def _nobody(_title: str, _detail: str = "", /, *, default: bool = False) -> bool:
    return default


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ToolContext(Brief):
    """What a tool may use while it runs.

    `report(text)` tells subscribers how far it is. `blobs` keeps the full text of output that was cut. `deps` is what
    the session was given for its tools. `confirm(title, detail, default=...)` asks the person, where there is one; else
    it gives the default.
    """

    call_id: str
    cwd: Path
    session_id: str
    blobs: BlobStore
    deps: Any = None
    report: Callable[[str], None] = field(default=lambda text: None)
    context_usage: Callable[[], ContextUsageView | None] = field(default=lambda: None)
    confirm: Confirm = _nobody


ExecuteTool: TypeAlias = Callable[[Any, ToolContext], Awaitable[Any]]


@dataclass(frozen=True, slots=True, repr=False)
class Tool(Brief):
    """A tool. `parameters` is a pydantic model or a JSON schema of type object.

    `execute(arguments, context)` gets an instance of the model, or a dict where `parameters` is a schema; it
    returns a `ToolResult`, or text, or any JSON value. `execution_mode` "sequential" keeps it from running
    beside others of its batch.
    """

    name: str
    description: str
    parameters: type[BaseModel] | Mapping[str, Any]
    execute: ExecuteTool
    execution_mode: Literal["parallel", "sequential"] = "parallel"
