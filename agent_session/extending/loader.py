"""Finding the code of an extension: from a function, a shipped name, a module's name or a file to its `setup`.

Where a string is looked for, in this order:

1. a path, if it has a separator in it or ends in `.py`: that file, or that package;
2. the name of a shipped extension: its file, by its path;
3. the name of a module that Python can import, with a `setup`.

Rule: files are executed under private names, from their source, each time anew. Nothing here imports a module
called `extensions`, puts anything on `sys.path` or leaves a file behind, so a program's own `extensions.py` is
neither shadowed nor taken for what ships, and an edited file loads as it now is.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import itertools
import re
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, ModuleType
from typing import TypeAlias

import anyio
from typing_extensions import override

from agent_session.errors import ExtensionLoadError
from agent_session.extending.api import ExtensionAPI

Setup: TypeAlias = Callable[[ExtensionAPI], Awaitable[None] | None]
Source: TypeAlias = Setup | str | Path
"""What `extensions=[…]` and `session.load` take."""

_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Located:
    """An extension's `setup`, the name it goes by, and the private module that was made for it, if one was."""

    name: str
    setup: Setup
    private_module: str | None = None


async def locate(source: Source) -> Located:
    """The extension's `setup`. Files are read in a thread; code runs in the caller's task.

    Raises:
        ExtensionLoadError: nothing there, or it raised, or it has no `setup`. The cause is its exception.
    """
    if isinstance(source, Path) or (isinstance(source, str) and _is_path(source)):
        path = Path(source)
        return await _from_file(path.parent.name if path.name == "__init__.py" else path.stem, path)
    if isinstance(source, str):
        files = await anyio.to_thread.run_sync(shipped_files)
        if source in files:
            return await _from_file(source, files[source])
        return Located(name=source, setup=_setup_of(_imported(source, shipped=tuple(files)), source))
    if callable(source):
        return Located(name=_name_of(source), setup=source)
    raise ExtensionLoadError(repr(source), f"is {type(source).__name__}; give a setup(api) function, a name or a Path")


def load_shipped(name: str) -> ModuleType:
    """A shipped extension's module, to make a `setup` of its own with other arguments. Reads a file.

    Raises:
        ExtensionLoadError: there is none of that name, or it cannot be executed.
    """
    files = shipped_files()
    if name not in files:
        raise ExtensionLoadError(name, f"is not shipped; there are: {', '.join(files) or 'none'}")
    return _executed(name, files[name], files[name].read_bytes())


def shipped_files() -> dict[str, Path]:
    """What ships, by name, sorted."""
    folder = _shipped_folder()
    return {} if folder is None else {path.stem: path for path in sorted(folder.glob("[!_]*.py"))}


def _shipped_folder() -> Path | None:
    """`extensions` inside the package as installed, or beside it in a checkout of this project; else None."""
    package = Path(__file__).parent.parent
    if (package / "extensions").is_dir():
        return package / "extensions"
    # A folder of that name beside a copied package may be the program's: only our own project file vouches for it.
    project = package.parent / "pyproject.toml"
    is_ours = project.is_file() and 'name = "agent-session-runtime"' in project.read_text("utf-8")
    folder = package.parent / "extensions"
    return folder if is_ours and folder.is_dir() else None


def forget(located: Located) -> None:
    """Drop the private module, and those of its package."""
    if located.private_module is not None:
        _forget_module(located.private_module)


async def _from_file(name: str, path: Path) -> Located:
    try:
        path, source = await anyio.to_thread.run_sync(_read, path)
    except OSError as error:
        raise ExtensionLoadError(name, f"cannot be read: {error}") from error
    module = _executed(name, path, source)
    try:
        return Located(name=name, setup=_setup_of(module, str(path), name), private_module=module.__name__)
    except ExtensionLoadError:
        _forget_module(module.__name__)
        raise


def _read(path: Path) -> tuple[Path, bytes]:
    path = path.expanduser().resolve()
    if path.is_dir():
        path /= "__init__.py"
    return path, path.read_bytes()


class _GivenSource(importlib.machinery.SourceFileLoader):
    """Compiles the bytes it was given, past the cache of compiled files, whose clock ticks in whole seconds."""

    def __init__(self, fullname: str, path: str, source: bytes) -> None:
        super().__init__(fullname, path)
        self._source = source

    @override
    def get_code(self, fullname: str) -> CodeType | None:
        return self.source_to_code(self._source, self.path)


def _executed(name: str, path: Path, source: bytes) -> ModuleType:
    private = f"_agent_session_extension_{next(_numbers)}_{re.sub(r'[^0-9A-Za-z_]', '_', name)}"
    spec = importlib.util.spec_from_file_location(
        private,
        path,
        loader=_GivenSource(private, str(path), source),
        submodule_search_locations=[str(path.parent)] if path.name == "__init__.py" else None,
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[private] = module  # dataclasses and pydantic look a class's module up there
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        _forget_module(private)
        raise ExtensionLoadError(name, f"{path} raised {type(error).__name__}: {error}") from error
    except BaseException:
        _forget_module(private)
        raise
    return module


def _imported(name: str, *, shipped: tuple[str, ...]) -> ModuleType:
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and error.name and f"{name}.".startswith(f"{error.name}."):
            why = f"is neither shipped ({', '.join(shipped) or 'nothing is'}) nor a module: {error}"
        else:
            why = f"importing it raised {type(error).__name__}: {error}"
        raise ExtensionLoadError(name, why) from error


def _setup_of(module: ModuleType, where: str, name: str | None = None) -> Setup:
    setup = getattr(module, "setup", None)
    if not callable(setup):
        raise ExtensionLoadError(name or where, f"{where} defines no setup(api) function")
    return setup  # type: ignore[no-any-return]


def _is_path(source: str) -> bool:
    return "/" in source or "\\" in source or source.endswith(".py")


def _name_of(setup: Callable[..., object]) -> str:
    function = getattr(setup, "func", setup)  # of a functools.partial
    module = getattr(function, "__module__", None) or type(function).__module__
    qualified = getattr(function, "__qualname__", type(function).__qualname__)
    return module if qualified == "setup" and module != "__main__" else f"{module}.{qualified}"


def _forget_module(private: str) -> None:
    for name in [name for name in sys.modules if name == private or name.startswith(f"{private}.")]:
        del sys.modules[name]
