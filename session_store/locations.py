"""Where sessions live: the names of folders and files."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

from session_store.entries import SessionHeader

SESSION_SUFFIX = ".jsonl"

_NAME_LIMIT_BYTES = 255 - len("----")
_HASH_DIGITS = 16


def default_session_dir() -> Path:
    """The root of all sessions: `AGENT_SESSION_DIR`, else `~/.agent-session/sessions`."""
    chosen = os.environ.get("AGENT_SESSION_DIR")
    return Path(chosen).expanduser() if chosen else Path.home() / ".agent-session" / "sessions"


def folder_for(cwd: str | Path, root: Path) -> Path:
    """The folder of the sessions of one working directory: `--home-me-project--`.

    A directory so deep that no file system takes its name is cut, with a hash of the whole to tell it from others.
    """
    name = re.sub(r"[/\\:]", "-", re.sub(r"^[/\\]", "", str(cwd)))
    whole = os.fsencode(name)
    if len(whole) > _NAME_LIMIT_BYTES:
        start = whole[: _NAME_LIMIT_BYTES - _HASH_DIGITS - 1].decode("utf-8", "ignore")
        name = f"{start}-{hashlib.sha256(whole).hexdigest()[:_HASH_DIGITS]}"
    return root / f"--{name}--"


def file_name(header: SessionHeader) -> str:
    """`<timestamp>_<id>.jsonl`, so that names sort by time."""
    timestamp = re.sub(r"[:.]", "-", header.timestamp)
    return f"{timestamp}_{header.id}{SESSION_SUFFIX}"


def id_in_name(path: Path) -> str:
    """The session id in the name of a file; the whole name where it has no timestamp in front."""
    return path.stem.partition("_")[2] or path.stem
