"""OpenAI's chat completions, straight over httpx: for OpenAI and everybody who speaks like it.

Only what is this format's own stands here; `direct_client` does the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar

from typing_extensions import override

from agent_session.llm.chat_stream import ChatStream
from agent_session.llm.client import ModelRequest, PreparedRequest
from agent_session.llm.convert import chat_payload
from agent_session.llm.direct_client import DirectClient
from agent_session.llm.endpoint import is_openai_host
from agent_session.llm.failures import Refusal


class OpenAICompatibleClient(DirectClient):
    """A `ModelClient` for chat completions.

    Args:
        base_url: the address up to `/chat/completions`; None takes `<PROVIDER>_BASE_URL`, else OpenAI's own.
        api_key: used where a request brings none; None takes `<PROVIDER>_API_KEY`.
        timeout: seconds to connect and to send. Silence is limited by the request, the total is not.
        http_client: used instead of an own one, and not closed.
        overflow_patterns: further texts by which a server says that a request was too long.
    """

    path: ClassVar[str] = "/chat/completions"

    @cached_property
    def _refuses_usage_option(self) -> set[str]:
        """Addresses that do not take the option that asks for usage."""
        return set()

    @property
    @override
    def api(self) -> str:
        return "openai-completions"

    @override
    def prepare(self, request: ModelRequest) -> PreparedRequest:
        """The payload for this request; equal requests give equal bytes.

        Raises:
            MissingCredentialsError: nothing says where the provider is.
        """
        key = "max_completion_tokens" if is_openai_host(self._address(request)) else "max_tokens"
        return PreparedRequest(request=request, payload=chat_payload(request, output_limit_key=key))

    @override
    def _headers(self, key: str | None) -> dict[str, str]:
        return {} if key is None else {"authorization": f"Bearer {key}"}

    @override
    def _answer(self) -> ChatStream:
        return ChatStream()

    @override
    def _offered(self, payload: Mapping[str, Any], base_url: str) -> Mapping[str, Any]:
        return _without_usage_option(payload) if base_url in self._refuses_usage_option else payload

    @override
    def _conceded(self, payload: Mapping[str, Any], base_url: str, refusal: Refusal) -> Mapping[str, Any] | None:
        """The payload without the option that asks for usage, where that was what was refused; remembered."""
        is_named = "stream_options" in refusal.text or "include_usage" in refusal.text
        if refusal.status not in (400, 422) or "stream_options" not in payload or not is_named:
            return None
        self._refuses_usage_option.add(base_url)
        return _without_usage_option(payload)


def _without_usage_option(payload: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in payload.items() if name != "stream_options"}
