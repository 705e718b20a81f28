#!/usr/bin/env python
"""How far the estimate of tokens is from what real encoders count, against its goals.

    python scripts/bench/token_estimate.py

A table of texts: what cl100k and o200k make of each, our estimate and how far it is off from both, beside the rules
"four characters a token" and "four bytes a token", which other agents use, and the processor's time for a million
characters. Then a session: how far the size of its context is off once its provider has reported usage three times.
Ends with 1 past a goal. Needs tiktoken, which litellm brings along with the files of both encoders; nothing is fetched.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from agent_session import AgentSession, Model, estimate_chars_as_tokens  # noqa: E402 - found below ROOT
from agent_session.compaction.text_tokens import estimate_text_tokens  # noqa: E402
from scripts.bench.token_rows import ROWS, Row, real_session_texts  # noqa: E402
from session_store import AssistantMessage, SessionManager, TextContent, Usage, UserMessage  # noqa: E402

LEAST_SHARE = 0.8
MOST_MEDIAN_ERROR = 0.15
MOST_MILLISECONDS = 10.0
MOST_ERROR_AFTER_REPORTS = 0.05
REPORTS = 3
TIMED_CHARS = 1_000_000
RUNS = 9

_ENCODERS = ("cl100k_base", "o200k_base")


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    row: Row
    truths: tuple[int, ...]
    ours: int
    milliseconds: float

    @property
    def lowest_share(self) -> float:
        return self.ours / max(self.truths)

    def error(self, encoder: int, estimate: int | None = None) -> float:
        return abs((self.ours if estimate is None else estimate) / self.truths[encoder] - 1)


def main() -> int:
    encoders = [encoder(name) for name in _ENCODERS]
    rows = [*ROWS, Row(name="a session", text="\n".join(real_session_texts()))]
    counted = [count(row, encoders) for row in rows]
    console = Console()
    console.print(table_of(counted))
    failures = [*failures_of(counted), *session_failures(encoders, console)]
    for failure in failures:
        console.print(f"PAST A GOAL: {failure}", style="bold red")
    return 1 if failures else 0


def encoder(name: str) -> Callable[[str], int]:
    litellm = importlib.util.find_spec("litellm")
    if litellm is None or not litellm.submodule_search_locations:
        raise SystemExit("litellm is not installed: run scripts/setup")
    folder = Path(litellm.submodule_search_locations[0]) / "litellm_core_utils" / "tokenizers"
    os.environ["TIKTOKEN_CACHE_DIR"] = str(folder)
    tiktoken: Any = importlib.import_module("tiktoken")
    encoding = tiktoken.get_encoding(name)
    return lambda text: len(encoding.encode(text, disallowed_special=()))


def count(row: Row, encoders: Sequence[Callable[[str], int]]) -> Counted:
    timed = (row.text * (TIMED_CHARS // len(row.text) + 1))[:TIMED_CHARS]
    return Counted(
        row=row,
        truths=tuple(encode(row.text) for encode in encoders),
        ours=estimate_text_tokens(row.text),
        milliseconds=1000 * min(seconds(timed) for _ in range(RUNS)),
    )


def seconds(text: str) -> float:
    began = process_time()
    estimate_text_tokens(text)
    return process_time() - began


def table_of(counted: Sequence[Counted]) -> Table:
    table = Table(title="tokens, and how far the estimates are off from cl100k / o200k")
    for heading in (
        "text",
        "characters",
        *_ENCODERS,
        "ours",
        "ours off by",
        "4 chars off by",
        "4 bytes off by",
        "ms / 1M",
    ):
        table.add_column(heading, justify="left" if heading == "text" else "right", no_wrap=True)
    for item in counted:
        text = item.row.text
        four_chars, four_bytes = estimate_chars_as_tokens(text), -(-len(text.encode()) // 4)
        off = (item.ours, four_chars, four_bytes)
        table.add_row(
            item.row.name,
            f"{len(text):,}",
            *(f"{truth:,}" for truth in item.truths),
            f"{item.ours:,}",
            *(" / ".join(f"{100 * (estimate / truth - 1):+.0f} %" for truth in item.truths) for estimate in off),
            f"{item.milliseconds:.1f}",
        )
    return table


def failures_of(counted: Sequence[Counted]) -> list[str]:
    judged = [item for item in counted if not item.row.is_one_symbol]
    low = [item for item in judged if item.lowest_share < LEAST_SHARE]
    failures = [f"{item.row.name}: {item.lowest_share:.2f} of the truth, {LEAST_SHARE} at least" for item in low]
    for number, name in enumerate(_ENCODERS):
        middle = median(item.error(number) for item in judged)
        print(f"median error to {name}: {100 * middle:.1f} % (goal: under {100 * MOST_MEDIAN_ERROR:.0f} %)")
        if middle >= MOST_MEDIAN_ERROR:
            failures.append(f"median error to {name}: {100 * middle:.1f} %")
    slow = [item for item in judged if item.row.is_latin and item.milliseconds >= MOST_MILLISECONDS]
    return failures + [f"{item.row.name}: {item.milliseconds:.1f} ms for a million characters" for item in slow]


def session_failures(encoders: Sequence[Callable[[str], int]], console: Console) -> list[str]:
    """A session whose provider counts with a real encoder: before each request after the third report, how far off."""
    failures: list[str] = []
    for name, encode in zip(_ENCODERS, encoders, strict=True):
        errors = errors_after_reports(encode)
        console.print(
            f"a session counted by {name}, {len(errors)} requests after its third report: "
            f"off by {100 * median(errors):.1f} % in the middle, {100 * max(errors):.1f} % at most; "
            f"19 of 20 by {100 * (most := sorted(errors)[len(errors) * 19 // 20]):.1f} % at most "
            f"(goal: under {100 * MOST_ERROR_AFTER_REPORTS:.0f} %)"
        )
        if most >= MOST_ERROR_AFTER_REPORTS:
            failures.append(f"after {REPORTS} reports of {name} the context is off by {100 * most:.1f} %")
    return failures


def errors_after_reports(encode: Callable[[str], int]) -> list[float]:
    prompt = "You are a coding agent."
    manager = SessionManager.in_memory()
    session = AgentSession(
        Model("openai/scripted", context_window=2_000_000), session_manager=manager, tools=[], system_prompt=prompt
    )
    framing, truth = 4, encode(prompt) + 4
    errors: list[float] = []
    for reports, text in enumerate(real_session_texts()):
        manager.append_message(UserMessage(content=(TextContent(text),), timestamp=0))
        truth += encode(text) + framing
        if reports >= REPORTS:
            errors.append(abs(session.context_usage().tokens / truth - 1))
        answer = "Done; the next step follows."
        usage = Usage(input=truth, output=encode(answer) + framing)
        content = (TextContent(answer),)
        manager.append_message(
            AssistantMessage(content=content, provider="openai", model="scripted", stop_reason="stop", usage=usage)
        )
        session.context_usage()
        truth += usage.output
    return errors


if __name__ == "__main__":
    sys.exit(main())
