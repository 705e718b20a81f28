"""What litellm raises, read again: bodies, chains of causes, its own opinion. Its classes are known by name."""

from __future__ import annotations

import json
import re
from typing import Any

import httpx
import pytest

from agent_session import Model, ModelRequest
from agent_session.errors import ContextOverflowError, ModelError
from agent_session.llm.litellm_failures import error_of

REQUEST = ModelRequest(model=Model("openrouter/some/model"), messages=())
TOO_LONG = "prompt is too long: 213462 tokens > 200000 maximum"
KEY = "sk-of-the-test-1234567890"


class BadRequestError(Exception):
    """As litellm's: a status, and what it was made of."""

    def __init__(self, text: str, *, status: int = 400, **kept: Any) -> None:
        super().__init__(f"litellm.{type(self).__name__}: OpenrouterException - {text}")
        self.status_code = status
        for name, value in kept.items():
            setattr(self, name, value)


class ContextWindowExceededError(BadRequestError):
    """litellm's yes."""


class APIConnectionError(BadRequestError):
    """What litellm raises where it does not know what happened."""


def read(failure: Exception, *, has_begun: bool = False, patterns: tuple[re.Pattern[str], ...] = ()) -> ModelError:
    return error_of(failure, REQUEST, key=KEY, is_near_limit=False, has_begun=has_begun, patterns=patterns)


def chained(outer: Exception, inner: Exception, *, explicitly: bool) -> Exception:
    try:
        try:
            raise inner
        except Exception as error:
            if explicitly:
                raise outer from error
            raise outer  # noqa: B904 - what is tested
    except Exception as error:  # noqa: BLE001 - the pair of them
        return error


RAW = {"error": {"message": "Provider returned error", "metadata": {"raw": json.dumps({"message": TOO_LONG})}}}


# Mutation: read bodies that are dicts only, or none.
@pytest.mark.parametrize(
    "kept",
    [
        {"body": RAW},
        {"body": json.dumps(RAW)},
        {"body": json.dumps(RAW).encode() + b"\xff"},
        {"response": httpx.Response(400, json=RAW)},
        {"response": httpx.Response(400, text=TOO_LONG)},
    ],
    ids=["object", "text", "bytes", "response", "plain response"],
)
def test_the_body_is_read_wherever_it_is_kept(kept: dict[str, Any]) -> None:
    error = read(BadRequestError("Provider returned error", **kept))
    assert isinstance(error, ContextOverflowError)
    assert (error.limit, error.requested) == (200_000, 213_462)


# Mutation: follow causes only, or look at the outermost words only.
@pytest.mark.parametrize("explicitly", [True, False], ids=["cause", "context"])
@pytest.mark.parametrize("depth", [1, 3])
def test_what_was_said_at_the_bottom_of_a_chain_is_read(explicitly: bool, depth: int) -> None:
    failure: Exception = ValueError(TOO_LONG)
    for number in range(depth):
        failure = chained(BadRequestError(f"layer {number} failed"), failure, explicitly=explicitly)
    error = read(failure)
    assert isinstance(error, ContextOverflowError)
    assert error.limit == 200_000


def test_the_answer_of_a_status_error_below_counts_more_than_the_words_above() -> None:
    answer = httpx.Response(429, json={"error": {"message": "slow down"}}, headers={"retry-after": "7"})
    below = httpx.HTTPStatusError("no", request=httpx.Request("POST", "http://x"), response=answer)
    error = read(chained(ContextWindowExceededError("too long"), below, explicitly=True))
    assert error.kind == "rate"
    assert error.retry_at is not None


# Mutation: leave litellm's yes out; or follow it where the words say something else.
@pytest.mark.parametrize(
    ("says", "kind"),
    [
        ("that was too much", "overflow"),
        ("Invalid 'tools[0].function.name': string too long", "bad_request"),
        ("stop sequences: at most 4", "bad_request"),
        ("tokens per minute (TPM): Limit 8000, Used 7000, Requested 2000", "rate"),
        ("max_tokens: 9 > 5, the maximum of output tokens", "output_setting"),
    ],
)
def test_its_yes_is_good_where_nothing_else_is_said(says: str, kind: str) -> None:
    assert read(ContextWindowExceededError(says)).kind == kind


# Mutation: take a request for fitting because litellm did not notice.
@pytest.mark.parametrize("raised", [BadRequestError, APIConnectionError])
@pytest.mark.parametrize("has_begun", [False, True], ids=["before", "on the first iteration"])
def test_that_it_did_not_notice_means_nothing(raised: type[BadRequestError], has_begun: bool) -> None:
    assert read(raised(TOO_LONG, status=500), has_begun=has_begun).kind == "overflow"


# Mutation: give `patterns` to the first look only.
def test_patterns_of_the_user_reach_it() -> None:
    failure = BadRequestError("das war zu viel")
    assert read(failure).kind == "bad_request"
    assert read(failure, patterns=(re.compile("zu viel"),)).kind == "overflow"


# Mutation: take the key out of the outermost words only.
def test_a_key_anywhere_in_the_chain_is_in_no_text() -> None:
    failure = chained(BadRequestError("no", body={"message": f"bad {KEY}"}), ValueError(f"sent {KEY}"), explicitly=True)
    error = read(failure)
    assert KEY not in f"{error} {error.body} {vars(error)}"
