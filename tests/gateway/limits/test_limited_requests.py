"""Limits as a client of a real server sees them."""

import asyncio
import re
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import openai
import pytest

from engine_adapters.base import Event, GenerateRequest, Retention, TextDelta
from engine_adapters.errors import EngineFailureError
from gateway.limits.queue_settings import QueueSettings
from gateway.limits.tenant_limits import TenantLimits
from gateway.settings import GatewaySettings
from tests.gateway.leaving import asking
from tests.gateway.running_server import Running, running
from tests.gateway.scripted_engine import MODEL, hello, reuse, usage_of
from tests.waiting import wait_until

BODY = {"model": MODEL, "messages": [{"role": "user", "content": "x" * 90}], "max_tokens": 10}


def post(server: Running, **fields: object) -> httpx.Response:
    return server.http.post("/v1/chat/completions", json=BODY | fields)


@pytest.fixture
def limited() -> Iterator[Callable[..., Running]]:
    """Start a server with these limits for everyone."""
    from contextlib import ExitStack

    with ExitStack() as stack:

        def start(settings: GatewaySettings | None = None, **limits: object) -> Running:
            chosen = settings or GatewaySettings(limits=TenantLimits(**limits))  # type: ignore[arg-type]
            return stack.enter_context(running(chosen))

        yield start


def test_the_limits_are_told_with_every_answer(limited: Callable[..., Running]) -> None:
    server = limited(requests_per_minute=3, tokens_per_minute=1000)
    told = [post(server).headers for _ in range(2)][-1]
    assert told["x-ratelimit-limit-requests"] == "3"
    assert told["x-ratelimit-remaining-requests"] == "1"
    assert told["x-ratelimit-limit-tokens"] == "1000"
    assert re.match(r"1m|[345]\d", told["x-ratelimit-reset-requests"])
    assert 0 < int(told["x-ratelimit-remaining-tokens"]) < 1000
    with server.http.stream("POST", "/v1/chat/completions", json=BODY | {"stream": True}) as stream:
        assert stream.headers["x-ratelimit-remaining-requests"] == "0"
        stream.read()


def test_a_body_has_no_more_prompts_than_the_limit(limited: Callable[..., Running]) -> None:
    server = limited(max_prompts=2)
    body = {"model": MODEL, "prompt": ["a", "b"], "max_tokens": 4}
    assert server.http.post("/v1/completions", json=body).status_code == 200
    answer = server.http.post("/v1/completions", json=body | {"prompt": ["a", "b", "c"]})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "too_many_prompts")


def test_without_limits_nothing_is_told(server: Running) -> None:
    assert not [name for name in post(server).headers if "ratelimit" in name]


def test_over_the_limit_is_the_error_that_the_sdk_knows(limited: Callable[..., Running]) -> None:
    server = limited(requests_per_minute=1)
    assert post(server).status_code == 200
    with pytest.raises(openai.RateLimitError) as raised:
        server.sdk.chat.completions.create(**BODY)  # type: ignore[call-overload]
    error = raised.value
    assert error.code == "rate_limit_exceeded"
    assert error.type == "requests"
    assert 30 <= int(error.response.headers["retry-after"]) <= 61
    assert "1 of 1 requests a minute" in error.message
    assert len(server.engine.requests) == 1


def test_tokens_count_as_the_engine_reports_them_and_reused_ones_at_their_weight(
    limited: Callable[..., Running],
) -> None:
    server = limited(tokens_per_minute=100_000, reused_weight=0.25)

    async def reused(request: GenerateRequest) -> AsyncIterator[Event]:
        async for event in hello(request):
            if type(event).__name__ != "Usage":
                yield event
        yield usage_of(request, 2, reuse(80))

    server.engine.script = reused
    assert post(server).status_code == 200
    prompt = len(server.engine.requests[0].prompt_ids)
    counted = prompt - 60 + 2
    estimate = 100_000 - int(post(server).headers["x-ratelimit-remaining-tokens"])
    second = len(httpx.Request("POST", "http://x", json=BODY).content)
    assert estimate == counted + -(-second // 4) + 10


def test_a_request_that_can_never_pass_is_not_tried_again(limited: Callable[..., Running]) -> None:
    server = limited(tokens_per_minute=500)
    answer = post(server, max_tokens=600)
    assert answer.status_code == 429
    assert answer.headers["x-should-retry"] == "false"
    assert "retry-after" not in answer.headers
    assert "Request too large" in answer.json()["error"]["message"]
    assert post(server).status_code == 200


def test_what_fails_before_its_first_token_costs_no_tokens(limited: Callable[..., Running]) -> None:
    server = limited(tokens_per_minute=100)

    async def fails(request: GenerateRequest) -> AsyncIterator[Event]:
        raise EngineFailureError("no")
        yield TextDelta(0, "")

    server.engine.script = fails
    assert [post(server).status_code for _ in range(8)] == [500] * 8
    assert [post(server, temperature=9).status_code for _ in range(8)] == [400] * 8


def test_a_slot_is_free_again_when_a_client_leaves(limited: Callable[..., Running]) -> None:
    server = limited(concurrency=1)

    async def slow(request: GenerateRequest) -> AsyncIterator[Event]:
        yield TextDelta(0, "wait")
        await asyncio.sleep(30)

    server.engine.script = slow
    with server.http.stream("POST", "/v1/chat/completions", json=BODY | {"stream": True}):
        refused = post(server)
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        assert "1 requests of this key's tenant run already" in refused.json()["error"]["message"]
    wait_until(lambda: server.engine.cancelled, "the engine lets go")
    server.engine.script = hello
    wait_until(lambda: post(server).status_code == 200, "the slot is free")


def test_a_body_over_the_tenants_own_size_is_refused(limited: Callable[..., Running]) -> None:
    server = limited(max_body_bytes=300)
    assert post(server).status_code == 200
    answer = post(server, messages=[{"role": "user", "content": "x" * 300}])
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "request_too_large")
    assert "larger than 300 bytes" in answer.json()["error"]["message"]


