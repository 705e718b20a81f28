"""What an extension's `setup` is handed: how it registers handlers, tools, patterns, and leaves things in a session.

Rule: everything registered here belongs to the extension, under its name, and goes when it is unloaded or when
its `setup` fails half-way.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Literal, overload

from typing_extensions import override

from agent_session.errors import ExtensionError
from agent_session.extending.on import On
from agent_session.extending.registry import HandlerRegistry, Owner
from agent_session.extending.view import DeliverAs
from agent_session.logs import Logger, get_logger
from agent_session.tools.decorator import tool as make_tool
from agent_session.tools.types import Tool
from session_store.messages import Content


class ExtensionAPI:
    """One extension's side of a session.

    `name` is the extension's, as it is reported; `on` registers handlers (`on.On` says how); `logger` binds
    the extension's name to every record. After the extension was unloaded or the session closed or replaced,
    everything but these raises `ExtensionError`.
    """

    def __init__(self, owner: Owner, registry: HandlerRegistry) -> None:
        self.name = owner.name
        self.on = On(registry, owner)
        self.logger: Logger = get_logger(extension=owner.name)
        self._owner = owner

    @override
    def __repr__(self) -> str:
        return f"<ExtensionAPI of {self.name}>"

    @overload
    def tool(self, tool: Tool | Callable[..., Any], /) -> Tool: ...
    @overload
    def tool(
        self,
        /,
        *,
        name: str | None = None,
        description: str | None = None,
        execution_mode: Literal["parallel", "sequential"] = "parallel",
    ) -> Callable[[Callable[..., Any]], Tool]: ...
    def tool(
        self,
        tool: Tool | Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        description: str | None = None,
        execution_mode: Literal["parallel", "sequential"] = "parallel",
    ) -> Tool | Callable[[Callable[..., Any]], Tool]:
        """Offer a tool to the model from its next request on: a `Tool`, or a typed function as `@tool` takes it.

        Raises:
            TypeError: the function has a parameter that no schema can be made of.
            SettingsError: the session has a tool of that name.
        """

        def make_and_register(function: Callable[..., Any]) -> Tool:
            make = make_tool(name=name, description=description, execution_mode=execution_mode)
            return self._register_tool(make(function))

        if tool is None:
            return make_and_register
        return self._register_tool(tool) if isinstance(tool, Tool) else make_and_register(tool)

    def overflow_pattern(self, regex: str | re.Pattern[str]) -> None:
        """Teach the session how a provider says that a request was too long: text that the pattern is found in.

        It wins over everything that is known of refusals, from the next request on, whatever client answers. A text
        is taken without regard to case; a compiled pattern as it is.

        Raises:
            ExtensionError: no regular expression, or one that is found in every text.
        """
        try:
            pattern = re.compile(regex, re.IGNORECASE) if isinstance(regex, str) else regex
            finds_everything = pattern.search("") is not None
        except (AttributeError, TypeError, re.error) as error:
            raise ExtensionError(
                self.name, f"overflow_pattern takes a regular expression for text, not {regex!r}: {error}"
            ) from error
        if finds_everything:
            raise ExtensionError(self.name, f"overflow_pattern({regex!r}) is found in every text, also in an empty one")
        self._owner.withdrawals.append(self._owner.tenure.view.register_overflow_pattern(pattern))

    def append_entry(self, custom_type: str, data: Any = None) -> str:
        """Keep JSON in the log, where no model sees it; the id of the entry."""
        return self._owner.context.append_entry(custom_type, data)

    def get_entry_data(self, custom_type: str) -> Any:
        """The newest data kept under this type on the branch, or None."""
        return self._owner.context.get_entry_data(custom_type)

    def send_message(self, content: str | Sequence[Content], *, deliver_as: DeliverAs = "follow_up") -> None:
        """Say something to the model: before its next request (`steer`), when the run would end (`follow_up`),
        or with the next prompt (`next_turn`).
        """
        self._owner.context.send_message(content, deliver_as=deliver_as)

    def set_label(self, entry_id: str, label: str | None) -> None:
        """Name an entry; None takes the name off."""
        self._owner.context.set_label(entry_id, label)

    def _register_tool(self, tool: Tool) -> Tool:
        self._owner.withdrawals.append(self._owner.tenure.view.register_tool(tool, self.name))
        return tool
