"""Copies of the bodies that pass, for `gateway.ledger.capture`; requests outside its share pass untouched."""

from dataclasses import dataclass, field

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.ledger.capture import BodyCapture
from gateway.transport.record import record_of

_PATHS = frozenset({"/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"})


@dataclass(slots=True)
class _Copy:
    """Bytes up to a bound; past it nothing is kept at all."""

    limit: int
    size: int = 0
    ended: bool = False
    parts: list[bytes] = field(default_factory=list)

    def add(self, message: Message) -> None:
        data = message.get("body", b"")
        self.size += len(data)
        self.ended = self.ended or not message.get("more_body", False)
        if self.size <= self.limit:
            self.parts.append(data)
        else:
            self.parts.clear()

    def whole(self) -> bytes | None:
        return b"".join(self.parts) if self.ended and 0 < self.size <= self.limit else None


class CaptureBodies:
    """Stands behind `RequestContext`, which gives requests their ids."""

    def __init__(self, app: ASGIApp, capture: BodyCapture) -> None:
        self._app = app
        self._capture = capture

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if (
            scope["type"] != "http"
            or scope["path"] not in _PATHS
            or not self._capture.wants(record_of(scope).id)
        ):
            await self._app(scope, receive, send)
            return
        limit = self._capture.body_bytes
        request, response = _Copy(limit), _Copy(limit)
        status, stream = 0, False

        async def receive_copied() -> Message:
            message = await receive()
            if message["type"] == "http.request" and not request.ended:
                request.add(message)
            return message

        async def send_copied(message: Message) -> None:
            nonlocal status, stream
            if message["type"] == "http.response.start":
                status = message["status"]
                stream = any(
                    name.lower() == b"content-type" and b"event-stream" in value
                    for name, value in message.get("headers", ())
                )
            elif message["type"] == "http.response.body":
                response.add(message)
            await send(message)

        try:
            await self._app(scope, receive_copied, send_copied)
        finally:
            if request.size > limit:
                self._capture.too_large()
            elif (body := request.whole()) is not None:
                self._take(scope, body, response.whole() if status == 200 else None, stream=stream)

    def _take(self, scope: Scope, request: bytes, response: bytes | None, *, stream: bool) -> None:
        record = record_of(scope)
        self._capture.take(
            record.id,
            request,
            response=response,
            stream=stream,
            tenant=record.tenant.name,
            model=record.model or "",
            engine=record.engine or "",
        )
