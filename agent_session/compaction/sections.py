"""A summary in sections: read by its headings, and written with them again.

Pure. The rule it keeps: only headings that are known here part a summary. Every other line, one that looks like a
heading too, is text of the section it stands in, so that nothing is lost or moved by reading what anybody wrote.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

Place: TypeAlias = tuple[str, str]
"""A heading and the smaller heading under it; "" for what stands under none."""

PREAMBLE: Final[Place] = ("", "")
GOAL: Final[Place] = ("Goal", "")
CONSTRAINTS: Final[Place] = ("Constraints & Preferences", "")
USER_SAID: Final[Place] = ("Goal", "What the user said")
COMMANDS: Final[Place] = ("Progress", "Commands and how they ended")
LAST_ERRORS: Final[Place] = ("Progress", "Last errors")
LAST_ANSWER: Final[Place] = ("Progress", "Last answer")
OTHER_ATTEMPTS: Final[Place] = ("Other attempts", "")

TURN_HEADING: Final = "## Turn in progress (its beginning)"

PLACES: Final[tuple[Place, ...]] = (
    PREAMBLE,
    GOAL,
    USER_SAID,
    CONSTRAINTS,
    ("Progress", ""),
    ("Progress", "Done"),
    ("Progress", "In Progress"),
    ("Progress", "Blocked"),
    COMMANDS,
    LAST_ERRORS,
    LAST_ANSWER,
    ("Key Decisions", ""),
    ("Next Steps", ""),
    ("Critical Context", ""),
    OTHER_ATTEMPTS,
    (TURN_HEADING.removeprefix("## "), ""),
)
"""In the order in which they are written."""

_HEADINGS: Final = frozenset(heading for heading, _ in PLACES if heading)


def sections_of(summary: str) -> dict[Place, str]:
    """The text under each heading that has any. What stands twice under one heading is joined."""
    lines: dict[Place, list[str]] = {}
    place = PREAMBLE
    for line in summary.split("\n"):
        heading, smaller = line.removeprefix("## ").strip(), line.removeprefix("### ").strip()
        if line.startswith("## ") and heading in _HEADINGS:
            place = (heading, "")
        elif line.startswith("### ") and (place[0], smaller) in PLACES:
            place = (place[0], smaller)
        elif line != "---":
            lines.setdefault(place, []).append(line)
    texts = {place: "\n".join(part).strip("\n") for place, part in lines.items()}
    return {place: text for place, text in texts.items() if text.strip()}


def heading_of(place: Place) -> str:
    """The lines that a place costs beside its text, as many as it may need."""
    heading, smaller = place
    return "\n\n" + "\n".join(part for part in (heading and f"## {heading}", smaller and f"### {smaller}") if part)


def with_headings(texts: Mapping[Place, str]) -> str:
    """The summary that has these texts; what has none is left out."""
    written: list[str] = []
    above = ""
    for place in PLACES:
        if not texts.get(place):
            continue
        heading, smaller = place
        if heading != above:
            above = heading
            written += ["", f"## {heading}"] if written else [f"## {heading}"]
        if smaller:
            written.append(f"### {smaller}")
        written.append(texts[place])
    return "\n".join(written)
