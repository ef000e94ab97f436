"""Clients that dribble: a head that never ends, empty lines, bodies that nobody reads. None holds a connection."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator

import pytest

from engine_adapters.base import Event, GenerateRequest
from gateway.transport.http_protocol import GatewayHttpProtocol
from tests.gateway.running_server import Running, running
from tests.gateway.scripted_engine import MODEL, hello

HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n"


@pytest.fixture
def server(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    """One that waits for heads for 0.4 s, or as long as the test says."""
    monkeypatch.setattr(GatewayHttpProtocol, "head_s", getattr(request, "param", 0.4))
    with running() as it:
        yield it


def connected(server: Running) -> socket.socket:
    raw = socket.create_connection(("127.0.0.1", server.port))
    raw.settimeout(0.05)
    return raw


def dribble(raw: socket.socket, data: bytes, times: int = 1000) -> bytes:
    """Send `data` again and again until the other side has ended the connection; what it said."""
    said = b""
    for _ in range(times):
        try:
            raw.sendall(data)
            piece = raw.recv(65536)
        except TimeoutError:
            continue
        except OSError:  # it takes no more; what it said before that may still wait here
            return said + _left(raw)
        if not piece:
            return said
        said += piece
    raise AssertionError(f"the connection lives: {said!r}")


def _left(raw: socket.socket) -> bytes:
    said = b""
    with contextlib.suppress(OSError):
        while piece := raw.recv(65536):
            said += piece
    return said


def test_a_head_that_never_ends_is_refused_in_words(server: Running) -> None:
    with connected(server) as raw:
        raw.sendall(HEAD)
        said = dribble(raw, b"x-more: 1\r\n")
    assert said.startswith(b"HTTP/1.1 408 ")
    assert b"headers_too_late" in said


@pytest.mark.parametrize("data", [b"", b"\r\n"], ids=["nothing", "empty lines"])
def test_a_connection_that_asks_for_nothing_is_closed(server: Running, data: bytes) -> None:
    with connected(server) as raw:
        assert dribble(raw, data) == b""


@pytest.mark.parametrize("server", [1.0], indirect=True)
@pytest.mark.parametrize("data", [b"\r\n", b"GET"], ids=["empty lines", "half a head"])
def test_behind_an_answer_it_is_the_same(server: Running, data: bytes) -> None:
    with connected(server) as raw:
        raw.sendall(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n")
        raw.settimeout(60)
        assert raw.recv(65536).startswith(b"HTTP/1.1 200 ")
        raw.settimeout(0.05)
        said = dribble(raw, data)
    assert b"HTTP/1.1 200 " not in said


def test_a_body_that_nobody_reads_holds_nothing(server: Running) -> None:
    with connected(server) as raw:
        raw.sendall(b"POST /nowhere HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000\r\n\r\n")
        assert dribble(raw, b"x").startswith(b"HTTP/1.1 404 ")


@pytest.mark.parametrize("server", [1.0], indirect=True)
def test_a_stream_goes_on_though_a_late_head_stands_behind_it(server: Running) -> None:
    async def slow(request: GenerateRequest) -> AsyncIterator[Event]:
        await asyncio.sleep(2.5)
        async for event in hello(request):
            yield event

    server.engine.script = slow
    body = b'{"model": "%s", "stream": true, "messages": [{"role": "user", "content": "a"}]}' % MODEL.encode()
    with connected(server) as raw:
        raw.sendall(HEAD + b"content-length: %d\r\n\r\n%b" % (len(body), body) + b"GET /he")
        raw.settimeout(60)
        said = b""
        while b"[DONE]" not in said:
            piece = raw.recv(65536)
            assert piece, said
            said += piece


@pytest.mark.parametrize("server", [60.0], indirect=True)
def test_heads_in_pieces_that_come_in_time_are_answered(server: Running) -> None:
    with connected(server) as raw:
        raw.settimeout(60)
        for _ in range(3):
            for piece in (b"GET /hea", b"lth HTTP/1.1\r\nho", b"st: x\r\n\r\n"):
                raw.sendall(piece)
            assert raw.recv(65536).startswith(b"HTTP/1.1 200 ")
