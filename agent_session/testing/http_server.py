"""A small HTTP/1.1 server on 127.0.0.1, written out by hand so that tests can break every part of it.

Keep-alive, request bodies by length, responses in chunks. It notices a client that leaves while it is being answered:
the answer is cancelled then, and the exchange's `on_disconnect` called.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import anyio

_READ_BYTES = 65_536
_REASONS = {200: "OK", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found", 413: "Content Too Large"}


@dataclass(slots=True, kw_only=True)
class Exchange:
    """One request, and the way to answer it. `headers` have lower-case keys."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    writer: asyncio.StreamWriter
    on_disconnect: Callable[[], None] = lambda: None
    keeps_connection: bool = True

    async def send(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        """A whole response with its length."""
        self._head(status, {**headers, "content-length": str(len(body))})
        self.writer.write(body)
        await self.writer.drain()

    async def begin(self, headers: Mapping[str, str]) -> None:
        """The head of a streamed response."""
        self._head(200, {**headers, "transfer-encoding": "chunked"})
        await self.writer.drain()

    async def write(self, data: bytes) -> None:
        """A piece of a streamed response, as one chunk."""
        self.writer.write(b"%x\r\n%b\r\n" % (len(data), data))
        await self.writer.drain()

    async def end(self) -> None:
        """The proper end of a streamed response."""
        self.writer.write(b"0\r\n\r\n")
        await self.writer.drain()

    def drop(self) -> None:
        """Close the connection without a proper end."""
        self.keeps_connection = False

    def _head(self, status: int, headers: Mapping[str, str]) -> None:
        lines = [f"HTTP/1.1 {status} {_REASONS.get(status, 'Status')}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        self.writer.write("\r\n".join((*lines, "", "")).encode("latin-1"))


Handler: TypeAlias = Callable[[Exchange], Awaitable[None]]


@dataclass(slots=True)
class HttpServer:
    """Calls `handler` for each request. `port` is set by `start`."""

    handler: Handler
    port: int = 0
    _server: asyncio.Server | None = None
    _connections: set[asyncio.Task[None]] = field(default_factory=set)

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Close the port and every connection, answered or not."""
        if self._server is not None:
            self._server.close()
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Request after request on one connection, until either side closes it."""
        incoming = _Incoming(reader)
        try:
            while (exchange := await incoming.next_exchange(writer)) is not None:
                await self._answer(exchange, incoming)
                if not exchange.keeps_connection:
                    break
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client left
        finally:
            writer.close()

    async def _answer(self, exchange: Exchange, incoming: _Incoming) -> None:
        """Run the handler, and stop it when the client leaves."""
        async with anyio.create_task_group() as group:
            group.start_soon(_watch, exchange, incoming, group.cancel_scope)
            try:
                await self.handler(exchange)
            except ConnectionError:
                exchange.keeps_connection = False  # the client left, and the handler found it out first
            group.cancel_scope.cancel()


async def _watch(exchange: Exchange, incoming: _Incoming, scope: anyio.CancelScope) -> None:
    if not await incoming.wait_for_more():
        exchange.keeps_connection = False
        exchange.on_disconnect()
        scope.cancel()


@dataclass(slots=True)
class _Incoming:
    """The bytes of a connection. Whatever is read while waiting is kept for the next request."""

    reader: asyncio.StreamReader
    buffer: bytearray = field(default_factory=bytearray)

    async def wait_for_more(self) -> bool:
        """Wait for the next byte; False when the client closed or reset instead."""
        if not self.buffer:
            try:
                self.buffer += await self.reader.read(_READ_BYTES)
            except ConnectionError:
                return False
        return bool(self.buffer)

    async def next_exchange(self, writer: asyncio.StreamWriter) -> Exchange | None:
        """The next request, with its body; None when the client is gone."""
        while (end := self.buffer.find(b"\r\n\r\n")) < 0:
            if not await self._read():
                return None
        request_line, *lines = bytes(self.buffer[:end]).decode("latin-1").split("\r\n")
        method, path, _ = request_line.split(" ", 2)
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        length = int(headers.get("content-length", "0"))
        while len(self.buffer) < end + 4 + length:
            if not await self._read():
                return None
        body = bytes(self.buffer[end + 4 : end + 4 + length])
        del self.buffer[: end + 4 + length]
        return Exchange(method=method, path=path, headers=headers, body=body, writer=writer)

    async def _read(self) -> bool:
        data = await self.reader.read(_READ_BYTES)
        self.buffer += data
        return bool(data)
