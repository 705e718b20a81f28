"""What can be said on the command line.

The rule it keeps: nothing but argparse and what it needs is imported here, so that `--help` comes at once.
"""

from __future__ import annotations

import argparse
import re
import shlex
import sys
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, TypeAlias

# `add_parser` of argparse's subparsers has no public type.
Subparsers: TypeAlias = Any

EXIT_CODES = """\
exit codes:
  0    done
  1    the model, a compaction, the session's file or a promise of the demonstration failed
  2    the command line, a setting or the name of a session is wrong
  3    no model, or no key for it
  130  aborted with Ctrl-C (143 by SIGTERM)
"""

ENVIRONMENT = """\
environment:
  AGENT_SESSION_MODEL     the model where none is given: provider/name
  <PROVIDER>_API_KEY      its key, for example OPENAI_API_KEY
  <PROVIDER>_BASE_URL     its address, where it is not the provider's own
  AGENT_SESSION_DIR       where sessions are kept (~/.agent-session/sessions)
  AGENT_SESSION_LOG       a log file, as --log-file
  NO_COLOR                no colours; pipes and TERM=dumb get plain lines without control codes
"""


_MOST_TOKENS = 1_000_000_000

COMMANDS = ("run", "sessions", "demo")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a session is opened with. `resume`: "latest", an id or a path; None for a new one."""

    model: str | None = None
    base_url: str | None = None
    context_window: int | None = None
    thinking_level: str | None = None
    resume: str | None = None
    is_stored: bool = True
    extensions: tuple[str, ...] = ()


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The arguments; `command` is None for the interactive session. Help, and what is wrong, end the process."""
    parser = _parser()
    _refuse_unknown(parser, sys.argv[1:] if arguments is None else arguments)
    given = parser.parse_args(arguments)
    if words := getattr(given, "misplaced", None):
        given.refuse(f"the prompt goes after -p: agent-session run -p {shlex.quote(' '.join(words))}")
    return given


def _refuse_unknown(parser: argparse.ArgumentParser, arguments: list[str]) -> None:
    """Name an option that does not exist: argparse would take its value for a command, and complain of that."""
    known = ["--help", *re.findall(r"--[a-z-]+", parser.format_usage())]
    for argument in takewhile(lambda argument: argument not in COMMANDS, arguments):
        name = argument.partition("=")[0]
        if re.fullmatch(r"--[a-z-]+", name) and not any(option.startswith(name) for option in known):
            from difflib import get_close_matches  # noqa: PLC0415 - for who mistyped

            near = get_close_matches(name, known, n=1)
            parser.error(f"there is no option {name}" + (f"; did you mean {near[0]}?" if near else ""))


def options_of(arguments: argparse.Namespace) -> Options:
    """What of the arguments a session is opened with."""
    given = vars(arguments)
    return Options(
        model=given.get("model"),
        base_url=given.get("base_url"),
        context_window=given.get("context_window"),
        thinking_level=given.get("thinking"),
        resume=given.get("resume"),
        is_stored=not given.get("no_session", False),
        extensions=tuple(given.get("extension", ())),
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="agent-session",
        description="A coding agent in a session that compacts itself, survives and resumes. Without a command: an "
        "interactive session in this folder.",
        epilog=f"{EXIT_CODES}\n{ENVIRONMENT}\nagent-session demo shows a session at work, without a key and without "
        "a network.\npython -m agent_session is another program: a Python prompt with a session at hand.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="store_true", help="say which version this is")
    # SUPPRESS: what is given before the command must not be overwritten by what is not given after it.
    _add_log_option(parser)
    _add_session_options(parser)
    commands: Subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    _add_run(commands)
    _add_sessions(commands)
    demo = commands.add_parser(
        "demo", help="show a session at work, offline", description="Show a session at work, offline."
    )
    demo.add_argument("--picture", metavar="FILE", help="save a picture of it, as SVG, instead of showing it")
    _add_log_option(demo)
    return parser


def _add_run(commands: Subparsers) -> None:
    run = commands.add_parser(
        "run",
        help="one prompt, then leave",
        description="One prompt, until it has settled. The answer goes to standard output, what the agent does on the "
        "way to standard error where standard output is no terminal.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    run.add_argument(
        "-p", "--prompt", metavar="TEXT", help="the prompt; text on standard input is added to it, or is it"
    )
    run.add_argument("misplaced", nargs="*", help=argparse.SUPPRESS)
    run.set_defaults(refuse=run.error)
    run.add_argument("--json", action="store_true", help="events as JSONL on standard output, and nothing else there")
    _add_session_options(run)
    _add_log_option(run)


def _add_sessions(commands: Subparsers) -> None:
    sessions = commands.add_parser("sessions", help="what sessions there are", description="What sessions there are.")
    actions: Subparsers = sessions.add_subparsers(dest="action", metavar="ACTION", title="actions", required=True)
    listing = actions.add_parser("list", help="the sessions of this folder, newest first")
    listing.add_argument("--all", action="store_true", help="of all folders")
    show = actions.add_parser("show", help="what was said in one, and what it cost")
    show.add_argument("session", metavar="SESSION", help="its id, a beginning of it, its path, or latest")
    for action in (listing, show):
        action.add_argument("--json", action="store_true", help="as JSONL")
        _add_log_option(action)


def _add_session_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("session")
    group.add_argument("--model", metavar="ID", default=argparse.SUPPRESS, help="provider/name, as openai/gpt-5-mini")
    group.add_argument(
        "--base-url",
        metavar="URL",
        type=_address,
        default=argparse.SUPPRESS,
        help="where the model's provider is, as its _BASE_URL",
    )
    group.add_argument(
        "--context-window",
        metavar="TOKENS",
        type=_tokens,
        default=argparse.SUPPRESS,
        help="what the model takes, where nothing is known of it or something else than is known",
    )
    group.add_argument(
        "--thinking",
        metavar="LEVEL",
        choices=["off", "minimal", "low", "medium", "high", "xhigh", "max"],
        default=argparse.SUPPRESS,
        help="off, minimal, low, medium, high, xhigh or max",
    )
    kept = group.add_mutually_exclusive_group()
    kept.add_argument(
        "--resume",
        metavar="SESSION",
        nargs="?",
        const="latest",
        default=argparse.SUPPRESS,
        help="go on with a session: its id, a beginning of it, or its path; the newest of this folder without one",
    )
    kept.add_argument(
        "--no-session", action="store_true", default=argparse.SUPPRESS, help="keep nothing: the session is in memory"
    )
    group.add_argument(
        "--extension",
        metavar="NAME",
        action="append",
        default=argparse.SUPPRESS,
        help="load an extension: a shipped name, a module or a file; may be given again",
    )


def _address(text: str) -> str:
    if not text.startswith(("http://", "https://")):
        raise argparse.ArgumentTypeError(f"{text!r} does not begin with http:// or https://")
    return text


def _tokens(text: str) -> int:
    """`128000`, `128,000`, `128k`, `1.5M`."""
    found = re.fullmatch(r"(\d{1,12}(?:\.\d{1,6})?)([km]?)", text.replace(",", "").replace("_", "").lower(), re.ASCII)
    tokens = round(float(found[1]) * {"": 1, "k": 1_000, "m": 1_000_000}[found[2]]) if found else 0
    if not 0 < tokens <= _MOST_TOKENS:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of tokens, as 128000 or 128k")
    return tokens


def _add_log_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--log-file", metavar="FILE", default=argparse.SUPPRESS, help="write a log, one JSON a line")
