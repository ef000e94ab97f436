"""uvicorn's HTTP protocol with our error shape for what is no HTTP, and a bound on request heads."""

import uuid

import orjson
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from gateway.errors import ApiError

MAX_HEAD_BYTES = 256 * 1024  # request line and headers of one request, beyond its first packet

_REASONS = {400: b"Bad Request", 431: b"Request Header Fields Too Large"}


class GatewayHttpProtocol(HttpToolsProtocol):
    """One connection."""

    _in_head = False
    _head_bytes = 0

    def data_received(self, data: bytes) -> None:
        began_in_head = self._in_head
        super().data_received(data)
        if began_in_head and self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
                self._refuse(ApiError(431, "The request's headers are too large.", code="headers_too_large"))

    def on_message_begin(self) -> None:
        self._in_head = True
        self._head_bytes = 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_head = False
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        self._refuse(ApiError(400, msg, code="invalid_http"))

    def _refuse(self, error: ApiError) -> None:
        body = orjson.dumps(error.body())
        head = (
            b"HTTP/1.1 %d %s\r\n" % (error.status, _REASONS[error.status]),
            b"content-type: application/json\r\n",
            b"content-length: %d\r\n" % len(body),
            b"x-request-id: req_%s\r\n" % uuid.uuid4().hex.encode(),
            b"connection: close\r\n\r\n",
        )
        self.transport.write(b"".join(head) + body)
        self.transport.close()
