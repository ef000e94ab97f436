"""One of four workers is killed under load: the others' streams go on, limits stay exact, and figures add up."""

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
import yaml

from gateway.tenants.keys import hash_of
from tests.end_to_end.conftest import serving
from tests.end_to_end.test_workers import LONG, Server
from tests.gateway.limits.passed import Passed
from tests.gateway.relay.fake_engine import (
    DONE,
    FINISH,
    MODEL,
    Asked,
    Connection,
    content,
    fake_engine,
    usage_event,
    whole,
)
from tests.waiting import wait_until

KEY = {"authorization": "Bearer kvg_red-0123456789abcdef"}
MOST = 8  # requests of the tenant at once
AT_ENGINE = 8  # requests that run at an engine with a bound
BODY = {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}]}


class Engine:
    """Streams go on until they are told to end, or their client leaves; whole answers come at once."""

    def __init__(self) -> None:
        self.go_on = threading.Event()
        self.running = 0
        self._lock = threading.Lock()

    def script(self, connection: Connection, asked: Asked) -> None:
        if not asked.body.get("stream"):
            connection.reply(whole(0))
            return
        self._count(1)
        try:
            connection.stream()
            while not self.go_on.wait(0.05):
                connection.chunk(content("word "))
            connection.chunk(FINISH + usage_event(0) + DONE)
            connection.end()
        finally:
            self._count(-1)

    def _count(self, change: int) -> None:
        with self._lock:
            self.running += change


class Stream(threading.Thread):
    """One client's, on a connection of its own."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url
        self.status: int | None = None  # None: there is no answer yet
        self.request = ""
        self.clean = False
        self.start()

    def run(self) -> None:
        try:
            with httpx.stream(
                "POST",
                f"{self._url}/v1/chat/completions",
                json={**BODY, "stream": True},
                headers=KEY,
                timeout=LONG,
            ) as answer:
                self.status, self.request = answer.status_code, answer.headers["x-request-id"]
                self.clean = b"".join(answer.iter_raw()).endswith(DONE)
        except httpx.HTTPError:
            self.status = self.status or 0


@pytest.fixture
def four(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[tuple[Server, Engine]]:
    engine = Engine()
    limits = getattr(request, "param", {"concurrency": MOST})
    more: dict[str, object] = {}
    bound: dict[str, int] = {}
    if limits is None:  # an engine is bounded, and no tenant is
        bound = {"max_running": AT_ENGINE}
        redis = request.getfixturevalue("redis_server")
        more = {"redis": {"url": redis.url}} if request.node.callspec.params["shared"] else {}
    with ExitStack() as stack:
        url = stack.enter_context(fake_engine(engine.script)).url
        config = {
            "engines": [{"kind": "openai", "name": "fake", "url": url, "models": [MODEL], **bound}],
            "server": {"workers": 4, "port": 0},
            "ledger": {"url": str(tmp_path / "ledger.db")},
            "tenants": [{"name": "red", "keys": [hash_of(KEY["authorization"][7:])], "limits": limits or {}}],
            **more,
        }
        file = tmp_path / "kvgate.yaml"
        file.write_text(yaml.safe_dump(config))
        yield Server(stack.enter_context(serving("--config", str(file))), MODEL), engine


def statuses(server: Server, count: int) -> list[int]:
    """Of requests that each come on a connection of their own, to whichever worker."""
    asked = (
        httpx.post(f"{server.url}/v1/chat/completions", json=BODY, headers=KEY, timeout=LONG)
        for _ in range(count)
    )
    return [answer.status_code for answer in asked]


def filled(server: Server, engine: Engine, count: int) -> list[Stream]:
    before = engine.running
    streams = [Stream(server.url) for _ in range(count)]
    wait_until(lambda: engine.running == before + count, "they run", LONG)
    wait_until(lambda: all(each.status == 200 for each in streams), "they have begun", LONG)
    return streams


def test_a_worker_that_is_killed_takes_its_own_streams_and_slots_alone(four: tuple[Server, Engine]) -> None:
    server, engine = four
    streams = filled(server, engine, MOST)
    assert statuses(server, 6) == [429] * 6  # whichever worker is asked
    asked = MOST + 6
    server.kill("worker 1")
    server.is_back("worker 1", 2)
    wait_until(lambda: server.figures().get("kvgate_workers") == 4, "all are there", LONG)
    wait_until(
        lambda: engine.running == sum(each.is_alive() for each in streams), "its streams have ended", LONG
    )
    gone = [each for each in streams if not each.is_alive()]
    assert not any(each.clean for each in gone)
    more = filled(server, engine, len(gone))  # as many slots are free, and no more
    assert engine.running == MOST
    assert statuses(server, 6) == [429] * 6
    asked += len(more) + 6
    engine.go_on.set()
    for each in (*streams, *more):
        each.join()
    assert all(each.clean for each in (*streams, *more) if each not in gone)
    wait_until(lambda: server.figures().get("kvgate_requests_in_flight") == 0, "all have ended", LONG)
    figures = server.figures()
    # What a killed worker was at has no end that anybody could count; what it had counted before stays.
    assert asked - len(gone) - 6 <= figures["kvgate_requests_total"] <= asked - len(gone)
    assert figures["kvgate_worker_starts_total"] == 5
    engine.go_on.clear()
    last = filled(server, engine, MOST)  # no slot has leaked
    assert statuses(server, 6) == [429] * 6
    server.kill("state")  # which counts
    server.is_back("state", 2)
    server.comes_to("kvgate_workers", 4)  # and it was told what runs
    assert statuses(server, 6) == [429] * 6
    engine.go_on.set()
    for each in last:
        each.join()
    assert all(each.clean for each in last)


@pytest.mark.parametrize("four", [{"requests_per_minute": 20}], indirect=True)
def test_nobody_has_a_limit_anew_because_what_counts_was_killed(four: tuple[Server, Engine]) -> None:
    """Nor is it the machine's speed that counts: only what certainly passed within one minute is too much."""
    server, _ = four
    passed = Passed()

    def ask(count: int) -> None:
        for _ in range(count):
            began = time.monotonic()
            if statuses(server, 1) == [200]:
                passed.add(began, time.monotonic())

    ask(60)  # on connections of their own, to whichever worker: each has heard that there is no more
    before = len(passed)
    server.kill("state")
    ask(60)
    server.is_back("state", 2)
    server.comes_to("kvgate_workers", 4)
    ask(60)
    assert before >= 20
    assert passed.most_in_a_minute() <= 20


@pytest.mark.parametrize("shared", [False, True], ids=["alone", "with Redis"])
@pytest.mark.parametrize("four", [None], indirect=True)
def test_an_engine_runs_no_more_than_it_may_though_no_tenant_has_a_limit(
    four: tuple[Server, Engine], shared: bool
) -> None:
    server, engine = four
    streams = [Stream(server.url) for _ in range(24)]

    def settled() -> bool:
        return engine.running + server.figures().get("kvgate_queue_waiting", 0) == len(streams)

    wait_until(settled, "all of them run or wait", LONG)
    assert 0 < engine.running <= AT_ENGINE
    engine.go_on.set()
    for each in streams:
        each.join()
    assert all(each.clean for each in streams)
