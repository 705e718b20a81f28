"""`search_history`: what was said in this session and is no longer in the model's context.

Every session that has tools has this one, from its first request on: what a model is told of its tools must not change
when something was summarised.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Final

import anyio.to_thread
from pydantic import BaseModel, ConfigDict, Field

from agent_session.errors import ToolError
from agent_session.history import SEARCH_HISTORY, Branch, SearchHit, first_occurrence
from agent_session.tools.types import Tool, ToolContext, ToolResult
from session_store.showing import quoted

HITS_PER_PAGE: Final = 20
CHARS_PER_PAGE: Final = 12_000


class SearchHistoryArguments(BaseModel):
    model_config = ConfigDict(extra="forbid")

    query: Annotated[str | None, Field(description="Plain text to find")] = None
    entry: Annotated[str | None, Field(description="The id of a message to read whole")] = None
    page: Annotated[int | None, Field(ge=1)] = None


def search_history(branch: Callable[[], Branch]) -> Tool:
    """The tool of one session; `branch` gives its branch as it is now."""

    async def execute(arguments: SearchHistoryArguments, _context: ToolContext) -> ToolResult:
        query = (arguments.query or "").strip()
        entry_id = (arguments.entry or "").strip()
        now = branch()
        # A long history takes a while, and what is looked at does not change.
        if entry_id:
            return await anyio.to_thread.run_sync(_read, now, entry_id, query, arguments.page, abandon_on_cancel=True)
        return await anyio.to_thread.run_sync(_search, now, query, arguments.page or 1, abandon_on_cancel=True)

    return Tool(
        name=SEARCH_HISTORY,
        description=(
            "What is no longer in your context of this conversation: messages that were summarised, omitted or "
            "shortened. query finds some of them, newest first (all without it); entry reads one whole."
        ),
        parameters=SearchHistoryArguments,
        execute=execute,
    )


def _search(branch: Branch, query: str, page: int) -> ToolResult:
    terms: tuple[str, ...] = (query,) if query else ()
    heading = f"{quoted(query)}, newest first:" if query else "all, newest first:"
    if len(query.split()) > 1 and not branch.search(query, limit=1, only_dropped=True):
        terms = tuple(query.split())
        heading = f"nobody said just {quoted(query)}; with all of these words, newest first:"
    hits = branch.search(*terms, limit=HITS_PER_PAGE + 1, skip=(page - 1) * HITS_PER_PAGE, only_dropped=True)
    if not hits:
        more = "more " if page > 1 else ""
        return ToolResult(f"nothing {more}found in what is no longer in the context", details={"entries": []})
    shown = hits[:HITS_PER_PAGE]
    more = f"; more: page={page + 1}" if len(hits) > HITS_PER_PAGE else ""
    lines = [heading, *(_hit_line(hit) for hit in shown), f"[entry=ID reads one whole{more}]"]
    return ToolResult("\n".join(lines), details={"entries": [hit.entry_id for hit in shown]})


def _hit_line(hit: SearchHit) -> str:
    return f"{hit.entry_id} {hit.role}, {hit.timestamp[:16]}, {hit.where}: {hit.snippet}"


def _read(branch: Branch, entry_id: str, query: str, page: int | None) -> ToolResult:
    said = branch.message(entry_id)
    if said is None:
        raise ToolError(f"there is no message {quoted(entry_id)} on this branch; query finds messages and their ids")
    text = said.text
    pages = max(1, -(-len(text) // CHARS_PER_PAGE))
    if page is None:
        found = first_occurrence(text, query) if query else None
        page = 1 if found is None else found // CHARS_PER_PAGE + 1
    if page > pages:
        raise ToolError(f"{entry_id} has {pages} {'page' if pages == 1 else 'pages'}")
    part = text[(page - 1) * CHARS_PER_PAGE : page * CHARS_PER_PAGE]
    note = f"\n[page {page} of {pages} of {entry_id}]" if pages > 1 else ""
    return ToolResult(f"{part}{note}", details={"entries": [entry_id], "page": page, "pages": pages})
