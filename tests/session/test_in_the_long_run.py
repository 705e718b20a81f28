"""Compaction after compaction: what is carried on, what is tried again, and what it may cost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agent_session import CompactionEnd, Summarize, ToolResult, Warning, tool
from agent_session.testing import always, call, fail, reply
from tests.session.scene import SUMMARY, scene, texts, words


@tool
def look(at: str) -> str:
    """Look at something."""
    return words(30, f"seen {at}")


async def test_files_read_and_changed_are_listed_once_over_all_compactions(tmp_path: Path) -> None:
    # Mutation: in `prepare_compaction` leave the previous entry's `details` out; in `with_file_lists` keep the old.
    (tmp_path / "a.txt").write_text("a\n" * 20)
    (tmp_path / "b.txt").write_text("b\n" * 20)
    steps = [
        call("read", path="a.txt"),
        reply(words(40, "read it")),
        reply(words(40, "and")),
        call("write", path="c.txt", content="c"),
        call("read", path="b.txt"),
        reply(words(40, "wrote it")),
        reply(words(40, "done")),
    ]
    # As a model does that copies what it was shown.
    copied = always(reply(SUMMARY + "\n\n<read-files>\na.txt\n</read-files>"))
    async with scene(tmp_path, steps, summaries=[copied], tools=["read", "write"], window=8_000) as stage:
        await stage.session.prompt(words(40, "first"))
        await stage.session.prompt(words(40, "second"))
        await stage.session.compact(keep_recent_tokens=60)
        await stage.session.prompt(words(40, "third"))
        await stage.session.prompt(words(40, "fourth"))
        await stage.session.compact(keep_recent_tokens=60)
        first, second = stage.compactions
        assert first.details == {"readFiles": ["a.txt"], "modifiedFiles": []}
        assert second.details == {"readFiles": ["a.txt", "b.txt"], "modifiedFiles": ["c.txt"]}
        assert second.summary.count("<read-files>") == 1
        assert second.summary.count("a.txt") == 1


async def test_a_summariser_that_always_fails_is_given_up_and_the_run_goes_on_without_it(tmp_path: Path) -> None:
    # Mutation: in `EntryMaker.made` do not ask the back-off: every turn would pay for a failure.
    turns = 40
    steps: list[Any] = [call("look", at=str(number)) for number in range(turns)]
    async with scene(
        tmp_path,
        [*steps, reply("done")],
        summaries=[always(fail(400, "no"))],
        tools=[look],
        window=2_000,
    ) as stage:
        stage.session.update_settings(compaction={"trigger_at": 100})
        assert str(await stage.session.prompt(words(60, "go"))) == "done"
        outcomes = [event.outcome for event in stage.of(CompactionEnd)]
        assert [outcome.status for outcome in outcomes[:2]] == ["failed", "failed"]
        assert {(outcome.status, outcome.method) for outcome in outcomes[2:]} <= {
            ("applied", "digest"),
            ("failed", "digest"),
        }
        assert len(stage.summary_requests) == 2


async def test_compactions_that_do_not_help_are_capped_and_a_warning_names_the_tool(tmp_path: Path) -> None:
    # Mutation: in `Run._check` leave the cap out.
    @tool
    def flood() -> ToolResult:
        """Fill the window."""
        return ToolResult(words(300, "flood"))

    steps: list[Any] = [call("flood") for _ in range(12)]
    async with scene(
        tmp_path, [*steps, reply("done")], tools=[flood], compaction={"max_compactions_per_run": 2}, window=1_500
    ) as stage:
        stage.session.update_settings(compaction={"trigger_at": 700})
        await stage.session.prompt(words(60, "go"))
        assert stage.outcomes.count("applied") == 2
        warnings = [event.text for event in stage.of(Warning) if "no more compactions" in event.text]
        assert len(warnings) == 1
        assert "flood" in warnings[0]


async def test_ten_compactions_neither_stack_nor_lose_what_is_pinned(tmp_path: Path) -> None:
    # Mutation: in `EntryMaker._stored_form` add to the previous summary instead of replacing it.
    steps = [reply(words(40, f"answer {number}")) for number in range(30)]
    async with scene(tmp_path, steps, window=8_000) as stage:
        stage.session.on("before_compact", lambda event: Summarize(pinned=["PIN: tabs, never spaces"]))
        sizes: list[int] = []
        for turn in range(10):
            for number in range(3):
                await stage.session.prompt(words(40, f"question {turn}.{number}"))
            outcome = await stage.session.compact(keep_recent_tokens=60)
            assert outcome.status == "applied"
            sizes.append(len(texts(stage.session.messages)[0]))
        assert texts(stage.session.messages)[0].count("PIN: tabs, never spaces") == 1
        assert max(sizes) <= 1.3 * sizes[0]
