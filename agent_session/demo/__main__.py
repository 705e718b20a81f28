"""`python -m agent_session.demo`: plays the demonstration and says whether it was what it promised.

Exit status: 0 when every promise was kept, 1 when one was not, 130 after Ctrl-C. Needs no key, no network and no
configuration, and reads none.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path


def main(arguments: Sequence[str] | None = None) -> int:
    """Play the demonstration; its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m agent_session.demo",
        description="A coding agent fixes a small project while its session compacts, is killed and resumes. Offline: "
        "the model's answers are scripted, everything else is real. The folder it works in is left for looking at.",
    )
    parser.add_argument(
        "--picture", metavar="FILE", type=Path, help="save a picture of it, as SVG, instead of showing it"
    )
    picture: Path | None = parser.parse_args(arguments).picture
    folder: Path | None = None
    try:
        # Imported here: Ctrl-C may come while a slow machine still loads the package.
        from agent_session.demo.playing import play  # noqa: PLC0415

        folder = Path(tempfile.mkdtemp(prefix="agent-session-demo-")).resolve()
        return play(folder, picture=picture)
    except KeyboardInterrupt:
        left = f"; its files: {folder}" if folder is not None else ""
        print(f"\ninterrupted{left}", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
