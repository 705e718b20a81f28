"""litellm behind its door: what it is given, what is made of its answers and exceptions, and what it must not do."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import orjson
import pytest

from agent_session import LiteLLMClient, Model, ModelRequest
from agent_session.errors import ContextOverflowError, MissingCredentialsError
from agent_session.llm.litellm_payload import litellm_payload
from agent_session.testing import FakeProvider, Step, fail, reply, stop
from session_store.messages import AssistantMessage, TextContent, ThinkingContent, ToolCall, UserMessage, as_content
from tests.llm.clients import KEY, asked, refused, served, streaming

MODEL = Model("openai/scripted")
USER = UserMessage(content=as_content("hi"))
REQUEST = ModelRequest(model=MODEL, messages=(USER,))

# litellm looks for certificates on the event loop, and uses what its libraries have deprecated: its own affairs.
pytestmark = [pytest.mark.allow_blocking, pytest.mark.filterwarnings("ignore")]

SIGNALS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parent / "overflow_signals.json").read_text(encoding="utf-8")
)
REFUSALS = [signal for signal in SIGNALS if (signal["status"] or 0) >= 400]


def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    frame = {"id": "r1", "object": "chat.completion.chunk", "created": 0, "model": "m", "choices": [choice]}
    return b"data: " + orjson.dumps(frame) + b"\n\n"


def piece(arguments: str, call_id: str | None = None, name: str | None = None, index: int = 0) -> dict[str, Any]:
    function: dict[str, Any] = {"arguments": arguments} | ({"name": name} if name else {})
    return {
        "tool_calls": [
            {"index": index, "function": function} | ({"id": call_id, "type": "function"} if call_id else {})
        ]
    }


async def answer_to(*pieces: bytes, content_type: str = "text/event-stream") -> AssistantMessage:
    async with served(streaming(*pieces, b"data: [DONE]\n\n", content_type=content_type)) as address:
        return await asked(LiteLLMClient(address, KEY), REQUEST)


# Mutation: go by the index alone.
async def test_calls_under_one_index_are_told_apart() -> None:
    message = await answer_to(
        chunk(piece('{"a"', "c1", "read")),
        chunk(piece(": 1}")),
        chunk(piece('{"b": 2}', "c2", "bash")),
        chunk({}, "tool_calls"),
    )
    assert [(call.id, call.name, call.arguments) for call in message.tool_calls] == [
        ("c1", "read", {"a": 1}),
        ("c2", "bash", {"b": 2}),
    ]


def said(signal: dict[str, Any]) -> Any:
    """A body that says so; where a gateway wrapped the words of another, in its way."""
    error: dict[str, Any] = {"message": signal["message"], "code": signal.get("code"), "type": signal.get("code")}
    if "upstream" in signal:
        error["metadata"] = {"raw": signal["upstream"]}
    return "" if signal.get("code") == "empty body" else {"error": error}


def known_overflow(signal: dict[str, Any]) -> bool:
    return signal["cls"] in ("overflow", "overflow_bytes")


# Mutation: believe the class that litellm raises, either way.
@pytest.mark.parametrize("signal", REFUSALS, ids=lambda signal: f"{signal['provider']}-{signal['status']}")
async def test_a_refusal_means_what_it_says_whatever_litellm_makes_of_it(signal: dict[str, Any]) -> None:
    async with FakeProvider([fail(signal["status"], body=said(signal))]) as provider:
        client = LiteLLMClient(provider.base_url, KEY)
        limit = 1 if signal.get("code") == "empty body" else None
        model = Model(MODEL.id, context_window=limit)
        error = await refused(client, ModelRequest(model=model, messages=(USER,)))
    assert isinstance(error, ContextOverflowError) is known_overflow(signal)
    assert signal.get("limit") in (None, error.limit)
    assert "litellm" not in str(error).lower()


# Mutation: believe litellm where the words say something else.
async def test_a_limit_a_minute_is_no_overflow_though_litellm_says_so() -> None:
    text = "prompt is too long for your tokens per minute (TPM): Limit 8000, Requested 20449"
    async with FakeProvider([fail(400, text)]) as provider:
        error = await refused(LiteLLMClient(provider.base_url, KEY), REQUEST)
    assert error.kind == "request_exceeds_rate_budget"


async def test_a_provider_that_litellm_does_not_know_is_refused_with_both_ways_out() -> None:
    error = await refused(LiteLLMClient(), ModelRequest(model=Model("my-host/model"), messages=(USER,)))
    assert isinstance(error, MissingCredentialsError)
    assert "MY_HOST_BASE_URL" in str(error)
    assert "client=" in str(error)


# Mutation: raise the 500 that litellm makes of it.
@pytest.mark.parametrize(
    ("model", "variable"),
    [("gemini/gemini-2.5-pro", "GEMINI_API_KEY"), ("anthropic/claude-sonnet-4-5", "ANTHROPIC_API_KEY")],
)
async def test_a_key_that_is_missing_is_named_by_its_variable(model: str, variable: str) -> None:
    error = await refused(LiteLLMClient(), ModelRequest(model=Model(model), messages=(USER,)))
    assert isinstance(error, MissingCredentialsError)
    assert variable in str(error)


async def test_address_and_key_are_found_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    async with FakeProvider([reply("a")]) as provider:
        monkeypatch.setenv("MISTRAL_BASE_URL", provider.base_url)
        monkeypatch.setenv("MISTRAL_API_KEY", KEY)
        message = await asked(LiteLLMClient(), ModelRequest(model=Model("mistral/some-model"), messages=(USER,)))
    assert (message.api, message.provider, message.model) == ("litellm", "mistral", "some-model")
    assert provider.requests[0].headers["authorization"] == f"Bearer {KEY}"


async def test_further_options_are_litellms() -> None:
    async with FakeProvider([reply("a")]) as provider:
        await asked(LiteLLMClient(provider.base_url, KEY, options={"seed": 7}), REQUEST)
    assert provider.requests[0].payload["seed"] == 7


# What it is given -----------------------------------------------------------------------------------

THINKING = (ThinkingContent("hm", "sig"), ThinkingContent("", "opaque", redacted=True), ThinkingContent("unsigned"))
CALL = ToolCall("c1", "read", {}, thought_signature="thought")


def answer() -> AssistantMessage:
    return AssistantMessage(content=(*THINKING, TextContent("a"), CALL))


def sent(message: AssistantMessage, level: Any) -> dict[str, Any]:
    request = ModelRequest(model=Model("gemini/gemini-3-pro"), messages=(USER, message), thinking_level=level)
    converted: dict[str, Any] = litellm_payload(request)["messages"][1]
    return converted


# Mutation: send thinking always, or never; leave the signatures of calls out without it.
@pytest.mark.parametrize("level", ["off", "low"])
def test_signatures_go_back_and_thinking_where_it_is_asked_for(level: Any) -> None:
    message = sent(answer(), level)
    thinking = [
        {"type": "thinking", "thinking": "hm", "signature": "sig"},
        {"type": "redacted_thinking", "data": "opaque"},
    ]
    assert message.get("thinking_blocks") == (None if level == "off" else thinking)
    assert message["tool_calls"][0]["provider_specific_fields"] == {"thought_signature": "thought"}


@pytest.mark.parametrize(("level", "effort"), [("off", None), ("low", "low"), ("xhigh", "high"), ("max", "high")])
def test_no_more_effort_is_asked_for_than_litellm_takes_for_everybody(level: Any, effort: str | None) -> None:
    request = ModelRequest(model=Model("gemini/gemini-2.5-pro"), messages=(USER,), thinking_level=level)
    payload = litellm_payload(request)
    assert payload.get("reasoning_effort") == effort
    assert payload["model"] == "gemini/gemini-2.5-pro"


# Mutation: leave the signature in the id, where it is twice as long as all the rest.
async def test_a_signature_behind_an_id_is_not_part_of_it() -> None:
    call = piece("{}", "c1__thought__c2ln", "read")
    call["tool_calls"][0]["provider_specific_fields"] = {"thought_signature": "c2ln"}
    message = await answer_to(chunk(call), chunk({}, "tool_calls"))
    (read,) = message.tool_calls
    assert read.id == "c1"
    assert read.thought_signature == "c2ln"


# What it must not do ---------------------------------------------------------------------------------

PROGRAM = """
import os, sys
reached = []
def watch(event, args):
    if event == "socket.getaddrinfo" and args[0] not in ("127.0.0.1", "localhost", None):
        reached.append(args[0])
    if event == "socket.connect" and isinstance(args[1], tuple) and args[1][0] not in ("127.0.0.1", "::1"):
        reached.append(args[1][0])
