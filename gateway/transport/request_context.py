"""The outermost middleware: an id for every answer, a record of every request, no leaked internals."""

import random
import re
import time
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.errors import ClientGoneError, StreamAbortedError, internal
from gateway.routing.explained import header as route_header
from gateway.transport.answer import send_error
from gateway.transport.record import RequestRecord, attach, log_unexpected
from gateway.wire.usage import REUSE_HEADER, reuse_header

Ended: TypeAlias = Callable[[RequestRecord], None]

_CLIENT_ID = re.compile(rb"[A-Za-z0-9._:-]{1,128}")
_GONE_STATUS = 499


class RequestContext:
    """Gives each request an `x-request-id` (the client's own where it is a plain word) and records it.

    `ended` gets every record once, and raises nothing.
    """

    def __init__(self, app: ASGIApp, ended: Ended) -> None:
        self._app = app
        self._ended = ended

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        record = RequestRecord(id=_request_id(scope), method=scope["method"], path=scope["path"])
        attach(scope, record)
        header = (b"x-request-id", record.id.encode())

        def send_with_id(message: Message) -> Awaitable[None]:
            if message["type"] == "http.response.start":
                record.status = message["status"]
                told = [] if record.canon is None else [(b"x-kvgate-canon", record.canon.header())]
                if record.reuse is not None and record.status < 400:  # an answer that is no stream
                    told.append((REUSE_HEADER, reuse_header(record.reuse)))
                if record.tenant.admin and record.routed is not None:
                    told.append((b"x-kvgate-route", route_header(record.routed)))
                given = message.get("headers", ())
                if record.told:  # an engine's own limits are not those of the client
                    ours = {name for name, _ in record.told}
                    given = [each for each in given if each[0] not in ours]
                message = {**message, "headers": [*given, header, *told, *record.told]}
            return send(message)

        try:
            await self._app(scope, receive, send_with_id)
        except StreamAbortedError:
            # Returning without completing the answer makes the server cut the connection.
            record.outcome = "aborted"
        except ClientGoneError:
            record.outcome = record.error = "client_gone"
            record.status = record.status or _GONE_STATUS
        except Exception as error:  # noqa: BLE001  the last one who can still answer
            record.outcome, record.error = "failed", "internal_error"
            log_unexpected(record, error)
            if record.status is None:
                await send_error(send_with_id, internal())
        finally:
            record.ended = time.perf_counter()
            self._ended(record)


def _request_id(scope: Scope) -> str:
    for name, value in scope["headers"]:
        if name == b"x-request-id" and _CLIENT_ID.fullmatch(value):
            return str(value.decode())
    return f"req_{random.getrandbits(128):032x}"
