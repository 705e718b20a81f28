"""The screen: text as it streams, the meter, and what a terminal must never be told."""

from __future__ import annotations

import io
import re
from dataclasses import replace

import pytest
from rich.console import Console

from agent_session.compaction.types import CompactionOutcome
from agent_session.events import (
    AgentSettled,
    CompactionEnd,
    CompactionProgress,
    CompactionStart,
    MessageDiscarded,
    MessageStart,
    MessageUpdate,
    QueueUpdate,
    RetryStart,
    TurnEnd,
)
from agent_session.hooks import MessageEnd
from agent_session.llm.client import TextDelta, ThinkingDelta
from agent_session.meter import ContextUsage
from agent_session.terminal.console import make_console, printable
from agent_session.terminal.meter_bar import meter_bar, short_usage
from agent_session.terminal.progress import WorkClock
from agent_session.terminal.screen import Screen
from session_store.messages import AssistantMessage, TextContent, ToolResultMessage

ANSWER = AssistantMessage(content=(TextContent("said"),), api="", provider="p", model="m", timestamp=0)


def screen_of(width: int, *, is_terminal: bool = False) -> tuple[Screen, io.StringIO]:
    file = io.StringIO()
    console = Console(
        file=file, width=width, highlight=False, markup=False, emoji=False, force_terminal=is_terminal, no_color=True
    )
    return Screen(console), file


def shown(width: int, pieces: list[str]) -> list[str]:
    """The lines that a streamed answer makes."""
    screen, file = screen_of(width)
    screen.listen(MessageStart(turn_index=0))
    for piece in pieces:
        screen.listen(MessageUpdate(delta=TextDelta(0, piece)))
    screen.listen(MessageEnd(message=ANSWER))
    return file.getvalue().splitlines()


def test_streamed_text_is_broken_between_words_wherever_its_pieces_end() -> None:
    # Mutation: put a word when its first piece comes instead of when it is whole; or do not count the indent.
    text = "The parser kept only the last unit, so that an hour and a half was thirty minutes.\n\n- a day is [b]24[/b]h"
    expected = [
        "assistant  The parser kept only the last",
        "           unit, so that an hour and a",
        "           half was thirty minutes.",
        "",
        "           - a day is [b]24[/b]h",
    ]
    for size in (1, 2, 7, 13, len(text)):
        pieces = [text[start : start + size] for start in range(0, len(text), size)]
        assert [line.rstrip() for line in shown(41, pieces)] == expected


def test_code_in_an_answer_keeps_its_indentation() -> None:
    # Mutation: drop what follows the last newline of a gap.
    assert shown(80, ["So:\n\n    if x:\n        y()\n"])[2:] == ["               if x:", "                   y()"]


def test_wide_characters_count_as_wide() -> None:
    # Mutation: count characters instead of cells.
    assert shown(21, ["日本語 日本語 日本語"]) == ["assistant  日本語", "           日本語", "           日本語"]


def test_an_answer_without_text_leaves_no_line() -> None:
    # Mutation: print the label when an answer begins.
    assert shown(80, []) == []


def test_a_notice_while_text_streams_divides_no_word() -> None:
    # Mutation: let `Screen.line` end the flow: half a word stands before the notice, half after it.
    screen, file = screen_of(80)
    screen.listen(MessageStart(turn_index=0))
    screen.listen(MessageUpdate(delta=TextDelta(0, "It adds the un")))
    screen.line("queued", "Use tabs.")
    screen.listen(MessageUpdate(delta=TextDelta(0, "its up.")))
    screen.listen(MessageEnd(message=ANSWER))
    assert [line.rstrip() for line in file.getvalue().splitlines()] == [
        "assistant  It adds the",
        "queued     Use tabs.",
        "assistant  units up.",
    ]


def test_thinking_and_answer_are_told_apart() -> None:
    # Mutation: stream thinking under the answer's label.
    screen, file = screen_of(80)
    screen.listen(MessageStart(turn_index=0))
    screen.listen(MessageUpdate(delta=ThinkingDelta(0, "Let me see.")))
    screen.listen(MessageUpdate(delta=TextDelta(1, "It adds.")))
    screen.listen(MessageEnd(message=ANSWER))
    assert file.getvalue().splitlines() == ["thinking   Let me see.", "assistant  It adds."]


@pytest.mark.parametrize("evil", ["\x1b[2J", "\x1b]0;title\x07", "\x9b31m", "\r", "\x08", "\x7f"])
def test_no_control_character_of_a_model_or_a_tool_reaches_the_terminal(evil: str) -> None:
    # Mutation: leave C1 or ESC out of `_CONTROL`.
    screen, file = screen_of(80, is_terminal=False)
    screen.line("user", f"a{evil}b")
    screen.listen(MessageUpdate(delta=TextDelta(0, f"a{evil}b ")))
    screen.listen(MessageEnd(message=ANSWER))
    assert evil not in file.getvalue()
    assert printable(f"a\tb\n{evil}").startswith("a   b\n")


