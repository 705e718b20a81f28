"""A disk that is full in the middle of a run: the run goes on, what was recorded is written once there is room."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import anyio
import orjson
import pytest

from agent_session import AgentSession, Event, Warning
from agent_session.testing import ScriptedModel, reply
from session_store import SessionManager, jsonl_log
from tests.session.children import ROOT, entries_of, in_time, new_session
from tests.session.scene import scene

SECOND_PROMPT_ENTRIES = 4
"""A question, an answer with a call, its result, an answer."""


async def played(path: Path, way: str) -> Any:
    command = [sys.executable, "-m", "tests.session.full_disk_program", str(path), way]
    with in_time():
        done = await anyio.run_process(command, cwd=ROOT, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return orjson.loads(done.stdout)


async def test_a_run_goes_on_while_the_disk_is_full_and_is_written_once_there_is_room(tmp_path: Path) -> None:
    # Mutation: in `Recorder.announce` tell what is pending; in `JsonlLog._write` drop what was refused, or leave the
    # fragment; warn at each refusal.
    path = new_session(tmp_path)
    report = await played(path, "for a while")
    assert report["answer"] == "two"
    assert report["told while full"] == 0
    assert report["grew while full"] == 0
    assert report["pending"] == SECOND_PROMPT_ENTRIES
    assert (report["messages"], report["is valid"]) == (2 + SECOND_PROMPT_ENTRIES, True)
    assert len(report["warnings"]) == 1
    assert str(path) in report["warnings"][0]
    assert (report["answer after"], report["pending after"], report["close"]) == ("three", 0, "ok")
    assert report["all warnings"] == report["warnings"]
    # Every entry was told once, in order, and stands in the file in that order.
    assert report["told"] == [entry["id"] for entry in entries_of(path)]
    messages = [entry["message"] for entry in entries_of(path) if entry["type"] == "message"]
    assert len(messages) == 2 + SECOND_PROMPT_ENTRIES + 2
    assert report["events"]["message_end"] == len(messages)
    assert report["events"]["tool_result"] == 1
    with SessionManager.open(path) as manager:
        assert not manager.damage


async def test_closing_a_session_whose_disk_stays_full_says_how_much_was_not_written(tmp_path: Path) -> None:
    # Mutation: in `JsonlLog.close` raise nothing for what is pending; in `SessionCore.close` swallow it.
    path = new_session(tmp_path)
    report = await played(path, "for ever")
    assert report["answer"] == "two"
    assert report["close"] == SECOND_PROMPT_ENTRIES
    assert len(report["all warnings"]) == 1
    # What was written before is whole, and the session is free.
    with SessionManager.open(path) as manager:
        assert len(manager.build_messages()) == 2
        assert not manager.damage


async def test_a_disk_that_refuses_to_sync_is_one_warning_and_the_next_sync_makes_up_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Mutation: in `Recorder.flush` let the error through, take the entries for synced, or warn each time.
    synced: list[int] = []
    is_broken = True

    def sync(fd: int) -> None:
        if is_broken:
            raise OSError(5, "Input/output error")
        synced.append(fd)

    monkeypatch.setattr(jsonl_log, "_sync_data", sync)
    async with scene(tmp_path, [reply("one"), reply("two")]) as stage:
        assert str(await stage.session.prompt("first")) == "one"
        (warning,) = stage.of(Warning)
        assert "Input/output error" in warning.text
        # Said once, though it was tried again before the run had settled.
        assert str(await stage.session.prompt("second")) == "two"
        assert stage.of(Warning) == [warning]
        is_broken = False
        # A move to where the leaf is already appends nothing.
        assert stage.session.leaf_id is not None
        await stage.session.navigate_tree(stage.session.leaf_id)
        assert len(synced) == 1
        assert stage.of(Warning) == [warning]


async def test_what_the_log_says_while_it_is_synced_is_told_on_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Mutation: in `build_parts` report the log's warnings from whichever thread they come.
    path = tmp_path / "old.jsonl"
    path.write_text('{"type":"session","id":"old","timestamp":"2025-11-20T23:33:50.805Z","cwd":"/tmp"}\n')
    fsync = os.fsync
    refusals = iter([True] * 2)

    def full_at_first(fd: int) -> None:
        if next(refusals, False):
            raise OSError(28, "No space left on device")
        fsync(fd)

    monkeypatch.setattr(os, "fsync", full_at_first)
    threads: list[int] = []
    async with ScriptedModel([reply("done")]) as model:
        session = AgentSession("scripted/model", resume=path, client=model, tools=[])

        def note(event: Event) -> None:
            if isinstance(event, Warning) and path.name in event.text:
                threads.append(threading.get_ident())

        session.subscribe(note)
        async with session:
            # Refused twice; the sync before the request moves the session to its new file.
            assert str(await session.prompt("go")) == "done"
            assert session.path != path
    # That the disk is full, and that the session moved.
    assert threads == [threading.get_ident()] * 2
