"""uvicorn's HTTP protocol with our error shape for what is no HTTP, and bounds on request heads."""

import asyncio
import uuid
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import ClassVar, cast
from urllib.parse import unquote

import httptools
import orjson
from starlette.types import Scope
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from gateway.errors import ApiError
from gateway.transport.cycle import GatewayCycle
from gateway.transport.disconnect import introduce
from gateway.transport.half_closed import StillThere

_SHORT_URL = 64  # bytes; longer ones are not kept
MAX_HEAD_BYTES = 256 * 1024  # request line and headers of one request, beyond its first packet

_REASONS = {400: b"Bad Request", 408: b"Request Timeout", 431: b"Request Header Fields Too Large"}


class GatewayHttpProtocol(HttpToolsProtocol):
    """One connection."""

    head_s: ClassVar[float] = 30.0  # that a head may take, from its first byte or the connection's begin

    _in_head = False
    _head_bytes = 0
    _resuming = False  # the parser is being told of a request whose head was read before
    _lost = False
    _half_closed = False  # the client has sent all that it will ever send
    _asking: StillThere | None = None  # since then
    _idle_since = 0.0  # of the loop's clock
    _watching: dict[Callable[[], None], None]  # in order
    # Runs while a head is waited for and something has come, or nothing ever has.
    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watching = {}
        self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_came()
        self._unset_keepalive_if_required()
        if self._asking is not None:
            self._asking.end()
        super().connection_lost(exc)
        self._lost = True
        watching, self._watching = self._watching, {}
        for then in watching:
            then()

    def eof_received(self) -> bool:  # type: ignore[override]
        """The client sends no more. True: it may wait for answers still; else the connection is closed."""
        if self._half_closed:
            return True
        if not self._all_asked or self.scope["http_version"] == "1.0":
            return False
        self._half_closed = True
        cycle = self.cycle
        self._asking = StillThere(self.transport, lambda: cycle is None or cycle.response_started)
        self._asking.ask()
        return True

    @property
    def _all_asked(self) -> bool:
        """Whether requests are answered now, each of them wholly here."""
        if self._in_head or not self._answering:
            return False
        return not any(cycle.more_body for cycle in (self.cycle, *(each for each, _ in self.pipeline)))

    def data_received(self, data: bytes) -> None:
        began_in_head = self._in_head
        self._parse(data)
        # Whatever came (empty lines, the rest of a body that was not read), it ended the wait for a next request.
        if self._late is None and not self._answering:
            self._wait_for_head()
        if began_in_head and self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
                self._refuse(ApiError(431, "The request's headers are too large.", code="headers_too_large"))

    def _parse(self, data: bytes) -> None:
        try:
            while data:
                data = self._behind_an_offer(data)
        except httptools.HttpParserError:
            self.send_400_response("This is no valid HTTP request.")

    def _behind_an_offer(self, data: bytes) -> bytes:
        """Parse; what is left to do is what comes behind the head of a request that offers another protocol."""
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as offered:
            self._decline()
            return data[offered.args[0] :]
        return b""

    def _decline(self) -> None:
        """Go on in this protocol, although the request offers another.

        Clients that prefer HTTP/2 do so with every request. The parser takes all behind its head for the other
        protocol; to anyone in front of us it is the body, and must not be taken for a request. So another parser
        goes on, told of the body's end by the same headers.
        """
        self.parser = httptools.HttpRequestParser(self)
        framing = _framing(self.headers)
        if framing:
            self._resuming = True
            self.parser.feed_data(b"POST / HTTP/1.1\r\n" + framing + b"\r\n")
            self._resuming = False

    def on_message_begin(self) -> None:
        if not self._resuming:
            self._in_head = True
            self._head_bytes = 0
            super().on_message_begin()
            introduce(cast(Scope, self.scope), self)

    def on_url(self, url: bytes) -> None:
        if not self._resuming:
            super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._resuming:
            return
        name = name.lower()
        if name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        self.headers.append((name, value))

    def when_gone(self, then: Callable[[], None]) -> None:
        if self._lost:
            self.loop.call_soon(then)
        else:
            self._watching[then] = None

    def never_mind(self, then: Callable[[], None]) -> None:
        self._watching.pop(then, None)

    def on_headers_complete(self) -> None:
        if not self._resuming:
            self._in_head = False
            self._head_came()
            self._begin_request()

    def _begin_request(self) -> None:
        """As uvicorn does it, for answers that are written as `GatewayCycle` does."""
        scope, parser = cast(Scope, self.scope), self.parser
        scope["method"] = parser.get_method().decode("ascii")
        version = scope["http_version"] = parser.get_http_version()
        path, raw_path, query = (_parts if len(self.url) <= _SHORT_URL else _parts.__wrapped__)(self.url)
        scope["path"] = self.root_path + path
        scope["raw_path"] = self.root_path.encode("ascii") + raw_path
        scope["query_string"] = query
        before = self.cycle
        self.cycle = GatewayCycle(
            scope=self.scope,
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=False,
            default_headers=self.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=self.expect_100_continue,
            keep_alive=version != "1.0" and parser.should_keep_alive(),
            on_response=self.on_response_complete,
        )
        if before is None or before.response_complete:
            self._start_asgi_task(self.cycle, self.app)
        else:  # one behind the other: the client did not wait for an answer
            self.flow.pause_reading()
            self.pipeline.appendleft((self.cycle, self.app))

    def on_message_complete(self) -> None:
        if not (self.parser.should_upgrade() and _framing(self.headers)):
            super().on_message_complete()

    def on_response_complete(self) -> None:
        """As uvicorn does it, with one timer for all the times that a connection idles: mostly they end soon."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
            return
        if self._half_closed:
            self.transport.close()
            return
        self._idle_since = self.loop.time()
        if self.timeout_keep_alive_task is None:
            self._end_idle_in(self.timeout_keep_alive)

    def _end_idle_in(self, seconds: float) -> None:
        self.timeout_keep_alive_task = self.loop.call_later(seconds, self._idles)

    def _idles(self) -> None:
        """Whether it has idled for too long; who answers, or waits for the rest of a head, begins anew behind that."""
        self.timeout_keep_alive_task = None
        if self.transport.is_closing() or self._answering or self._late is not None:
            return
        left_s = self._idle_since + self.timeout_keep_alive - self.loop.time()
        if left_s > 0:
            self._end_idle_in(left_s)
        else:
            self.transport.close()

    @property
    def _answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _wait_for_head(self) -> None:
        self._late = self.loop.call_later(self.head_s, self._head_is_late)

    def _head_came(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _head_is_late(self) -> None:
        self._late = None
        if self.transport.is_closing():
            return
        if self._answering:  # what comes behind it is late, which must not end it
            self._wait_for_head()
        elif self._in_head:
            message = f"The request's headers did not arrive within {self.head_s:g} s."
            self._refuse(ApiError(408, message, code="headers_too_late"))
        else:
            self.transport.close()

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


@lru_cache(maxsize=256)
def _parts(url: bytes) -> tuple[str, bytes, bytes]:
    """Path, the same as it came, and query; clients ask for the same few again and again."""
    parsed = httptools.parse_url(url)
    path = parsed.path.decode("ascii")
    return unquote(path) if "%" in path else path, parsed.path, parsed.query or b""


def _framing(headers: Sequence[tuple[bytes, bytes]]) -> bytes:
    """The lines of a head that say where its body ends; empty: it has none."""
    return b"".join(
        b"%s: %s\r\n" % (name, value)
        for name, value in headers
        if name in (b"content-length", b"transfer-encoding")
    )