sys.addaudithook(watch)
import anyio
from agent_session import LiteLLMClient, Model, ModelRequest
from agent_session.errors import ModelError
from session_store import UserMessage, TextContent
assert "litellm" not in sys.modules
request = ModelRequest(model=Model(sys.argv[2]), messages=(UserMessage(content=(TextContent("hi"),)),),
                       thinking_level="low", max_output_tokens=4096)
async def main():
    client = LiteLLMClient(sys.argv[1], "sk-secret")
    assert "litellm" not in sys.modules
    for _ in range(5):
        try:
            async with client.stream(client.prepare(request)) as events:
                async for _ in events:
                    pass
        except ModelError:
            pass
    await client.aclose()
anyio.run(main)
assert "litellm" in sys.modules
assert reached == [], reached
"""


# Mutation: do not set the variables before the import; leave litellm's handlers and its debug notes alone.
@pytest.mark.slow
@pytest.mark.parametrize("model", ["openai/scripted", "anthropic/claude-sonnet-4-5", "nobody/knows"])
async def test_nothing_is_printed_and_nobody_but_the_provider_is_reached(model: str) -> None:
    steps: list[Step] = [
        reply("a", usage=(5, 0, 0, 1)),
        reply("no usage"),
        stop("a reason that nobody knows", text="a"),
        fail(400, "no such thing"),
        fail(500, "down"),
    ]
    async with FakeProvider([] if model == "nobody/knows" else steps) as provider:
        with anyio.fail_after(120):
            done = await anyio.run_process([sys.executable, "-c", PROGRAM, provider.base_url, model], check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


# Mutation: import litellm at the top of the module, or on construction.
def test_litellm_is_not_loaded_by_making_a_client_and_a_payload() -> None:
    program = (
        "import sys; from agent_session import LiteLLMClient, Model, ModelRequest\n"
        "LiteLLMClient().prepare(ModelRequest(model=Model('gemini/x'), messages=()))\n"
        "print([name for name in ('litellm', 'openai', 'httpx') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


IMPATIENT = """
import sys, time
import anyio
from agent_session import LiteLLMClient, Model, ModelRequest
async def main():
    client = LiteLLMClient("http://127.0.0.1:1", "key")
    begun = time.monotonic()
    with anyio.move_on_after(0.05):
        async with client.stream(client.prepare(ModelRequest(model=Model("openai/x"), messages=()))):
            raise SystemExit("it was there already")
    print("waited" if "litellm.main" in sys.modules else "left")
anyio.run(main)
"""


# Mutation: wait for the thread that imports.
@pytest.mark.slow
def test_an_abort_does_not_wait_for_the_import() -> None:
    done = subprocess.run([sys.executable, "-c", IMPATIENT], capture_output=True, text=True, check=False, timeout=120)
    assert done.stdout.strip() == "left", done.stderr
