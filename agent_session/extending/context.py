"""What a handler is handed beside its event: a narrow view of the session, requests, and a person to ask.

Rule: a context ends with what it belongs to. After its extension was unloaded or its session closed or was
replaced, everything on it raises `ExtensionError` and says so: a handler that kept it would otherwise act on
a session that nobody looks at any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from typing_extensions import override

from agent_session.errors import ExtensionError
from agent_session.events import Warning
from agent_session.extending.clock import paused
from agent_session.extending.copies import detached
from agent_session.extending.view import DeliverAs, Interaction, NotifyLevel, SessionView
from agent_session.llm.client import ThinkingLevel
from agent_session.models import Model
from agent_session.settings import Settings
from agent_session.tools.types import ContextUsageView
from session_store.messages import Content, Message


class Tenure:
    """How long an extension may use its session. Shared by its context and its API."""

    def __init__(self, owner: str, view: SessionView) -> None:
        self.owner = owner
        self._view = view
        self._ended: str | None = None

    @property
    def view(self) -> SessionView:
        """The session.

        Raises:
            ExtensionError: it was ended; the text says by what.
        """
        if self._ended is not None:
            raise ExtensionError(
                self.owner, f"{self._ended}; use the ctx of the event at hand instead of one that was kept"
            )
        return self._view

    def check(self) -> None:
        """Raise what `view` raises, without using the session."""
        _ = self.view

    def end(self, why: str) -> None:
        """`why` is a sentence about the session or extension. The first one stands."""
        self._ended = self._ended or why


class ExtensionContext:
    """The session, read-only, and what may be asked of it from inside a handler.

    Values are copies. Requests do not wait: the run honours them at its next safe point. Everything here
    raises `ExtensionError` once the extension was unloaded or the session closed or replaced.
    """

    def __init__(self, tenure: Tenure) -> None:
        self._tenure = tenure
        self._has_warned = False

    @property
    def _view(self) -> SessionView:
        return self._tenure.view

    @override
    def __repr__(self) -> str:
        return f"<ExtensionContext of {self._tenure.owner}>"

    @property
    def session_id(self) -> str:
        return self._view.session_id

    @property
    def session_name(self) -> str | None:
        return self._view.session_name

    @property
    def cwd(self) -> Path:
        return self._view.cwd

    @property
    def model(self) -> Model:
        return self._view.model

    @property
    def thinking_level(self) -> ThinkingLevel:
        return self._view.thinking_level

    @property
    def leaf_id(self) -> str | None:
        """The entry the session stands at; None in an empty one."""
        return self._view.leaf_id

    @property
    def is_idle(self) -> bool:
        return self._view.is_idle

    @property
    def settings(self) -> Settings:
        """The effective settings."""
        return detached(self._view.settings)

    @property
    def messages(self) -> tuple[Message, ...]:
        """The context: what the next request would send."""
        return detached(tuple(self._view.messages))

    @property
    def system_prompt(self) -> str:
        return self._view.system_prompt

    def context_usage(self) -> ContextUsageView | None:
        """Tokens, threshold, window, and whether they are reported or estimated."""
        return self._view.context_usage()

    # Requests -----------------------------------------------------------------------------------

    def request_compaction(self, instructions: str | None = None) -> None:
        """Compact at the next safe point; `instructions` focus the summary."""
        self._view.request_compaction(instructions)

    def send_message(self, content: str | Sequence[Content], *, deliver_as: DeliverAs = "follow_up") -> None:
        """Say something to the model: before its next request (`steer`), when the run would end (`follow_up`),
        or with the next prompt (`next_turn`).
        """
        self._view.send_message(detached(content), deliver_as=deliver_as)

    def abort(self) -> None:
        """End what runs. Returns at once."""
        self._view.request_abort()

    def append_entry(self, custom_type: str, data: Any = None) -> str:
        """Keep JSON in the log, where no model sees it; the id of the entry."""
        return self._view.append_entry(custom_type, detached(data))

    def get_entry_data(self, custom_type: str) -> Any:
        """The newest data kept under this type on the branch, or None."""
        return detached(self._view.get_entry_data(custom_type))

    def set_label(self, entry_id: str, label: str | None) -> None:
        """Name an entry; None takes the name off."""
        self._view.set_label(entry_id, label)

    # A person -----------------------------------------------------------------------------------

    async def confirm(self, title: str, detail: str = "", *, default: bool = False) -> bool:
        """Yes or no from the person; `default` where there is none. Their time is not the handler's."""
        interaction = self._interaction(title)
        if interaction is None:
            return default
        with paused():
            return await interaction.confirm(title, detail, default)

    async def ask(self, question: str, choices: Sequence[str] = (), *, default: str | None = None) -> str | None:
        """One of `choices`, or any text where there are none; `default` where there is no person or no answer."""
        interaction = self._interaction(question)
        if interaction is None:
            return default
        with paused():
            answer = await interaction.ask(question, tuple(choices))
        return default if answer is None else answer

    def notify(self, text: str, level: NotifyLevel = "info") -> None:
        """Tell the person, without waiting; nobody there, nobody told."""
        interaction = self._interaction(text)
        if interaction is not None:
            interaction.notify(text, level)

    def _interaction(self, about: str) -> Interaction | None:
        interaction = self._view.interaction
        if interaction is None and not self._has_warned:
            self._has_warned = True
            self._view.report(
                Warning(
                    text=f"extension {self._tenure.owner} turned to a person ({about!r}) and there is none: the "
                    f"default is taken, now and for whatever else it asks; give AgentSession an `interaction`"
                )
            )
        return interaction
