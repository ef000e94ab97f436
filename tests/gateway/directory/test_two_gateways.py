"""Two real gateways over one real Redis: what one has warmed, the other one finds; without Redis both go on."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import httpx
import orjson
import pytest

from tests.gateway.limits.test_two_gateways import Gateway, started
from tests.gateway.relay.fake_engine import MODEL, FakeEngine, fake_engine
from tests.redis_server import RedisServer
from tests.waiting import wait_until


def answers(connection, asked) -> None:
    usage = {"prompt_tokens": 2000, "completion_tokens": 1, "total_tokens": 2001}
    message = {"role": "assistant", "content": "Yes."}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    connection.reply(json.dumps({"id": "c", "choices": [choice], "usage": usage}).encode())


@dataclass(slots=True)
class Fleet:
    gateways: list[Gateway]
    engines: list[FakeEngine]
    redis: RedisServer

    def ask(self, gateway: int, talk: int, turns: int) -> int:
        """Which replica got it."""
        before = [len(engine.asked) for engine in self.engines]
        said = [{"role": "user", "content": f"{talk} " * 3000}]
        said += [{"role": "user", "content": f"And {turn}?"} for turn in range(turns)]
        answer = httpx.post(
            f"{self.gateways[gateway].url}/v1/chat/completions",
            json={"model": MODEL, "messages": said},
            timeout=60,
        )
        assert answer.status_code == 200, answer.text
        after = [len(engine.asked) for engine in self.engines]
        return next(at for at, (was, now) in enumerate(zip(before, after, strict=True)) if now > was)

    def looked(self, gateway: int, outcome: str) -> float:
        text = httpx.get(f"{self.gateways[gateway].url}/metrics", timeout=60).text
        start = f'kvgate_directory_lookups_total{{kvgate_engine="fleet",outcome="{outcome}"}}'
        return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith(start))


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    with ExitStack() as stack:
        redis = stack.enter_context(RedisServer.started())
        engines = [stack.enter_context(fake_engine(answers)) for _ in range(2)]
        file = tmp_path / "kvgate.yaml"
        file.write_text(
            f"engines: [{{name: fleet, kind: openai, models: [{MODEL}], "
            f"replicas: ['{engines[0].url}', '{engines[1].url}']}}]\n"
            f"redis: {{url: '{redis.url}', timeout_ms: 10000}}\ndirectory: {{budget_ms: 1000}}\n"
        )
        gateways = []
        for n in range(2):
            command = ["gateway", "serve", "--config", str(file), "--port", "0", "--json"]
            process, line = stack.enter_context(started(command, tmp_path / f"log{n}"))
            url = orjson.loads(line)["base_url"].removesuffix("/v1")
            gateways.append(Gateway(url, process, tmp_path / f"log{n}"))
        yield Fleet(gateways, engines, redis)


def test_a_prefix_that_one_warmed_is_sent_to_the_same_replica_by_the_other(fleet: Fleet) -> None:
    went = {talk: fleet.ask(0, talk, 0) for talk in range(8)}
    for where in (0, 1):  # alone, the other one would take turns
        for talk in [talk for talk, at in went.items() if at == where]:
            assert fleet.ask(1, talk, 1) == where
    assert set(went.values()) == {0, 1}
    assert fleet.looked(1, "found") == 8


def test_without_redis_both_go_on_and_say_so_and_when_it_is_back_they_agree_again(fleet: Fleet) -> None:
    assert fleet.ask(0, 1, 0) in (0, 1)
    fleet.redis.kill()
    for talk in range(4):
        fleet.ask(0, talk, 1)
        fleet.ask(1, talk, 1)
    assert fleet.looked(1, "away") > 0
    assert "THE SHARED STATE IS AWAY" in fleet.gateways[1].log.read_text()
    fleet.redis.start()
    wait_until(lambda: "the shared state is back" in fleet.gateways[0].log.read_text(), "0 is back")
    wait_until(lambda: "the shared state is back" in fleet.gateways[1].log.read_text(), "1 is back")
    went = {talk: fleet.ask(0, talk, 0) for talk in range(10, 16)}
    for where in (0, 1):
        for talk in [talk for talk, at in went.items() if at == where]:
            assert fleet.ask(1, talk, 1) == where
