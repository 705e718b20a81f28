"""The documents are true: what they show runs, what they name exists."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest
from typing_extensions import override

from agent_session.testing import FakeProvider, always, reply

ROOT = Path(__file__).parent.parent
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
PACKAGES = ("agent_session", "session_store")
FOLDERS = (*PACKAGES, "extensions", "examples", "scripts", "tests", "docs", ".ci")


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its text, and the heading it stands under."""

    document: Path
    line: int
    heading: str
    language: str
    text: str

    @override
    def __str__(self) -> str:
        return f"{self.document.relative_to(ROOT)}:{self.line}"


def blocks_of(document: Path) -> Iterator[Block]:
    heading, language, start, lines = "", None, 0, list[str]()
    for number, line in enumerate(document.read_text(encoding="utf-8").splitlines(), start=1):
        if line.startswith("```"):
            if language is None:
                language, start, lines = line[3:].strip(), number, []
            else:
                yield Block(document, start, heading, language, "\n".join(lines) + "\n")
                language = None
        elif language is not None:
            lines.append(line)
        elif line.startswith("#"):
            heading = line.lstrip("# ")


BLOCKS = [block for document in DOCUMENTS for block in blocks_of(document)]
PROGRAMS = [block for block in BLOCKS if block.language == "python"]
PROMPTS = [block for block in BLOCKS if block.language == "pycon"]
SHELL = [block for block in BLOCKS if block.language in ("sh", "bash", "console")]


async def run_offline(
    program: list[str], *, stdin: str = "", cwd: Path, provider: FakeProvider, warns: str = "error"
) -> str:
    """What the program prints. It speaks to `provider`, and must end well without a word on stderr."""
    environment: Mapping[str, str] = {
        **os.environ,
        "OPENAI_BASE_URL": provider.base_url,
        "OPENAI_API_KEY": "none",
        "ANTHROPIC_BASE_URL": provider.base_url,
        "ANTHROPIC_API_KEY": "none",
        "PYTHONWARNINGS": warns,
        "PYTHONPATH": str(ROOT),
    }
    with anyio.fail_after(60):
        done = await anyio.run_process(program, input=stdin.encode(), cwd=cwd, env=environment, check=False)
    output, errors = done.stdout.decode(), done.stderr.decode()
    assert done.returncode == 0, errors
    assert "Traceback" not in errors, errors
    return output


def test_the_readme_shows_programs_a_prompt_and_commands() -> None:
    # Mutation: none of the README's blocks is found (a fence that is not closed, another language's name).
    readme = [block for block in BLOCKS if block.document.name == "README.md"]
    assert {"python", "pycon", "sh"} <= {block.language for block in readme}


@pytest.mark.parametrize("block", PROGRAMS, ids=str)
async def test_every_program_in_the_documents_runs_offline(block: Block, tmp_path: Path) -> None:
    # Mutation: misspell a name in one of the README's programs.
    program = tmp_path / "program.py"
    await anyio.Path(program).write_text(block.text, encoding="utf-8")
    async with FakeProvider([always(reply("The parser was fixed: an empty line ended it too early."))]) as provider:
        # litellm leaves its connections to the end of the process, and Python says so if it is asked.
        warns = "ignore" if "LiteLLMClient" in block.text else "error"
        await run_offline([sys.executable, str(program)], cwd=tmp_path, provider=provider, warns=warns)
        asks = "AgentSession(" in block.text and "FakeProvider(" not in block.text  # which it then asks itself
        assert bool(provider.requests) == asks


@pytest.mark.parametrize("block", PROMPTS, ids=str)
async def test_what_is_typed_at_the_prompt_in_the_documents_works(block: Block, tmp_path: Path) -> None:
    # Mutation: leave out an `await` in the README's prompt, or misspell a verb.
    interpreter = ["-m", "asyncio"] if "await " in block.text else ["-i", "-q"]
    typed = "".join(line[4:] + "\n" for line in block.text.splitlines() if line.startswith((">>> ", "... ")))
    async with FakeProvider([always(reply("An empty line no longer ends the parser."))]) as provider:
        output = await run_offline([sys.executable, *interpreter], stdin=typed, cwd=tmp_path, provider=provider)
        assert provider.requests
    assert "Error" not in output


@pytest.mark.parametrize("block", SHELL, ids=str)
def test_every_script_and_file_in_a_shell_block_exists(block: Block) -> None:
    # Mutation: rename a script.
    named = re.findall(r"(?:^|[\s/])((?:scripts|examples|\.ci)/[\w./-]+)", block.text, re.MULTILINE)
    assert [path for path in named if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_module_file_and_folder_a_document_names_exists(document: Path) -> None:
    # Mutation: name a module that is not there, in any document.
    text = document.read_text(encoding="utf-8")
    missing = []
    for name in re.findall(r"`([^`\s]+)`", text):
        if re.fullmatch(r"(?:agent_session|session_store)(?:\.\w+)+", name):
            if not resolves(name):
                missing.append(name)
        elif name.partition("/")[0] in FOLDERS and "/" in name and "<" not in name and not (ROOT / name).exists():
            missing.append(name)
    missing += [
        link for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text) if not (document.parent / link).exists()
    ]
    assert missing == []


def resolves(dotted: str) -> bool:
    """Whether a dotted name is a module, or a public name of one."""
    parts = dotted.split(".")
    for length in range(len(parts), 0, -1):
        path = ROOT.joinpath(*parts[:length])
        if path.with_suffix(".py").is_file() or path.is_dir():
            rest = parts[length:]
            source = path.with_suffix(".py") if path.with_suffix(".py").is_file() else path / "__init__.py"
            return not rest or (len(rest) == 1 and re.search(rf"\b{rest[0]}\b", source.read_text()) is not None)
    return False


@pytest.mark.parametrize("package", PACKAGES)
def test_the_architecture_lists_each_module_once_and_no_other(package: str) -> None:
    # Mutation: add a module, or rename one, without a line in docs/architecture.md.
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    section = re.search(rf"^#+ Modules of `{package}`\n(.*?)(?=^#|\Z)", text, re.MULTILINE | re.DOTALL)
    assert section is not None
    listed = re.findall(r"^\| `([\w.]+)` \|", section[1], re.MULTILINE)
    modules = {
        ".".join(path.relative_to(ROOT / package).with_suffix("").parts)
        for path in (ROOT / package).rglob("*.py")
        if path.name != "__init__.py"
    }
    assert sorted(listed) == sorted(set(listed))
    assert set(listed) == modules


def test_the_changelog_has_the_version_that_is_built() -> None:
    # Mutation: raise the version in pyproject.toml alone.
    version = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)
    assert version is not None
    assert re.search(rf"^## {re.escape(version[1])}\b", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)


@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.name)
def test_every_example_runs_offline(example: Path, tmp_path: Path) -> None:
    # Mutation: misspell a name in an example.
    answer = subprocess.run(
        [sys.executable, example],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout
