"""Faults of operation, with a real process: signals under load, ledgers that are away, clients that do not read."""

import socket
import sqlite3
import threading
import time
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from gateway.ledger.opening import open_reader
from tests.gateway.faults.process import MESSAGES, Outcomes, ask, held, loaded, settles
from tests.gateway.ledger.postgres import Postgres
from tests.gateway.relay.fake_engine import (
    DONE,
    FINISH,
    Asked,
    Connection,
    FakeEngine,
    content,
    fake_engine,
    usage_event,
    whole,
)
from tests.gateway.reload.served import served_file
from tests.waiting import wait_until


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "kvgate.yaml"


def config(engine: FakeEngine, ledger: str = "{url: off}", more: str = "") -> str:
    entry = f"{{name: one, kind: openai, url: '{engine.url}', models: [m]}}"
    return f"engines:\n  - {entry}\nledger: {ledger}\n{more}"


def answer(connection: Connection, asked: Asked) -> None:
    """Takes a moment, as engines do; streams come in pieces."""
    if not asked.body.get("stream"):
        time.sleep(0.01)
        connection.reply(whole(0))
        return
    connection.stream()
    for _ in range(5):
        connection.chunk(content("piece "))
        time.sleep(0.02)
    connection.chunk(FINISH + usage_event(0) + DONE)
    connection.end()


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_signal_under_load_drops_nothing_and_refuses_nobody_it_let_in(
    file: Path, tmp_path: Path, workers: str
) -> None:
    ledger, outcomes = tmp_path / "rows.db", Outcomes()
    more = "server: {drain_delay_s: 3, grace_s: 60}\n"
    with (
        fake_engine(answer) as engine,
        served_file(file, config(engine, f"{{url: '{ledger}'}}", more), "--workers", workers) as gateway,
    ):
        with loaded(gateway.url, "m", 12, outcomes):
            wait_until(lambda: outcomes["200"] > 40, "the load runs")
            assert gateway.ends() == 0
            wait_until(lambda: outcomes["refused"] == 12, "all clients were turned away")
        assert set(outcomes.counts) == {"200", "refused"}, outcomes.counts
        assert gateway.said("draining")
        assert gateway.said("stopped")
    rows = list(open_reader(str(ledger), {}).rows())
    assert len(rows) == outcomes["200"]


def test_a_locked_ledger_costs_rows_and_never_requests(file: Path, tmp_path: Path) -> None:
    """The queue is full after 20 rows; what comes then is dropped, said once, and counted."""
    ledger = tmp_path / "rows.db"
    stated = f"{{url: '{ledger}', queue_rows: 20}}"
    with fake_engine(answer) as engine, served_file(file, config(engine, stated)) as gateway:
        assert ask(gateway.http, gateway.url, "m", stream=False) == "200"
        wait_until(lambda: gateway.samples("kvgate_ledger_rows_total", fate="written") == 1, "the row is in")
        other = sqlite3.connect(ledger, isolation_level=None)
        other.execute("BEGIN EXCLUSIVE")
        for _ in range(60):
            assert ask(gateway.http, gateway.url, "m", stream=False) == "200"
        gateway.wait_for("THE LEDGER DROPS ROWS")
        wait_until(lambda: gateway.metrics()["kvgate_ledger_failing"] == 1, "it is known")
        other.execute("COMMIT")
        other.close()
        gateway.wait_for("the ledger is written again")
        assert ask(gateway.http, gateway.url, "m", stream=False) == "200"
        wait_until(lambda: gateway.metrics()["kvgate_ledger_rows_waiting"] == 0, "all are in")
        assert len(gateway.said("THE LEDGER DROPS ROWS")) == 1
        assert gateway.ends() == 0
    kept = len(list(open_reader(str(ledger), {}).rows()))
    assert 20 < kept < 62


def test_a_killed_database_costs_no_request_and_no_row(file: Path) -> None:
    with Postgres.started() as postgres, fake_engine(answer) as engine:
        url = postgres.new_database()
        with served_file(file, config(engine, f"{{url: '{url}'}}")) as gateway:
            assert ask(gateway.http, gateway.url, "m", stream=False) == "200"
            postgres.stop()
            for _ in range(20):
                assert ask(gateway.http, gateway.url, "m", stream=False) == "200"
            gateway.wait_for("the ledger cannot be written")
            assert gateway.http.get(f"{gateway.url}/ready").status_code == 200
            postgres.start()
            gateway.wait_for("the ledger is written again")
            wait_until(lambda: gateway.metrics()["kvgate_ledger_rows_waiting"] == 0, "all are in")
            assert gateway.ends() == 0
        assert len(list(open_reader(url, {}).rows())) == 21


def test_a_gateway_ends_though_its_database_is_away(file: Path) -> None:
    with Postgres.started() as postgres, fake_engine(answer) as engine:
        url = postgres.new_database()
        with served_file(file, config(engine, f"{{url: '{url}'}}")) as gateway:
            postgres.stop()
            assert ask(gateway.http, gateway.url, "m", stream=False) == "200"
            assert gateway.ends() == 0
            assert gateway.wait_for("the ledger lost rows at the end")["rows"] == 1
        postgres.start()


