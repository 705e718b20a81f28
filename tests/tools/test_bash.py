"""The tool `bash`, and the running of commands under it."""

from __future__ import annotations

import os
import shlex
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from agent_session.errors import ToolError
from agent_session.tools import ToolContext
from agent_session.tools.bash import BASH
from agent_session.tools.output import MAX_BYTES
from agent_session.tools.read import READ
from agent_session.tools.shell import KEPT_HEAD_BYTES, KEPT_TAIL_BYTES, run_command
from tests.tools.calls import call, context_in, is_running, open_descriptors, shown


class Heard:
    """What a command printed so far, to be waited for."""

    def __init__(self) -> None:
        self.text = ""
        self._more = anyio.Event()

    def __call__(self, text: str) -> None:
        self.text += text
        self._more.set()
        self._more = anyio.Event()

    async def until(self, condition: Callable[[str], bool]) -> str:
        with anyio.fail_after(5):
            while not condition(self.text):
                await self._more.wait()
        return self.text


async def test_output_and_errors_come_in_the_order_they_were_written(context: ToolContext):
    result = await call(BASH, context, command="for i in 1 2 3; do echo out $i; echo err $i >&2; done")
    assert shown(result) == "out 1\nerr 1\nout 2\nerr 2\nout 3\nerr 3\n\n[exit code 0]"
    assert not result.is_error
    assert result.details["exitCode"] == 0


async def test_it_runs_in_the_working_folder_with_an_empty_stdin(folder: Path, context: ToolContext):
    result = await call(BASH, context, command="pwd; cat; echo end")
    assert shown(result).startswith(f"{folder}\nend\n")


async def test_a_failing_command_is_an_error_with_its_exit_code(context: ToolContext):
    result = await call(BASH, context, command="echo broken; exit 3")
    assert shown(result) == "broken\n\n[exit code 3]"
    assert result.is_error
    assert result.details["exitCode"] == 3


async def test_a_command_killed_by_a_signal_says_which(context: ToolContext):
    result = await call(BASH, context, command="kill -KILL $$")
    assert shown(result) == "[killed by SIGKILL]"
    assert result.details["exitCode"] == -signal.SIGKILL


@pytest.mark.parametrize(
    ("command", "why"), [("  ", "empty"), ("a\0b", "null byte"), ("x" * 200_000, "Argument list too long.*script file")]
)
async def test_a_command_that_cannot_be_started_is_refused(context: ToolContext, command: str, why: str):
    with pytest.raises(ToolError, match=why):
        await call(BASH, context, command=command)


async def test_a_working_folder_that_is_gone_is_refused(tmp_path: Path):
    # Mutation: give the advice about long commands whatever went wrong.
    with pytest.raises(ToolError, match=r"No such file or directory.*gone\)$"):
        await call(BASH, context_in(tmp_path / "gone"), command="true")


async def test_output_is_reported_while_the_command_runs(folder: Path):
    heard = Heard()
    os.mkfifo(folder / "go")
    context = context_in(folder, report=heard)
    results = []
    async with anyio.create_task_group() as group:

        async def run() -> None:
            results.append(await call(BASH, context, command="echo waiting; cat go; echo done"))

        group.start_soon(run)
        await heard.until(lambda text: text == "waiting\n")
        await anyio.Path(folder / "go").write_text("gone on\n")
    assert heard.text == "waiting\ngone on\ndone\n"
    assert shown(results[0]).startswith(heard.text)


# Mutation: the decoder of `_Output` is made anew for each piece.
async def test_a_character_that_comes_in_two_pieces_is_reported_whole(folder: Path):
    heard = Heard()
    os.mkfifo(folder / "go")
    async with anyio.create_task_group() as group:
        group.start_soon(
            lambda: call(BASH, context_in(folder, report=heard), command=r"printf 'a\xe6\xbc'; cat go; printf '\xa2b'")
        )
        await heard.until(lambda text: text == "a")
        await anyio.Path(folder / "go").write_text("")
    assert heard.text == "a漢b"


# Mutation: `decode("utf-8", "surrogateescape")`.
async def test_bytes_that_are_no_utf8_and_nulls_become_replacement_characters(folder: Path):
    outcome = await run_command(r"printf 'caf\xe9 \xed\xa0\xbd \0 end'", cwd=folder)
    assert outcome.output == "caf\ufffd \ufffd\ufffd\ufffd \ufffd end"


async def test_of_much_output_the_end_is_shown_and_all_of_it_can_be_read(context: ToolContext):
    lines = 12 * 1024 * 1024 // 64
    command = f"{shlex.quote(sys.executable)} -c \"for i in range({lines}): print(f'{{i:063}}')\""
    result = await call(BASH, context, command=command)
    text = shown(result)
    assert len(text.encode()) < MAX_BYTES + 500
    assert text.endswith(f"{lines - 1:063}\n\n[exit code 0]")
    assert result.details["truncated"]
    full = Path(result.details["fullOutputPath"])
    assert len(await anyio.Path(full).read_bytes()) == lines * 64
    assert str(full) in text
    part = await call(READ, context, path=str(full), offset=100_001, limit=1)
    assert shown(part).startswith(f"{100_000:063}\n")


# Mutation: `_Output.add` keeps everything.
async def test_of_output_without_end_the_middle_is_not_kept(folder: Path):
    outcome = await run_command("head -c 50000000 /dev/zero | tr '\\0' x; echo; echo last", cwd=folder)
    assert KEPT_HEAD_BYTES + KEPT_TAIL_BYTES <= len(outcome.output) < KEPT_HEAD_BYTES + KEPT_TAIL_BYTES + 200_000
    assert "bytes of output were not kept]" in outcome.output
    assert outcome.output.endswith("x\nlast\n")


