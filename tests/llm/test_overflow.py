"""How a refusal is understood: sizes, and what only looks like them."""

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest

from agent_session.errors import ContextOverflowError, ModelError, RateLimitError
from agent_session.llm.failures import error_from, read_refusal
from agent_session.llm.finish import is_overflow_finish
from agent_session.llm.overflow import classify

HERE = Path(__file__).parent
ROWS: list[dict[str, Any]] = json.loads((HERE / "overflow_signals.json").read_text(encoding="utf-8"))
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


# What providers and gateways say, and might: many wordings of each sort, in several languages and kinds of body.
REFUSALS: list[dict[str, Any]] = json.loads((HERE / "refusals.json").read_text(encoding="utf-8"))


def in_words(row: dict[str, Any]) -> str:
    return str(row.get("body") or row["says"])[:60]


def error_in(row: dict[str, Any]) -> ModelError:
    body = row.get("body") or json.dumps({"error": {"message": row["says"], "code": row.get("code")}})
    return error_from(read_refusal(row["status"], body), model_id="any/model", now=0)


# Mutation: drop a word from one of the vocabularies, or a line from one of the patterns.
@pytest.mark.parametrize("row", [row for row in REFUSALS if row["kind"] == "overflow"], ids=in_words)
def test_any_wording_for_too_long_is_an_overflow_and_its_numbers_are_the_right_ones(row: dict[str, Any]) -> None:
    error = error_in(row)
    assert error.kind == "overflow"
    assert error.limit == row["limit"]
    assert row.get("requested") in (None, error.requested)


# Mutation: let a quantity, a limit or "too long" alone make an overflow.
@pytest.mark.parametrize("row", [row for row in REFUSALS if row["kind"] != "overflow"], ids=in_words)
def test_what_only_sounds_like_too_long_is_what_it_is(row: dict[str, Any]) -> None:
    error = error_in(row)
    assert error.kind == row["kind"]
    assert (error.limit, error.requested) == (row.get("limit"), row.get("requested"))


# Mutation: leave the JSON in strings as it is, or decode strictly.
@pytest.mark.parametrize(
    "body",
    [
        b"prompt is too long: 9000 tokens > 8192 maximum",
        b"\xff\xfe prompt is too long: 9000 tokens > 8192 maximum \xc3",
        "prompt is too long: 9000\u00a0tokens > 8\u202f192 maximum".encode(),
        b"<!doctype html><title>400</title><p>prompt is too long:</p><b>9000</b> tokens &gt; 8192",
        json.dumps([{"error": json.dumps({"a": json.dumps({"msg": "prompt tokens 9000 > 8192"})})}]).encode(),
        json.dumps({"error": {"code": "context_length_exceeded", "n_prompt_tokens": 9000, "n_ctx": 8192}}).encode(),
    ],
    ids=["text", "broken", "spaces", "html", "nested", "numbers"],
)
def test_the_bytes_of_a_body_may_be_anything(body: bytes) -> None:
    error = error_from(read_refusal(400, body), model_id="any/model", now=0)
    assert (error.kind, error.limit, error.requested) == ("overflow", 8_192, 9_000)


# Mutation: leave `_ECHO_KEYS` empty.
def test_a_request_that_is_repeated_in_the_refusal_is_not_what_the_provider_says() -> None:
    said = {"msg": "Field required", "input": [{"role": "user", "content": "why is my prompt too long: 9 tokens > 5?"}]}
    assert error_from(read_refusal(422, json.dumps({"detail": [said]})), model_id="a/b", now=0).kind == "bad_request"


