"""The peer: parse the body, send it on with aiohttp, pass the answer back, nothing else.

`python -m bench.gateway.bare_relay http://127.0.0.1:PORT`
"""

import sys
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import orjson
import uvicorn

from gateway.process.listener import listen, url_of


class BareRelay:
    """One ASGI app."""

    def __init__(self, upstream: str) -> None:
        self._url = f"{upstream}/v1/chat/completions"
        self._session: aiohttp.ClientSession | None = None

    async def __call__(
        self,
        scope: dict[str, Any],
        receive: Callable[[], Awaitable[dict[str, Any]]],
        send: Callable[[dict[str, Any]], Awaitable[None]],
    ) -> None:
        if self._session is None:
            connector = aiohttp.TCPConnector(limit=0)
            self._session = aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(600))
        parts, more = [], True
        while more:
            message = await receive()
            parts.append(message.get("body", b""))
            more = message.get("more_body", False)
        body = b"".join(parts)
        orjson.loads(body)
        headers = {"content-type": "application/json"}
        async with self._session.post(self._url, data=body, headers=headers) as answer:
            passed = [(b"content-type", answer.headers["content-type"].encode())]
            length = answer.headers.get("content-length")
            if length is not None:
                passed.append((b"content-length", length.encode()))
            await send({"type": "http.response.start", "status": answer.status, "headers": passed})
            async for chunk in answer.content.iter_any():
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


def _serve(upstream: str) -> None:
    listener = listen("127.0.0.1", 0)
    sys.stdout.write(f"{url_of(listener)}\n")
    sys.stdout.flush()
    app: Any = BareRelay(upstream)
    config = uvicorn.Config(
        app, loop="uvloop", http="httptools", ws="none", lifespan="off", log_config=None, access_log=False
    )
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    _serve(sys.argv[1])
