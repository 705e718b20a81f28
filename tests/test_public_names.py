"""The public face: `__all__` is what is visible, every name resolves and is documented, importing is cheap."""

from __future__ import annotations

import enum
import importlib
import inspect
import subprocess
import sys
import types
from pathlib import Path

import pytest

import agent_session
import agent_session.errors
import agent_session.events
import agent_session.extending.view
import agent_session.hooks
import agent_session.llm.client
import session_store
import session_store.errors
import session_store.log

PACKAGES = (agent_session, session_store)
NAMES = [(package, name) for package in PACKAGES for name in package.__all__]

# Never loaded by an import of the package. The first group at no time but on a first call of LiteLLMClient.
FORBIDDEN = [
    *("litellm", "openai", "anthropic", "google.genai", "boto3", "botocore", "cohere", "mistralai", "groq", "ollama"),
    *("huggingface_hub", "tokenizers", "tiktoken", "transformers", "aiohttp"),
    *("httpx", "httpcore", "ssl", "rich", "structlog", "asyncio", "jsonschema", "pytest", "hypothesis", "blockbuster"),
]
IMPORT_SECONDS = 0.15

# What a port says of its methods holds for everything that implements it.
PORTS = (session_store.log.EntryLog, agent_session.llm.client.ModelClient, agent_session.extending.view.SessionView)


def shown(item: object) -> str:
    return item.__name__ if isinstance(item, types.ModuleType) else str(item)


@pytest.mark.parametrize("package", PACKAGES, ids=shown)
def test_what_is_listed_is_what_is_visible(package: types.ModuleType) -> None:
    # Mutation: import one more class in `__init__`, or take one name out of `__all__`.
    for name in package.__all__:
        getattr(package, name)
    visible = {
        name
        for name, value in vars(package).items()
        if not name.startswith("_")
        and (not isinstance(value, types.ModuleType) or name in package.__all__)
        and (name in package.__all__ or getattr(value, "__module__", None) not in ("__future__", "typing"))
        and name not in ("TYPE_CHECKING", "annotations")
    }
    assert visible == set(package.__all__)


@pytest.mark.parametrize("package", PACKAGES, ids=shown)
def test_the_list_has_each_name_once_and_dir_shows_them_all(package: types.ModuleType) -> None:
    # Mutation: leave the lazy names out of `__dir__`, or write one twice.
    assert len(package.__all__) == len(set(package.__all__))
    assert set(package.__all__) <= set(dir(package))


@pytest.mark.parametrize(("package", "name"), NAMES, ids=shown)
def test_every_public_name_is_documented(package: types.ModuleType, name: str) -> None:
    # Mutation: take a docstring away.
    value = getattr(package, name)
    if not (inspect.isclass(value) or inspect.isroutine(value) or inspect.ismodule(value)):
        return  # a constant, or an alias of a union
    text = inspect.cleandoc(value.__doc__ or "")
    # dataclasses write their signature where there is no docstring, exceptions and enums inherit one.
    inherited = {inspect.cleandoc(base.__doc__ or "") for base in (Exception, object, dict, tuple, enum.Enum)}
    assert text
    assert text not in inherited
    assert not text.startswith(f"{name}(")


@pytest.mark.parametrize(("package", "name"), NAMES, ids=shown)
def test_every_public_method_that_does_something_is_documented(package: types.ModuleType, name: str) -> None:
    # Mutation: take a method's docstring away.
    value = getattr(package, name)
    if not inspect.isclass(value):
        return
    ports = {attribute for port in PORTS for attribute, member in vars(port).items() if member.__doc__}
    bare = [
        attribute
        for attribute, member in vars(value).items()
        if not attribute.startswith("_")
        and attribute not in ports
        and inspect.isroutine(member)
        and not inspect.getdoc(getattr(value, attribute))  # getdoc: an override may inherit what it keeps
    ]
    assert bare == []


@pytest.mark.parametrize("package", PACKAGES, ids=shown)
def test_an_unknown_name_is_an_attribute_error_that_names_the_package(package: types.ModuleType) -> None:
    # Mutation: let `__getattr__` return None for a name it does not have.
    with pytest.raises(AttributeError, match=package.__name__):
        package.no_such_name  # noqa: B018 - the access is the test


@pytest.mark.parametrize(
    ("module", "root"),
    [
        (agent_session.errors, agent_session.errors.AgentSessionError),
        (session_store.errors, session_store.errors.SessionStoreError),
        (agent_session.events, agent_session.events.Event),
        (agent_session.hooks, agent_session.hooks.Decision),
    ],
    ids=shown,
)
def test_every_error_and_every_event_is_public(module: types.ModuleType, root: type) -> None:
    # Mutation: leave one event out of `__all__`.
    package = importlib.import_module(module.__name__.partition(".")[0])
    classes = {
        name
        for name, value in vars(module).items()
        if inspect.isclass(value)
        and value.__module__ == module.__name__
        and issubclass(value, root)
        and not name.startswith("_")
        and name not in ("Event", "Decision", "Warning")  # roots, and one that would hide a builtin
    }
    assert classes
    assert classes <= set(package.__all__)


def test_every_answer_of_every_decision_is_public() -> None:
    # Mutation: leave `Amend` out of `__all__`.
    answers = {answer.__name__ for event in agent_session.hooks.DECISIONS.values() for answer in event.answers}
    assert {"Veto", "Amend", "Summarize", "Block"} <= answers
    assert answers <= set(agent_session.__all__)


@pytest.mark.parametrize("package", [package.__name__ for package in PACKAGES])
def test_importing_loads_no_provider_and_nothing_heavy(package: str) -> None:
    # Mutation: `import httpx` at the top of a module that the package imports.
    program = f"import sys, {package}\nprint(*(name for name in {FORBIDDEN!r} if name in sys.modules))"
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert answer.stdout.split() == []


def test_importing_the_package_takes_less_than_a_sixth_of_a_second() -> None:
    # Mutation: import `agent_session.session` eagerly in `__init__`.
    program = "from time import perf_counter as now; start = now(); import agent_session; print(now() - start)"
    times = []
    for _ in range(7):  # the machine may be busy: the best of a few is the package's own
        answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
        times.append(float(answer.stdout))
        if times[-1] < IMPORT_SECONDS:
            return
    pytest.fail(f"{min(times):.3f} s at best")


@pytest.mark.slow
def test_a_type_checker_knows_every_public_name(tmp_path: Path) -> None:
    # Mutation: drop a lazy name's import under TYPE_CHECKING in `__init__`.
    lines = ["import agent_session", "import session_store"]
    lines += [f"reveal_type({package.__name__}.{name})" for package, name in NAMES]
    program = tmp_path / "every_name.py"
    program.write_text("\n".join(lines) + "\n", encoding="utf-8")
    answer = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", tmp_path / "cache", program],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        cwd=Path(__file__).parent.parent,
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr
    revealed = [line for line in answer.stdout.splitlines() if "Revealed type is" in line]
    assert len(revealed) == len(NAMES)
    unknown = [NAMES[number] for number, line in enumerate(revealed) if 'Revealed type is "Any"' in line]
    assert unknown == []
