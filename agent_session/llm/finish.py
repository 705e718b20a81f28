"""Why an answer ended: the providers' words in the log's.

A reason nobody knows ends the turn like `stop`; it is never an error and never a reason to go on. The
provider's own word stays in `Finish.raw`, where `is_known_finish` and `is_overflow_finish` read it.
"""

from __future__ import annotations

from typing import Final

_STOP_REASONS: Final = {
    "stop": "stop",
    "end_turn": "stop",
    "stop_sequence": "stop",
    "pause_turn": "stop",
    "eos": "stop",
    "completed": "stop",
    "length": "length",
    "max_tokens": "length",
    "max_output_tokens": "length",
    "model_length": "length",
    "model_context_window_exceeded": "length",
    "tool_calls": "toolUse",
    "tool_use": "toolUse",
    "function_call": "toolUse",
    "content_filter": "refusal",
    "refusal": "refusal",
    "safety": "refusal",
}

_OVERFLOW_FINISH: Final = frozenset({"model_context_window_exceeded", "model_length"})


def stop_reason_for(raw: str, *, has_tool_calls: bool) -> str:
    """The log's stop reason for a provider's finish reason; an empty `raw` is a plain stop.

    Some servers say `stop` after a tool call: that is a `toolUse`. A tool call in front of a reason that is not
    known is not one, since nothing says that the call is whole.
    """
    reason = _STOP_REASONS.get(raw.lower(), "stop") if raw else "stop"
    if reason == "stop" and has_tool_calls and (not raw or is_known_finish(raw)):
        return "toolUse"
    return reason


def is_known_finish(raw: str) -> bool:
    """Whether the finish reason is one this library has a word for; the empty one is."""
    return not raw or raw.lower() in _STOP_REASONS


def is_overflow_finish(raw: str) -> bool:
    """Whether a finish reason says that the window was full."""
    return raw.lower() in _OVERFLOW_FINISH
