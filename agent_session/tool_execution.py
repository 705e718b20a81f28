"""Running the calls of one answer.

Two phases, so that a refusal of the last call comes before the first side effect: every call is looked up,
validated and put to `tool_call` in the order the model made them; then they run, in parallel unless a tool is
sequential (it runs alone, and those after it wait). Each result is saved when it is done; the context shows them in
call order. One tool's failure is its own: siblings go on.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import anyio

from agent_session.errors import ToolError
from agent_session.events import ToolExecutionEnd, ToolExecutionStart, ToolExecutionUpdate, Warning
from agent_session.hooks import ToolCallEvent, ToolResultEvent
from agent_session.parts import Parts
from agent_session.tools.calling import as_result, validate, validate_call
from agent_session.tools.types import Confirm, Tool, ToolContext, ToolResult
from session_store.ids import now_ms
from session_store.messages import AssistantMessage, ToolCall, ToolResultMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchResult:
    """Results in call order. `is_final`: every tool of the batch said that the run is over."""

    results: tuple[ToolResultMessage, ...]
    is_final: bool


@dataclass(slots=True)
class _Prepared:
    call: ToolCall
    arguments: dict[str, Any]
    tool: Tool | None = None
    validated: Any = None
    refusal: str | None = None


async def run_calls(parts: Parts, answer: AssistantMessage) -> BatchResult:
    """Run all calls of `answer` and record their results."""
    prepared = [await _prepare(parts, call, answer.stop_reason) for call in answer.tool_calls]
    done: dict[str, tuple[ToolResultMessage, bool]] = {}

    errors: list[Exception] = []

    async def run_one(item: _Prepared) -> None:
        # A log that refuses is the session's error, not one for siblings to be cancelled by.
        try:
            done[item.call.id] = await _run(parts, item)
        except Exception as error:  # noqa: BLE001 - raised below
            errors.append(error)

    for is_sequential, batch in groupby(prepared, key=_is_sequential):
        if is_sequential:
            for item in batch:
                await run_one(item)
        else:
            async with anyio.create_task_group() as tasks:
                for item in batch:
                    tasks.start_soon(run_one, item)
    if errors:
        raise errors[0]
    results = [done[call.id] for call in answer.tool_calls]
    return BatchResult(
        results=tuple(message for message, _ in results),
        is_final=bool(results) and all(is_last for _, is_last in results),
    )


def _is_sequential(item: _Prepared) -> bool:
    return item.tool is not None and item.tool.execution_mode == "sequential"


async def _prepare(parts: Parts, call: ToolCall, stop_reason: str) -> _Prepared:
    item = _Prepared(call, call.arguments)
    if stop_reason == "length":
        item.refusal = "not run: the answer was cut off at the output limit, so the arguments may be incomplete"
        return item
    registry = parts.shape.registry
    if call.name not in parts.shape.active_tools:
        item.refusal = f"there is no tool {call.name!r}; available: {', '.join(parts.shape.active_tools)}"
        return item
    item.tool = registry.get(call.name)
    try:
        item.validated = validate_call(item.tool, call)
    except ToolError as error:
        item.refusal = str(error)
        return item
    event = await parts.dispatcher.decide(ToolCallEvent(call_id=call.id, tool_name=call.name, arguments=call.arguments))
    if event.block is not None:
        item.refusal = f"blocked: {event.block.reason}"
    elif event.arguments != call.arguments:
        item.arguments = event.arguments
        try:
            item.validated = validate(item.tool, event.arguments)
        except ToolError as error:
            item.refusal = f"an extension ({event.decided_by}) changed the arguments, and they are not valid: {error}"
    return item


async def _run(parts: Parts, item: _Prepared) -> tuple[ToolResultMessage, bool]:
    # The last look before a side effect: an abort that came meanwhile wins.
    await anyio.lowlevel.checkpoint_if_cancelled()
    call, notify = item.call, parts.dispatcher.notify
    await notify(ToolExecutionStart(call_id=call.id, tool_name=call.name, arguments=item.arguments))
    started = time.monotonic()
    result = ToolResult("interrupted", is_error=True)
    try:
        if item.refusal is not None:
            result = ToolResult(item.refusal, is_error=True)
        else:
            result = await _execute(parts, item)
    finally:
        with anyio.CancelScope(shield=True):
            await notify(
                ToolExecutionEnd(
                    call_id=call.id,
                    tool_name=call.name,
                    content=result.blocks,
                    is_error=result.is_error,
                    duration=time.monotonic() - started,
                    details=result.details,
                )
            )
    return await _record(parts, item, result), result.terminate


async def _execute(parts: Parts, item: _Prepared) -> ToolResult:
    call, tool = item.call, item.tool
    assert tool is not None

    def report(text: str) -> None:
        parts.dispatcher.report(ToolExecutionUpdate(call_id=call.id, tool_name=call.name, text=text))

    context = ToolContext(
        call_id=call.id,
        cwd=parts.cwd,
        session_id=parts.manager.session_id,
        blobs=parts.manager.blobs,
        deps=parts.deps,
        report=report,
        context_usage=lambda: parts.meter.usage(parts.settings().compaction),
        confirm=_confirm_for(parts, call.name),
    )
    try:
        return as_result(await tool.execute(item.validated, context))
    except ToolError as error:
        return ToolResult(str(error) or type(error).__name__, is_error=True)
    except Exception as error:
        parts.log.exception("tool.failed", tool=call.name, call_id=call.id)
        return ToolResult(f"the tool {call.name} failed: {type(error).__name__}: {error}", is_error=True)


def _confirm_for(parts: Parts, tool_name: str) -> Confirm:
    async def confirm(title: str, detail: str = "", /, *, default: bool = False) -> bool:
        if parts.interaction is not None:
            return bool(await parts.interaction.confirm(title, detail, default))
        if "person" not in parts.warned:
            parts.warned.add("person")
            parts.dispatcher.report(
                Warning(
                    text=f"the tool {tool_name} turned to a person ({title!r}) and there is none: the default is "
                    "taken, now and for whatever else tools ask; give AgentSession an `interaction`"
                )
            )
        return default

    return confirm


async def _record(parts: Parts, item: _Prepared, result: ToolResult) -> ToolResultMessage:
    call = item.call
    event = ToolResultEvent(
        call_id=call.id,
        tool_name=call.name,
        arguments=item.arguments,
        content=result.blocks,
        details=result.details,
        is_error=result.is_error,
    )
    try:
        event = await parts.dispatcher.decide(event, tell=False)
        entry = await parts.recorder.record(_message(event), result=event)
    except anyio.get_cancelled_exc_class():
        # The tool has run: its result is kept, undecided, unless the append was reached.
        if not _is_recorded(parts, call.id):
            with anyio.CancelScope(shield=True):
                await parts.recorder.store(_message(event), result=event)
        raise
    assert isinstance(entry.message, ToolResultMessage)
    return entry.message


def _message(event: ToolResultEvent) -> ToolResultMessage:
    return ToolResultMessage(
        tool_call_id=event.call_id,
        tool_name=event.tool_name,
        content=event.content,
        details=event.details,
        is_error=event.is_error,
        timestamp=now_ms(),
    )


def recorded_results(parts: Parts, answer_id: str) -> tuple[ToolResultMessage, ...]:
    """The recorded results of the answer that is this entry, in call order; fewer than its calls after an abort."""
    results: dict[str, ToolResultMessage] = {}
    for item in reversed(parts.manager.projection.messages):
        if isinstance(item.message, ToolResultMessage):
            results[item.message.tool_call_id] = item.message
        elif item.entry.id == answer_id and isinstance(item.message, AssistantMessage):
            return tuple(results[call.id] for call in item.message.tool_calls if call.id in results)
    return ()


def _is_recorded(parts: Parts, call_id: str) -> bool:
    for item in reversed(parts.manager.projection.messages):
        message = item.message
        if isinstance(message, ToolResultMessage) and message.tool_call_id == call_id:
            return True
        if isinstance(message, AssistantMessage):
            return False
    return False
