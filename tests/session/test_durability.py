"""What is on the disk, and when: with `durability="turn"` before anybody outside relies on it.

The wrapper around the system's `fdatasync` notes how much of the file each one covered.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import pytest

from agent_session import AgentSettled, CompactionEnd, CompactionOutcome, Settings, tool
from agent_session.testing import always, call, reply
from session_store import jsonl_log
from tests.session.cancelling import WAYS, Way, cancelled_at
from tests.session.scene import SUMMARY, scene, words

# Asking for the size of a file is what these tests do on the event loop.
pytestmark = pytest.mark.allow_blocking


@tool
async def look(at: str) -> str:
    """Look at something."""
    return words(30, f"seen {at}")


@dataclass
class Disk:
    """`synced` is the size of the file that the newest sync covered, in bytes; `threads` made the syncs."""

    synced: int = 0
    threads: list[int] = field(default_factory=list)
    is_open: threading.Event = field(default_factory=threading.Event)
    asked: threading.Event = field(default_factory=threading.Event)

    def sync(self, fd: int) -> None:
        self.asked.set()
        assert self.is_open.wait(5)
        covered = os.fstat(fd).st_size
        os.fsync(fd)
        self.threads.append(threading.get_ident())
        self.synced = covered


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    disk = Disk()
    disk.is_open.set()
    monkeypatch.setattr(jsonl_log, "_sync_data", disk.sync)
    return disk


async def test_what_was_recorded_is_on_the_disk_before_the_next_request_goes_out(tmp_path: Path, disk: Disk) -> None:
    # Mutation: in `ask_model` leave the flush out, or do it after the request.
    unsynced: list[int] = []
    answers = iter([call("look", at="a"), call("look", at="b"), reply("done")])

    def answer(request: Any) -> Any:
        unsynced.append(stage.path.stat().st_size - disk.synced)
        return next(answers)

    async with scene(tmp_path, [always(answer)], tools=[look]) as stage:
        await stage.session.prompt("look around")
    assert unsynced == [0, 0, 0]


async def test_what_was_recorded_is_on_the_disk_before_a_run_has_settled(tmp_path: Path, disk: Disk) -> None:
    # Mutation: in `SessionCore._settle` leave the flush out.
    unsynced: list[int] = []
    async with scene(tmp_path, [reply("done")]) as stage:
        stage.session.subscribe(
            lambda event: (
                unsynced.append(stage.path.stat().st_size - disk.synced) if isinstance(event, AgentSettled) else None
            )
        )
        await stage.session.prompt("go")
        assert unsynced == [0]


async def test_a_compaction_is_on_the_disk_when_it_is_told_and_returned(tmp_path: Path, disk: Disk) -> None:
    # Mutation: in `Compactor._commit` leave the flush out.
    unsynced: list[int] = []
    async with scene(tmp_path, [reply(words(60)) for _ in range(3)]) as stage:
        for _ in range(3):
            await stage.session.prompt(words(60))
        stage.session.subscribe(
            lambda event: (
                unsynced.append(stage.path.stat().st_size - disk.synced) if isinstance(event, CompactionEnd) else None
            )
        )
        before = stage.path.stat().st_size
        outcome = await stage.session.compact()
        assert outcome.status == "applied"
        assert disk.synced == stage.path.stat().st_size > before
        assert unsynced == [0]


async def test_an_automatic_compaction_is_on_the_disk_before_the_request_after_it(tmp_path: Path, disk: Disk) -> None:
    # Mutation: in `ask_model` leave the flush out.
    unsynced: list[int] = []
    answers = iter([reply(words(60)), reply(words(60)), call("look", at="a"), reply("done")])

    def answer(request: Any) -> Any:
        unsynced.append(stage.path.stat().st_size - disk.synced)
        return next(answers)

    async with scene(tmp_path, [always(answer)], tools=[look], reserve=600) as stage:
        for _ in range(3):
            await stage.session.prompt(words(60))
        assert "applied" in stage.outcomes
    assert unsynced == [0, 0, 0, 0]


async def test_a_sync_is_made_in_a_thread_and_the_loop_goes_on_meanwhile(tmp_path: Path, disk: Disk) -> None:
    # Mutation: in `Recorder.flush` call `manager.sync` without a thread.
    async with scene(tmp_path, [reply("done")]) as stage:
        disk.is_open.clear()
        with anyio.fail_after(5):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(stage.session.prompt, "go")
                await anyio.to_thread.run_sync(disk.asked.wait, 5)
                # Here the loop goes on, and the request waits.
                assert stage.session.is_streaming
                assert stage.provider.requests == []
                disk.is_open.set()
        assert len(stage.provider.requests) == 1
    assert disk.threads
    assert threading.get_ident() not in disk.threads


async def test_nothing_is_synced_twice(tmp_path: Path, disk: Disk) -> None:
    # Mutation: in `JsonlLog._make_durable` do not look at `was_dirty`.
    async with scene(tmp_path, [call("look", at="a"), reply("done")], tools=[look]) as stage:
        await stage.session.prompt("go")
        # Before the first request, before the second, before the end.
        assert len(disk.threads) == 3
    assert len(disk.threads) == 3


async def test_with_durability_os_nothing_is_synced_before_the_end(tmp_path: Path, disk: Disk) -> None:
    # Mutation: in `Recorder.flush` do not ask `is_durable`.
    settings = Settings(durability="os")
    async with scene(tmp_path, [reply("done")], settings=settings, window=100_000) as stage:
        await stage.session.prompt("go")
        assert disk.threads == []
        assert len(stage.lines("message")) == 2
    assert len(disk.threads) == 1
    assert disk.synced == stage.path.stat().st_size


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
async def test_a_run_that_is_cancelled_anywhere_is_on_the_disk_when_it_has_settled(
    tmp_path: Path, disk: Disk, way: Way
) -> None:
    # Mutation: in `Recorder.flush` take the entries for synced before the thread has run.
    at = 0
    reached = True
    while reached:
        at += 1
        disk.synced = 0
        unsynced: list[int] = []
        asked = [reply("done", usage=(950, 0, 0, 5)), call("look", at="a")]

        def answer(request: Any, asked: list[Any] = asked) -> Any:
            return asked.pop() if asked else reply("usable")

        async with scene(
            tmp_path / f"{at}", [always(answer)], summaries=[always(reply(SUMMARY))], tools=[look]
        ) as stage:

            def measure(event: object, path: Path = stage.path, unsynced: list[int] = unsynced) -> None:
                if isinstance(event, AgentSettled):
                    unsynced.append(path.stat().st_size - disk.synced)

            stage.session.subscribe(measure)
            with anyio.fail_after(10):
                reached, _ = await cancelled_at(at, way, stage.session, stage.session.prompt("look around"))
            assert unsynced in ([], [0]), f"cancelled at {at}"
    assert at > 20


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
async def test_a_compaction_that_is_cancelled_anywhere_is_on_the_disk_where_it_is_returned_as_applied(
    tmp_path: Path, disk: Disk, way: Way
) -> None:
    # Mutation: in `Compactor._commit` leave the shield around the announcement and the flush out.
    at = 0
    reached = True
    while reached:
        at += 1
        async with scene(tmp_path / f"{at}", [reply(words(60)) for _ in range(3)]) as stage:
            for _ in range(3):
                await stage.session.prompt(words(60))
            with anyio.fail_after(10):
                reached, result = await cancelled_at(at, way, stage.session, stage.session.compact())
            if isinstance(result, CompactionOutcome) and result.status == "applied":
                assert disk.synced == stage.path.stat().st_size, f"cancelled at {at}"
    assert at > 5
