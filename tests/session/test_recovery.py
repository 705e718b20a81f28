"""What to do after an answer, decided from the answer alone."""

from __future__ import annotations

import pytest

from agent_session.errors import ContextOverflowError, ModelError, ModelRequestError, RateLimitError
from agent_session.recovery import judge, length_overflow
from session_store.messages import UNREPORTED, AssistantMessage, TextContent, Usage

WINDOW = 1_000


def answer(text: str = "Yes.", *, usage: Usage = UNREPORTED, stop_reason: str = "stop") -> AssistantMessage:
    return AssistantMessage(content=(TextContent(text),) if text else (), usage=usage, stop_reason=stop_reason)


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (ContextOverflowError("too long", kind="overflow"), "overflow"),
        (ContextOverflowError("too many bytes", kind="overflow_bytes"), "overflow"),
        (ModelRequestError("down", kind="server"), "failed"),
        (RateLimitError("too large for a minute", kind="request_exceeds_rate_budget"), "failed"),
    ],
)
def test_only_a_refusal_for_size_is_an_overflow(error: ModelError, verdict: str) -> None:
    # Mutation: take every error for an overflow, or none.
    assert judge(answer("", stop_reason="error"), error, WINDOW) == verdict


@pytest.mark.parametrize(
    ("usage", "verdict"),
    [
        (UNREPORTED, "ok"),
        (Usage(input=WINDOW, output=10), "ok"),
        (Usage(input=WINDOW + 1, output=10), "exceeded"),
        (Usage(input=1, cache_read=WINDOW, output=10), "exceeded"),
        (Usage(input=1, cache_write=WINDOW, output=10), "exceeded"),
        (Usage(input=10, output=WINDOW), "ok"),
    ],
)
def test_an_answer_to_more_input_than_the_window_is_good_and_too_large(usage: Usage, verdict: str) -> None:
    # Mutation: compare with `>=`; leave a part of the input out, or count the output in.
    assert judge(answer(usage=usage), None, WINDOW) == verdict


@pytest.mark.parametrize(
    ("message", "verdict"),
    [
        (answer("", usage=Usage(input=990), stop_reason="length"), "overflow"),
        (answer("", usage=Usage(input=500, cache_read=300, cache_write=190), stop_reason="length"), "overflow"),
        (answer("", usage=Usage(input=989), stop_reason="length"), "ok"),
        (answer("", usage=Usage(input=990), stop_reason="stop"), "ok"),
        (answer("So", usage=Usage(input=990), stop_reason="length"), "ok"),
        (answer("", usage=Usage(input=990, output=5), stop_reason="length"), "ok"),
    ],
)
def test_a_stop_for_length_is_an_overflow_only_without_an_answer_and_with_a_full_window(
    message: AssistantMessage, verdict: str
) -> None:
    # Mutation: in `judge` put `or` for an `and`, or another share.
    assert judge(message, None, WINDOW) == verdict


def test_the_overflow_of_a_stop_for_length_has_what_was_sent_and_the_window() -> None:
    # Mutation: in `length_overflow` leave out a number or a part of the input.
    usage = Usage(input=700, cache_read=200, cache_write=95)
    error = length_overflow(answer("", usage=usage, stop_reason="length"), WINDOW)
    assert (error.kind, error.requested, error.limit) == ("overflow", 995, WINDOW)
    assert str(error).startswith("the model stopped for length without an answer: 995 tokens of input fill its window")