# Mutation: in `token_counts` take any number behind "limit", also a code; or the excess for the amount.
@pytest.mark.parametrize(
    ("says", "limit", "requested"),
    [
        ("context window exceeds limit (2013)", None, None),
        ("Error code: 400 - prompt tokens 9000 exceed 8192", 8_192, 9_000),
        ("the prompt is 305 tokens over the limit", None, None),
        ("the prompt exceeds the limit of 8192 tokens by 305 tokens", 8_192, None),
        ("input too long: 9.000 Tokens, maximal 8.192", 8_192, 9_000),
        ("input too long: 1'048'577 tokens, at most 1'048'576", 1_048_576, 1_048_577),
        ("input too long: 129k tokens of 128K", 128_000, 129_000),
        ("input too long: 1.5M tokens, the model takes 1M", 1_000_000, 1_500_000),
        ("prompt (3000 tokens) plus output (2000 tokens) is more than the 4096 tokens of context", 4_096, 5_000),
        ("prompt too long: the limit E20015 applies", None, None),
        ("prompt too long (request 88123, shard 4511)", None, None),
        ("prompt too long, version 2.131.072 of 2025-08-06 12:30", None, None),
        (f"prompt of {'9' * 400} tokens is too long, at most 8192", 8_192, None),
    ],
)
def test_numbers_are_taken_for_what_they_are(says: str, limit: int | None, requested: int | None) -> None:
    error = refused(400, says)
    assert (error.kind, error.limit, error.requested) == ("overflow", limit, requested)


# Mutation: leave the codes out of `token_counts`.
# Mutation: in `_output_of` take the largest output, or do not add the parts up; in `_sum` leave the output out.
@pytest.mark.parametrize(
    ("says", "requested", "of_it_output"),
    [
        ("at most 8192 tokens, you requested 8500 tokens (7500 in the messages, 1000 in the completion)", 8_500, 1_000),
        ("at most 8192 tokens, you requested 9300 (8000 of text, 300 of tool input, 1000 in the output)", 9_300, 1_000),
        ("The input (9000 tokens) plus max_tokens 1000 = 10000 is more than the limit of 8192 tokens", 10_000, 1_000),
        ("input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000", 209_573, 21_333),
        ("prompt too long: 8000 + 500 tokens > 8192", 8_500, 0),
        ("the prompt has 9000 tokens, at most 8192; max_tokens=1000", 9_000, 0),
        ("prompt is too long: 210000 tokens > 200000 maximum", 210_000, 0),
    ],
)
def test_room_for_an_answer_is_told_from_what_was_sent(says: str, requested: int, of_it_output: int) -> None:
    error = refused(400, says)
    assert (error.kind, error.requested, error.requested_output) == ("overflow", requested, of_it_output)
    assert error.requested_input == requested - of_it_output


def test_a_number_that_is_a_code_counts_nothing() -> None:
    says = "exceeds limit [20015] for prompts of 9000 tokens"
    assert refused(400, says, code="20015").limit != 20_015


# Mutation: drop the word from `_ROLES_OF_WORDS`.
@pytest.mark.parametrize(
    "words",
    [
        *("maximum 8192", "max_size: 8192", "limited to 8192", "a ceiling of 8192", "cap: 8192", "a capacity of 8192"),
        *("at most 8192", "up to 8192", "just 8192", "all 8192", "> 8192", "<= 8192", "≤ 8192", "longer than 8192"),
        *("exceeds 8192", "surpasses 8192", "beyond 8192", "above 8192", "over 8192", "past 8192", "within 8192"),
        *("into 8192", "below 8192", "under 8192", "allowed are 8192", "permits 8192", "supports 8192", "accepts 8192"),
        *("takes 8192", "handles 8192", "reads 8192", "serves 8192", "available: 8192", "a budget of 8192"),
        *("máximo 8192", "massimo 8192", "límite de 8192", "лимит 8192", "максимум 8192", "höchstens 8192"),
        *("zulässig sind 8192", "verarbeitet 8192", "nur 8192", "überschreitet 8192", "dépasse 8192", "supera 8192"),
        *("最大 8192", "最多 8192", "上限 8192", "限制 8192", "超过 8192", "超出 8192", "支持 8192", "최대 8192"),
        *("erlaubt sind 8192", "excede 8192", "contexte 8192", "Kontext: 8192", "contesto 8192", "8192 を超え"),
        *("n_ctx 8192", "a window of 8192", "context 8192", "8192 slots", "8192 available", "8192 allowed"),
    ],
)
def test_the_word_beside_a_number_makes_a_limit_of_it(words: str) -> None:
    error = refused(400, f"your prompt is too long. {words}")
    assert (error.kind, error.limit) == ("overflow", 8_192)


