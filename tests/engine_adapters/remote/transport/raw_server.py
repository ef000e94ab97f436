"""A server that answers with the bytes it is given, and does to its connection what it is told."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

from engine_adapters.remote.transport import Bounds, EngineClient

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

BOUNDS = Bounds(connect_s=5, read_s=5, write_s=5, free_s=5, connections=16)


def whole(body: bytes, *headers: str, status: str = "200 OK") -> bytes:
    """An answer with its length."""
    lines = [f"HTTP/1.1 {status}", f"content-length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


async def request(reader: asyncio.StreamReader) -> bytes:
    """The next request's body, or a word where it has none; empty when there is none."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        return b""
    if b"content-length" not in head.lower():
        return b"nothing"
    size = int(head.lower().split(b"content-length: ", 1)[1].split(b"\r\n", 1)[0])
    return await reader.readexactly(size)


def answering(*parts: bytes, close: bool = False, pause_s: float = 0.005) -> Serve:
    """Answers every request with these bytes, a moment between them."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await request(reader):
            for part in parts:
                writer.write(part)
                await writer.drain()
                await asyncio.sleep(pause_s if len(parts) > 1 else 0)
            if close:
                break
        writer.close()

    return serve


@asynccontextmanager
async def served(serve: Serve, **bounds: float) -> AsyncIterator[tuple[EngineClient, str]]:
    """A client and the URL of a server; how many connections there are is not limited."""
    tasks: list[asyncio.Task[None]] = []

    async def tracked(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.append(task)
        try:
            await serve(reader, writer)
        except (ConnectionError, asyncio.CancelledError):
            writer.close()

    listener = await asyncio.start_server(tracked, "127.0.0.1", 0)
    client = EngineClient(replace(BOUNDS, **bounds))  # type: ignore[arg-type]
    port = listener.sockets[0].getsockname()[1]
    try:
        yield client, f"http://127.0.0.1:{port}/v1/chat"
    finally:
        await client.aclose()
        listener.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def asked(client: EngineClient, url: str, body: bytes = b"body") -> bytes:
    """The whole answer to one request."""
    exchange = await client.ask("POST", url, body, {})
    try:
        return await exchange.read()
    finally:
        exchange.close()
