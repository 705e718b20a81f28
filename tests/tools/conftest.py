from __future__ import annotations

from pathlib import Path

import pytest

from agent_session.tools import ToolContext
from tests.tools.calls import context_in


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The working folder: alone in `tmp_path`, so that there is an outside."""
    made = tmp_path / "project"
    made.mkdir()
    return made


@pytest.fixture
def context(folder: Path) -> ToolContext:
    return context_in(folder)
