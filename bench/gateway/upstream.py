"""An engine that answers at once, as fast as one Python process can: `python -m bench.gateway.upstream`.

It serves `/v1/models` and `/v1/chat/completions`. A stream has `bench_chunks` chunks, one every `bench_pause_ms` (both
from the body). Whatever else is posted, an export of traces for example, is answered with `{}`.
"""

import asyncio
import sys
from typing import Any, cast

import orjson
import uvloop

from bench.gateway.bodies import MODEL

_USAGE = {
    "prompt_tokens": 250,
    "completion_tokens": 3,
    "total_tokens": 253,
    "prompt_tokens_details": {"cached_tokens": 96},
}


def _chunk(delta: dict[str, str], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    return _event({"choices": [choice]})


def _event(more: dict[str, Any]) -> bytes:
    event = {
        "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": MODEL, **more
    }  # fmt: skip
    return b"data: " + orjson.dumps(event) + b"\n\n"


_ANSWER = orjson.dumps(
    {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": MODEL,
        "choices": [
            {"index": 0, "message": {"role": "assistant", "content": "Yes, it is."}, "finish_reason": "stop"}
        ],
        "usage": _USAGE,
    }
)
_MODELS = orjson.dumps({"object": "list", "data": [{"id": MODEL, "object": "model", "owned_by": "bench"}]})
_STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
)
_TOKEN = _chunk({"content": " word"})
_END = b"0\r\n\r\n"


def _whole(body: bytes, status: str = "200 OK") -> bytes:
    head = f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


def _part(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


_CHAT, _LISTED, _NOTHING = _whole(_ANSWER), _whole(_MODELS), _whole(b"{}")
_MISSING = _whole(b'{"error": {"message": "nothing here"}}', "404 Not Found")
_TOKEN_PART = _part(_TOKEN)


class Upstream(asyncio.Protocol):
    """One connection; requests come one after the other."""

    def __init__(self) -> None:
        self._buffer = b""
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, error: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while (found := _request(self._buffer)) is not None:
            head, body, self._buffer = found
            self._answer(head, body)

    def _answer(self, head: bytes, body: bytes) -> None:
        if head.startswith(b"GET "):
            listed = head.startswith((b"GET /v1/models", b"GET /models"))
            self._transport.write(_LISTED if listed else _MISSING)
        elif b"/chat/completions" not in head.split(b"\r\n", 1)[0]:
            self._transport.write(_NOTHING)
        elif b'"stream":true' in body or b'"stream": true' in body:
            self._stream(orjson.loads(body))
        else:
            self._transport.write(_CHAT)

    def _stream(self, body: dict[str, Any]) -> None:
        self._left = int(body.get("bench_chunks", 20))
        self._pause_s = float(body.get("bench_pause_ms", 0)) / 1000
        self._usage = bool((body.get("stream_options") or {}).get("include_usage"))
        self._transport.write(_STREAM_HEAD + _part(_chunk({"role": "assistant", "content": ""})))
        self._due = self._loop.time()
        self._next()

    def _next(self) -> None:
        """One chunk now, the next one when its time has come, however late this one is."""
        if not self._left:
            usage = [_part(_event({"choices": [], "usage": _USAGE}))] if self._usage else []
            done = [_part(_chunk({}, "stop")), *usage, _part(b"data: [DONE]\n\n"), _END]
            self._transport.write(b"".join(done))
            return
        self._left -= 1
        self._transport.write(_TOKEN_PART)
        self._due += self._pause_s
        self._timer = self._loop.call_at(self._due, self._next)


def _request(data: bytes) -> tuple[bytes, bytes, bytes] | None:
    """Head, body and what comes behind them, once all of it is there."""
    end = data.find(b"\r\n\r\n")
    if end < 0:
        return None
    head = data[:end]
    lower = head.lower()
    at = lower.find(b"content-length:")
    size = int(lower[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
    start = end + 4
    if len(data) < start + size:
        return None
    return head, data[start : start + size], data[start + size :]


async def _serve() -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Upstream, "127.0.0.1", 0, backlog=4096)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(_serve())
