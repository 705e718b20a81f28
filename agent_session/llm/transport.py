"""HTTP for clients that speak to providers directly: one request, its bytes as they come, and failures by kind.

httpx is imported when the first request goes out, not before. Silence is limited, the total time never: each chunk,
and the wait for the headers, may take `silence_seconds`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import TYPE_CHECKING

import anyio

from agent_session.errors import ModelRequestError
from agent_session.llm.failures import network_error, silence_error, stream_cut_error

if TYPE_CHECKING:
    import httpx

ERROR_BODY_BYTES = 65_536
"""How much of an error body is read."""

CLOSE_SECONDS = 2.0
"""How long giving a connection back, or ending it, may take; also while being cancelled."""

_DRAIN_SECONDS = 0.25


class Transport:
    """Owns the pooled connections of one client.

    Args:
        timeout: seconds to connect and to send.
        http_client: used instead of an own one, and not closed.
    """

    def __init__(self, *, timeout: float, http_client: httpx.AsyncClient | None = None) -> None:
        self._timeout = timeout
        self._http = http_client
        self._owns_http = http_client is None

    async def post(
        self, url: str, *, body: bytes, headers: Mapping[str, str], model_id: str, silence_seconds: float
    ) -> httpx.Response:
        """Send JSON; the response's body is not read yet. Whoever gets it closes it.

        Raises:
            ModelRequestError: no connection, silence, or a URL that is none.
        """
        import httpx  # noqa: PLC0415 - only a program that sends pays for it

        if self._http is None:
            self._http = httpx.AsyncClient()
        try:
            request = self._http.build_request(
                "POST",
                url,
                content=body,
                headers={"content-type": "application/json", "accept": "text/event-stream", **headers},
                timeout=httpx.Timeout(self._timeout, read=silence_seconds),
            )
            return await self._http.send(request, stream=True)
        except httpx.ReadTimeout as error:
            raise silence_error(model_id, silence_seconds) from error
        except (httpx.UnsupportedProtocol, httpx.InvalidURL) as error:
            raise ModelRequestError(f"{model_id}: {url} is no address: {error}", kind="bad_request") from error
        except httpx.TransportError as error:
            raise network_error(model_id, url, _reason(error)) from error

    async def chunks(
        self, response: httpx.Response, *, model_id: str, silence_seconds: float
    ) -> AsyncGenerator[bytes, None]:
        """The body as it comes.

        Raises:
            ModelRequestError: silence, or a connection that broke.
        """
        import httpx  # noqa: PLC0415 - already loaded when there is a response

        try:
            async for chunk in response.aiter_bytes():
                yield chunk
        except httpx.ReadTimeout as error:
            raise silence_error(model_id, silence_seconds) from error
        except httpx.RemoteProtocolError as error:
            raise stream_cut_error(model_id, "the connection was closed in the middle of the answer") from error
        except (httpx.TransportError, httpx.DecodingError) as error:
            raise network_error(model_id, str(response.url), _reason(error)) from error

    async def error_body(self, response: httpx.Response) -> bytes:
        """The start of an error body, and the response closed; what a broken connection left of it is enough."""
        import httpx  # noqa: PLC0415 - already loaded when there is a response

        body = b""
        try:
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) >= ERROR_BODY_BYTES:
                    break
        except (httpx.TransportError, httpx.DecodingError):
            pass  # the status says enough
        finally:
            with anyio.move_on_after(CLOSE_SECONDS, shield=True):
                await response.aclose()
        return body[:ERROR_BODY_BYTES]

    async def aclose(self) -> None:
        """Close pooled connections; a later request opens new ones."""
        if self._owns_http and self._http is not None:
            http, self._http = self._http, None
            await http.aclose()


async def drain(chunks: AsyncIterator[bytes]) -> None:
    """Read what follows the final event, so that the connection can be used again; not for long: some linger."""
    with anyio.move_on_after(_DRAIN_SECONDS):
        try:
            async for _ in chunks:
                pass
        except ModelRequestError:
            pass  # the answer was whole before


def _reason(error: Exception) -> str:
    """The error in words; some say nothing but their name."""
    return str(error) or type(error).__name__
