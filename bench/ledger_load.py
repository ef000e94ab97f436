"""Load for the ledger's bench: an engine that answers at once, and clients that send at an even pace."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import orjson

_ANSWER = orjson.dumps(
    {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [
            {"index": 0, "message": {"role": "assistant", "content": "Yes."}, "finish_reason": "stop"}
        ],
        "usage": {
            "prompt_tokens": 900,
            "completion_tokens": 3,
            "total_tokens": 903,
            "prompt_tokens_details": {"cached_tokens": 800},
        },
    }
)
_MODELS = orjson.dumps({"object": "list", "data": [{"id": "m", "object": "model", "owned_by": "bench"}]})
BODY = orjson.dumps(
    {
        "model": "m",
        "messages": [
            {"role": "system", "content": "Answer briefly. " * 20},
            {"role": "user", "content": "Is water wet?"},
        ],
    }
)


def _message(start: str, body: bytes) -> bytes:
    head = f"{start}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


async def _read(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """Head and body of one message with a length."""
    head = await reader.readuntil(b"\r\n\r\n")
    lower = head.lower()
    at = lower.find(b"content-length:")
    size = int(lower[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
    return head, await reader.readexactly(size)


@asynccontextmanager
async def engine() -> AsyncIterator[int]:
    """An engine that answers every chat alike; its port. Its clients must be gone at the end."""
    chat, models = _message("HTTP/1.1 200 OK", _ANSWER), _message("HTTP/1.1 200 OK", _MODELS)
    tasks: list[asyncio.Task[None] | None] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.append(asyncio.current_task())
        try:
            while True:
                head, _ = await _read(reader)
                writer.write(models if head.startswith(b"GET") else chat)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield int(server.sockets[0].getsockname()[1])
    finally:
        server.close()
        await asyncio.gather(*(task for task in tasks if task is not None))


@dataclass(frozen=True, slots=True)
class Load:
    """What was sent."""

    requests: int
    failed: int
    seconds: float


async def send(port: int, requests: int, per_second: float, clients: int = 16) -> Load:
    """Requests at an even pace over connections that stay open; a late one is sent as soon as it can be."""
    sent = _message("POST /v1/chat/completions HTTP/1.1\r\nhost: bench", BODY)
    started, numbers, failed = time.perf_counter(), iter(range(requests)), 0

    async def client() -> None:
        nonlocal failed
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for number in numbers:
            await asyncio.sleep(max(0.0, started + number / per_second - time.perf_counter()))
            writer.write(sent)
            head, _ = await _read(reader)
            failed += not head.startswith(b"HTTP/1.1 200")
        writer.close()

    await asyncio.gather(*(client() for _ in range(clients)))
    return Load(requests, failed, time.perf_counter() - started)
