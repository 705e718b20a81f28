"""The process that searches: one request as JSON on stdin, one answer on stdout.

The system ends it when its time is over, though the process that started it be gone: an expression that backtracks
without end lets no Python run that could notice.
"""

from __future__ import annotations

import json
import signal
import sys
from dataclasses import asdict
from typing import Any

from agent_session.search.answering import answer
from agent_session.search.requests import REQUESTS, RequestError


def main() -> None:
    asked = json.loads(sys.stdin.buffer.read())
    signal.setitimer(signal.ITIMER_REAL, asked["seconds"])  # not handled: the signal itself ends the process
    said: dict[str, Any]
    try:
        said = asdict(answer(REQUESTS[asked["kind"]](**asked["request"])))
    except RequestError as error:
        said = {"error": str(error)}
    sys.stdout.write(json.dumps(said))


if __name__ == "__main__":
    main()
