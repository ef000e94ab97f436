"""A client that closes its sending side behind its request gets its answer; one that closes all ends its request."""

import gc
import json
import socket
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from engine_adapters.remote.openai_compatible import OpenAICompatibleEngine
from gateway.relay.remote import Remote
from gateway.transport import half_closed
from tests.gateway.relay.fake_engine import MODEL, Asked, Connection, Script, fake_engine, hold, whole
from tests.gateway.relay.serving import Relaying, relaying
from tests.waiting import PATIENCE_S, wait_until

INTERIM = b"HTTP/1.1 100 Continue\r\n\r\n"


@contextmanager
def gateway_over(script: Script) -> Iterator[Relaying]:
    with fake_engine(script) as engine:
        remote = Remote(OpenAICompatibleEngine("fake", engine.url, (MODEL,)), {MODEL: MODEL})
        with relaying([remote]) as gateway:
            yield gateway


def request(version: str = "1.1", **more: object) -> bytes:
    body = json.dumps({"model": MODEL, "messages": [{"role": "user", "content": "Hi"}], **more}).encode()
    head = f"POST /v1/chat/completions HTTP/{version}\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


@contextmanager
def sent(gateway: Relaying, data: bytes) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=PATIENCE_S) as client:
        client.sendall(data)
        yield client


def to_the_end(client: socket.socket) -> bytes:
    """All that comes until the server closes; interim answers are skipped."""
    pieces = []
    while piece := client.recv(65536):
        pieces.append(piece)
    return b"".join(pieces).replace(INTERIM, b"")


def waits(go_on: threading.Event) -> Script:
    def script(connection: Connection, _: Asked) -> None:
        go_on.wait(PATIENCE_S)
        connection.reply(whole(4))

    return script


def test_it_gets_a_whole_answer_and_the_connection_is_closed_behind_it() -> None:
    go_on = threading.Event()
    with gateway_over(waits(go_on)) as gateway, sent(gateway, request()) as client:
        client.shutdown(socket.SHUT_WR)
        interim = [
            client.recv(len(INTERIM), socket.MSG_WAITALL) for _ in range(3)
        ]  # more than a second of waiting
        assert interim == [INTERIM] * 3
        go_on.set()
        answer = to_the_end(client)
        assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
        assert answer.endswith(whole(4))
        assert gateway.rows.one().error is None


def test_it_gets_a_stream_to_its_end_and_no_interim_answer_within() -> None:
    go_on = threading.Event()
    with gateway_over(hold(go_on)) as gateway, sent(gateway, request(stream=True)) as client:
        got = b""
        while b"first" not in got:
            got += client.recv(65536)
        client.shutdown(socket.SHUT_WR)
        go_on.set()
        rest = b"".join(iter(lambda: client.recv(65536), b""))
        assert rest.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
        assert INTERIM not in rest


def test_requests_one_behind_the_other_are_all_answered() -> None:
    with (
        gateway_over(lambda connection, _: connection.reply(whole(4))) as gateway,
        sent(gateway, request() + request() + request()) as client,
    ):
        client.shutdown(socket.SHUT_WR)
        assert to_the_end(client).count(b"HTTP/1.1 200 OK\r\n") == 3


def test_one_that_has_closed_all_is_found_gone_and_its_request_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        half_closed, "_WAITS_S", (0.0, 0.1, 3600.0)
    )  # the next time would be long after it is gone
    ended = threading.Event()

    def never(connection: Connection, _: Asked) -> None:
        if connection.wait_for_its_end():
            ended.set()

    with gateway_over(never) as gateway:
        with sent(gateway, request()):
            wait_until(lambda: gateway.served.pools[0].members[0].running == 1, "it runs")
            clients = [weakref.ref(each) for each in gateway.connections()]
            assert clients
        assert ended.wait(PATIENCE_S)
        assert gateway.rows.one().error == "client_gone"
        wait_until(lambda: not gateway.connections(), "they are gone")
        wait_until(lambda: gc.collect() >= 0 and not any(each() for each in clients), "nothing holds them")


def test_what_is_not_all_there_and_what_cannot_skip_interim_answers_is_not_waited_for() -> None:
    never = threading.Event()
    with gateway_over(waits(never)) as gateway:
        for data in (b"", request()[:40], request()[:-5], request("1.0")):
            with sent(gateway, data) as client:
                client.shutdown(socket.SHUT_WR)
                assert to_the_end(client) == b""
        never.set()