def flood(connection: Connection, asked: Asked) -> None:
    """An engine that is much faster than the client: some 60 MB."""
    if not asked.body.get("stream"):
        connection.reply(whole(0))
        return
    connection.stream()
    piece = content("x" * 60_000)
    for _ in range(1000):
        connection.chunk(piece)
    connection.end()


def test_a_client_that_reads_a_byte_a_second_holds_little_and_is_let_go(file: Path) -> None:
    body = b'{"model": "m", "stream": true, "messages": [{"role": "user", "content": "a"}]}'
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(body)
    more = "clients: {write_stall_s: 2}\n"
    with fake_engine(flood) as engine, served_file(file, config(engine, more=more)) as gateway:
        for _ in range(5):
            assert ask(gateway.http, gateway.url, "m", stream=False) == "200"
        pid, before = gateway.child.pid, held(gateway.child.pid)
        port = int(gateway.url.rsplit(":", 1)[1])
        slow = []
        for _ in range(8):
            raw = socket.socket()
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            raw.connect(("127.0.0.1", port))
            raw.sendall(head + body)
            slow.append(raw)
        wait_until(lambda: all(raw.recv(1) for raw in slow), "all have begun")
        assert held(pid).resident - before.resident < 60 << 20  # of 480 MB that the engines have to say
        assert ask(gateway.http, gateway.url, "m", stream=False) == "200"
        ended = threading.Event()
        reading = threading.Thread(target=_a_byte_a_second, args=(slow, ended))
        reading.start()
        wait_until(lambda: gateway.metrics()["kvgate_requests_in_flight"] == 0, "they were let go")
        ended.set()
        reading.join()
        for raw in slow:
            raw.close()
        settles(pid, before.descriptors + 2)


def _a_byte_a_second(slow: list[socket.socket], ended: threading.Event) -> None:
    while not ended.wait(1):
        for raw in slow:
            with suppress(OSError):  # it was cut off
                raw.recv(1, socket.MSG_DONTWAIT)


def test_what_a_storm_took_is_given_back(file: Path) -> None:
    """Good, bad and broken-off requests by the hundred; another storm takes nothing that those before did not."""
    with fake_engine(answer) as engine, served_file(file, config(engine)) as gateway:
        pid = gateway.child.pid
        _storm(gateway.url)
        _storm(gateway.url)
        wait_until(lambda: gateway.metrics()["kvgate_requests_in_flight"] == 0, "all have ended")
        gateway.http.close()
        before = settles(pid, held(pid).descriptors)
        _storm(gateway.url)
        with httpx.Client(timeout=60) as http:
            wait_until(
                lambda: "kvgate_requests_in_flight 0.0" in http.get(f"{gateway.url}/metrics").text,
                "again",
            )
        after = settles(pid, before.descriptors + 4)
        assert after.resident - before.resident < 20 << 20
        assert after.threads <= before.threads + 8  # no more than its pools may have
        assert not gateway.said("Traceback")


_BAD = (
    b"GET / HTTP/1.1\r\n\r\n",
    b"\x00\xff\xfe rubbish\r\n\r\n",
    b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\n{[]}x",
    b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{",
    b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\ncontent-length: 3\r\n\r\nabc",
    b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
    b"GET /%s HTTP/1.1\r\nhost: x\r\n\r\n" % (b"a" * 70_000),
    b"GET / HTTP/1.1\r\nx: %s\r\n\r\n" % (b"a" * 400_000),
)


def _storm(url: str) -> None:
    port, outcomes = int(url.rsplit(":", 1)[1]), Outcomes()

    def break_things() -> None:
        for _ in range(20):
            for data in _BAD:
                try:
                    with socket.create_connection(("127.0.0.1", port), timeout=60) as raw:
                        raw.sendall(data)
                        raw.settimeout(0.02)
                        raw.recv(100)
                except OSError:
                    continue

    breaking = threading.Thread(target=break_things)
    with loaded(url, "m", 10, outcomes):
        breaking.start()
        breaking.join(120)
        wait_until(lambda: outcomes["200"] > 100, "the load runs")
    assert set(outcomes.counts) == {"200"}, outcomes.counts


def test_half_sent_requests_do_not_hold_up_others(file: Path) -> None:
    more = "clients: {body_timeout_s: 1}\n"
    with fake_engine(answer) as engine, served_file(file, config(engine, more=more)) as gateway:
        port = int(gateway.url.rsplit(":", 1)[1])
        head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\n{"
        dribbling = [socket.create_connection(("127.0.0.1", port)) for _ in range(50)]
        for raw in dribbling:
            raw.sendall(head)
        body = {"model": "m", "messages": MESSAGES}
        for _ in range(10):
            assert gateway.post(**body).status_code == 200
        for raw in dribbling:
            raw.settimeout(60)
            assert b"408" in raw.recv(4096)
            raw.close()
        wait_until(lambda: gateway.metrics()["kvgate_requests_in_flight"] == 0, "none is left")
