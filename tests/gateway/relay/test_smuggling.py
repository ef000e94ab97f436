"""Requests whose end is said in two ways, on raw sockets: none is answered as two, and no engine sees the second."""

import json
import socket
import time

import pytest

from tests.gateway.relay.fake_engine import MODEL, whole

BODY = json.dumps({"model": MODEL, "messages": [{"role": "user", "content": "Hi"}]}).encode()
INNER_BODY = json.dumps({"model": MODEL, "messages": [{"role": "user", "content": "smuggled"}]}).encode()
CHAT = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n"
INNER = CHAT + b"connection: close\r\ncontent-length: %d\r\n\r\n" % len(INNER_BODY) + INNER_BODY


def chunked(body: bytes, size: bytes | None = None, end: bytes = b"0\r\n\r\n") -> bytes:
    return (size or b"%x" % len(body)) + b"\r\n" + body + b"\r\n" + end


LENGTH = b"content-length: %d\r\n" % len(BODY)
CHUNKED = b"transfer-encoding: chunked\r\n"
# What must be refused: each is followed by a second request on the same connection.
REFUSED = {
    "length and chunks": CHAT + LENGTH + CHUNKED + b"\r\n" + chunked(BODY),
    "chunks and length": CHAT + CHUNKED + LENGTH + b"\r\n" + chunked(BODY),
    "length 0 and chunks": CHAT + CHUNKED + b"content-length: 0\r\n\r\n" + chunked(BODY),
    "two lengths": CHAT + LENGTH + b"content-length: 5\r\n\r\n" + BODY,
    "the same length twice": CHAT + LENGTH + LENGTH + b"\r\n" + BODY,
    "a list of lengths": CHAT + b"content-length: %d, %d\r\n\r\n" % (len(BODY), len(BODY)) + BODY,
    "a length with a sign": CHAT + b"content-length: +%d\r\n\r\n" % len(BODY) + BODY,
    "a negative length": CHAT + b"content-length: -1\r\n\r\n" + BODY,
    "a hexadecimal length": CHAT + b"content-length: 0x%x\r\n\r\n" % len(BODY) + BODY,
    "a length beyond all": CHAT + b"content-length: 99999999999999999999999\r\n\r\n" + BODY,
    "a length in words": CHAT + b"content-length: ten\r\n\r\n" + BODY,
    "an empty length": CHAT + b"content-length:\r\n\r\n" + BODY,
    "blank before the colon": CHAT + b"content-length : %d\r\n\r\n" % len(BODY) + BODY,
    "blank before chunks' colon": CHAT + b"transfer-encoding : chunked\r\n" + LENGTH + b"\r\n" + BODY,
    "another coding": CHAT + b"transfer-encoding: xchunked\r\n\r\n" + chunked(BODY),
    "chunks not last": CHAT + b"transfer-encoding: chunked, gzip\r\n\r\n" + chunked(BODY),
    "a bad chunk size": CHAT + CHUNKED + b"\r\n" + chunked(BODY, b"zz"),
    "a negative chunk size": CHAT + CHUNKED + b"\r\n" + chunked(BODY, b"-5"),
    "a chunk size beyond all": CHAT + CHUNKED + b"\r\n" + chunked(BODY, b"ffffffffffffffffff"),
    "a chunk longer than its size": CHAT + CHUNKED + b"\r\n" + chunked(BODY, b"5"),
    "a chunk size with a prefix": CHAT + CHUNKED + b"\r\n" + chunked(BODY, b"0x%x" % len(BODY)),
    "a nul in a header": CHAT + b"x: a\x00b\r\n" + LENGTH + b"\r\n" + BODY,
    "a nul in a name": CHAT + b"x\x00: a\r\n" + LENGTH + b"\r\n" + BODY,
    "a carriage return in a header": CHAT + b"x: a\rcontent-length: 0\r\n" + LENGTH + b"\r\n" + BODY,
    "no name": CHAT + b": a\r\n" + LENGTH + b"\r\n" + BODY,
    "no colon": CHAT + b"x a\r\n" + LENGTH + b"\r\n" + BODY,
    "a blank first": CHAT + b" x: a\r\n" + LENGTH + b"\r\n" + BODY,
    "a version that is none": CHAT.replace(b"HTTP/1.1", b"HTTP/1.x") + LENGTH + b"\r\n" + BODY,
    "a blank in the path": CHAT.replace(b"/completions HTTP", b"/com pletions HTTP")
    + LENGTH
    + b"\r\n"
    + BODY,
}
# A folded line is a part of its header's value to some, and a header of its own to others.
FOLDED = {
    "a folded header": CHAT + b"x: a\r\n content-length: 5\r\n" + LENGTH + b"\r\n" + BODY,
    "a folded coding": CHAT + b"x: a\r\n\ttransfer-encoding: chunked\r\n" + LENGTH + b"\r\n" + BODY,
}


@pytest.fixture
def pair(relay_to):
    return relay_to(lambda connection, _: connection.reply(whole(0)))


