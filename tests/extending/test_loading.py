"""Loading from a function, a shipped name, a module and a file; what a failure leaves behind; unloading."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import anyio
import pytest

import agent_session
from agent_session.compaction.types import CompactionResult
from agent_session.errors import ExtensionError, ExtensionLoadError
from agent_session.events import SessionShutdown, SessionStart
from agent_session.extending.api import ExtensionAPI
from agent_session.extending.context import ExtensionContext
from agent_session.extending.loader import load_shipped, shipped_files
from agent_session.hooks import ChangedInput, Input
from agent_session.tools.types import Tool
from tests.extending.fake_session import FakeCompaction, FakeSession, before_compact, open_session

APPENDS_X = """
from agent_session import ChangedInput

def setup(api):
    api.on("input", lambda event: ChangedInput(text=event.text + "x"))
"""


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text))
    return path


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def write_bytes(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


async def said(session: FakeSession) -> str:
    return (await session.extensions.hooks.decide(Input(text="-"))).text


async def test_a_function_is_loaded_under_the_name_of_its_module_or_its_own():
    async def asynchronous(api: ExtensionAPI) -> None:
        await anyio.lowlevel.checkpoint()
        api.on("input", lambda event: ChangedInput(text=api.name))

    async with open_session() as session:
        extension = await session.extensions.load(asynchronous)
        # Mutation: call `setup` without awaiting -> nothing is registered.
        assert await said(session) == extension.name
    assert extension.name.startswith("tests.extending.test_loading.")
    assert extension.name.endswith(".asynchronous")


async def test_a_file_is_loaded_by_its_path_and_named_by_its_stem(tmp_path: Path):
    path = write(tmp_path / "shout.py", APPENDS_X)

    async with open_session() as session:
        extension = await session.extensions.load(path)
        again = await session.extensions.load(str(path))
        assert await said(session) == "-xx"

    # Mutation: do not make names unique -> the second takes the first's place in `loaded`.
    assert (extension.name, again.name) == ("shout", "shout#2")


async def test_a_package_is_loaded_by_its_folder_with_its_own_relative_imports(tmp_path: Path):
    write(tmp_path / "pack" / "__init__.py", "from .inner import setup\n")
    write(tmp_path / "pack" / "inner.py", APPENDS_X)

    async with open_session() as session:
        extension = await session.extensions.load(tmp_path / "pack")
        assert await said(session) == "-x"
        await extension.unload()

    assert extension.name == "pack"
    assert not [name for name in sys.modules if name.startswith("_agent_session_extension") and "pack" in name]


async def test_a_file_is_loaded_as_it_now_is_and_leaves_no_compiled_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    path = write(tmp_path / "edited.py", APPENDS_X)

    async with open_session() as session:
        await (await session.extensions.load(path)).unload()
        # The same size, within the same second.
        path.write_text(APPENDS_X.replace('"x"', '"y"'))
        # Mutation: load through `SourceFileLoader` itself -> the compiled copy of before is taken.
        await session.extensions.load(path)
        assert await said(session) == "-y"

    assert names_in(tmp_path) == ["edited.py"]


async def test_classes_of_a_loaded_file_can_be_looked_up_by_their_module(tmp_path: Path):
    path = write(
        tmp_path / "typed.py",
        """
        from __future__ import annotations
        from dataclasses import dataclass, field
        from typing import ClassVar, get_type_hints
        from pydantic import BaseModel

        @dataclass(kw_only=True)
        class State:
            known: ClassVar[int] = 1
            names: list[str] = field(default_factory=list)

        class Arguments(BaseModel):
            state: State

        def setup(api):
            assert get_type_hints(State)["names"] == list[str]
            Arguments(state=State())
        """,
    )

    async with open_session() as session:
        # Mutation: leave the module out of `sys.modules` -> the dataclass cannot be made.
        await session.extensions.load(path)


async def test_a_module_is_loaded_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    write(tmp_path / "my_rules" / "__init__.py", "")
    write(tmp_path / "my_rules" / "session.py", APPENDS_X)
    monkeypatch.syspath_prepend(tmp_path)

    async with open_session() as session:
        extension = await session.extensions.load("my_rules.session")
        assert await said(session) == "-x"
    assert extension.name == "my_rules.session"


async def test_a_shipped_extension_is_loaded_by_its_name():
    async with open_session() as session:
        extension = await session.extensions.load("custom_compaction")
        event = await session.extensions.hooks.decide(before_compact())

    assert extension.name == "custom_compaction"
    assert session.failures == []
    assert event.result is not None
    assert event.result.summary.startswith("summary with Write handover notes")


async def test_a_shipped_extension_is_made_with_other_arguments():
    module = await anyio.to_thread.run_sync(load_shipped, "custom_compaction")

    async with open_session() as session:
        await session.extensions.load(module.custom_compaction(prompt="Only decisions.", reasons=["threshold"]))
        event = await session.extensions.hooks.decide(before_compact(FakeCompaction()))
        assert event.result == CompactionResult("summary with Only decisions.")

        await session.extensions.load(module.custom_compaction(prompt="Other.", reasons=["manual"]))
        event = await session.extensions.hooks.decide(before_compact(FakeCompaction()))
        assert event.result == CompactionResult("summary with Only decisions.")


@pytest.mark.parametrize("name", sorted(shipped_files()))
async def test_everything_that_ships_sets_itself_up(name: str):
    async with open_session() as session:
        assert (await session.extensions.load(name)).name == name


def test_a_programs_own_extensions_module_is_neither_shadowed_nor_loaded_by_mistake(tmp_path: Path):
    write(tmp_path / "extensions.py", "MINE = True\ndef setup(api):\n    raise RuntimeError('not asked for')\n")
    program = """
        import anyio, sys
        sys.path.insert(0, REPOSITORY)
        sys.path.insert(0, FOLDER)
        from tests.extending.fake_session import open_session

        async def main():
            async with open_session() as session:
                extension = await session.extensions.load("custom_compaction")
                assert "extensions" not in sys.modules, "the loader imported it"
                assert [name for name in sys.modules if name.endswith("_custom_compaction")]
                assert session.events == [], session.events
                import extensions
                assert extensions.MINE
                print(extension.name)

        anyio.run(main)
    """
    repository = str(Path(agent_session.__file__).parent.parent)
    text = f"REPOSITORY, FOLDER = {repository!r}, {str(tmp_path)!r}\n" + textwrap.dedent(program)
    path = write(tmp_path / "program.py", text)
    # Mutation: load what ships with `import extensions.custom_compaction` -> the program's own is found.
    command = [sys.executable, str(path)]
    result = subprocess.run(command, check=False, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (result.stdout, result.stderr) == ("custom_compaction\n", "")


async def failing(api: ExtensionAPI) -> None:
    api.on("input", lambda event: ChangedInput(text="left behind"))
    api.tool(Tool(name="left", description="", parameters={"type": "object"}, execute=_execute))
    raise LookupError("no configuration")


async def _execute(arguments: Any, context: Any) -> str:
    return ""


async def test_an_extension_whose_setup_fails_is_reported_and_leaves_nothing_behind():
    async with open_session() as session:
        with pytest.raises(ExtensionLoadError, match="no configuration") as caught:
            await session.extensions.load(failing)
        # Mutation: do not drop what a failed setup registered -> "left behind".
        assert await said(session) == "-"
        assert session.tools == {}
        assert session.extensions.loaded == ()

    assert isinstance(caught.value.__cause__, LookupError)
    (failure,) = session.failures
    assert failure.event == "load"
    assert failure.owner.endswith(".failing")
    assert "in failing" in (failure.traceback or "")
    assert "no configuration" in (failure.traceback or "")


async def test_one_that_fails_does_not_keep_the_others_from_loading(tmp_path: Path):
    good = write(tmp_path / "good.py", APPENDS_X)
    sources: list[Any] = [
        tmp_path / "missing.py",
        write(tmp_path / "syntax.py", "def setup(api:\n"),
        write(tmp_path / "raises.py", "raise ValueError('at import')\n"),
        write(tmp_path / "exits.py", "import sys\nsys.exit(3)\n"),
        write(tmp_path / "empty.py", "setup = None\n"),
        write_bytes(tmp_path / "binary.py", b"\x00\xff\x00"),
        "no_such_module_anywhere",
        "json",
        "not a name",
        "",
        42,
        lambda: None,
        failing,
        good,
    ]

    async with open_session() as session:
        loaded = await session.extensions.load_all(sources)
        assert await said(session) == "-x"

    # Mutation: stop at the first failure -> nothing is loaded.
    assert [extension.name for extension in loaded] == ["good"]
    assert len(session.failures) == len(sources) - 1
    assert all(failure.event == "load" and failure.traceback for failure in session.failures)
    whys = [failure.why for failure in session.failures]
    assert "No such file" in whys[0]
    assert "SyntaxError" in whys[1]
    assert "at import" in whys[2]
    assert "SystemExit" in whys[3]
    assert "defines no setup(api)" in whys[4]
    assert "custom_compaction" in whys[6]
    assert "defines no setup(api)" in whys[7]
    assert not [name for name in sys.modules if name.startswith("_agent_session_extension") and "raises" in name]


async def test_a_module_that_cannot_import_something_says_what(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    write(tmp_path / "needs_more.py", "import not_installed_here\n")
    monkeypatch.syspath_prepend(tmp_path)

    async with open_session() as session:
        # Mutation: call every ModuleNotFoundError a wrong name -> "is neither shipped nor a module".
        with pytest.raises(ExtensionLoadError, match=r"importing it raised .*not_installed_here"):
            await session.extensions.load("needs_more")


async def test_a_setup_that_hangs_is_a_failure_to_load():
    async def hanging(api: ExtensionAPI) -> None:
        await anyio.sleep_forever()

    async with open_session(hook_timeout=0.05) as session:
        with anyio.fail_after(5):
            # Mutation: await the setup without a limit -> this waits for ever.
            with pytest.raises(ExtensionLoadError, match="own time"):
                await session.extensions.load(hanging)
        assert session.extensions.loaded == ()


async def test_cancelling_a_load_leaves_nothing_behind():
    started = anyio.Event()

    async def hanging(api: ExtensionAPI) -> None:
        api.on("input", lambda event: ChangedInput(text="left behind"))
        started.set()
        await anyio.sleep_forever()

    async with open_session() as session:
        with anyio.fail_after(5):
            async with anyio.create_task_group() as group:
                group.start_soon(session.extensions.load, hanging)
                await started.wait()
                group.cancel_scope.cancel()
        # Mutation: drop only after `Exception` -> "left behind".
        assert await said(session) == "-"
        assert session.extensions.loaded == ()
        assert session.failures == []


async def test_unloading_tells_the_extension_alone_and_takes_everything_of_it_away():
    told: list[str] = []
    contexts: list[ExtensionContext] = []
    apis: list[ExtensionAPI] = []

    def first(api: ExtensionAPI) -> None:
        apis.append(api)
        api.tool(Tool(name="mine", description="", parameters={"type": "object"}, execute=_execute))
        api.on("input", lambda event, ctx: contexts.append(ctx))

        @api.on("session_start")
        def start(event: SessionStart) -> None:
            told.append(f"first {event.reason}")

        @api.on("session_shutdown")
        async def shutdown(event: SessionShutdown, ctx: ExtensionContext) -> None:
            told.append(f"first {event.reason} in {ctx.session_id}")

    async with open_session() as session:
        session.extensions.on("session_start", lambda event: told.append("program"))
        session.extensions.on("session_shutdown", lambda event: told.append("program"))
        extension = await session.extensions.load(first, announce=True)
        assert extension in session.extensions.loaded
        await said(session)
        assert list(session.tools) == ["mine"]

        await extension.unload()
        await extension.unload()

        # Mutation: notify everybody of a load or unload -> "program" is told.
        assert told == ["first load", "first unload in s1"]
        assert session.tools == {}
        assert not session.extensions.hooks.has(Input)
        assert not session.extensions.loaded
        # Mutation: leave the tenure open -> these work on.
        for use in (
            lambda: contexts[0].session_id,
            lambda: apis[0].append_entry("x", 1),
            lambda: apis[0].tool(_execute),
        ):
            with pytest.raises(ExtensionError, match="was unloaded"):
                use()
        with pytest.raises(ExtensionError, match="was unloaded"):
            apis[0].on("input", lambda event: None)


async def test_when_the_session_ends_every_context_says_so():
    contexts: list[ExtensionContext] = []

    async with open_session() as session:
        session.extensions.on("input", lambda event, ctx: contexts.append(ctx))

        def setup(api: ExtensionAPI) -> None:
            api.on("input", lambda event, ctx: contexts.append(ctx))

        await session.extensions.load(setup)
        await said(session)
        session.extensions.end("the session was replaced")

        assert not session.extensions.hooks.has(Input)
        assert len(contexts) == 2
        for context in contexts:
            with pytest.raises(ExtensionError, match="the session was replaced"):
                _ = context.messages
        with pytest.raises(ExtensionError, match="the session was replaced"):
            session.extensions.on("input", lambda event: None)


async def test_patterns_for_overflows_are_found_whatever_the_case_and_go_with_their_extension():
    def setup(api: ExtensionAPI) -> None:
        api.overflow_pattern("zu gross")
        api.overflow_pattern(re.compile("exactly so"))

    async with open_session() as session:
        extension = await session.extensions.load(setup)
        first, second = session.overflow_patterns
        # Mutation: compile without `re.IGNORECASE`, or compile a compiled one again with it.
        assert first.search("Anfrage ZU GROSS")
        assert second.search("exactly so")
        assert not second.search("EXACTLY SO")
        # Mutation: leave the withdrawal out.
        await extension.unload()
        assert session.overflow_patterns == []


@pytest.mark.parametrize("pattern", ["(", ".*", "", None, 3, b"bytes", re.compile(b"bytes")])
async def test_what_is_no_pattern_for_text_is_refused_with_its_extension(pattern: Any):
    async with open_session() as session:
        # Mutation: keep what was given and compile it when it is first used.
        with pytest.raises(ExtensionLoadError, match="overflow_pattern"):
            await session.extensions.load(lambda api: api.overflow_pattern(pattern))
        assert session.overflow_patterns == []
