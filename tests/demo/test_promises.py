"""A demonstration in which something did not happen is a failed one, and says what."""

from __future__ import annotations

import signal
from dataclasses import replace

import pytest

from agent_session.compaction.types import CompactionMethod, CompactionOutcome, CompactionReason
from agent_session.demo.account import PROMISES, Account, Evidence, Moment, Row, broken_promises
from agent_session.demo.killing import Kill
from agent_session.events import (
    AgentEnd,
    AgentStart,
    CompactionEnd,
    CompactionStart,
    ExtensionFailed,
    TurnEnd,
    Warning,
)
from session_store.messages import AssistantMessage, TextContent, ToolResultMessage

START = CompactionStart(reason="manual", tokens_before=1_400, threshold=6_000, messages=3)
KILL = Kill(pid=1, signal=signal.SIGKILL, start=START, size_before=10, size_after=10, is_same_file=True)


def applied(act: int, moment: Moment, reason: CompactionReason, method: CompactionMethod = "model") -> Row:
    return Row(
        act=act, moment=moment, reason=reason, method=method, outcome="applied", before=6_100, after=1_400,
        measured=1_410, entries=5, entry_id=f"entry of act {act}",
    )  # fmt: skip


ROWS = (
    applied(1, "between tool steps", "threshold"),
    applied(2, "after last turn", "threshold"),
    applied(3, "before a retry", "overflow"),
    applied(4, "on request", "manual"),
    Row(act=5, moment="between tool steps", reason="threshold", method=None, outcome="vetoed", before=6_100),
    applied(5, "after a tool step", "threshold", "handler"),
    Row(act=6, moment="on request", reason="manual", method=None, outcome="killed", before=1_400),
    applied(7, "on request", "manual"),
)


def evidence(rows: tuple[Row, ...] = ROWS) -> Evidence:
    """A good demonstration, or one with these compactions only."""
    return Evidence(
        rows=rows,
        kill=KILL,
        is_same_context=True,
        summary_was_sent=True,
        stored=[row.entry_id for row in rows if row.entry_id is not None],
        damage=(),
        troubles=(),
        tests_pass=True,
    )


def test_a_good_demonstration_breaks_no_promise() -> None:
    # Mutation: ask for an outcome that nothing has in one of the promises.
    assert broken_promises(evidence()) == []


@pytest.mark.parametrize(
    ("missing", "said"),
    [
        (0, ["the context passed the threshold between two tool steps, and the run went on"]),
        (1, ["the context passed the threshold with the last answer of a run"]),
        (2, ["the provider refused a request for its size; compacted, it was sent again and answered"]),
        (3, ["session.compact() compacted on request"]),
        (4, ["an extension vetoed a compaction"]),
        (5, ["an extension wrote the summary of another"]),
        (
            6,
            [
                "a process was killed with SIGKILL in the middle of a compaction",
                "it compacted again, and its next request carried the new summary",
            ],
        ),
        (7, ["it compacted again, and its next request carried the new summary"]),
    ],
)
def test_a_compaction_that_did_not_happen_is_missed(missing: int, said: list[str]) -> None:
    # Mutation: take the promise out of PROMISES, or judge it by less than reason, moment, method and outcome.
    assert broken_promises(evidence(ROWS[:missing] + ROWS[missing + 1 :])) == said


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"kill": replace(KILL, is_same_file=False)}, "the killed process left the session's file as it was"),
        ({"is_same_context": False}, "the resumed session has the same context"),
        ({"summary_was_sent": False}, "it compacted again, and its next request carried the new summary"),
        ({"stored": ["an entry nobody told of"]}, "the file holds the compactions that were applied and no others"),
        ({"damage": ["not a JSON object"]}, "the file holds the compactions that were applied and no others"),
        ({"troubles": ["no more compactions in this run"]}, "the sessions told no warning and no failure"),
        ({"tests_pass": False}, "the agent did its work"),
        ({"rows": (*ROWS[:7], replace(ROWS[7], measured=1_100))}, "each compaction left a context of the size it said"),
    ],
)
def test_a_claim_that_does_not_hold_is_told(changes: dict[str, object], said: str) -> None:
    # Mutation: take the promise out of PROMISES.
    (sentence,) = broken_promises(replace(evidence(), **changes))  # type: ignore[arg-type]
    assert sentence.startswith(said)


def test_every_promise_can_be_broken() -> None:
    # Mutation: a promise whose judgement is always true.
    nothing = Evidence(
        rows=(replace(ROWS[0], moment="on request", outcome="applied", act=9, method="shrink", measured=1),),
        kill=replace(KILL, signal=None, is_same_file=False),
        is_same_context=False,
        summary_was_sent=False,
        stored=(),
        damage=("torn",),
        troubles=("a warning",),
        tests_pass=False,
    )
    assert len(broken_promises(nothing)) == len(PROMISES)


# The account of events -----------------------------------------------------------------------------------

ANSWER = AssistantMessage(content=(TextContent("Done."),))
RESULT = ToolResultMessage(tool_call_id="1", tool_name="bash", content=())
STEP = TurnEnd(turn_index=0, message=ANSWER, tool_results=(RESULT,))
LAST = TurnEnd(turn_index=1, message=ANSWER, tool_results=())
FAILED = TurnEnd(turn_index=1, message=replace(ANSWER, stop_reason="error"), tool_results=())
RUN, END = AgentStart(), AgentEnd(messages=())


def compacted(reason: str = "threshold", status: str = "applied") -> CompactionEnd:
    outcome = CompactionOutcome(status=status, reason=reason, method="model", tokens_before=10, tokens_after=5)  # type: ignore[arg-type]
    return CompactionEnd(reason=outcome.reason, outcome=outcome, aborted=False, will_retry=False, from_hook=False)


@pytest.mark.parametrize(
    ("events", "moment"),
    [
        ((RUN, STEP, compacted(), STEP), "between tool steps"),
        ((RUN, STEP, compacted(), LAST), "after a tool step"),
        ((RUN, STEP, compacted()), "after a tool step"),
        ((RUN, LAST, END, compacted()), "after last turn"),
        ((RUN, FAILED, END, compacted("overflow"), RUN, STEP), "before a retry"),
        ((RUN, FAILED, END, compacted("overflow"), RUN, FAILED), "refused for size"),
        ((compacted("manual"),), "on request"),
    ],
)
def test_the_moment_of_a_compaction_is_told_by_the_events_around_it(events: tuple[object, ...], moment: str) -> None:
    # Mutation: take any turn, a failed or a last one too, for a step that followed.
    account = Account()
    for event in events:
        account.listen(event)  # type: ignore[arg-type]
    assert [row.moment for row in account.rows] == [moment]


def test_what_was_not_stored_has_no_method_in_the_account() -> None:
    # Mutation: take the outcome's method whatever its status.
    account = Account()
    account.listen(compacted(status="vetoed"))
    assert (account.rows[0].method, account.rows[0].outcome) == (None, "vetoed")


def test_warnings_and_failures_are_troubles() -> None:
    # Mutation: leave one of the two cases out of `Account.listen`.
    account = Account()
    account.listen(Warning(text="large"))
    account.listen(ExtensionFailed(owner="notes", event="before_compact", why="it raised"))
    assert account.troubles == ["large", "notes: it raised"]


def test_a_process_that_ended_by_itself_was_not_killed() -> None:
    # Mutation: note every lost compaction as killed.
    account = Account()
    account.note_kill(replace(KILL, signal=None))
    assert account.rows[0].outcome == "lost"
