"""The examples: each is short, runs offline, ends by itself and shows what it is about."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
EXAMPLES = ROOT / "examples"
MOST_LINES = 40

# What its output must say, in this order.
SHOWN = {
    "digest": ["applied (manual, digest): ", "- Make it a semicolon.", "(exit code 1): 400", "separator.txt\n</mod"],
    "repl_session": ["<AssistantMessage stop", "compacts above", "applied (manual, model): ", "<SyncSession "],
    "resume": ["goes on with scripted/model", "What is the flag called?", "Then --strict it is.", "4 messages"],
    "run_events": ["[bash {'command': 'echo hello'}]", "[took", "It says hello.", "<AssistantMessage stop"],
    "summary_model": ["applied (manual, model): ", "written by scripted/cheap", "Never touch the lock file."],
    "tool_with_dependencies": ["Five it is.", "there are only 7 of 'nut'", "2 left", "'nut': 2"],
    "veto": ["vetoed (manual)", "release notes", "applied (manual, model): "],
}


def test_every_example_is_known_and_short() -> None:
    # Mutation: add an example without saying here what it shows, or let one grow.
    lengths = {path.stem: len(path.read_text("utf-8").splitlines()) for path in EXAMPLES.glob("*.py")}
    assert set(lengths) == set(SHOWN)
    assert [name for name, lines in lengths.items() if lines >= MOST_LINES] == []


@pytest.mark.parametrize("name", SHOWN)
def test_an_example_shows_what_it_is_about_and_leaves_nothing_behind(name: str, tmp_path: Path) -> None:
    # Mutation: take the call that the example is about out of it; or leave a file, a warning or a thread.
    folder = tmp_path / "empty"
    folder.mkdir()
    done = subprocess.run(
        [sys.executable, EXAMPLES / f"{name}.py"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error", "TMPDIR": str(folder)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    place = 0
    for text in SHOWN[name]:
        place = done.stdout.find(text, place)
        assert place >= 0, f"no {text!r}, or not in its place:\n{done.stdout}"
    assert list(folder.iterdir()) == []