def test_a_failed_attempt_is_told_once_with_what_comes_of_it() -> None:
    # Mutation: tell the reason when it is told, whatever comes of it; or forget it before a request that needs no wait.
    screen, file = screen_of(80)
    screen.listen(MessageDiscarded(reason="overloaded"))
    screen.listen(RetryStart(attempt=1, max_retries=3, delay=2.0, error="overloaded"))
    screen.listen(MessageStart(turn_index=0))
    screen.listen(MessageDiscarded(reason="images are not taken"))
    screen.listen(MessageStart(turn_index=0))
    screen.listen(MessageDiscarded(reason="too long"))
    screen.listen(CompactionStart(reason="overflow", tokens_before=9, threshold=2, messages=3))
    screen.listen(MessageStart(turn_index=0))
    screen.listen(MessageDiscarded(reason="no such flag"))
    screen.listen(AgentSettled(aborted=False))
    screen.failed("no such flag")
    assert file.getvalue().splitlines() == [
        "retry      1 of 3, in 2.0 s: overloaded",
        "failed     images are not taken",
        "refused    too long",
        "compaction starts (overflow): 9 tokens; 3 messages leave",
        "run        failed: no such flag",
    ]


def test_an_abort_is_no_refusal() -> None:
    # Mutation: tell the reason of what was discarded when all is over.
    screen, file = screen_of(80)
    screen.listen(MessageDiscarded(reason="the run was aborted"))
    screen.listen(AgentSettled(aborted=True))
    screen.listen(MessageStart(turn_index=0))
    assert file.getvalue().splitlines() == ["run        aborted"]


def test_a_queued_text_is_shown_once_where_the_queue_is_shown() -> None:
    # Mutation: print the whole queue at each change.
    file = io.StringIO()
    screen = Screen(Console(file=file, width=80), shows_queue=True)
    screen.listen(QueueUpdate(steering=("one",), follow_up=()))
    screen.listen(QueueUpdate(steering=("one", "two"), follow_up=()))
    screen.listen(QueueUpdate(steering=(), follow_up=()))
    assert file.getvalue().splitlines() == ["queued     one", "queued     two"]


# The meter ----------------------------------------------------------------------------------------


def usage(tokens: int) -> ContextUsage:
    return ContextUsage(tokens=tokens, threshold=6_000, window=8_000, is_reported=True)


@pytest.mark.parametrize(
    ("tokens", "bar", "style"),
    [
        (0, "[------------|---]", None),
        (4_000, "[########----|---]", "green"),
        (5_000, "[##########--|---]", "yellow"),
        (6_001, "[############|---]", "red"),
        (9_000, "[############|###]", "red"),
    ],
)
def test_the_meter_is_filled_and_coloured_against_the_threshold(tokens: int, bar: str, style: str | None) -> None:
    # Mutation: colour against the window; or draw what is filled over the threshold.
    meter = meter_bar(usage(tokens), cells=16)
    assert meter.plain == bar
    assert {str(span.style) for span in meter.spans} - {"bold", "dim"} == ({style} if style else set())


def test_the_meter_fits_a_narrow_terminal() -> None:
    # Mutation: keep all cells whatever the width.
    screen, file = screen_of(40, is_terminal=True)
    screen.usage = lambda: usage(4_000)
    screen.meter()
    lines = re.sub(r"\x1b\[[\d;]*m", "", file.getvalue()).splitlines()
    assert lines[0].count("█") == 5
    assert all(len(line) <= 40 for line in lines)


def test_sizes_are_short_where_there_is_little_room() -> None:
    # Mutation: write small sizes in thousands.
    assert short_usage(usage(999)) == "999 of 8.0k, compacts above 6.0k"


def turn(*, has_tools: bool, stop_reason: str = "stop") -> TurnEnd:
    results = (ToolResultMessage(tool_call_id="a", tool_name="look", content=()),) if has_tools else ()
    return TurnEnd(turn_index=0, message=replace(ANSWER, stop_reason=stop_reason), tool_results=results)


def test_between_tools_the_meter_is_shown_only_when_it_has_moved() -> None:
    # Mutation: show it after every turn; or between two tools never.
    screen, file = screen_of(100)
    for tokens, event, is_shown in (
        (1_000, turn(has_tools=True), True),
        (1_100, turn(has_tools=True), False),
        (1_700, turn(has_tools=True), True),
        (1_800, turn(has_tools=False), True),
        (1_800, turn(has_tools=False, stop_reason="error"), False),
    ):
        screen.usage = lambda tokens=tokens: usage(tokens)
        before = file.getvalue()
        screen.listen(event)
        assert ("context " in file.getvalue().removeprefix(before)) == is_shown, tokens


def test_the_meter_takes_one_line_of_eighty_columns() -> None:
    # Mutation: write all sizes out whatever the width.
    screen, file = screen_of(80, is_terminal=True)
    screen.usage = lambda: ContextUsage(tokens=120_050, threshold=111_616, window=128_000, is_reported=True)
    screen.meter()
    assert len(file.getvalue().splitlines()) == 1
    assert "120.0k of 128.0k" in file.getvalue() or "120.1k of 128.0k" in file.getvalue()


# Progress -----------------------------------------------------------------------------------------


def test_the_clock_of_a_compaction_says_phase_chunk_and_seconds_until_it_ends() -> None:
    # Mutation: keep running after the end.
    clock = WorkClock()
    clock.listen(CompactionStart(reason="manual", tokens_before=1, threshold=2, messages=3))
    assert clock.line == "compacting: starting, 0 s"
    clock.listen(CompactionProgress(phase="summarizing", chunk=2, chunks=3, seconds=0.1))
    assert clock.line == "compacting: summarizing 2/3, 0 s"
    outcome = CompactionOutcome(status="aborted", reason="manual")
    clock.listen(CompactionEnd(reason="manual", outcome=outcome, aborted=True, will_retry=False, from_hook=False))
    assert clock.line is None


def test_a_pipe_is_wide_enough_for_tables_and_no_terminal() -> None:
    # Mutation: give a pipe 80 columns.
    console = make_console(io.StringIO())
    assert (console.width, console.is_terminal) == (120, False)
