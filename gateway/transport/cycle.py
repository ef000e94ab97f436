"""uvicorn's answer to one request, with fewer steps: its head and what there is of its body leave together.

ASGI wants it so: a head is not sent before the first message with a body. Each write is a call of the system, and
wakes whoever reads.
"""

from typing import Any

from uvicorn.protocols.http.httptools_impl import (
    HEADER_RE,
    HEADER_VALUE_RE,
    STATUS_LINE,
    RequestResponseCycle,
)

_NO_BODY = (204, 304)
_FRAMING = frozenset((b"content-length", b"transfer-encoding", b"connection"))
_COPIED = 65_536  # bytes; longer ones are not put behind their head first


class GatewayCycle(RequestResponseCycle):
    """One request and its answer."""

    _head = b""  # that was not written yet

    async def send(self, message: Any) -> None:
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()
        if self.disconnected:
            return
        kind = message["type"]
        if self.response_complete:
            raise RuntimeError(f"Unexpected ASGI message '{kind}' sent, after response already completed.")
        wanted = "http.response.body" if self.response_started else "http.response.start"
        if kind != wanted:
            raise RuntimeError(f"Expected ASGI message '{wanted}', but got '{kind}'.")
        if self.response_started:
            self._send_body(message.get("body", b""), more=message.get("more_body", False))
        else:
            self.response_started = True
            self.waiting_for_100_continue = False
            self._head = self._head_of(message["status"], message.get("headers", ()))

    def _head_of(self, status: int, headers: Any) -> bytes:
        headers = [*self.default_headers, *headers]
        # All at once: a call for each would take longer than all the rest.
        if HEADER_RE.search(b"".join([name for name, _ in headers])):
            raise RuntimeError("Invalid HTTP header name.")
        if HEADER_VALUE_RE.search(b"".join([value for _, value in headers])):
            raise RuntimeError("Invalid HTTP header value.")
        told = [(name.lower(), value) for name, value in headers]
        lines, closes = [STATUS_LINE[status], *[b"%b: %b\r\n" % each for each in told]], False
        for name, value in told:
            if name not in _FRAMING:
                continue
            if name == b"content-length" and self.chunked_encoding is None:
                self.expected_content_length, self.chunked_encoding = int(value), False
            elif name == b"transfer-encoding" and value.lower() == b"chunked":
                self.expected_content_length, self.chunked_encoding = 0, True
            elif name == b"connection":
                closes = closes or b"close" in [token.lower().strip() for token in value.split(b",")]
        if closes:
            self.keep_alive = False
        elif not self.keep_alive:
            lines.append(b"connection: close\r\n")
        if self.chunked_encoding is None and self.scope["method"] != "HEAD" and status not in _NO_BODY:
            self.chunked_encoding = True
            lines.append(b"transfer-encoding: chunked\r\n")
        lines.append(b"\r\n")
        return b"".join(lines)

    def _send_body(self, body: bytes, *, more: bool) -> None:
        if self.scope["method"] == "HEAD":
            self.expected_content_length, written = 0, b""
        elif self.chunked_encoding:
            written = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
            if not more:
                written += b"0\r\n\r\n"
        else:
            self.expected_content_length -= len(body)
            if self.expected_content_length < 0:
                raise RuntimeError("Response content longer than Content-Length")
            written = body
        if self._head:
            head, self._head = self._head, b""
            if len(written) < _COPIED:
                self.transport.write(head + written)
            else:
                self.transport.writelines((head, written))
        elif written:
            self.transport.write(written)
        if not more:
            self._complete()

    def _complete(self) -> None:
        if self.expected_content_length:
            raise RuntimeError("Response content shorter than Content-Length")
        self.response_complete = True
        self.message_event.set()
        if not self.keep_alive:
            self.transport.close()
        self.on_response()
