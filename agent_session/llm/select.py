"""Which client speaks to a model when the program gave none.

Rule: a session loads the one that it needs.
"""

from __future__ import annotations

from agent_session.llm.client import ModelClient
from agent_session.llm.endpoint import base_url_for
from agent_session.models import Model

ANTHROPIC = "anthropic"


def client_for(model: Model) -> ModelClient:
    """The client for the model's provider.

    Anthropic is spoken to in its own format. OpenAI, and any provider whose address is in `<PROVIDER>_BASE_URL`, in the
    chat-completions format. litellm serves the rest; whether it knows the provider shows at the first request.
    """
    if model.provider == ANTHROPIC:
        from agent_session.llm.anthropic import AnthropicClient  # noqa: PLC0415

        return AnthropicClient()
    if base_url_for(model.provider) is not None:
        from agent_session.llm.openai_compatible import OpenAICompatibleClient  # noqa: PLC0415

        return OpenAICompatibleClient()
    from agent_session.llm.litellm_client import LiteLLMClient  # noqa: PLC0415

    return LiteLLMClient()
