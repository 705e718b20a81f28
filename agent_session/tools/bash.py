"""`bash`: a command in the session's folder."""

from __future__ import annotations

import errno
import signal
from functools import partial
from typing import Annotated

import anyio.to_thread
from pydantic import BaseModel, ConfigDict, Field

from agent_session.errors import ToolError
from agent_session.tools.output import MAX_BYTES, MAX_LINES, bound
from agent_session.tools.shell import CommandOutcome, run_command
from agent_session.tools.types import Tool, ToolContext, ToolResult
from session_store.json_lines import replace_surrogates


class BashArguments(BaseModel):
    model_config = ConfigDict(extra="forbid")

    command: Annotated[str, Field(description="The command, run by bash in the working folder, its stdin empty")]
    timeout: Annotated[
        float | None,
        Field(gt=0, allow_inf_nan=False, description="Seconds after which it is killed; without it there is no limit"),
    ] = None


async def _execute(arguments: BashArguments, context: ToolContext) -> ToolResult:
    command = replace_surrogates(arguments.command)
    if not command.strip():
        raise ToolError("the command is empty")
    try:
        outcome = await run_command(
            command, cwd=context.cwd, timeout_seconds=arguments.timeout, on_output=context.report
        )
    except ValueError as error:
        raise ToolError(f"the command could not be started: {error}") from error
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        advice = "; a very long one goes into a script file first" if error.errno == errno.E2BIG else ""
        raise ToolError(f"the command could not be started: {error.strerror}{where}{advice}") from error
    shown = await anyio.to_thread.run_sync(partial(bound, outcome.output, context.blobs, keep="tail"))
    output = shown.text.rstrip("\n")
    return ToolResult(
        "\n\n".join(part for part in (output, _ending(outcome, arguments.timeout)) if part),
        details={
            "exitCode": outcome.exit_code,
            "timedOut": outcome.is_timed_out,
            "durationMs": round(outcome.duration * 1000),
            "truncated": shown.cut.is_cut,
            "fullOutputPath": str(shown.full_text) if shown.full_text is not None else None,
        },
        is_error=outcome.exit_code != 0,
    )


def _ending(outcome: CommandOutcome, timeout: float | None) -> str:
    if outcome.exit_code is None:
        return f"[killed after its timeout of {timeout:g} seconds, with all that it had started]"
    ended = f"exit code {outcome.exit_code}"
    if outcome.exit_code < 0:
        ended = f"killed by {_signal_name(-outcome.exit_code)}"
    if outcome.is_in_background:
        ended += "; processes of it still run in the background, and what they print from now on is lost"
    return f"[{ended}]"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


BASH = Tool(
    name="bash",
    description=(
        f"Run a shell command; stdout and stderr come together, with the exit code. Of more than {MAX_LINES} lines or "
        f"{MAX_BYTES // 1024} KB the end is shown, and all of it kept in a file. Start what is to go on running in the "
        "background, its output in a file."
    ),
    parameters=BashArguments,
    execute=_execute,
    execution_mode="sequential",  # what a command reads and changes cannot be known
)
