"""Limits at engines behind HTTP: whose headers count, what a usage costs, and what waits for a full engine."""

import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from gateway.limits.tenant_limits import TenantLimits
from tests.gateway.relay.conftest import Pair
from tests.gateway.relay.fake_engine import (
    DONE,
    FINISH,
    MODEL,
    Asked,
    Connection,
    content,
    usage_event,
    whole,
)
from tests.waiting import PATIENCE_S, wait_until

BODY = {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 100}


def test_the_gateways_own_limits_are_told_and_not_the_engines(relay_to: Callable[..., Pair]) -> None:
    def limited(to: Connection, _: Asked) -> None:
        to.reply(whole(0), "200 OK", "x-ratelimit-remaining-requests: 7", "x-ratelimit-remaining-tokens: 8")

    pair = relay_to(limited, limits=TenantLimits(requests_per_minute=50))
    answer = pair.gateway.http.post("/v1/chat/completions", json=BODY)
    assert answer.headers.get_list("x-ratelimit-remaining-requests") == ["49"]
    assert answer.headers.get_list("x-ratelimit-remaining-tokens") == ["8"]


def test_a_stream_costs_what_its_usage_says_even_where_the_client_did_not_ask(
    relay_to: Callable[..., Pair],
) -> None:
    def streams(to: Connection, asked: Asked) -> None:
        to.stream()
        for event in (content("Hi"), FINISH, usage_event(10), DONE):
            to.chunk(event)
        to.end()

    pair = relay_to(streams, limits=TenantLimits(tokens_per_minute=1000, reused_weight=0.5))
    left = []
    for _ in range(2):
        answer = pair.gateway.http.post("/v1/chat/completions", json=BODY | {"stream": True})
        left.append(int(answer.headers["x-ratelimit-remaining-tokens"]))
    assert left[0] - left[1] == 20 - 5 + 2


@pytest.mark.parametrize(
    ("path", "field", "prompts"),
    [
        ("/v1/completions", "prompt", ["a"] * 4),
        ("/v1/completions", "prompt", [[1], [2], [3], [4]]),
        ("/v1/embeddings", "input", ["a"] * 4),
        ("/v1/embeddings", "input", [[1, 2]] * 4),
        ("/v1/rerank", "documents", ["a"] * 4),
        ("/v1/rerank", "documents", {"content": [{"type": "text", "text": "a"}] * 4}),
        ("/v2/rerank", "texts", ["a"] * 4),
    ],
)
def test_more_prompts_in_one_body_than_the_limit_never_reach_an_engine(
    relay_to: Callable[..., Pair], path: str, field: str, prompts: object
) -> None:
    pair = relay_to(profile="vllm", limits=TenantLimits(max_prompts=3))
    answer = pair.gateway.http.post(path, json={"model": MODEL, "query": "q", field: prompts})
    assert answer.status_code == 400
    message = f"Too many prompts in one request: '{field}' has 4, and max_prompts is 3."
    error = {
        "message": message,
        "type": "invalid_request_error",
        "param": field,
        "code": "too_many_prompts",
    }
    assert answer.json() == {"error": error}
    assert pair.engine.asked == []
    assert 'kvgate_limited_requests_total{kind="prompts"' in _metrics(pair)


def test_as_many_prompts_as_the_limit_and_long_ones_of_token_ids_go_on(relay_to: Callable[..., Pair]) -> None:
    pair = relay_to(lambda to, _: to.reply(whole(0)), limits=TenantLimits(max_prompts=3))
    for prompt in (["a"] * 3, [1, 2, 3, 4, 5], "a long one", [[1, 2, 3, 4]] * 3):
        answer = pair.gateway.http.post("/v1/completions", json={"model": MODEL, "prompt": prompt})
        assert answer.status_code == 200
    assert len(pair.engine.asked) == 4


def test_each_prompt_of_a_body_counts_before_the_engine_has_said_anything(
    relay_to: Callable[..., Pair],
) -> None:
    pair = relay_to(lambda to, _: to.reply(whole(0)), limits=TenantLimits(tokens_per_minute=999))
    body = {"model": MODEL, "prompt": ["a"] * 10, "max_tokens": 100}
    answer = pair.gateway.http.post("/v1/completions", json=body)
    assert (answer.status_code, answer.json()["error"]["type"]) == (429, "tokens")
    body = {"model": MODEL, "query": "q" * 400, "documents": ["d"] * 10}
    answer = pair.gateway.http.post("/v1/rerank", json=body)
    assert (answer.status_code, answer.json()["error"]["type"]) == (429, "tokens")
    assert pair.engine.asked == []


def test_an_engine_gets_as_many_requests_as_it_runs_and_the_rest_wait(relay_to: Callable[..., Pair]) -> None:
    go, lock, running, most = threading.Event(), threading.Lock(), [0], [0]

    def waits(to: Connection, asked: Asked) -> None:
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        go.wait(PATIENCE_S)
        with lock:
            running[0] -= 1
        to.reply(whole(0))

    pair = relay_to(waits)
    (name,) = [pool.name for pool in pair.gateway.served.pools]
    pair = relay_to(waits, max_running={name: 2})

    def ask(n: int) -> int:
        body = BODY | {"stream": False, "user": f"u{n}"}
        return pair.gateway.http.post("/v1/chat/completions", content=json.dumps(body)).status_code

    with ThreadPoolExecutor(6) as threads:
        answers = [threads.submit(ask, n) for n in range(6)]
        wait_until(lambda: running[0] == 2, "two run")
        wait_until(lambda: _waiting(pair) == 4, "four wait")
        assert most[0] == 2
        go.set()
        assert [answer.result() for answer in answers] == [200] * 6


def _metrics(pair: Pair) -> str:
    return pair.gateway.http.get("/metrics").text


def _waiting(pair: Pair) -> float:
    lines = [line for line in _metrics(pair).splitlines() if line.startswith("kvgate_queue_waiting{")]
    return float(lines[0].split()[-1]) if lines else 0
