"""Mutation testing: what is copied for it, how its results are read. That it runs is not tested: it takes minutes."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

from scripts.mutation_testing import MODULES, Score, copy_checkout, score_of

ROOT = Path(__file__).parent.parent


def test_the_checkout_is_copied_with_settings_that_name_the_modules_and_their_tests(tmp_path: Path) -> None:
    # Mutation: in `copy_checkout` leave `_BESIDE` out: the tests of scripts and documents would fail for every mutant.
    copy_checkout(ROOT, tmp_path, modules=["agent_session/recovery.py"], tests=["tests/compaction"])
    settings = tomllib.loads((tmp_path / "pyproject.toml").read_text())["tool"]
    assert settings["mutmut"]["only_mutate"] == ["agent_session/recovery.py"]
    assert settings["mutmut"]["pytest_add_cli_args_test_selection"] == ["tests/compaction"]
    assert settings["pytest"]["asyncio_mode"] == "auto"
    for name in settings["mutmut"]["also_copy"] + settings["mutmut"]["source_paths"]:
        assert (tmp_path / name).exists()
    assert (tmp_path / "agent_session" / "recovery.py").read_bytes() == (
        ROOT / "agent_session/recovery.py"
    ).read_bytes()
    assert (tmp_path / "tests" / "conftest.py").is_file()


def test_every_module_that_is_changed_is_there() -> None:
    # Mutation: name a module in `MODULES` that was renamed since.
    for pattern in MODULES:
        assert list(ROOT.glob(pattern)), pattern


def test_what_a_test_failed_for_is_killed_and_what_was_not_tried_does_not_count(tmp_path: Path) -> None:
    # Mutation: in `score_of` take 36, a mutant that came to no end, for a survivor, or None for a kill.
    folder = tmp_path / "agent_session"
    folder.mkdir()
    codes = {"m.killed": 1, "m.endless": 36, "m.alive": 0, "m.unreached": 33, "m.skipped": 34, "m.untried": None}
    (folder / "m.py.meta").write_text(json.dumps({"exit_code_by_key": codes}))
    score = score_of(tmp_path)
    assert score == Score(killed=2, survivors=("m.alive",), not_reached=("m.unreached",))
    assert score.percent == 50.0


def test_where_there_is_nothing_to_change_nothing_is_missing(tmp_path: Path) -> None:
    # Mutation: in `Score.percent` give 0 for no mutants.
    assert score_of(tmp_path).percent == 100.0