def test_a_pin_over_its_quota_is_left_out_and_told(limited: Callable[..., Running]) -> None:
    server = limited(pinned_tokens=150, highest_priority=0)
    first = post(server, kvgate={"pin_ttl": 60})
    second = post(server, kvgate={"pin_ttl": 60, "priority": 1, "ttl": 9})
    assert "x-kvgate-hints" not in first.headers
    assert second.headers["x-kvgate-hints"] == "priority=0; pin_ttl=0"
    assert [request.retention for request in server.engine.requests] == [
        Retention(pin_s=60),
        Retention(0, 9, 0),
    ]


def test_at_a_full_engine_requests_wait_and_a_priority_goes_first(limited: Callable[..., Running]) -> None:
    server = limited(GatewaySettings(max_running={"embedded": 1}))
    go = threading.Event()

    async def waits(request: GenerateRequest) -> AsyncIterator[Event]:
        await asyncio.to_thread(go.wait)
        async for event in hello(request):
            yield event

    server.engine.script = waits
    seeds = [(1, 0), (2, 0), (3, -1), (4, 1)]
    with ThreadPoolExecutor(4) as threads:
        answers = []
        for n, (seed, priority) in enumerate(seeds):
            answers.append(threads.submit(post, server, seed=seed, kvgate={"priority": priority}))
            wait_until(lambda n=n: server.engine.requests and _waiting(server) == n, "it waits")  # type: ignore[misc]
        assert [request.sampling.seed for request in server.engine.requests] == [1]
        go.set()
        assert [answer.result().status_code for answer in answers] == [200] * 4
    assert [request.sampling.seed for request in server.engine.requests] == [1, 4, 2, 3]
    line = 'kvgate_queue_wait_seconds_count{kvgate_engine="embedded",tenant="default"} 3.0'
    wait_until(lambda: line in server.http.get("/metrics").text, "all have been counted")


def test_who_leaves_the_queue_never_reaches_the_engine(limited: Callable[..., Running]) -> None:
    server = limited(GatewaySettings(max_running={"embedded": 1}))

    async def slow(request: GenerateRequest) -> AsyncIterator[Event]:
        yield TextDelta(0, "wait")
        await asyncio.sleep(30)

    server.engine.script = slow
    with server.http.stream("POST", "/v1/chat/completions", json=BODY | {"stream": True}):
        with asking(server.port, "/v1/chat/completions", BODY):
            wait_until(lambda: _waiting(server) == 1, "it waits")
        wait_until(lambda: _waiting(server) == 0, "it left the queue")
    assert len(server.engine.requests) == 1
    server.engine.script = hello
    wait_until(lambda: post(server).status_code == 200, "others go on")


def test_who_waits_too_long_is_told_when_to_come_again(limited: Callable[..., Running]) -> None:
    settings = GatewaySettings(max_running={"embedded": 1}, queue=QueueSettings(max_wait_s=0.1))
    server = limited(settings)

    async def slow(request: GenerateRequest) -> AsyncIterator[Event]:
        yield TextDelta(0, "wait")
        await asyncio.sleep(30)

    server.engine.script = slow
    with server.http.stream("POST", "/v1/chat/completions", json=BODY | {"stream": True}):
        answer = post(server, stream=True)
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "engine_overloaded")
    assert int(answer.headers["retry-after"]) >= 1


def test_refusals_are_counted_by_tenant_and_kind(limited: Callable[..., Running]) -> None:
    server = limited(requests_per_minute=1)
    for _ in range(3):
        post(server)
    line = 'kvgate_limited_requests_total{kind="requests",tenant="default"} 2.0'
    wait_until(lambda: line in server.http.get("/metrics").text, "two were refused")


def _waiting(server: Running) -> int:
    text = server.http.get("/metrics").text
    lines = [line for line in text.splitlines() if line.startswith("kvgate_queue_waiting{")]
    return int(float(lines[0].split()[-1])) if lines else 0
