"""Anthropic's messages, straight over httpx: for Claude and everybody who speaks like it.

Only what is this format's own stands here; `direct_client` does the rest.
"""

from __future__ import annotations

from typing import ClassVar, Final

from typing_extensions import override

from agent_session.llm.anthropic_payload import API, messages_payload
from agent_session.llm.anthropic_stream import MessagesStream
from agent_session.llm.client import ModelRequest, PreparedRequest
from agent_session.llm.direct_client import DirectClient

PROVIDER: Final = "anthropic"
API_VERSION: Final = "2023-06-01"

_VERSION_PATH: Final = "/v1"


class AnthropicClient(DirectClient):
    """A `ModelClient` for Anthropic's messages.

    Args:
        base_url: the address up to `/v1/messages`, with or without the `/v1`; None takes `<PROVIDER>_BASE_URL`, else
            Anthropic's own.
        api_key: used where a request brings none; None takes `<PROVIDER>_API_KEY`.
        timeout: seconds to connect and to send. Silence is limited by the request, the total is not.
        http_client: used instead of an own one, and not closed.
        overflow_patterns: further texts by which a server says that a request was too long.
    """

    path: ClassVar[str] = "/messages"
    final_types: ClassVar[frozenset[str]] = frozenset({"message_stop"})

    @property
    @override
    def api(self) -> str:
        return API

    @override
    def prepare(self, request: ModelRequest) -> PreparedRequest:
        """The payload for this request; equal requests give equal bytes."""
        return PreparedRequest(request=request, payload=messages_payload(request))

    @override
    def _address(self, request: ModelRequest) -> str:
        return super()._address(request).removesuffix(_VERSION_PATH) + _VERSION_PATH

    @override
    def _headers(self, key: str | None) -> dict[str, str]:
        return {"anthropic-version": API_VERSION} | ({} if key is None else {"x-api-key": key})

    @override
    def _answer(self) -> MessagesStream:
        return MessagesStream()
