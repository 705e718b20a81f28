"""What to do after an answer: pure, without a clock or a session."""

from __future__ import annotations

from typing import Literal, TypeAlias

from agent_session.errors import ContextOverflowError, ModelError
from session_store.messages import AssistantMessage

Verdict: TypeAlias = Literal["ok", "exceeded", "overflow", "failed"]

LENGTH_OVERFLOW_SHARE = 0.99


def judge(message: AssistantMessage, error: ModelError | None, window: int) -> Verdict:
    """`ok`; `exceeded`: a good answer to more input than the window, kept, compacted afterwards; `overflow`: the
    attempt is void, compact and retry; `failed`: any other error.
    """
    if error is not None:
        return "overflow" if isinstance(error, ContextOverflowError) else "failed"
    usage = message.usage
    sent = usage.input + usage.cache_read + usage.cache_write
    if not usage.is_reported:
        return "ok"
    is_cut_short = message.stop_reason == "length" and usage.output == 0 and not message.content
    if is_cut_short and sent >= LENGTH_OVERFLOW_SHARE * window:
        return "overflow"
    return "exceeded" if sent > window else "ok"


def length_overflow(message: AssistantMessage, window: int) -> ContextOverflowError:
    """The error for an answer that stopped for length before its first token."""
    sent = message.usage.input + message.usage.cache_read + message.usage.cache_write
    return ContextOverflowError(
        f"the model stopped for length without an answer: {sent:,} tokens of input fill its window of {window:,}",
        kind="overflow",
        requested=sent,
        limit=window,
    )
