"""The coding tools: what `tools=None` and `"default"` mean, in the order a model is told of them."""

from __future__ import annotations

from agent_session.tools.bash import BASH
from agent_session.tools.edit import EDIT
from agent_session.tools.find import FIND
from agent_session.tools.grep import GREP
from agent_session.tools.ls import LS
from agent_session.tools.read import READ
from agent_session.tools.types import Tool
from agent_session.tools.write import WRITE


def coding_tools() -> tuple[Tool, ...]:
    """Read, write, edit, run, search: rooted in the session's folder. They hold no state: sessions may share them."""
    return (READ, WRITE, EDIT, BASH, GREP, FIND, LS)
