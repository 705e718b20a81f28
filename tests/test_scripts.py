"""The scripts of the checkout: the environment they make, how they refuse, and how pip's configuration reaches uv."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import pytest

from scripts.bench.imports import Measured, report
from scripts.uv_environment import has_uv_config, pip_options, uv_variables

ROOT = Path(__file__).parent.parent

# As `scripts/setup` sees a project, with nothing to fetch but what builds it.
PROJECT = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "tiny"
version = "{version}"

[project.optional-dependencies]
dev = []

[tool.hatch.build.targets.wheel]
packages = ["tiny"]
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A fresh clone, in a folder with a space in its name."""
    root = tmp_path / "a clone"
    shutil.copytree(ROOT / "scripts", root / "scripts", ignore=shutil.ignore_patterns("__pycache__"))
    (root / "tiny").mkdir()
    (root / "tiny" / "__init__.py").write_text("", encoding="utf-8")
    (root / "pyproject.toml").write_text(PROJECT.format(version="1"), encoding="utf-8")
    return root


def setup(
    checkout: Path, *arguments: str, cwd: Path, env: Mapping[str, str], **variables: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [checkout / "scripts" / "setup", *arguments],
        cwd=cwd,
        env={**{name: value for name, value in env.items() if not name.startswith("AGENT_SESSION_")}, **variables},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def version_in(venv: Path) -> str:
    program = "from importlib.metadata import version; print(version('tiny'))"
    return subprocess.run(
        [venv / "bin" / "python", "-c", program], capture_output=True, text=True, timeout=60, check=True
    ).stdout.strip()


@pytest.mark.slow
def test_setup_makes_an_environment_once_and_again_only_when_the_project_changed(
    checkout: Path, tmp_path: Path, machine_environment: Mapping[str, str]
) -> None:
    # Mutation: never write the stamp (the second run takes as long as the first); or never compare it.
    venv = tmp_path / "an environment"
    variables = {"PYTHON": sys.executable, "AGENT_SESSION_VENV": str(venv)}

    first = setup(checkout, cwd=tmp_path, env=machine_environment, **variables)
    assert (first.returncode, first.stdout) == (0, ""), first.stderr
    assert version_in(venv) == "1"
    assert not (checkout / ".venv").exists()

    stamp = venv / "agent-session-runtime.stamp"
    before = stamp.stat().st_mtime_ns
    assert setup(checkout, cwd=Path("/"), env=machine_environment, **variables).returncode == 0
    assert stamp.stat().st_mtime_ns == before

    (checkout / "pyproject.toml").write_text(PROJECT.format(version="2"), encoding="utf-8")
    assert setup(checkout, cwd=tmp_path, env=machine_environment, **variables).returncode == 0
    assert version_in(venv) == "2"

    # What is there for development is enough for running.
    assert setup(checkout, "--dev", cwd=tmp_path, env=machine_environment, **variables).returncode == 0
    before = stamp.stat().st_mtime_ns
    assert setup(checkout, cwd=tmp_path, env=machine_environment, **variables).returncode == 0
    assert stamp.stat().st_mtime_ns == before


def test_setup_refuses_a_python_that_is_too_old_and_says_what_to_do(
    checkout: Path, tmp_path: Path, machine_environment: Mapping[str, str]
) -> None:
    # Mutation: compare with (3, 0) in `is_new_enough`.
    old = tmp_path / "python3.10"
    pretend = "import sys; sys.version_info = (3, 10, 14); exec(sys.argv[1])"
    old.write_text(f"#!/bin/sh\nexec '{sys.executable}' -c '{pretend}' \"$2\"\n", encoding="utf-8")
    old.chmod(0o755)
    answer = setup(checkout, cwd=tmp_path, env=machine_environment, PYTHON=str(old))
    assert answer.returncode == 1
    assert "is not a Python 3.11 or newer" in answer.stderr
    assert not (checkout / ".venv").exists()


def test_setup_without_any_python_says_how_to_name_one(
    checkout: Path, tmp_path: Path, machine_environment: Mapping[str, str]
) -> None:
    # Mutation: leave `exit 1` out of `choose_python`.
    tools = tmp_path / "bin"
    tools.mkdir()
    for tool in ("bash", "env", "dirname", "cat", "cksum"):
        (tools / tool).symlink_to(shutil.which(tool) or tool)
    environment = {name: value for name, value in machine_environment.items() if name != "PYTHON"}
    answer = setup(checkout, cwd=tmp_path, env={**environment, "PATH": str(tools)})
    assert answer.returncode == 1
    assert answer.stderr.startswith("scripts/setup: no Python 3.11 or newer found; install one")
    assert answer.stderr.count("\n") == 1


def test_setup_refuses_arguments_it_does_not_know(
    checkout: Path, tmp_path: Path, machine_environment: Mapping[str, str]
) -> None:
    # Mutation: take every argument for --dev.
    answer = setup(checkout, "--everything", cwd=tmp_path, env=machine_environment)
    assert (answer.returncode, answer.stderr) == (2, "usage: scripts/setup [--dev]\n")


@pytest.mark.parametrize("script", ["scripts/setup", "scripts/demo", "scripts/mutants", "scripts/test", ".ci/run"])
def test_every_script_can_be_run_and_is_valid_bash(script: str) -> None:
    # Mutation: chmod -x, or an `if` without its `fi`.
    path = ROOT / script
    assert os.access(path, os.X_OK)
    subprocess.run(["bash", "-n", path], check=True, timeout=60)


def test_a_median_past_its_goal_is_told_and_failed(capsys: pytest.CaptureFixture[str]) -> None:
    # Mutation: judge the fastest run, or count the first one.
    times = iter([9.0, 0.1, 0.3, 0.2, 9.0, 0.1, 0.3, 0.2, 9.0, 0.1, 0.3, 0.2])
    once = partial(next, times)
    assert report(Measured(name="slow", once=once, goal_seconds=0.15), 3) is False
    assert report(Measured(name="fast", once=once, goal_seconds=0.25), 3) is True
    assert report(Measured(name="shown", once=once), 3) is True
    lines = [line.split("   ") for line in capsys.readouterr().out.splitlines()]
    assert [line[-1] for line in lines] == ["PAST the goal of 150 ms", "within the goal of 250 ms", "100.0"]


LISTING = """\
:env:.find-links='/more/wheels /and/more'
:env:.index-url='https://mirror.example/simple'
freeze.timeout='10'
global.cert='/etc/ssl/own.pem'
global.extra-index-url='file:///one/simple\\nfile:///two/simple'
global.find-links='/wheels'
global.index-url='https://old.example/simple'
install.index-url='https://newer.example/simple'
not a setting
"""


def test_pips_configuration_is_said_in_the_words_of_uv() -> None:
    # Mutation: let `global` win over `:env:` in `pip_options`; or join find-links with spaces.
    variables = uv_variables(pip_options(LISTING), {}, has_uv_config=False)
    assert variables == {
        "UV_DEFAULT_INDEX": "https://mirror.example/simple",
        "UV_INDEX": "file:///one/simple file:///two/simple",
        "UV_FIND_LINKS": "/more/wheels,/and/more",
        "SSL_CERT_FILE": "/etc/ssl/own.pem",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
    }


def test_what_uv_was_told_itself_is_left_alone() -> None:
    # Mutation: ignore `environment` in `uv_variables`; or forget the variables' older names.
    told = {"UV_INDEX_URL": "https://own.example/simple", "UV_FIND_LINKS": "/own", "SSL_CERT_FILE": "/own.pem"}
    variables = uv_variables(pip_options(LISTING), told, has_uv_config=False)
    assert set(variables) == {"UV_INDEX", "UV_INDEX_STRATEGY"}
    told = {"UV_DEFAULT_INDEX": "https://own.example/simple", "UV_INDEX": "file:///own", "UV_FIND_LINKS": "/own"}
    assert set(uv_variables(pip_options(LISTING), told, has_uv_config=False)) == {"SSL_CERT_FILE"}


def test_a_configuration_file_of_uv_decides_about_indexes_alone(tmp_path: Path) -> None:
    # Mutation: ignore `has_uv_config`.
    (tmp_path / "uv").mkdir()
    (tmp_path / "uv" / "uv.toml").write_text("", encoding="utf-8")
    assert has_uv_config({"XDG_CONFIG_HOME": str(tmp_path)})
    assert set(uv_variables(pip_options(LISTING), {}, has_uv_config=True)) == {"SSL_CERT_FILE"}


@pytest.mark.parametrize(("value", "variables"), [("true", {"UV_NO_INDEX": "true"}), ("0", {}), ("false", {})])
def test_an_index_is_only_left_out_where_pip_leaves_it_out(value: str, variables: dict[str, str]) -> None:
    # Mutation: take any value of no-index for true.
    assert uv_variables({"no-index": value}, {}, has_uv_config=False) == variables
