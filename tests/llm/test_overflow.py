"""How a refusal is understood: sizes, and what only looks like them."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from agent_session.errors import ContextOverflowError, ModelError, RateLimitError
from agent_session.llm.failures import error_from, read_refusal
from agent_session.llm.overflow import classify, is_overflow_finish

ROWS: list[dict[str, Any]] = json.loads((Path(__file__).parent / "overflow_signals.json").read_text())
FAMILY = {"request_exceeds_rate_budget": "rate", "auth": "bad_request"}


def refused(status: int, message: str, *, code: str | None = None, provider: str = "any") -> ModelError:
    body = json.dumps({"error": {"message": message, "code": code}}) if message else ""
    return error_from(read_refusal(status, body), model_id=f"{provider}/model", now=0)


def error_of(row: dict[str, Any]) -> ModelError:
    message = row["message"]
    body = message
    if message and not message.startswith("<"):
        error = {"message": message, "code": row.get("code")}
        if "upstream" in row:
            error["metadata"] = {"raw": row["upstream"]}
        body = json.dumps({"error": error})
    return error_from(read_refusal(row["status"], body), model_id=f"{row['provider']}/model", now=0)


# Mutation: drop any alternative from any pattern of the module: one of the rows fails.
@pytest.mark.parametrize(
    "row", [row for row in ROWS if "finish_reason" not in row], ids=lambda row: row["message"][:60]
)
def test_every_known_way_to_say_too_long_is_understood_and_its_look_alikes_are_not(row: dict[str, Any]) -> None:
    error = error_of(row)
    assert FAMILY.get(error.kind, error.kind) == row["cls"]
    assert (error.limit, error.requested) == (row.get("limit"), row.get("requested"))


@pytest.mark.parametrize("row", [row for row in ROWS if "finish_reason" in row], ids=lambda row: row["provider"])
def test_every_known_finish_reason_for_a_full_window_is_understood(row: dict[str, Any]) -> None:
    assert row["cls"] == "overflow"
    assert is_overflow_finish(row["finish_reason"])


# Mutation: require a limit of at least some thousands.
def test_a_range_of_input_lengths_is_an_overflow_with_its_end_as_the_limit() -> None:
    error = refused(400, "Range of input length should be [1, 1000]")
    assert isinstance(error, ContextOverflowError)
    assert error.limit == 1_000


# Mutation: let "exceeds", "too long" or "tokens" alone make an overflow.
@pytest.mark.parametrize(
    ("status", "message", "kind"),
    [
        (400, "max_tokens must be <= 4096", "output_setting"),
        (
            400,
            "max_tokens is too large: 200000. This model supports at most 128000 completion tokens.",
            "output_setting",
        ),
        (400, "`max_tokens` must be greater than `thinking.budget_tokens`", "output_setting"),
        (400, "temperature exceeds maximum of 2", "bad_request"),
        (400, "top_p: Input should be less than or equal to 1", "bad_request"),
        (400, "Invalid 'tools': array too long. Expected an array with maximum length 128.", "bad_request"),
        (400, "Invalid 'messages[2].tool_calls[0].id': string too long. Expected maximum length 40.", "bad_request"),
        (401, "token expired or incorrect", "auth"),
        (403, "Your prompt exceeds the limit of your plan", "auth"),
        (402, "This request needs more credits", "auth"),
        (429, "You exceeded your current quota, please check your plan and billing details.", "auth"),
        (429, "Rate limit reached for gpt-x on requests per min (RPM): Limit 3, Used 3, Requested 1.", "rate"),
        (429, "prompt is too long: 10 tokens > 5 maximum", "rate"),
        (400, "Too many requests: the limit of input tokens per minute is 40000", "rate"),
        (400, "image exceeds 5 MB maximum: 6291456 bytes > 5242880 bytes", "content"),
        (400, "Could not process image", "content"),
        (400, "model not found", "bad_request"),
        (400, "messages may hold at most one system message", "bad_request"),
        (400, "this input has an unknown token type", "bad_request"),
        (404, "The model `x` does not exist", "bad_request"),
        (500, "internal error", "server"),
        (529, "Overloaded", "server"),
        (503, "<html>Service Unavailable</html>", "server"),
    ],
)
def test_words_that_overflows_use_do_not_make_one(status: int, message: str, kind: str) -> None:
    assert refused(status, message).kind == kind


@pytest.mark.parametrize(
    ("status", "message", "limit"),
    [
        (500, "the request exceeds the available context size, try increasing it", None),
        (413, "prompt is too long: 1000001 tokens > 1000000 maximum", 1_000_000),
        (
            400,
            "max_tokens is too large: 5000. The context length is 4096 tokens; with 3000 input tokens 1096 are left",
            4_096,
        ),
        (400, "The prompt is 12,345 tokens, larger than the context window of 8,192 tokens", 8_192),
        (422, "Input validation error: `inputs` must have less than 8192 tokens. Given: 9000", 8_192),
    ],
)
def test_the_shape_is_understood_in_words_nobody_listed(status: int, message: str, limit: int | None) -> None:
    error = refused(status, message)
    assert error.kind == "overflow"
    if limit is not None:
        assert error.limit == limit


# Mutation: do not compare what was requested with the budget.
def test_a_request_above_the_budget_of_a_minute_is_told_from_a_busy_minute() -> None:
    beyond = refused(413, "Request too large on tokens per minute (TPM): Limit 8000, Requested 20449, reduce it")
    assert isinstance(beyond, RateLimitError)
    assert (beyond.kind, beyond.limit, beyond.requested) == ("request_exceeds_rate_budget", 8_000, 20_449)
    busy = refused(429, "Rate limit reached on tokens per min (TPM): Limit 30000, Used 29000, Requested 2000.")
    assert busy.kind == "rate"


# Mutation: take every empty body for an overflow, or none.
def test_an_empty_body_is_an_overflow_only_where_there_is_reason_to_think_so() -> None:
    assert classify(400, "", provider="cerebras").kind == "overflow"
    assert classify(400, "", provider="any").kind == "bad_request"
    assert classify(400, "", provider="any", is_near_limit=True).kind == "overflow"
    assert classify(500, "", provider="cerebras").kind == "server"


# Mutation: try the user's patterns last.
def test_a_pattern_of_the_user_wins() -> None:
    pattern = re.compile("zu gross")
    assert classify(429, "Anfrage zu gross", patterns=[pattern]).kind == "overflow"
    assert classify(429, "Anfrage zu gross").kind == "rate"


# Mutation: count every number above the limit, however large.
def test_a_request_id_is_not_taken_for_a_size() -> None:
    text = "prompt is too long: 5 extra tokens, maximum 4096, request 9999999999 (req_77777)"
    assert classify(400, text).requested is None
