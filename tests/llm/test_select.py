"""Which client speaks to which provider."""

import subprocess
import sys

import pytest

from agent_session.llm.anthropic import AnthropicClient
from agent_session.llm.litellm_client import LiteLLMClient
from agent_session.llm.openai_compatible import OpenAICompatibleClient
from agent_session.llm.select import client_for
from agent_session.models import Model


def test_openai_is_spoken_to_directly() -> None:
    assert isinstance(client_for(Model("openai/gpt-x")), OpenAICompatibleClient)


# Mutation: leave the provider out, so that litellm serves it.
@pytest.mark.parametrize("address", [None, "http://127.0.0.1:1"])
def test_anthropic_is_spoken_to_in_its_own_format_wherever_it_is(
    monkeypatch: pytest.MonkeyPatch, address: str | None
) -> None:
    if address is not None:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", address)
    assert isinstance(client_for(Model("anthropic/claude-x")), AnthropicClient)


def test_a_provider_with_an_address_in_the_environment_is_spoken_to_directly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_HOST_BASE_URL", "http://127.0.0.1:1/v1")
    assert isinstance(client_for(Model("my-host/model")), OpenAICompatibleClient)


@pytest.mark.parametrize("model", ["gemini/gemini-x", "bedrock/some.model-v1:0", "my-host/model"])
def test_litellm_serves_the_rest(model: str) -> None:
    assert isinstance(client_for(Model(model)), LiteLLMClient)


# Mutation: import httpx at the top of `transport`, or litellm at the top of `litellm_client`.
def test_choosing_a_client_loads_no_http_library() -> None:
    program = (
        "import sys, agent_session.llm.select\n"
        "from agent_session import Model\n"
        "agent_session.llm.select.client_for(Model('gemini/x'))\n"
        "print([name for name in ('httpx', 'litellm', 'openai', 'ssl') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# Mutation: import `litellm_client` at the top of `select`, or `overflow` at the top of `failures`.
def test_a_session_loads_the_one_client_that_it_needs_and_nothing_for_refusals() -> None:
    program = (
        "import sys, agent_session.llm.select\n"
        "from agent_session import AgentSession, Model, SessionManager\n"
        "session = AgentSession('anthropic/x', session_manager=SessionManager.in_memory())\n"
        "session.context_usage(), agent_session.llm.select.client_for(Model('anthropic/x'))\n"
        "print(sorted(name for name in sys.modules if name.startswith('agent_session.llm.')))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "agent_session.llm.transport" in done.stdout
    for name in ("litellm", "openai", "overflow", "token_counts"):
        assert f"agent_session.llm.{name}" not in done.stdout
