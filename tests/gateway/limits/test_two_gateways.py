"""Two real gateways on one real Redis: exactly what may pass does, whatever is killed meanwhile."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import orjson
import pytest

from bench.gateway.bodies import MODEL
from tests.gateway.limits.passed import MINUTE_S, Passed
from tests.redis_server import RedisServer
from tests.waiting import until, wait_until

BODY = {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 8}


@dataclass(slots=True)
class Gateway:
    """`kvgate serve`."""

    url: str
    process: subprocess.Popen[bytes]
    log: Path

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def metric(self, name: str) -> float:
        text = httpx.get(f"{self.url}/metrics", timeout=60).text
        return float(next(line.split()[-1] for line in text.splitlines() if line.startswith(name)))


@contextmanager
def started(command: list[str], log: Path) -> Iterator[tuple[subprocess.Popen[bytes], bytes]]:
    """A process of ours, and the first line that it says."""
    with log.open("wb") as errors:
        child = subprocess.Popen(
            [sys.executable, "-m", *command],
            stdout=subprocess.PIPE,
            stderr=errors,
            env=os.environ | {"PYTHONPATH": os.getcwd(), "KVGATE_LEDGER": "off"},
        )
    try:
        assert child.stdout is not None
        line = child.stdout.readline()
        assert line, log.read_text()
        yield child, line
    finally:
        child.kill()
        child.wait()


@pytest.fixture(scope="module")
def upstream(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An engine that answers at once."""
    with started(["bench.gateway.upstream"], tmp_path_factory.mktemp("upstream") / "log") as (_, line):
        yield f"http://127.0.0.1:{int(line)}"


@pytest.fixture
def mortal() -> Iterator[RedisServer]:
    with RedisServer.started() as server:
        yield server


@contextmanager
def gateways(
    folder: Path, upstream: str, redis: RedisServer, limits: str, more: str = ""
) -> Iterator[list[Gateway]]:
    """Two, with the same configuration."""
    file = folder / "kvgate.yaml"
    file.write_text(
        f"engines: [{{name: up, kind: openai, url: '{upstream}', models: [{MODEL}]}}]\n"
        f"redis: {{url: '{redis.url}', timeout_ms: 10000}}\nlimits: {limits}\n{more}\n"
    )
    with ExitStack() as stack:
        found = []
        for n in range(2):
            log = folder / f"log{n}"
            command = ["gateway", "serve", "--config", str(file), "--port", "0", "--json"]
            process, line = stack.enter_context(started(command, log))
            url = orjson.loads(line)["base_url"].removesuffix("/v1")
            found.append(Gateway(url, process, log))
        wait_until(lambda: all(each.metric("kvgate_gateways ") == 2 for each in found), "both know of both")
        yield found


async def statuses(
    gateways: list[Gateway], n: int, at_once: int = 60, passed: Passed | None = None
) -> Counter[int]:
    """`n` requests, one after the other to each gateway; those that pass are noted in `passed`."""
    urls = [f"{each.url}/v1/chat/completions" for each in gateways]
    room = asyncio.Semaphore(at_once)

    async def ask(http: httpx.AsyncClient, url: str) -> httpx.Response:
        async with room:
            asked = time.monotonic()
            answer = await http.post(url, json=BODY)
            if passed is not None and answer.status_code == 200:
                passed.add(asked, time.monotonic())
            return answer

    limits = httpx.Limits(max_connections=at_once)
    async with httpx.AsyncClient(limits=limits, timeout=httpx.Timeout(60, pool=None)) as http:
        answers = await asyncio.gather(*(ask(http, urls[i % 2]) for i in range(n)))
    for answer in answers:
        if answer.status_code == 429:
            assert 1 <= int(answer.headers["retry-after"]) <= 61
            assert answer.json()["error"]["code"] == "rate_limit_exceeded"
    return Counter(answer.status_code for answer in answers)


async def test_of_many_at_once_exactly_as_many_pass_as_may(
    tmp_path: Path, upstream: str, redis_server: RedisServer
) -> None:
    with gateways(tmp_path, upstream, redis_server, "{requests_per_minute: 150}") as both:
        passed, began = Passed(), time.monotonic()
        found = await statuses(both, 600, passed=passed)
        assert found[200] + found[429] == 600
        assert passed.most_in_a_minute() <= 150 <= found[200]
        if time.monotonic() - began < MINUTE_S:  # a slow machine has room for more in the next minute
            assert found[200] == 150


async def test_no_request_fails_when_redis_is_killed_and_comes_back(
    tmp_path: Path, upstream: str, mortal: RedisServer
) -> None:
    with gateways(tmp_path, upstream, mortal, "{requests_per_minute: 200}") as both:
        passed = Passed()
        asking = asyncio.create_task(statuses(both, 800, at_once=20, passed=passed))
        await until(lambda: mortal.client().keys("*:used"), "requests are counted there")
        mortal.kill()
        await until(
            lambda: any(each.metric("kvgate_shared_state_outages_total") for each in both), "it is missed"
        )
        await asyncio.to_thread(mortal.start)
        found = await asking
        assert set(found) == {200, 429}
        # Each may have passed its half alone beside what both had passed before, and no more.
        assert passed.most_in_a_minute() <= 300
        assert found[200] >= 198  # of what is left, each has a half
        await until(lambda: not any(each.metric("kvgate_shared_state_away ") for each in both), "it is back")
        late = Passed()
        assert sum((await statuses(both, 20, passed=late)).values()) == 20
        assert all(passed.before(answered) < 200 for _, answered in late.times)


async def test_slots_of_a_gateway_that_was_killed_come_back(
    tmp_path: Path, upstream: str, redis_server: RedisServer
) -> None:
    body = BODY | {"stream": True, "bench_chunks": 4000, "bench_pause_ms": 100}
    with gateways(tmp_path, upstream, redis_server, "{concurrency: 2}") as (one, two):
        async with httpx.AsyncClient(timeout=60) as http:
            streams = [http.stream("POST", f"{one.url}/v1/chat/completions", json=body) for _ in range(2)]
            for stream in streams:
                assert (await stream.__aenter__()).status_code == 200
            assert (await statuses([two, two], 1))[429] == 1
            one.kill()
            client = redis_server.client()
            key = "kvgate:limits:{default}:running"
            assert client.zcard(key) == 2
            for member, score in client.zrange(key, 0, -1, withscores=True):
                client.zadd(key, {member: score - 30})  # as if 30 seconds had gone by
            assert (await statuses([two, two], 1))[200] == 1
