"""Which changes of the code no test notices: mutation testing, with mutmut, of what decides about compactions.

    scripts/mutants [MODULE ...] [--fail-under PERCENT] [--jobs N] [--tests PATH ...]

    scripts/mutants agent_session/recovery.py --tests tests/session/test_overflow.py

The rule it keeps: the checkout is only read. It is copied to a folder of its own, and there each function is changed in
one small way after the other, and the tests that reach it are run. A mutant that a test fails for is killed; so is one
that never comes to an end. Survivors are printed with their change. All modules take hours on a small machine.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]

MODULES: Final = (
    "agent_session/compaction/*.py",
    "agent_session/compaction_attempt.py",
    "agent_session/compaction_entry.py",
    "agent_session/compactor.py",
    "agent_session/recovery.py",
)
TESTS: Final = ("tests/compaction", "tests/session", "tests/extending")
FAIL_UNDER = 85.0

_PACKAGES: Final = ("agent_session", "session_store", "extensions")
_BESIDE: Final = ("scripts", "tests", "examples", "docs", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE")
_LEFT_OUT: Final = shutil.ignore_patterns("__pycache__", "*.pyc")

# Of mutmut: how the tests of one mutant ended, by the exit code of its process. Every other one is a kill.
_SURVIVED: Final = frozenset({0})
_NOT_REACHED: Final = frozenset({5, 33})
_NOT_TRIED: Final = frozenset({None, 2, 34})

_SETTINGS: Final = """

[tool.mutmut]
source_paths = {sources}
only_mutate = {modules}
also_copy = {beside}
pytest_add_cli_args = ["-x", "-p", "no:cacheprovider", "-m", "not slow"]
pytest_add_cli_args_test_selection = {tests}
use_git_change_detection = false
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """How many mutants were killed; the names of those that survived, and of those that no test reaches."""

    killed: int
    survivors: tuple[str, ...]
    not_reached: tuple[str, ...]

    @property
    def percent(self) -> float:
        """Killed, of all that could have been; 100 where there was nothing to change."""
        total = self.killed + len(self.survivors) + len(self.not_reached)
        return 100 * self.killed / total if total else 100.0


def main(arguments: Sequence[str]) -> int:
    asked = parsed(arguments)
    folder = Path(tempfile.mkdtemp(prefix="mutants-"))
    try:
        copy_checkout(ROOT, folder, modules=asked.modules or MODULES, tests=asked.tests or TESTS)
        ended = mutmut(folder, "run", "--max-children", str(asked.jobs))
        found = score_of(folder / "mutants")
        if not found.killed and ended.returncode:
            print("mutmut did not get as far as testing a mutant: see above", file=sys.stderr)
            return 2
        report(found, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0 if found.percent >= asked.fail_under else 1


def copy_checkout(root: Path, folder: Path, *, modules: Sequence[str], tests: Sequence[str]) -> None:
    """What the tests need, and mutmut's settings in the copy's `pyproject.toml`."""
    present = [name for name in (*_PACKAGES, *_BESIDE) if (root / name).exists()]
    for name in present:
        if (root / name).is_dir():
            shutil.copytree(root / name, folder / name, ignore=_LEFT_OUT)
        else:
            shutil.copy(root / name, folder / name)
    settings = _SETTINGS.format(
        sources=json.dumps(_PACKAGES),
        modules=json.dumps(list(modules)),
        beside=json.dumps([name for name in present if name not in _PACKAGES]),
        tests=json.dumps(list(tests)),
    )
    (folder / "pyproject.toml").write_text((root / "pyproject.toml").read_text() + settings)


def score_of(results: Path) -> Score:
    """What became of the mutants, from the files that mutmut leaves beside the modules it changed."""
    killed = 0
    survivors: list[str] = []
    not_reached: list[str] = []
    for path in sorted(results.rglob("*.py.meta")):
        for name, code in json.loads(path.read_text())["exit_code_by_key"].items():
            if code in _SURVIVED:
                survivors.append(name)
            elif code in _NOT_REACHED:
                not_reached.append(name)
            elif code not in _NOT_TRIED:
                killed += 1
    return Score(killed=killed, survivors=tuple(survivors), not_reached=tuple(not_reached))


def report(score: Score, folder: Path) -> None:
    """Print the survivors with their change, and the sum."""
    for name in score.survivors:
        shown = mutmut(folder, "show", name, capture=True).stdout.strip()
        print(f"\nsurvived: {name}\n{shown}")
    for name in score.not_reached:
        print(f"no test reaches: {name}")
    total = score.killed + len(score.survivors) + len(score.not_reached)
    print(f"\n{score.killed} of {total} mutants killed: {score.percent:.1f} %")


def mutmut(folder: Path, *arguments: str, capture: bool = False) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mutmut", *arguments], cwd=folder, check=False, text=True, capture_output=capture
    )


def parsed(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("modules", nargs="*", metavar="MODULE", help="a file or pattern; without: all there are")
    parser.add_argument("--fail-under", type=float, default=FAIL_UNDER, help="percent; below it the exit code is 1")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--tests", action="extend", nargs="+", metavar="PATH", help="tests to run instead of all")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
