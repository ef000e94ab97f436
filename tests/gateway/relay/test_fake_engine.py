"""The engine that tests script leaves nothing behind that the next test could meet."""

import socket
import threading
from urllib.parse import urlsplit

import httpx
import pytest

from tests.gateway.relay.fake_engine import Asked, Connection, FakeEngine, fake_engine, whole
from tests.waiting import wait_until


def place(engine: FakeEngine) -> tuple[str, int]:
    return "127.0.0.1", urlsplit(engine.url).port or 0


def answers(connection: Connection, _: Asked) -> None:
    connection.reply(whole(0))


def test_its_threads_end_with_it_and_nobody_listens_any_more() -> None:
    before = set(threading.enumerate())
    with fake_engine(answers) as engine:
        with httpx.Client(timeout=60) as http:
            assert http.post(f"{engine.url}/v1/completions", json={}).status_code == 200
        idle = socket.create_connection(place(engine), timeout=60)
    with idle:
        assert idle.recv(1) == b""
    wait_until(lambda: set(threading.enumerate()) <= before, "its threads have ended")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(place(engine), timeout=60)


def test_a_client_that_leaves_within_its_body_ends_its_thread() -> None:
    before = set(threading.enumerate())

    def threads() -> int:
        return len(set(threading.enumerate()) - before)

    with fake_engine(answers) as engine:
        with socket.create_connection(place(engine), timeout=60) as client:
            client.sendall(b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{")
            wait_until(lambda: threads() == 2, "the listener's and its own")
        wait_until(lambda: threads() == 1, "only the listener's is left")
        assert engine.asked == []
