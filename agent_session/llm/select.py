"""Which client speaks to a model when the program gave none."""

from __future__ import annotations

from agent_session.errors import MissingCredentialsError
from agent_session.llm.client import ModelClient
from agent_session.llm.endpoint import base_url_for, base_url_variable
from agent_session.llm.openai_compatible import OpenAICompatibleClient
from agent_session.models import Model


def client_for(model: Model) -> ModelClient:
    """The client for the model's provider.

    OpenAI is known; any other provider needs its address in `<PROVIDER>_BASE_URL` and is then spoken to in the
    chat-completions format.

    Raises:
        MissingCredentialsError: nothing says where the provider is; the text names the variable to set.
    """
    if base_url_for(model.provider) is None:
        raise MissingCredentialsError(
            f"no client for {model.id}: set {base_url_variable(model.provider)} to the address of a server that speaks "
            f"OpenAI's chat-completions format, or give AgentSession(client=...)",
            kind="auth",
        )
    return OpenAICompatibleClient()