# Mutation: drop the unit, or the word before the number, from its pattern.
@pytest.mark.parametrize(
    "words",
    [
        *("at most 300 messages", "at most 300 requests", "at most 300 times", "at most 300 retries", "max 300 tools"),
        *("max 300 files", "max 300 inputs", "max 300 images", "max 300 pages", "max 300 characters", "max 300 kB"),
        *("max 300 s", "max 300 ms", "max 300 seconds", "max 300 minutes", "within 300 hours", "above 300 %"),
        *("limit code 300", "limit, status 400", "limit, HTTP 413", "limit, line 300", "limit, version 300"),
        *(
            "limit, request id 300",
            "limit, error 400",
            "limit <400>",
            "exceeded by 300",
            "limit 2026-12-01",
            "max $300",
        ),
        *("minimum 300", "at least 300", "max_tokens 300", "completion of 300", "you sent 300", "got 300", "used 300"),
    ],
)
def test_a_number_of_something_else_is_no_limit(words: str) -> None:
    error = refused(400, f"your prompt has too many tokens. {words}")
    assert (error.kind, error.limit) == ("overflow", None)


# Mutation: drop the word from its role in `_ROLES_OF_WORDS` or `_ROLE_IN_RUN`: the maximum before it would count.
@pytest.mark.parametrize(
    "words",
    [
        *("it has 9000", "you had 9000", "we got 9000", "you use 9000", "it uses 9000", "you used 9000", "using 9000"),
        *("it contains 9000", "you request 9000", "requested: 9000", "it resulted in 9000", "we received 9000"),
        *("you supplied 9000", "you sent 9000", "you send 9000", "given: 9000", "provided: 9000", "actual: 9000"),
        *("current: 9000", "we counted 9000", "it needs 9000", "needed: 9000", "it came as 9000", "it totals 9000"),
        *(
            "it weighs 9000",
            "at least 9000",
            "found 9000",
            "it was 9000",
            "they were 9000",
            "9000 long",
            "it adds up to 9000",
        ),
        *("er umfasst 9000", "er enthält 9000", "er hat 9000", "il contient 9000", "请求 9000", "共 9000", "输入 9000"),
        *("the output of 9000", "a completion of 9000", "generated: 9000", "num_predict 9000", "a response of 9000"),
    ],
)
def test_what_was_sent_is_never_taken_for_the_limit(words: str) -> None:
    error = refused(400, f"your prompt exceeds the maximum number of tokens: {words}")
    assert (error.kind, error.limit) == ("overflow", None)


# Mutation: drop the sign or word from `_PLUS` or `_IS_MORE`.
@pytest.mark.parametrize(
    "more", [">", "exceeds", "is greater than", "is more than", "is above", "is over", "must be <="]
)
@pytest.mark.parametrize("plus", ["+", "plus"])
def test_what_is_asked_for_in_parts_is_added_up(plus: str, more: str) -> None:
    error = refused(400, f"prompt tokens: 7000 {plus} 2000 {more} 8192")
    assert (error.kind, error.limit, error.requested) == ("overflow", 8_192, 9_000)


# Mutation: read the whole of a text; look for a number's words without an end.
@pytest.mark.parametrize(
    "piece", ["1 ", "1,234 ", "prompt tokens 9 > ", "tool_use ", "too long the max ", "[1, ", "超"]
)
def test_a_long_text_costs_no_more_than_a_moment(piece: str) -> None:
    begun = time.process_time()
    error_from(read_refusal(400, piece * (65_536 // len(piece))), model_id="any/model", now=0)
    assert time.process_time() - begun < 2


# Mutation: read the whole of it.
def test_what_stands_in_the_middle_of_a_long_text_may_be_the_request_and_is_not_read() -> None:
    around = "and so on " * 400
    error = error_from(
        read_refusal(400, f"no such tool {around} prompt of 9000 tokens is longer than 8192 tokens {around}"),
        model_id="a/b",
        now=0,
    )
    assert error.kind == "bad_request"


# Mutation: look at the beginning only.
def test_what_stands_at_the_end_of_a_traceback_is_read() -> None:
    trace = "frame 12 at offset 4711\n" * 400
    error = error_from(
        read_refusal(500, f"{trace}ValueError: prompt of 9000 tokens is longer than 8192 tokens"), model_id="a/b", now=0
    )
    assert (error.kind, error.limit) == ("overflow", 8_192)


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
