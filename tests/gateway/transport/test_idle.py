"""A connection that idles is closed in time, and one that is used in between is not."""

import asyncio
import socket
import time
from collections.abc import Iterator

import pytest

from gateway.transport.http_protocol import GatewayHttpProtocol
from tests.gateway.running_server import Running, running
from tests.waiting import steady

ASKED = b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n"


@pytest.fixture
def server(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    """One whose connections may idle as long as the test says."""
    made = GatewayHttpProtocol.connection_made

    def with_time(self: GatewayHttpProtocol, transport: asyncio.Transport) -> None:
        self.timeout_keep_alive = request.param
        made(self, transport)

    monkeypatch.setattr(GatewayHttpProtocol, "connection_made", with_time)
    with running() as it:
        yield it


def answered(raw: socket.socket) -> bool:
    raw.sendall(ASKED)
    return raw.recv(65536).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("server", [0.5], indirect=True)
def test_a_connection_that_idles_is_closed(server: Running) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as raw:
        assert answered(raw)
        assert raw.recv(65536) == b""


@pytest.mark.parametrize("server", [3.0], indirect=True)
def test_each_answer_begins_the_time_anew(server: Running) -> None:
    def used_and_then_left() -> None:
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as raw:
            for _ in range(3):
                assert answered(raw)
                time.sleep(1.6)
            assert answered(raw)

    steady(used_and_then_left, within=6.0)  # two pauses and a third one of less than 3 s


@pytest.mark.parametrize("server", [0.5], indirect=True)
def test_one_that_was_used_again_is_closed_too(server: Running) -> None:
    def used_twice() -> None:
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as raw:
            assert answered(raw)
            assert answered(raw)
            assert raw.recv(65536) == b""

    steady(used_twice, within=0.5)
