"""The wheel: what is in it, and that a program with an `extensions.py` of its own gets along with it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Mapping
from email.parser import Parser
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def run(*command: str | Path, cwd: Path, env: Mapping[str, str]) -> str:
    """The output of a program that must succeed."""
    answer = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert answer.returncode == 0, f"{command}: exit {answer.returncode}\n{answer.stdout}\n{answer.stderr}"
    return answer.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory, machine_environment: Mapping[str, str]) -> Path:
    """The wheel, built by the build backend itself: what a build frontend would run, without an environment for it."""
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder, cwd=ROOT, env=machine_environment)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def names(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory, machine_environment: Mapping[str, str]) -> Path:
    """The interpreter of a fresh environment that has the wheel.

    Its dependencies come from the environment that runs the tests, through a `.pth` file: to fetch them again would
    take a minute and show nothing about this wheel. A `.pth` in a folder that is added in this way is not read, so
    that the checkout itself, which is installed there as editable, stays out.
    """
    folder = tmp_path_factory.mktemp("installed") / "venv"
    environment = {name: value for name, value in machine_environment.items() if name != "PYTHONPATH"}
    run(sys.executable, "-m", "uv", "venv", "--quiet", "--python", sys.executable, folder, cwd=ROOT, env=environment)
    python = folder / "bin" / "python"
    run(
        *(sys.executable, "-m", "uv", "pip", "install", "--quiet", "--offline", "--no-deps"),
        *("--python", python, wheel),
        cwd=ROOT,
        env=environment,
    )
    (site_packages,) = folder.glob("lib/python*/site-packages")
    (site_packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    return python


def test_the_wheel_installs_two_packages_and_no_top_level_extensions(names: list[str]) -> None:
    # Mutation: add "extensions" to the wheel's packages in pyproject.toml.
    top = {name.partition("/")[0] for name in names}
    assert {name for name in top if not name.endswith(".dist-info")} == {"agent_session", "session_store"}


def test_every_shipped_extension_lies_inside_the_package(names: list[str]) -> None:
    # Mutation: leave out the force-include in pyproject.toml.
    shipped = {path.name for path in (ROOT / "extensions").glob("*.py")}
    assert "custom_compaction.py" in shipped
    assert {f"agent_session/extensions/{name}" for name in shipped} <= set(names)


def test_every_module_of_the_checkout_is_in_the_wheel(names: list[str]) -> None:
    # Mutation: exclude a folder in the wheel's configuration.
    modules = {
        str(path.relative_to(ROOT))
        for package in ("agent_session", "session_store")
        for path in (ROOT / package).rglob("*.py")
    }
    assert modules <= set(names)


def test_both_packages_say_that_they_are_typed(names: list[str]) -> None:
    # Mutation: delete one py.typed.
    assert {"agent_session/py.typed", "session_store/py.typed"} <= set(names)


def test_the_metadata_names_the_licence_the_python_and_bounded_dependencies(wheel: Path, names: list[str]) -> None:
    # Mutation: drop a bound of a dependency in pyproject.toml.
    (metadata_name,) = (name for name in names if name.endswith(".dist-info/METADATA"))
    with zipfile.ZipFile(wheel) as archive:
        metadata = Parser().parsestr(archive.read(metadata_name).decode())
    assert metadata["Name"] == "agent-session-runtime"
    assert metadata["License-Expression"] == "MIT"
    assert metadata["Requires-Python"] == ">=3.11"
    required = [text for text in metadata.get_all("Requires-Dist", []) if "extra ==" not in text]
    assert required
    assert all(">=" in text for text in required)
    assert all("<" in text for text in required if not text.startswith("structlog"))


def test_the_wheel_brings_the_command(installed: Path) -> None:
    # Mutation: leave [project.scripts] out of pyproject.toml, or name a function that is not there.
    command = installed.parent / "agent-session"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    assert run(command, "--help", cwd=installed.parent, env=environment).startswith("usage: agent-session")
    assert "no sessions yet" in run(command, "sessions", "list", "--all", cwd=installed.parent, env=environment)


PROGRAM = '''
"""A program beside its own `extensions.py`."""

import asyncio
import json
import sys
from pathlib import Path

import extensions
from agent_session import AgentSession, SessionManager
from agent_session.testing import ScriptedModel, reply


async def main() -> None:
    client = ScriptedModel([reply("Done.")])
    async with client, AgentSession(
        client.model,
        client=client,
        session_manager=SessionManager.in_memory(),
        extensions=["custom_compaction"],
    ) as session:
        failures = []
        session.on("extension_failed", lambda event: failures.append(event.why))
        answer = await session.prompt("Go.")
        import extensions as again

        loaded = [
            module.__file__
            for module in list(sys.modules.values())
            if (getattr(module, "__file__", None) or "").endswith("custom_compaction.py")
        ]
    print(json.dumps({
        "answer": answer.text,
        "failures": failures,
        "loaded": loaded,
        "own": [extensions.__file__, again.OWNER],
        "package": sys.modules["agent_session"].__file__,
    }))


asyncio.run(main())
'''


@pytest.mark.slow
def test_a_program_with_its_own_extensions_module_loads_a_shipped_extension_by_name(
    installed: Path, tmp_path: Path
) -> None:
    # Mutation: let `shipped_folder` in the loader be the folder of `import extensions`.
    (tmp_path / "extensions.py").write_text("OWNER = 'the program'\n", encoding="utf-8")
    (tmp_path / "program.py").write_text(PROGRAM, encoding="utf-8")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    answer = json.loads(run(installed, "program.py", cwd=tmp_path, env=environment))
    site_packages = installed.parent.parent
    assert answer["answer"] == "Done."
    assert answer["failures"] == []
    assert answer["own"] == [str(tmp_path / "extensions.py"), "the program"]
    assert Path(answer["package"]).is_relative_to(site_packages)
    (loaded,) = answer["loaded"]
    assert Path(loaded).is_relative_to(site_packages)
    assert Path(loaded).parts[-3:] == ("agent_session", "extensions", "custom_compaction.py")
