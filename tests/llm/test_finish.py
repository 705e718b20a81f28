"""Why an answer ended."""

import pytest

from agent_session.llm.finish import is_known_finish, is_overflow_finish, stop_reason_for


# Mutation: map an unknown reason to itself, or to `toolUse`.
@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("stop", "stop"),
        ("length", "length"),
        ("tool_calls", "toolUse"),
        ("function_call", "toolUse"),
        ("content_filter", "refusal"),
        ("model_context_window_exceeded", "length"),
        ("model_length", "length"),
        ("MAX_TOKENS", "length"),
        ("abort", "stop"),
        ("foo", "stop"),
        ("", "stop"),
    ],
)
def test_a_finish_reason_becomes_the_logs_word_and_an_unknown_one_ends_the_turn(raw: str, expected: str) -> None:
    assert stop_reason_for(raw, has_tool_calls=False) == expected


# Mutation: drop the check of `is_known_finish`.
def test_calls_make_a_tool_use_of_a_plain_stop_but_not_of_an_unknown_reason_or_a_length() -> None:
    assert stop_reason_for("stop", has_tool_calls=True) == "toolUse"
    assert stop_reason_for("", has_tool_calls=True) == "toolUse"
    assert stop_reason_for("foo", has_tool_calls=True) == "stop"
    assert stop_reason_for("length", has_tool_calls=True) == "length"


def test_unknown_reasons_can_be_told_from_known_ones() -> None:
    assert is_known_finish("stop")
    assert is_known_finish("")
    assert not is_known_finish("foo")


# Mutation: compare case-sensitively, or leave one of the two out.
def test_two_reasons_say_that_the_window_was_full() -> None:
    assert is_overflow_finish("model_context_window_exceeded")
    assert is_overflow_finish("MODEL_LENGTH")
    assert not is_overflow_finish("length")
    assert not is_overflow_finish("")
