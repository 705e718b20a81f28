"""The root of the decisions: how an answer is checked and folded into its event."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from agent_session.events import Event


class InvalidAnswer(Exception):
    """An answer of the wrong type or content: that handler's failure, reported with its name."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Decision(Event):
    """Root of the decisions. `answers` are the types a handler may return."""

    answers: ClassVar[tuple[type, ...]] = ()
    failure_blocks: ClassVar[bool] = False
    warnings: tuple[str, ...] = ()
    decided_by: str | None = None

    @property
    def is_settled(self) -> bool:
        return False

    def fold(self, answer: object, owner: str) -> Self:
        """This event with the answer in it.

        Raises:
            InvalidAnswer: the answer's type is not one of `answers`, or what it says cannot be.
        """
        if not isinstance(answer, self.answers):
            allowed = ", ".join(kind.__name__ for kind in self.answers)
            raise InvalidAnswer(f"answered {type(answer).__name__}; {self.name} takes {allowed} or None")
        return self._folded(answer, owner)

    def _folded(self, answer: Any, owner: str) -> Self:
        raise NotImplementedError

    def _replacing(self, what: str, owner: str, is_second: bool, **changes: Any) -> Self:
        """`replace`, with a warning where it overrides what an earlier handler answered."""
        warnings = self.warnings
        if is_second:
            warnings += (f"{self.name}: the {what} of {owner} replaces that of {self.decided_by}",)
        return replace(self, **changes, warnings=warnings, decided_by=owner)


def checked_summary(summary: object) -> str:
    """Raises: InvalidAnswer: it is no text, or blank."""
    if not isinstance(summary, str):
        raise InvalidAnswer(f"the summary is {type(summary).__name__}, not text")
    if not summary.strip():
        raise InvalidAnswer("the summary is blank")
    return summary
