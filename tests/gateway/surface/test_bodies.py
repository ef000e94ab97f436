"""Bodies on the wire: split, too large, too slow, and connections that go on after an error."""

import contextlib
import json
import socket
from collections.abc import Iterator

import httpx
import pytest

from gateway.settings import GatewaySettings
from tests.gateway.running_server import Running, running
from tests.gateway.scripted_engine import MODEL
from tests.gateway.surface.test_errors import check_shape

CHAT = "/v1/chat/completions"
RAW = json.dumps({"model": MODEL, "messages": [{"role": "user", "content": "Hé"}]}).encode()
LIMIT = 4096


@pytest.fixture(scope="module")
def small() -> Iterator[Running]:
    with running(GatewaySettings(max_body_bytes=LIMIT)) as it:
        yield it


def pieces(data: bytes, size: int) -> Iterator[bytes]:
    for start in range(0, len(data), size):
        yield data[start : start + size]


@pytest.mark.parametrize("size", [1, 3, 7])
def test_a_body_may_come_in_pieces(server: Running, size: int) -> None:
    assert server.http.post(CHAT, content=pieces(RAW, size)).status_code == 200


def test_a_request_may_come_byte_by_byte(server: Running) -> None:
    head = (
        f"POST {CHAT} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {len(RAW)}\r\n\r\n".encode()
    )
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in pieces(head + RAW, 1):
            client.sendall(byte)
        assert client.recv(20).startswith(b"HTTP/1.1 200")


def test_a_body_too_large_by_its_length_is_413(small: Running) -> None:
    response = small.http.post(CHAT, content=b"x" * (LIMIT + 1))
    assert response.status_code == 413
    assert check_shape(response)["code"] == "request_too_large"


def test_a_body_too_large_without_a_length_is_413(small: Running) -> None:
    response = small.http.post(CHAT, content=pieces(b"x" * (50 * LIMIT), 1000))
    assert response.status_code == 413
    check_shape(response)


@pytest.mark.parametrize("length", ["99999999999999999999999999", "4097"])
def test_a_length_that_is_only_announced_is_413_at_once(small: Running, length: str) -> None:
    head = f"POST {CHAT} HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: {length}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", small.port), timeout=60) as client:
        client.sendall(head.encode())
        answer = client.recv(65536)
    status = answer.split(b" ")[1]
    assert status == b"413" if length == "4097" else status in (b"413", b"400")


def test_a_body_of_just_the_limit_is_read(small: Running) -> None:
    response = small.http.post(CHAT, content=RAW + b" " * (LIMIT - len(RAW)))
    assert response.status_code == 200


def test_a_long_conversation_passes_every_layer_below_the_limit(server: Running) -> None:
    turns = [{"role": "user", "content": "x" * 1000}] * 12_000
    response = server.http.post(CHAT, json={"model": MODEL, "messages": turns})
    assert check_shape(response)["code"] == "context_length_exceeded"


def test_bodies_held_together_are_bounded_and_given_back(serve_with) -> None:
    server = serve_with(max_buffered_bytes=1000)
    response = server.http.post(CHAT, content=b" " * 1001)
    assert response.status_code == 429
    check_shape(response)
    for _ in range(20):
        assert server.http.post(CHAT, content=RAW).status_code == 200


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
        (b"GET / HTTP/9.9\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nx: " + b"y" * 2_000_000, 431),
    ],
    ids=["TLS", "version", "two lengths", "length and chunks", "endless header"],
)
def test_what_is_no_http_is_refused_in_the_same_shape(server: Running, raw: bytes, status: int) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as client:
        with contextlib.suppress(ConnectionError):
            client.sendall(raw)
        answer = b""
        with contextlib.suppress(ConnectionResetError):
            while piece := client.recv(65536):
                answer += piece
    assert answer.startswith(b"HTTP/1.1 %d " % status)
    assert set(json.loads(answer.split(b"\r\n\r\n", 1)[1])["error"]) == {"message", "type", "param", "code"}


def test_a_body_that_never_comes_is_408(serve_with) -> None:
    server = serve_with(body_timeout_s=0.3)
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as client:
        client.sendall(f"POST {CHAT} HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\nabc".encode())
        answer = b""
        while piece := client.recv(65536):
            answer += piece
    assert answer.startswith(b"HTTP/1.1 408")


def test_expect_continue_is_answered(server: Running) -> None:
    head = f"POST {CHAT} HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: {len(RAW)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as client:
        client.sendall(head.encode())
        assert client.recv(100).startswith(b"HTTP/1.1 100")
        client.sendall(RAW)
        assert client.recv(100).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    ("raw", "status"),
    [(b"{", 400), (b"x" * (LIMIT + 1), 413), (b'{"model": "no"}', 400)],
    ids=["json", "size", "model"],
)
def test_a_connection_goes_on_after_an_error(small: Running, raw: bytes, status: int) -> None:
    transport = httpx.HTTPTransport(limits=httpx.Limits(max_connections=1))
    with httpx.Client(base_url=small.url, transport=transport, timeout=60) as http:
        for _ in range(3):
            assert http.post(CHAT, content=raw).status_code == status
            assert http.post(CHAT, content=RAW).status_code == 200


def test_pipelined_requests_are_answered_in_order(server: Running) -> None:
    def request(raw: bytes) -> bytes:
        return f"POST {CHAT} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(raw)}\r\n\r\n".encode() + raw

    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as client:
        client.sendall(request(b"{") + request(RAW) + request(b"[]") + request(RAW))
        data = b""
        while data.count(b"HTTP/1.1 ") < 4 or not data.endswith(b"}"):
            piece = client.recv(65536)
            assert piece, data
            data += piece
    statuses = [part[:3] for part in data.split(b"HTTP/1.1 ")[1:]]
    assert statuses == [b"400", b"200", b"400", b"200"]
