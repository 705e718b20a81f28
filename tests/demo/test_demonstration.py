"""The demonstration, run as a person runs it: a process of its own, no keys, no configuration, its output piped."""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from rich.console import Console

from agent_session import CompactionSummaryMessage, SessionManager
from agent_session.demo.account import Row
from agent_session.demo.screen import Screen
from session_store.entries import CompactionEntry
from tests.cli.terminals import INTERRUPTIBLE

ROOT = Path(__file__).parent.parent.parent
MOST_SECONDS = 20.0
COMMAND = [sys.executable, "-m", "agent_session.demo"]


@dataclass(frozen=True)
class Played:
    status: int
    seconds: float
    output: str
    errors: str

    def path(self, label: str) -> Path:
        """The path printed under a label at the end."""
        return Path(re.findall(rf"^{label} +(/.*)$", self.output, re.MULTILINE)[-1])

    @property
    def rows(self) -> list[list[str]]:
        """The table's cells, without its heading."""
        table = self.output.partition("\nact  when ")[2].partition("\n\n")[0]
        return [re.split(r"  +", line.strip()) for line in table.splitlines()[1:]]


def bare_environment(folder: Path) -> dict[str, str]:
    """What a shell without any configuration has. The proxy must not be asked for a server on this machine."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(folder / "no-home"),
        "TMPDIR": str(folder),
        "PYTHONPATH": str(ROOT),
        "HTTP_PROXY": "http://127.0.0.1:9",
        "PYTHONWARNINGS": "error",
    }


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    folder = tmp_path_factory.mktemp("demonstration")
    began = time.monotonic()
    done = subprocess.run(
        COMMAND, cwd=folder, env=bare_environment(folder), capture_output=True, text=True, timeout=60, check=False
    )
    return Played(done.returncode, time.monotonic() - began, done.stdout, done.stderr)


def test_it_succeeds_without_a_word_on_stderr(played: Played) -> None:
    # Mutation: count the replaced summary as kept in `EntryMaker.tokens_after` (one promise is broken: status 1).
    assert (played.status, played.errors) == (0, "")


def test_it_takes_less_than_twenty_seconds(played: Played) -> None:
    # Mutation: use the pace of a terminal, ten times as slow, for a pipe.
    assert played.seconds < MOST_SECONDS


def test_a_pipe_gets_no_control_codes_and_nothing_but_ascii(played: Played) -> None:
    # Mutation: `force_terminal=True` in `make_console`; or a table with a box.
    assert not re.search(r"[^\n -~]", played.output)


@pytest.mark.parametrize(
    "line",
    [
        r"user +The tests fail\. Find out why",
        r"  bash +sh run-tests\n(?: .*\n)*? +failed, exit code 1, ",
        r"  edit +durations/parse\.py\n(?: .*\n)*? +ok, \+\d+ -\d+ lines, ",
        r"  bash +sh run-tests\n(?: .*\n)*? +ok, exit code 0, ",
        r"context +\[#+-*\|-+\] [\d,]+ of 8,000 tokens \(\d+ %, reported\), compacts above 6,000",
        r"compaction applied \(threshold, model\): [\d,]+ -> [\d,]+ tokens, \d+ entries summarised, \$0\.\d+",
        r"refused +local/boastful refused the request \(400\): .* maximum context length is 8000 tokens",
        r"compaction applied \(overflow, model\): ",
        r"compaction applied \(manual, model\): ",
        r"extension +keep_red_tests vetoes: the tests fail",
        r"compaction vetoed \(threshold.*\): keep_red_tests: the tests fail",
        r"extension +keep_red_tests writes the summary itself",
        r"compaction applied \(threshold, handler\): ",
        r"process +\d+ died of SIGKILL",
        r"file +([\d,]+) bytes before, \1 after: the same bytes",
        r"session +opened \(resume\)",
        r"context +(\d+) messages before, \1 after:",
        r"assistant +Weeks are in, with a test",
    ],
)
def test_what_was_promised_can_be_read_on_the_screen(played: Played, line: str) -> None:
    # Mutation: for each line, leave out the case of `Screen` that prints it.
    assert re.search(rf"^{line}", played.output, re.MULTILINE)


def test_every_promise_is_listed_as_kept(played: Played) -> None:
    # Mutation: in `acts._read_again` leave the newest compaction out: one promise is broken.
    assert len(re.findall(r"^kept  ", played.output, re.MULTILINE)) == 14
    assert "BROKEN" not in played.output
    assert "DIFFERS" not in played.output


def test_the_table_has_a_row_for_each_compaction_in_order(played: Played) -> None:
    # Mutation: do not note the killed compaction; or leave the row of an overflow at "refused for size".
    assert [row[1:5] for row in played.rows] == [
        ["between tool steps", "threshold", "model", "applied"],
        ["after last turn", "threshold", "model", "applied"],
        ["before a retry", "overflow", "model", "applied"],
        ["on request", "manual", "model", "applied"],
        ["between tool steps", "threshold", "-", "vetoed"],
        ["after a tool step", "threshold", "handler", "applied"],
        ["on request", "manual", "-", "killed"],
        ["on request", "manual", "model", "applied"],
    ]


def test_the_table_fits_a_terminal_of_eighty_columns() -> None:
    # Mutation: in `Screen.table` keep the headings on one line: the ids are broken in two.
    screen = Screen(Console(width=80, file=io.StringIO(), force_terminal=True, color_system=None))
    row = Row(
        act=5,
        moment="between tool steps",
        reason="threshold",
        method="handler",
        outcome="applied",
        before=16_256,
        after=11_501,
        entries=100,
        entry_id="12345678ffff",
    )
    with screen.console.capture() as captured:
        screen.table([row], [row.entry_id or ""])
    rows = captured.get().rstrip().splitlines()
    assert re.fullmatch(r"5 +between tool steps threshold handler applied 16,256 11,501 +100 12345678", rows[-1])


def test_the_session_file_that_is_printed_holds_the_compactions_of_the_table(played: Played) -> None:
    # Mutation: in `Screen.table` print other ids or sizes than the events told; in `acts` print the path of another
    # session.
    with SessionManager.open(played.path("session"), read_only=True) as manager:
        stored = [entry for entry in manager.get_branch() if isinstance(entry, CompactionEntry)]
        messages = manager.build_messages()
        assert not manager.damage
    told = [row for row in played.rows if row[4] == "applied"]
    assert [entry.id[:8] for entry in stored] == [row[8] for row in told]
    assert [f"{entry.tokens_before:,}" for entry in stored] == [row[5] for row in told]
    assert [f"{entry.tokens_after:,}" for entry in stored] == [row[6] for row in told]
    assert isinstance(messages[0], CompactionSummaryMessage)
    assert messages[0].summary == stored[-1].summary


def test_the_project_that_is_left_passes_its_tests(played: Played) -> None:
    # Mutation: let the scripted model edit another file than the parser.
    done = subprocess.run(
        ["sh", "run-tests"], cwd=played.path("project"), capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout
    assert "Ran 6 tests" in done.stdout


def test_no_process_is_left_behind(played: Played) -> None:
    # Mutation: in `kill_while_compacting` start one more process for that session, and leave it to itself.
    if not Path("/proc/self").exists():
        pytest.skip("no /proc to look in")
    session = str(played.path("session")).encode()
    assert [path for path in Path("/proc").glob("[0-9]*/cmdline") if session in _read(path)] == []


def test_the_picture_shows_the_meter_and_the_table_in_colour_and_asks_nobody_for_a_font(tmp_path: Path) -> None:
    # Mutation: record every act; or leave the fonts of somebody's server in it.
    picture = tmp_path / "demo.svg"
    done = subprocess.run(
        [*COMMAND, "--picture", picture], cwd=tmp_path, env=bare_environment(tmp_path) | {"NO_COLOR": "1"},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    for svg in (picture.read_text(), (ROOT / "docs" / "demo.svg").read_text()):
        text = svg.replace("&#160;", " ")
        assert "compacts above 6,000" in text
        assert all(word in text for word in ("█", "░", "│", "applied", "vetoed", "killed"))
        assert "An extension vetoes a compaction" not in text
        assert "fill: #" in text
        assert "@font-face" not in text


def test_ctrl_c_ends_it_without_a_traceback(tmp_path: Path) -> None:
    # Mutation: let KeyboardInterrupt out of `main`.
    with subprocess.Popen(
        [*INTERRUPTIBLE, *COMMAND],
        cwd=tmp_path,
        env=bare_environment(tmp_path) | {"PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert any(line.startswith("user ") for line in process.stdout)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert re.fullmatch(r"\ninterrupted; its files: \S+\n", errors)


def test_output_that_nobody_takes_ends_it_with_one_plain_message(tmp_path: Path) -> None:
    # Mutation: do not catch OSError in `play`.
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full")
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            COMMAND, cwd=tmp_path, env=bare_environment(tmp_path), stdout=full, stderr=subprocess.PIPE, text=True,
            timeout=60, check=False,
        )  # fmt: skip
    assert done.returncode != 0  # the interpreter may replace the status when it cannot flush either
    assert done.stderr.startswith("\nthe demonstration failed: OSError")
    assert "Traceback" not in done.stderr


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # it ended meanwhile
        return b""
