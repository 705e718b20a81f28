"""The process that is killed: it resumes a session and compacts it.

`python -m agent_session.demo.doomed SESSION_FILE PROJECT_FOLDER BASE_URL INSTRUCTIONS`. It prints the start of the
compaction as one line of JSON, and comes no further, since the provider holds the summary back. Were its parent gone
first, the connection would break, and the process end by itself.
"""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path

import anyio
import orjson

from agent_session.demo.opening import local_client, resumed
from agent_session.events import CompactionStart, Event


def _report(event: Event) -> None:
    if isinstance(event, CompactionStart):
        print(orjson.dumps(asdict(event)).decode(), flush=True)


async def _compact(path: Path, project: Path, base_url: str, instructions: str) -> None:
    async with local_client(base_url) as client, resumed(path, project, client) as session:
        session.subscribe(_report)
        await session.compact(instructions)


if __name__ == "__main__":
    session_file, folder, address, text = sys.argv[1:]
    anyio.run(_compact, Path(session_file), Path(folder), address, text)
