"""`agent-session`: from the arguments to what was asked for, and from what went wrong to a sentence and an exit code.

The rule it keeps: what a command needs is imported when it was asked for, so that `--help` comes at once.
"""

from __future__ import annotations

import os
import sys
import warnings
from argparse import Namespace
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from agent_session.cli.arguments import options_of, parse

PROGRAM = "agent-session"


def main(arguments: list[str] | None = None) -> int:
    """Do what the arguments say; the exit code, as `--help` lists them."""
    given = parse(arguments)
    try:
        warnings.showwarning = _show_warning
        with ExitStack() as stack:
            log_file = getattr(given, "log_file", None) or os.environ.get("AGENT_SESSION_LOG")
            if log_file:
                from agent_session.logs import configure_file_log  # noqa: PLC0415 - see the rule

                stack.enter_context(configure_file_log(log_file))
            return _obey(given)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # Nobody reads any more. Python would say so once more when it flushes at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 1
    except Exception as error:
        from agent_session.cli import failures  # noqa: PLC0415 - see the rule

        cause = failures.alone(error)
        if not isinstance(cause, failures.EXPECTED):
            raise
        from agent_session.logs import get_logger  # noqa: PLC0415 - see the rule

        get_logger().exception("cli.failed")
        _say(failures.explained(cause))
        return failures.exit_code(cause)


def _obey(given: Namespace) -> int:
    cwd = Path.cwd()
    match given.command:
        case _ if given.version:
            from importlib.metadata import version  # noqa: PLC0415 - see the rule

            print(PROGRAM, version("agent-session-runtime"))  # noqa: T201 - what was asked for
            return 0
        case "demo":
            from agent_session.demo.__main__ import main as demonstrate  # noqa: PLC0415 - see the rule

            return demonstrate(["--picture", given.picture] if given.picture else [])
        case "sessions":
            from agent_session.cli.sessions import list_sessions, show_session  # noqa: PLC0415 - see the rule

            if given.action == "list":
                list_sessions(cwd, is_all=given.all, is_json=given.json)
            else:
                show_session(given.session, cwd, is_json=given.json)
            sys.stdout.flush()
            return 0
        case "run":
            return _run(given, cwd)
        case _:
            import anyio  # noqa: PLC0415 - see the rule

            from agent_session.cli.interactive import interact  # noqa: PLC0415 - see the rule

            return anyio.run(partial(interact, options_of(given), cwd))


def _run(given: Namespace, cwd: Path) -> int:
    import anyio  # noqa: PLC0415 - see the rule

    from agent_session.cli.failures import UsageError  # noqa: PLC0415 - see the rule
    from agent_session.cli.one_prompt import Prompt, run_as_json, run_as_text  # noqa: PLC0415 - see the rule
    from agent_session.cli.streams import piped_text  # noqa: PLC0415 - see the rule

    prompt = Prompt(given=(given.prompt or "").strip(), piped=piped_text())
    if not prompt.text:
        raise UsageError("nothing to say: give -p TEXT, or text on standard input")
    run = run_as_json if given.json else run_as_text
    return anyio.run(partial(run, options_of(given), cwd, prompt))


def _show_warning(message: Warning | str, *_where: object, **_how: object) -> None:
    """A warning is for a person; where in the program it was raised is not."""
    _say(f"warning: {message}")


def _say(text: str) -> None:
    print(f"{PROGRAM}: {text}", file=sys.stderr)  # noqa: T201 - for a person
