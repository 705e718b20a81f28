"""Which client speaks to a model when the program gave none."""

from __future__ import annotations

from agent_session.llm import anthropic
from agent_session.llm.client import ModelClient
from agent_session.llm.endpoint import base_url_for
from agent_session.llm.litellm_client import LiteLLMClient
from agent_session.llm.openai_compatible import OpenAICompatibleClient
from agent_session.models import Model


def client_for(model: Model) -> ModelClient:
    """The client for the model's provider.

    Anthropic is spoken to in its own format. OpenAI, and any provider whose address is in `<PROVIDER>_BASE_URL`, in the
    chat-completions format. litellm serves the rest; whether it knows the provider shows at the first request.
    """
    if model.provider == anthropic.PROVIDER:
        return anthropic.AnthropicClient()
    if base_url_for(model.provider) is not None:
        return OpenAICompatibleClient()
    return LiteLLMClient()
