"""A connection that its server closes costs no request; a server that breaks at one is not asked again."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest

from engine_adapters.remote.kept_connections import send_kept


class Closing:
    """Answers so many requests a connection, and closes it at the next one without a word."""

    def __init__(self, answers: int, pause_s: float = 0.0) -> None:
        self._answers, self._pause_s = answers, pause_s
        self.requests = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for count in range(self._answers + 1):
            if not await reader.readline():
                break
            await reader.readuntil(b"\r\n\r\nbody")
            self.requests += 1
            if count < self._answers:
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
                await writer.drain()
        await asyncio.sleep(self._pause_s)
        writer.close()


@asynccontextmanager
async def served(server: Closing) -> AsyncIterator[tuple[httpx.AsyncClient, str]]:
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    async with listener, httpx.AsyncClient(trust_env=False) as client:
        yield client, f"http://127.0.0.1:{port}/"


async def asked(client: httpx.AsyncClient, url: str) -> bytes:
    response = await send_kept(client, client.build_request("POST", url, content=b"body"))
    return await response.aread()


async def test_a_request_that_meets_the_end_of_a_kept_connection_is_answered() -> None:
    server = Closing(answers=1)
    async with served(server) as (client, url):
        assert [await asked(client, url) for _ in range(3)] == [b"ok"] * 3
    assert server.requests == 5  # the second and the third met an end


async def test_a_server_that_breaks_on_a_connection_of_the_request_s_own_is_asked_once() -> None:
    server = Closing(answers=0)
    async with served(server) as (client, url):
        with pytest.raises(httpx.RemoteProtocolError):
            await asked(client, url)
    assert server.requests == 1


async def test_a_server_that_breaks_after_a_while_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine_adapters.remote.kept_connections._AT_ONCE", 0.05)
    server = Closing(answers=1, pause_s=0.2)
    async with served(server) as (client, url):
        assert await asked(client, url) == b"ok"
        with pytest.raises(httpx.RemoteProtocolError):
            await asked(client, url)
    assert server.requests == 2