STUBBORN = "trap : TERM HUP; echo pid $BASHPID; while :; do sleep 1; done"

FAMILIES = {
    "child": STUBBORN,
    "grandchild that holds the pipe": f"({STUBBORN}) & wait",
    "orphan": f"(({STUBBORN}) &) ; sleep 60",
    "pipeline": f"({STUBBORN}) | cat",
    "session of its own": f"""{shlex.quote(sys.executable)} -c '
import os, subprocess
os.setsid()
subprocess.run(["bash", "-c", "{STUBBORN}"])' & wait""",
}


def pids(text: str) -> list[int]:
    return [int(line.split()[1]) for line in text.splitlines() if line.startswith("pid ")]


# Mutation: `_kill_all` stops after SIGTERM; or `_alive` looks at the group only ("session of its own").
@pytest.mark.parametrize("command", FAMILIES.values(), ids=FAMILIES.keys())
async def test_nothing_is_left_running_after_a_cancellation(folder: Path, command: str):
    heard = Heard()
    was_cancelled = False
    async with anyio.create_task_group() as group:

        async def run() -> None:
            nonlocal was_cancelled
            try:
                await run_command(f"echo pid $$; {command}", cwd=folder, on_output=heard)
            except anyio.get_cancelled_exc_class():
                was_cancelled = True
                raise

        group.start_soon(run)
        await heard.until(lambda text: len(pids(text)) == 2)
        assert all(is_running(pid) for pid in pids(heard.text))
        group.cancel_scope.cancel()
    assert was_cancelled
    assert not any(is_running(pid) for pid in pids(heard.text))


# Mutation: as above; or `run_command` kills only when it is cancelled from outside.
@pytest.mark.parametrize("command", FAMILIES.values(), ids=FAMILIES.keys())
async def test_nothing_is_left_running_after_the_timeout(context: ToolContext, command: str):
    result = await call(BASH, context, command=command, timeout=0.5)
    text = shown(result)
    assert text.endswith("[killed after its timeout of 0.5 seconds, with all that it had started]")
    assert result.is_error
    assert result.details["exitCode"] is None
    assert result.details["timedOut"]
    assert len(pids(text)) == 1
    assert not any(is_running(pid) for pid in pids(text))


# Mutation: the SIGTERM of `_kill_all` is a SIGKILL.
async def test_a_command_may_clean_up_when_it_is_told_to_end(folder: Path, context: ToolContext):
    command = "trap 'echo cleaned; exit' TERM; echo ready; while :; do sleep 0.01; done"
    assert "\ncleaned\n" in shown(await call(BASH, context, command=command, timeout=0.5))


# Mutation: `_until_exit` waits for the end of the output without a limit.
async def test_a_background_process_that_holds_the_output_does_not_hold_up_the_command(context: ToolContext):
    result = await call(BASH, context, command="sleep 60 & echo pid $!")
    text = shown(result)
    (pid,) = pids(text)
    try:
        assert is_running(pid)
        assert "exit code 0; processes of it still run in the background" in text
    finally:
        os.kill(pid, signal.SIGKILL)


async def test_a_background_process_with_its_output_in_a_file_is_left_alone(folder: Path, context: ToolContext):
    result = await call(BASH, context, command="sleep 60 >log 2>&1 & echo pid $!")
    (pid,) = pids(shown(result))
    try:
        assert is_running(pid)
        assert shown(result).endswith("\n\n[exit code 0]")
    finally:
        os.kill(pid, signal.SIGKILL)


# Mutation: `_until_exit` returns as soon as the command itself has ended.
async def test_what_a_process_left_behind_prints_just_after_the_exit_is_there(context: ToolContext):
    result = await call(
        BASH, context, command="(while kill -0 $$ 2>/dev/null; do :; done; sleep 0.05; echo late) & echo early"
    )
    assert shown(result) == "early\nlate\n\n[exit code 0]"


def test_commands_run_in_an_event_loop_that_is_not_the_main_thread_s(folder: Path):
    outcomes = []
    thread = threading.Thread(
        target=lambda: outcomes.append(anyio.run(lambda: run_command("echo a; exit 2", cwd=folder)))
    )
    thread.start()
    thread.join(5)
    assert [(outcome.output, outcome.exit_code) for outcome in outcomes] == [("a\n", 2)]


async def test_commands_run_beside_one_another(context: ToolContext):
    results = []
    async with anyio.create_task_group() as group:

        async def run(number: int) -> None:
            results.append(shown(await call(BASH, context, command=f"echo {number}")))

        for number in range(8):
            group.start_soon(run, number)
    assert sorted(results) == [f"{number}\n\n[exit code 0]" for number in range(8)]


# Mutation: `run_command` does not close read_end, or does not shield `_kill_all`.
async def test_cancelling_at_any_await_leaves_no_process_and_no_descriptor(folder: Path):
    async def cancelled_after(checkpoints: int) -> None:
        async with anyio.create_task_group() as group:
            command = "echo pid $$ >> pids; sleep 60 & echo pid $! >> pids; wait"
            group.start_soon(lambda: run_command(command, cwd=folder))
            for _ in range(checkpoints):
                await anyio.lowlevel.checkpoint()
            group.cancel_scope.cancel()

    with anyio.fail_after(5):
        await cancelled_after(1_000)  # opens what the loop itself keeps open
    before = open_descriptors()
    for checkpoints in (*range(12), 20, 50, 200, 1_000, 5_000):
        with anyio.fail_after(5):
            await cancelled_after(checkpoints)
    assert open_descriptors() <= before
    assert not any(is_running(pid) for pid in pids(await anyio.Path(folder / "pids").read_text()))
