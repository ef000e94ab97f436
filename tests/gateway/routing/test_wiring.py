"""Requests over two real replicas: where they go, what the ledger and the client are told of it."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import numpy as np
import pytest

from engine_adapters.remote.openai_compatible import OpenAICompatibleEngine
from gateway.ledger.shadow import ShadowPredictor
from gateway.relay.remote import Remote
from gateway.replicas.pool import EnginePool
from gateway.routing.prefix_router import PrefixRouter
from gateway.routing.prompt_tokens import PromptTokens
from gateway.tenants.tenant import DEFAULT, Tenant
from tests.gateway.relay.fake_engine import MODEL, FakeEngine, fake_engine
from tests.gateway.relay.serving import Relaying, relaying
from tests.gateway.scripted_engine import BytePrompts

CHAT = "/v1/chat/completions"
SYSTEM = {"role": "system", "content": "You know all there is to know of tides, winds and currents. " * 60}


class Cache:
    """What one fake engine says that it reused: of each prompt the bytes that an earlier one began with."""

    def __init__(self) -> None:
        self.prompts: list[str] = []
        self.lock = threading.Lock()
        self.forgetful = False

    def __call__(self, connection, asked) -> None:
        text = "".join(f"{m['role']}{m['content']}" for m in asked.body["messages"])
        with self.lock:
            reused = 0 if self.forgetful else max([shared(text, old) for old in self.prompts], default=0)
            self.prompts.append(text)
        details = {"prompt_tokens_details": {"cached_tokens": min(reused, len(text) - 1) // 4}}
        usage = {"prompt_tokens": len(text) // 4, "completion_tokens": 1, "total_tokens": 1, **details}
        message = {"role": "assistant", "content": "Yes."}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        connection.reply(json.dumps({"id": "c", "choices": [choice], "usage": usage}).encode())


def shared(a: str, b: str) -> int:
    return next((at for at, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


@dataclass(slots=True)
class Fleet:
    gateway: Relaying
    engines: list[FakeEngine]
    caches: list[Cache]

    def ask(self, *turns: str, **more: object) -> object:
        messages = [SYSTEM, *({"role": "user", "content": turn} for turn in turns)]
        headers = more.pop("headers", {})
        answer = self.gateway.http.post(
            CHAT, json={"model": MODEL, "messages": messages, **more}, headers=headers
        )
        assert answer.status_code == 200, answer.text
        return answer

    @property
    def counts(self) -> list[int]:
        return [len(engine.asked) for engine in self.engines]


class Everyone:
    def __init__(self, tenant: Tenant) -> None:
        self.tenant = tenant

    async def authenticate(self, headers) -> Tenant:
        return self.tenant


@contextmanager
def fleet(tokens: PromptTokens | None = None, tenant: Tenant = DEFAULT) -> Iterator[Fleet]:
    with ExitStack() as stack:
        caches = [Cache(), Cache()]
        engines = [stack.enter_context(fake_engine(cache)) for cache in caches]
        remotes = [
            Remote(OpenAICompatibleEngine("fake", engine.url, (MODEL,)), replica=f"fake/{name}")
            for name, engine in zip("ab", engines, strict=True)
        ]
        pool = EnginePool("fake", remotes, PrefixRouter(), tokens=tokens)
        gateway = stack.enter_context(
            relaying([], pools=[pool], predictor=ShadowPredictor(), tenants=Everyone(tenant))
        )
        yield Fleet(gateway, engines, caches)


@pytest.fixture
def two() -> Iterator[Fleet]:
    with fleet() as made:
        yield made


def test_conversations_stay_where_they_began(two: Fleet) -> None:
    for turns in range(1, 6):
        two.ask(*["How high is the tide?"] * turns)
    assert sorted(two.counts) == [0, 5]


def test_sessions_stay_together_by_header_and_by_cache_key(two: Fleet) -> None:
    two.gateway.http.post(CHAT, json={"model": MODEL, "messages": [{"role": "user", "content": "x" * 400}]})
    for steer in ({"prompt_cache_key": "k"}, {"headers": {"x-session-id": "s"}}):
        before = two.counts
        for number in range(4):
            headers = steer.get("headers", {})
            body = {name: value for name, value in steer.items() if name != "headers"}
            message = {"role": "user", "content": f"{number}" * 40}
            two.gateway.http.post(CHAT, json={"model": MODEL, "messages": [message], **body}, headers=headers)
        assert sorted(now - was for now, was in zip(two.counts, before, strict=True)) == [0, 4]


def test_the_ledger_says_why_and_what_was_expected_of_each(two: Fleet) -> None:
    two.ask("One")
    two.ask("One", "Two")
    row = two.gateway.rows.last(2)
    assert row.route_reason == "prefix"
    scores = json.loads(row.route_scores)
    assert set(scores) == {"fake/a", "fake/b"}
    assert scores[row.replica][0] == pytest.approx(900, rel=0.1)
    assert next(iter(scores)) == row.replica  # the chosen one is told first
    assert row.predicted == pytest.approx(row.reused, rel=0.1)


def test_reuse_that_another_replica_would_have_had_is_told_as_such() -> None:
    class Elsewhere(PrefixRouter):
        """Sends every second request where its prefix is not."""

        def _best(self, views, home, heat):
            return max(views, key=lambda view: -view.matched)

    with fleet() as two:
        two.gateway.served.pools[0].router = Elsewhere()
        two.ask("One")
        two.ask("One", "Two")
        rows = [two.gateway.rows.last(1), two.gateway.rows.last(2)]
        assert rows[0].replica != rows[1].replica
        assert (rows[1].reused, rows[1].gap_cause) == (0, "other replica")


def test_reuse_that_the_chosen_replica_should_have_had_was_evicted(two: Fleet) -> None:
    two.ask("One")
    two.gateway.rows.last(1)  # it has ended
    for cache in two.caches:
        cache.forgetful = True
    two.ask("One", "Two")
    assert two.gateway.rows.last(2).gap_cause == "evicted"


def test_usage_tells_what_routing_expected(two: Fleet) -> None:
    two.ask("One")
    answer = two.ask("One", "Two", headers={"x-kvgate-usage": "full"})
    told = answer.json()["usage"]["kvgate"]
    assert told["predicted"] == two.gateway.rows.last(2).predicted > 0


def test_how_it_was_routed_is_told_to_admins_alone() -> None:
    with fleet() as two:
        assert "x-kvgate-route" not in two.ask("One").headers
    with fleet(tenant=Tenant("root", "root", admin=True)) as two:
        two.ask("One")
        told = two.ask("One", "Two").headers["x-kvgate-route"]
        where, reason, scores = told.split("; ", 2)
        assert where == two.gateway.rows.last(2).replica
        assert reason == "reason=prefix"
        assert set(json.loads(scores.removeprefix("scores="))) == {"fake/a", "fake/b"}


def test_a_tokenizer_makes_prompts_exact_and_what_it_cannot_render_is_known_by_its_text() -> None:
    tokens = PromptTokens(BytePrompts())
    with fleet(tokens) as two:
        two.ask("One")
        router = two.gateway.served.pools[0].router
        counted: list[Callable] = []
        choose = router.choose

        async def seen(ask, able):
            counted.append(ask.tokens)
            return await choose(ask, able)

        router.choose = seen
        two.ask("One", "Two")
        assert isinstance(counted[0], np.ndarray)
        two.ask("One", tools="no list of tools")
        assert counted[1] is None or tokens.failed == 0


def test_metrics_tell_reasons_and_whether_predictions_came_true(two: Fleet) -> None:
    two.ask("One")
    two.ask("One", "Two")
    two.gateway.rows.last(2)
    text = two.gateway.http.get("/metrics").text
    lines = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert lines['kvgate_routed_requests_total{kvgate_engine="fake",reason="prefix"}'] == "1.0"
    assert lines['kvgate_routed_prompts_total{form="text",kvgate_engine="fake"}'] == "2.0"
    predicted = float(lines['kvgate_routed_predicted_tokens_total{kvgate_engine="fake"}'])
    assert predicted == pytest.approx(
        float(lines['kvgate_routed_reused_tokens_total{kvgate_engine="fake"}']), rel=0.1
    )
    held = [float(v) for name, v in lines.items() if name.startswith("kvgate_replica_held_tokens{")]
    assert sorted(held)[0] == 0
    assert sorted(held)[1] > 800
