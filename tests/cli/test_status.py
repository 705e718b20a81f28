"""The line under the input: whole fields, and of them those that matter most where there is little room."""

from __future__ import annotations

import re

import pytest

from agent_session.cli.status import Status
from agent_session.events import AgentSettled, AgentStart, CompactionStart, ToolExecutionStart
from agent_session.meter import ContextUsage

FIELDS = r"running 0 s|\(Ctrl-C aborts\)|\[[#|-]+\]|120\.0k of 128\.0k|compacts above 111\.6k|openai/gpt-5-mini"


def busy() -> Status:
    status = Status()
    status.listen(AgentStart())
    status._usage = ContextUsage(tokens=120_000, threshold=111_616, window=128_000, is_reported=True)
    status._model = "openai/gpt-5-mini"
    return status


@pytest.mark.parametrize(("columns", "fields"), [(120, 6), (90, 5), (80, 4), (60, 3), (40, 2), (20, 1)])
def test_a_narrow_line_has_fewer_fields_and_each_of_them_whole(columns: int, fields: int) -> None:
    # Mutation: cut the line at its right end; or take fields away in another order.
    line = busy().line(unicode=False, columns=columns).plain
    assert len(line) <= columns
    assert len(re.findall(FIELDS, line)) == fields
    assert not re.sub(FIELDS, "", line).strip(" ,")
    assert line.startswith("running 0 s")


def test_what_runs_is_named_and_a_compaction_goes_first() -> None:
    # Mutation: say `running` whatever runs; or name the tool while the context is compacted.
    status = busy()
    status.listen(ToolExecutionStart(call_id="a", tool_name="bash", arguments={}))
    status.listen(ToolExecutionStart(call_id="b", tool_name="read", arguments={}))
    assert status.line(unicode=False, columns=200).plain.startswith("bash and 1 more tool, 0 s (Ctrl-C aborts)  [")
    status.listen(CompactionStart(reason="manual", tokens_before=1, threshold=2, messages=3))
    assert status.line(unicode=False, columns=200).plain.startswith("compacting: starting, 0 s (Ctrl-C aborts it)  [")
    idle = busy()
    idle.listen(ToolExecutionStart(call_id="a", tool_name="bash", arguments={}))
    idle.listen(AgentSettled(aborted=True))
    assert idle.line(unicode=False, columns=200).plain.startswith("ready  [")
