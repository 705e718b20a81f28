"""Which client speaks to which provider."""

import subprocess
import sys

import pytest

from agent_session.errors import MissingCredentialsError
from agent_session.llm.openai_compatible import OpenAICompatibleClient
from agent_session.llm.select import client_for
from agent_session.models import Model


def test_openai_is_spoken_to_directly() -> None:
    assert isinstance(client_for(Model("openai/gpt-x")), OpenAICompatibleClient)


def test_a_provider_with_an_address_in_the_environment_is_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_HOST_BASE_URL", "http://127.0.0.1:1/v1")
    assert isinstance(client_for(Model("my-host/model")), OpenAICompatibleClient)


# Mutation: leave either way out of the text.
def test_any_other_provider_is_refused_with_both_ways_out() -> None:
    with pytest.raises(MissingCredentialsError) as caught:
        client_for(Model("my-host/model"))
    assert "MY_HOST_BASE_URL" in str(caught.value)
    assert "client=" in str(caught.value)


# Mutation: import httpx at the top of `transport`.
def test_choosing_a_client_loads_no_http_library() -> None:
    program = (
        "import sys, agent_session.llm.select\n"
        "print([name for name in ('httpx', 'litellm', 'openai', 'ssl') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
