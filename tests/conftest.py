"""What every test stands on: a home of its own, no keys, no blocking call in the event loop, the same examples.

The rule: no test sees the machine it runs on. `HOME`, the session folder and every provider's variables are replaced
before each test; what a test needs of the real environment (a package index, a cache) it asks of
`machine_environment`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from blockbuster import BlockBuster
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).parent.parent

# `ci`, the default, tries the same examples every time, so that a failure is the change's. `search` looks for new ones:
# HYPOTHESIS_PROFILE=search scripts/test.
settings.register_profile(
    "ci",
    derandomize=True,
    deadline=None,
    database=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("search", deadline=None, max_examples=2_000, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

_MACHINE_ENVIRONMENT = dict(os.environ)
_TEST_DATA = "AGENT_SESSION_TEST_DATA"
_PROVIDERS = re.compile(r"_API_KEY$|_BASE_URL$|_API_BASE$|^(ALL|HTTP|HTTPS|NO)_PROXY$|^AGENT_SESSION_", re.IGNORECASE)


@pytest.fixture(scope="session")
def machine_environment() -> Mapping[str, str]:
    """The environment as it was before any test: for installing packages, nothing else."""
    return _MACHINE_ENVIRONMENT


@pytest.fixture(autouse=True)
def isolated_environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A home folder of the test's own, its sessions inside it, and no provider's key, address or proxy."""
    home = tmp_path_factory.mktemp("home", numbered=True)
    with pytest.MonkeyPatch.context() as patch:
        for variable in list(os.environ):
            if _PROVIDERS.search(variable) and variable != _TEST_DATA:
                patch.delenv(variable)
        patch.setenv("HOME", str(home))
        patch.setenv("AGENT_SESSION_DIR", str(home / "sessions"))
        for variable in ("XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"):
            patch.delenv(variable, raising=False)
        yield home


class _EveryFunction:
    """Contains every name: blockbuster asks `function in functions` for the frames of a file."""

    def __contains__(self, name: object) -> bool:
        return True

    def __iter__(self) -> Iterator[str]:
        return iter(())


def _watch_the_event_loop() -> BlockBuster:
    """Blocking calls made on the event loop from inside this package raise `BlockingError`.

    The log's own writes are excepted: plain functions, microseconds each. So is what a test itself does: only a stack
    with a frame of `agent_session` in it is looked at.
    """
    watch = BlockBuster(scanned_modules="agent_session")
    # These ask the kernel what it knows and text what it says; no disk is waited for.
    for harmless in ("os.getcwd", "os.path.abspath"):
        del watch.functions[harmless]
    for function in watch.functions.values():
        # Verbs that nobody awaits have nowhere else to read an image's file.
        function.can_block_in("agent_session/prompting.py", "message_now")
        # Reads no more keys than are there already.
        function.can_block_in("agent_session/terminal/keyboard.py", "raw_mode")
        # A handler of a test's own that looks into the file is the test's business.
        function.can_block_in("tests/session/scene.py", "lines")
        for module in (ROOT / "session_store").glob("*.py"):
            function.can_block_in(f"session_store/{module.name}", _EveryFunction())
        # An import that is put off until it is needed reads files, once.
        function.can_block_in("<frozen importlib._bootstrap>", {"_find_and_load"})
    return watch


_WATCH = _watch_the_event_loop()


@pytest.fixture(autouse=True)
def no_blocking_calls(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test whose event loop waits for the disk, a process or a lock; `allow_blocking` leaves it out."""
    if request.node.get_closest_marker("allow_blocking"):
        yield
        return
    _WATCH.activate()
    try:
        yield
    finally:
        _WATCH.deactivate()
