"""A request's body: read within bounds, parsed, and refused in words when it is not a JSON object."""

import asyncio
import gc
import threading
from collections.abc import Callable, Mapping
from typing import Any

import orjson
from starlette.types import Receive

from gateway.errors import ApiError, ClientGoneError, invalid
from gateway.settings import GatewaySettings
from gateway.transport.eager import within

MAX_DEPTH = 128  # levels of objects and arrays; templates and grammars recurse over what they are given
MAX_PARTS = 300_000  # objects, arrays and members of objects: checking more of them would hold up everyone

_SMALL = 16 * 1024  # bytes, whose values the garbage collector hardly notices

_parsing = threading.Lock()


async def read_body(
    headers: Mapping[bytes, bytes],
    receive: Receive,
    settings: GatewaySettings,
    hold: Callable[[int], None],
    largest: int | None = None,
) -> bytes:
    """All bytes of the body; `hold` is told of each piece before it is kept and may refuse it.

    `headers` are the request's, names in lower case. `largest` is how many bytes this client may send; None: as all.

    Raises:
        ApiError: 413 as soon as it is known to be too large, 408 when it takes too long, 415 when compressed.
        ClientGoneError: the client left while it sent.
    """
    most = settings.max_body_bytes if largest is None else min(largest, settings.max_body_bytes)
    _check_headers(headers, most)
    pieces: list[bytes] = []
    size = 0

    loop, more = asyncio.get_running_loop(), True
    until = loop.time() + settings.body_timeout_s
    try:
        while more:
            message = await within(until - loop.time(), receive())  # mostly all of it is there
            if message["type"] == "http.disconnect":
                raise ClientGoneError("left while sending its body")
            piece = message.get("body", b"")
            size += len(piece)
            if size > most:
                raise _too_large(most, headers)
            hold(len(piece))
            pieces.append(piece)
            more = bool(message.get("more_body", False))
    except TimeoutError:
        wait = f"{settings.body_timeout_s:g}"
        headers_out = {"connection": "close"}
        raise ApiError(408, f"The body did not arrive within {wait} s.", headers=headers_out) from None
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _check_headers(headers: Mapping[bytes, bytes], most: int) -> None:
    encoding = headers.get(b"content-encoding")
    if encoding is not None and encoding.strip().lower() not in (b"identity", b""):
        raise ApiError(415, "Compressed request bodies are not supported.", code="unsupported_encoding")
    length = headers.get(b"content-length", b"")
    if length.isdigit() and int(length[:20]) > most:
        raise _too_large(most, headers)


def _too_large(most: int, headers: Mapping[bytes, bytes]) -> ApiError:
    # A client that waits for "100 Continue" may never send the body, so this connection has no next request.
    waits = headers.get(b"expect", b"").lower() == b"100-continue"
    message = f"The body is larger than {most} bytes."
    closing = {"connection": "close"} if waits else None
    return ApiError(413, message, code="request_too_large", headers=closing)


def parse_object(raw: bytes) -> dict[str, Any]:
    """The JSON object in `raw`; raises ApiError 400 saying where the text stops being one."""
    try:
        body = _loads(raw)
    except orjson.JSONDecodeError as error:
        message = f"The body is not valid JSON: {error}"
        raise invalid(message, code="invalid_json") from None
    if not isinstance(body, dict):
        kind = {list: "an array", str: "a string", bool: "a boolean", type(None): "null"}.get(
            type(body), "a number"
        )
        raise invalid(f"The body must be a JSON object, not {kind}.", code="invalid_type")
    # A value has no more levels than there are brackets, and no more parts than bytes: mostly that says enough.
    if len(raw) > MAX_PARTS or raw.count(b"{") + raw.count(b"[") > MAX_DEPTH:
        _check_shape(body)
    return body


def _loads(raw: bytes) -> Any:
    """Parse without the garbage collector, whose passes over the new values take longer than all the rest.

    Parsing never lets another thread run, so nobody else does without it, and the lock is never waited for long.
    """
    if len(raw) <= _SMALL:
        return orjson.loads(raw)
    with _parsing:
        collecting = gc.isenabled()
        gc.disable()
        try:
            return orjson.loads(raw)
        finally:
            if collecting:
                gc.enable()


def _check_shape(body: dict[str, Any]) -> None:
    """Refuse too many levels, or too many parts. Plain items of arrays, such as token ids, are no parts."""
    level: list[Any] = [body]
    parts = 0
    for _ in range(MAX_DEPTH):
        parts += len(level) + sum(len(node) for node in level if type(node) is dict)
        if parts > MAX_PARTS:
            raise invalid(f"The body has more than {MAX_PARTS} objects and members.", code="invalid_json")
        level = [
            child
            for node in level
            for child in (node.values() if type(node) is dict else node)
            if type(child) is dict or type(child) is list
        ]
        if not level:
            return
    raise invalid(f"The body is nested deeper than {MAX_DEPTH} levels.", code="invalid_json")
