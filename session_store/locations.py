"""Where sessions live: the names of folders and files."""

from __future__ import annotations

import os
import re
from pathlib import Path

from session_store.entries import SessionHeader

SESSION_SUFFIX = ".jsonl"


def default_session_dir() -> Path:
    """The root of all sessions: `AGENT_SESSION_DIR`, else `~/.agent-session/sessions`."""
    chosen = os.environ.get("AGENT_SESSION_DIR")
    return Path(chosen).expanduser() if chosen else Path.home() / ".agent-session" / "sessions"


def folder_for(cwd: str | Path, root: Path) -> Path:
    """The folder of the sessions of one working directory: `--home-me-project--`."""
    name = re.sub(r"[/\\:]", "-", re.sub(r"^[/\\]", "", str(cwd)))
    return root / f"--{name}--"


def file_name(header: SessionHeader) -> str:
    """`<timestamp>_<id>.jsonl`, so that names sort by time."""
    timestamp = re.sub(r"[:.]", "-", header.timestamp)
    return f"{timestamp}_{header.id}{SESSION_SUFFIX}"


def id_in_name(path: Path) -> str:
    """The session id in the name of a file; the whole name where it has no timestamp in front."""
    return path.stem.partition("_")[2] or path.stem
