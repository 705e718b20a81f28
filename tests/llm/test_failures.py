"""Error bodies: their words at any depth, their waiting times, and no keys."""

import json
from datetime import UTC, datetime
from email.utils import format_datetime

import pytest

from agent_session.errors import (
    ContextOverflowError,
    MissingCredentialsError,
    ModelError,
    ModelRequestError,
    RateLimitError,
)
from agent_session.llm.failures import error_from, read_refusal, retry_after_seconds


def error_with(status: int, body: str | bytes, **headers: str) -> ModelError:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return error_from(read_refusal(status, body), model_id="any/model", now=1_000.0, headers=named)


def test_words_wrapped_twice_as_json_in_a_string_are_read() -> None:
    upstream = json.dumps({"error": {"message": "prompt is too long: 213462 tokens > 200000 maximum"}})
    wrapped = json.dumps({"error": {"message": "Upstream failed", "raw": json.dumps({"body": upstream})}})
    error = error_with(400, wrapped)
    assert isinstance(error, ContextOverflowError)
    assert (error.limit, error.requested) == (200_000, 213_462)


# Mutation: `_NESTING = 0`.
def test_a_code_wrapped_twice_is_a_code() -> None:
    upstream = json.dumps({"error": {"message": "refused", "code": "context_length_exceeded"}})
    wrapped = json.dumps({"error": {"message": "Upstream failed", "raw": json.dumps({"body": upstream})}})
    assert error_with(400, wrapped).kind == "overflow"


def test_a_body_in_a_list_is_read_as_well() -> None:
    assert (
        error_with(400, '[{"error": {"code": 400, "message": "Input is too long", "status": "X"}}]').kind == "overflow"
    )


@pytest.mark.parametrize("body", [b"", b"\xff\xfe\x00", b"{broken", b"null", b"[]", b'{"error": null}', b'"text"'])
def test_any_body_gives_an_error_with_its_status(body: bytes) -> None:
    error = error_with(418, body)
    assert error.kind == "bad_request"
    assert error.status == 418


# Mutation: raise `ModelRequestError` for everything.
@pytest.mark.parametrize(
    ("status", "message", "expected"),
    [
        (400, "prompt is too long: 2 tokens > 1 maximum", ContextOverflowError),
        (413, "Request Entity Too Large", ContextOverflowError),
        (429, "slow down", RateLimitError),
        (401, "Incorrect API key provided", MissingCredentialsError),
        (500, "oops", ModelRequestError),
    ],
)
def test_the_class_follows_the_kind(status: int, message: str, expected: type[ModelError]) -> None:
    assert type(error_with(status, json.dumps({"error": {"message": message}}))) is expected


# Mutation: leave the secret in.
def test_a_key_that_the_provider_repeats_is_in_no_text() -> None:
    body = json.dumps({"error": {"message": "Incorrect API key provided: sk-secret-123"}})
    error = error_from(read_refusal(401, body, secret="sk-secret-123"), model_id="any/model", now=0)
    assert "sk-secret-123" not in f"{error} {error.body} {error!r} {vars(error)}"
    assert "[key]" in str(error)


# Mutation: take the status of the answer only.
def test_a_status_named_in_the_body_counts_where_the_answer_had_none() -> None:
    assert error_with(200, '{"error": {"code": 429, "message": "slow down"}}').kind == "rate"
    assert error_with(200, '{"error": {"code": "503", "message": "later"}}').kind == "server"
    assert error_with(200, '{"error": {"message": "it broke"}}').kind == "server"
    assert error_with(200, '{"error": {"type": "invalid_request_error", "message": "no"}}').kind == "bad_request"
    assert error_with(400, '{"error": {"code": 503, "message": "no"}}').kind == "bad_request"


@pytest.mark.parametrize(
    ("headers", "body", "expected"),
    [
        ({"retry-after": "7"}, "", 7.0),
        ({"retry-after": "0.5"}, "", 0.5),
        ({"retry-after": "-3"}, "", 0.0),
        ({"retry-after": "soon"}, "", None),
        ({"retry-after": "nan"}, "", None),
        ({"retry-after-ms": "1500", "retry-after": "9"}, "", 1.5),
        ({"retry-after": format_datetime(datetime(2030, 1, 1, 0, 1, 40, tzinfo=UTC), usegmt=True)}, "", 100.0),
        ({}, "Please try again in 1.25s.", 1.25),
        ({}, "Please try again in 20ms", 0.02),
        ({}, "please retry after 2 minutes", 120.0),
        ({}, '{"retryDelay": "34s"}', 34.0),
        ({}, "no idea", None),
    ],
)
def test_a_waiting_time_is_read_from_headers_and_words(
    headers: dict[str, str], body: str, expected: float | None
) -> None:
    now = datetime(2030, 1, 1, tzinfo=UTC).timestamp()
    found = retry_after_seconds(headers, body, now=now)
    assert found == (None if expected is None else pytest.approx(expected))


# Mutation: give the waiting time instead of the moment.
def test_the_error_says_when_to_come_back() -> None:
    assert error_with(429, "{}", retry_after="1000000").retry_at == 1_001_000.0


def test_a_long_body_is_cut() -> None:
    error = error_with(500, "x" * 100_000)
    assert len(str(error)) < 1_000
    assert error.body is not None
    assert len(error.body) <= 4_000


def test_advice_goes_on_from_what_the_provider_said() -> None:
    # Mutation: in `error_from` leave the provider's full stop in front of the semicolon.
    error = error_with(400, '{"error": {"message": "prompt is too long: 2 tokens > 1 maximum."}}')
    assert "1 maximum; compact the session" in str(error)
