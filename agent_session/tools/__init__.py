"""Tools: what a model may call, and the ones for coding.

`@tool` makes one of a function, `ToolRegistry` holds those of a session, `validate` and `as_result` stand on
either side of a call. The coding tools are one module each, over `paths`, `files`, `output` and `shell`.
"""

from agent_session.tools.calling import as_result, validate, validate_call
from agent_session.tools.coding import coding_tools
from agent_session.tools.decorator import tool
from agent_session.tools.registry import ToolRegistry
from agent_session.tools.types import Tool, ToolContext, ToolResult

__all__ = [
    "Tool",
    "ToolContext",
    "ToolRegistry",
    "ToolResult",
    "as_result",
    "coding_tools",
    "tool",
    "validate",
    "validate_call",
]