def talk(port: int, *sent: bytes, pieces: int = 1) -> bytes:
    """All that comes until the gateway ends the connection; each of `sent` goes in so many packets."""
    answer = b""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for data in sent:
            size = -(-len(data) // pieces)
            for start in range(0, len(data), size):
                client.sendall(data[start : start + size])
                time.sleep(0.01 if pieces > 1 else 0)
        try:
            while piece := client.recv(65536):
                answer += piece
        except ConnectionResetError:
            pass  # it did not read all that was sent
    return answer


@pytest.mark.parametrize("name", REFUSED)
def test_what_could_be_read_in_two_ways_is_refused_and_the_connection_ends(pair, name: str) -> None:
    answer = talk(pair.gateway.port, REFUSED[name] + INNER)
    assert answer.startswith(b"HTTP/1.1 4") or answer == b"", answer
    assert answer.count(b"HTTP/1.1 ") <= 1
    if answer:
        head, _, body = answer.partition(b"\r\n\r\n")
        assert b"x-request-id: " in head
        assert json.loads(body)["error"].keys() == {"message", "type", "param", "code"}
    assert pair.engine.asked == []


@pytest.mark.parametrize("name", FOLDED)
def test_a_folded_line_is_refused_or_one_value_and_never_a_header(pair, name: str) -> None:
    answer = talk(
        pair.gateway.port, FOLDED[name] + b"GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
    )
    statuses = [line for line in answer.split(b"\r\n") if line.startswith(b"HTTP/1.1 ")]
    assert statuses in ([b"HTTP/1.1 400 Bad Request"], [b"HTTP/1.1 200 OK"] * 2)
    assert [asked.raw for asked in pair.engine.asked] in ([], [BODY])


def test_a_request_inside_a_body_stays_a_body(pair) -> None:
    asked = (
        CHAT + b"content-length: %d\r\nconnection: close\r\n\r\n" % (len(BODY) + len(INNER)) + BODY + INNER
    )
    answer = talk(pair.gateway.port, asked)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.count(b"HTTP/1.1 ") == 1
    assert pair.engine.asked == []


def test_a_request_behind_another_is_one_of_its_own(pair) -> None:
    answer = talk(pair.gateway.port, CHAT + CHUNKED + b"\r\n" + chunked(BODY) + INNER)
    assert answer.count(b"HTTP/1.1 200 OK") == 2
    assert [asked.raw for asked in pair.engine.asked] == [BODY, INNER_BODY]
    assert all(asked.headers["content-length"] == str(len(asked.raw)) for asked in pair.engine.asked)
    assert all("transfer-encoding" not in asked.headers for asked in pair.engine.asked)


@pytest.mark.parametrize("pieces", [1, 2, 7])
@pytest.mark.parametrize("form", ["length", "chunks"])
@pytest.mark.parametrize("upgrade", [b"h2c", b"websocket", b"TLS/1.0"])
def test_a_body_is_a_body_where_another_protocol_is_offered(
    pair, upgrade: bytes, form: str, pieces: int
) -> None:
    head = (
        CHAT + b"connection: upgrade, http2-settings\r\nupgrade: " + upgrade + b"\r\nhttp2-settings: AA\r\n"
    )
    body = INNER_BODY.replace(b"smuggled", json.dumps(INNER.decode())[1:-1].encode())
    length = b"content-length: %d\r\n" % len(body)
    sent = head + (length + b"\r\n" + body if form == "length" else CHUNKED + b"\r\n" + chunked(body))
    answer = talk(pair.gateway.port, sent, INNER, pieces=pieces)
    assert answer.count(b"HTTP/1.1 200 OK") == 2
    assert [asked.raw for asked in pair.engine.asked] == [body, INNER_BODY]


@pytest.mark.parametrize("more", [CHUNKED + LENGTH, LENGTH + b"content-length: 5\r\n"])
def test_what_could_be_read_in_two_ways_is_refused_behind_such_an_offer_too(pair, more: bytes) -> None:
    answer = talk(pair.gateway.port, CHAT + b"connection: upgrade\r\nupgrade: h2c\r\n" + more + b"\r\n", BODY)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert pair.engine.asked == []


@pytest.mark.parametrize(
    "head",
    [
        b"x: " + b"a" * 1_000_000 + b"\r\n",
        b"".join(b"x%d: a\r\n" % number for number in range(60_000)),
        b"a" * 1_000_000 + b": x\r\n",
    ],
)
def test_heads_beyond_the_bound_are_refused_while_they_come(pair, head: bytes) -> None:
    for start in (CHAT + head, b"GET /" + b"a" * 1_000_000 + b" HTTP/1.1\r\n"):
        answer = talk(pair.gateway.port, start + LENGTH + b"\r\n" + BODY)
        assert answer == b"" or answer[9:12] in (b"431", b"400")
    assert pair.engine.asked == []
    assert pair.gateway.http.get("/health").status_code == 200


def test_a_head_that_never_ends_is_let_go(pair) -> None:
    with socket.create_connection(("127.0.0.1", pair.gateway.port), timeout=60) as client:
        client.sendall(CHAT)
        for _ in range(200):
            try:
                client.sendall(b"x: " + b"a" * 4000 + b"\r\n")
            except OSError:
                break
        try:
            answer = client.recv(65536)
        except ConnectionResetError:
            answer = b""
        assert answer == b"" or b" 431 " in answer


def test_health_can_be_asked_for_its_head_alone(pair) -> None:
    for path in ("/health", "/ready"):
        answer = pair.gateway.http.head(path)
        assert (answer.status_code, answer.content) == (200, b"")
        assert answer.headers["x-request-id"]
