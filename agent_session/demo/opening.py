"""How the demonstration reaches its provider and resumes its session: the same for both of its processes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from agent_session.demo.scenario import HONEST_MODEL
from agent_session.llm.openai_compatible import OpenAICompatibleClient
from agent_session.session import AgentSession
from agent_session.settings import RetrySettings, Settings

# The provider is in this machine and answers at once: where it does not, waiting and asking again shows nothing.
SETTINGS = Settings(retry=RetrySettings(max_retries=0))


@asynccontextmanager
async def local_client(base_url: str) -> AsyncIterator[OpenAICompatibleClient]:
    """A client for the provider at `base_url`. It asks no proxy, whatever the environment says."""
    import httpx  # noqa: PLC0415 - `--help` need not load it

    async with httpx.AsyncClient(trust_env=False) as http_client:
        yield OpenAICompatibleClient(base_url, "no-key-needed", http_client=http_client)


def resumed(path: Path, project: Path, client: OpenAICompatibleClient) -> AgentSession:
    """The session in that file, not started yet."""
    return AgentSession(HONEST_MODEL, resume=path, client=client, settings=SETTINGS, cwd=project)
