"""A configuration is changed as a whole: requests end with what they began with, and nothing of it stays behind."""

import json
import threading

import pytest

from engine_adapters.remote.openai_compatible import OpenAICompatibleEngine
from gateway.canonical.policies import PolicyFor
from gateway.relay.remote import Remote
from gateway.reload.live import Configured
from gateway.replicas.pool import EnginePool
from gateway.settings import CanonSettings, GatewaySettings
from tests.gateway.relay.fake_engine import (
    MODEL,
    fake_engine,
    hold,
    whole,
)
from tests.gateway.relay.serving import Relaying, relaying
from tests.waiting import PATIENCE_S, wait_until

CHAT = "/v1/chat/completions"
BODY = {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}]}


def pool_of(url: str, name: str = "one") -> EnginePool:
    return EnginePool(name, [Remote(OpenAICompatibleEngine(name, url, (MODEL,)))])


class ClosedPool(EnginePool):
    """Says when it was closed."""

    def __init__(self, url: str) -> None:
        super().__init__("one", pool_of(url).replicas)
        self.closed = threading.Event()

    async def aclose(self) -> None:
        self.closed.set()
        await super().aclose()


def put(gateway: Relaying, configured: Configured) -> None:
    async def change() -> None:
        for pool in configured.pools:
            if pool not in gateway.live.now.pools:
                pool.start()
        gateway.live.put(configured)

    gateway.on_loop(change())


def test_a_stream_ends_on_the_engine_it_began_on_which_is_closed_then() -> None:
    go_on = threading.Event()
    with fake_engine(hold(go_on)) as old, fake_engine(lambda c, _: c.reply(whole(0))) as new:
        first, second = ClosedPool(old.url), ClosedPool(new.url)
        with relaying([], pools=[first]) as gateway:
            with gateway.http.stream("POST", CHAT, json={**BODY, "stream": True}) as answer:
                lines = answer.iter_lines()
                assert "first" in next(lines)
                put(gateway, Configured(pools=(second,)))
                assert gateway.http.post(CHAT, json=BODY).status_code == 200
                assert (len(old.asked), len(new.asked)) == (1, 1)
                assert not first.closed.is_set()
                go_on.set()
                rest = "\n".join(lines)
            assert "last" in rest
            assert "[DONE]" in rest
            assert first.closed.wait(PATIENCE_S)
            assert not second.closed.is_set()
            assert gateway.http.post(CHAT, json=BODY).status_code == 200


def test_an_engine_that_stays_is_not_closed() -> None:
    with fake_engine(lambda c, _: c.reply(whole(0))) as engine:
        pool = ClosedPool(engine.url)
        with relaying([], pools=[pool]) as gateway:
            for policy in ("off", "full", "off"):
                canon = CanonSettings(policies=(PolicyFor(policy),))
                put(gateway, Configured(GatewaySettings(canon=canon), (pool,)))
                answer = gateway.http.post(CHAT, json=BODY)
                assert answer.headers["x-kvgate-canon"].startswith(policy)
            assert not pool.closed.is_set()


def test_what_was_remembered_outlives_a_change() -> None:
    """The tool call is sent on as the model wrote it, though the policy was set again in between."""
    call = {"id": "x", "type": "function", "function": {"name": "f", "arguments": '{"a":1,"b":2}'}}
    said = {"role": "assistant", "content": None, "tool_calls": [call]}
    answer = json.loads(whole(0))
    answer["choices"][0]["message"] = said
    with fake_engine(lambda c, _: c.reply(json.dumps(answer).encode())) as engine:
        pool = pool_of(engine.url)
        full = GatewaySettings(canon=CanonSettings(policies=(PolicyFor("full"),)))
        with relaying([], full, pools=[pool]) as gateway:
            assert gateway.http.post(CHAT, json=BODY).status_code == 200
            put(gateway, Configured(full, (pool,)))
            again = {**call, "function": {"name": "f", "arguments": '{"b": 2, "a": 1}'}}
            turns = [
                *BODY["messages"],
                {**said, "tool_calls": [again]},
                {"role": "tool", "tool_call_id": "x", "content": "3"},
            ]
            assert gateway.http.post(CHAT, json={**BODY, "messages": turns}).status_code == 200
        sent = engine.asked[-1].body["messages"][1]["tool_calls"][0]["function"]["arguments"]
    assert sent == '{"a":1,"b":2}'


def test_bounds_count_from_the_next_request_on() -> None:
    with fake_engine(lambda c, _: c.reply(whole(0))) as engine:
        pool = pool_of(engine.url)
        with relaying([], pools=[pool]) as gateway:
            assert gateway.http.post(CHAT, json=BODY).status_code == 200
            put(gateway, Configured(GatewaySettings(max_body_bytes=10), (pool,)))
            assert gateway.http.post(CHAT, json=BODY).status_code == 413


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/embeddings"])
def test_routes_of_engines_behind_http_come_and_go_with_them(path: str) -> None:
    with fake_engine(lambda c, _: c.reply(whole(0))) as engine, relaying([], pools=[]) as gateway:
        missing = gateway.http.post(path, json={"model": MODEL})
        assert (missing.status_code, missing.json()["error"]["code"]) == (503, "engine_not_ready")
        put(gateway, Configured(pools=(pool_of(engine.url),)))
        wait_until(lambda: gateway.http.get("/ready").status_code == 200, "it is there")
        assert gateway.http.post(path, json={"model": MODEL, "input": "x"}).status_code == 200
        assert [each["id"] for each in gateway.http.get("/v1/models").json()["data"]] == [MODEL]
        put(gateway, Configured())
        assert gateway.http.post(path, json={"model": MODEL}).status_code == 503
        assert gateway.http.get("/ready").status_code == 503


def test_all_engines_of_all_times_are_closed_at_the_end() -> None:
    go_on = threading.Event()
    with fake_engine(hold(go_on)) as old, fake_engine(lambda c, _: c.reply(whole(0))) as new:
        first, second = ClosedPool(old.url), ClosedPool(new.url)
        streamed = {**BODY, "stream": True}
        with (
            relaying([], pools=[first]) as gateway,
            gateway.http.stream("POST", CHAT, json=streamed) as answer,
        ):
            assert "first" in next(answer.iter_lines())
            put(gateway, Configured(pools=(second,)))
            gateway.stop()
            assert first.closed.wait(PATIENCE_S)
            assert second.closed.wait(PATIENCE_S)
        go_on.set()
