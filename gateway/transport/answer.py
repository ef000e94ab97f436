"""Whole JSON answers."""

from collections.abc import Mapping
from typing import Any

import orjson
from starlette.responses import Response
from starlette.types import Send

from gateway.errors import ApiError


def json_response(
    body: Mapping[str, Any], *, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """One complete JSON answer, for routes."""
    return Response(orjson.dumps(body), status, headers, media_type="application/json")


async def send_json(
    send: Send, body: Mapping[str, Any], *, status: int = 200, headers: Mapping[str, str] | None = None
) -> None:
    """Send one complete JSON answer as plain ASGI messages."""
    response = json_response(body, status=status, headers=headers)
    await send({"type": "http.response.start", "status": status, "headers": response.raw_headers})
    await send({"type": "http.response.body", "body": response.body})


async def send_bytes(send: Send, body: bytes, *, status: int, headers: Mapping[str, str]) -> None:
    """Send one complete answer, whose length is known."""
    given = {**headers, "content-length": str(len(body))}
    raw = [(name.encode(), value.encode("latin-1")) for name, value in given.items()]
    await send({"type": "http.response.start", "status": status, "headers": raw})
    await send({"type": "http.response.body", "body": body})


async def send_error(send: Send, error: ApiError) -> None:
    """Send `error` as the complete answer."""
    await send_json(send, error.body(), status=error.status, headers=error.headers)
