"""Routing, limits and replicas: a collector gets what a scrape says, and traces say which way a request went."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from engine_adapters.remote.openai_compatible import OpenAICompatibleEngine
from gateway.limits.tenant_limits import TenantLimits
from gateway.relay.remote import Remote
from gateway.replicas.breaker import BreakerOptions
from gateway.replicas.policy import PoolPolicy
from gateway.replicas.pool import EnginePool
from gateway.routing.prefix_router import PrefixRouter
from gateway.settings import GatewaySettings
from gateway.telemetry.otel.observed import COUNTERS, GAUGES, sent_name
from gateway.telemetry.otel.options import OtelOptions
from gateway.telemetry.scrape import Scrape
from tests.gateway.relay.fake_engine import MODEL, Asked, Connection, fake_engine, whole
from tests.gateway.relay.serving import Relaying, relaying
from tests.gateway.telemetry.collector import Collector, collector
from tests.gateway.telemetry.scraped import Scraped, scrape
from tests.waiting import wait_until

BODY = {"model": MODEL, "messages": [{"role": "user", "content": "All of the tides. " * 200}]}
# What requests, engines, the ledger and the configuration say has its own way out, or none.
OF_OTHERS = tuple(
    f"kvgate_{what}"
    for what in ("requests", "body", "reuse", "recomputed", "canon", "engine", "ledger", "config", "draining")
)
REDIS_ONLY = {name for name in (*COUNTERS, *GAUGES) if "shared_state" in name or name == "kvgate_gateways"}
STAYS_OPEN = BreakerOptions(
    failures=1, open_s=600, longest_open_s=600
)  # from the scrape to what is sent last


@dataclass(slots=True)
class Watched:
    gateway: Relaying
    kept: Collector

    def ask(self) -> httpx.Response:
        return self.gateway.http.post("/v1/chat/completions", json=BODY)


def well(connection: Connection, _: Asked) -> None:
    connection.reply(whole(0))


def ill(connection: Connection, _: Asked) -> None:
    connection.reply(b"{}", "503 Service Unavailable")


@contextmanager
def watched(*scripts: object, **settings: object) -> Iterator[Watched]:
    """Everything has arrived at the collector when the block has been left."""
    with ExitStack() as stack:
        kept = stack.enter_context(collector())
        engines = [stack.enter_context(fake_engine(script)) for script in scripts]
        remotes = [
            Remote(OpenAICompatibleEngine("fake", engine.url, (MODEL,)), replica=f"fake/{name}")
            for name, engine in zip("ab", engines, strict=False)
        ]
        pool = EnginePool("fake", remotes, PrefixRouter(), PoolPolicy(STAYS_OPEN))
        options = GatewaySettings(otel=OtelOptions(True, True, kept.url), **settings)
        gateway = stack.enter_context(relaying([], options, pools=[pool]))
        yield Watched(gateway, kept)


def sent(kept: Collector, family: str) -> dict[frozenset[tuple[str, str]], float]:
    return {
        frozenset((pair.key, pair.value.string_value) for pair in point.attributes): (
            point.as_double or point.as_int
        )
        for point in kept.points.get(sent_name(family), [])
    }


def scraped(told: Scraped, family: str) -> dict[frozenset[tuple[str, str]], float]:
    return {
        frozenset((sent_name(label), value) for label, value in one.labels.items()): one.value
        for one in told.samples
        if one.name in (family, f"{family}_total")
    }


def test_a_collector_gets_what_a_scrape_says_of_routing_limits_and_replicas() -> None:
    with watched(ill, well, limits=TenantLimits(requests_per_minute=2), max_running={"fake": 4}) as it:
        assert [it.ask().status_code for _ in range(3)] == [200, 200, 429]
        told = scrape(it.gateway.http)
    for family in (*COUNTERS, *GAUGES):
        assert sent(it.kept, family) == scraped(told, family), family
    assert it.kept.total("kvgate.limited_requests", kvgate__kind="requests") == 1
    assert it.kept.total("kvgate.retries", kvgate__reason="503") == 1
    assert sorted(sent(it.kept, "kvgate_replica_breaker_state").values()) == [0, 2]


def test_every_name_is_one_of_the_metrics_endpoint() -> None:
    with watched(well, well, max_running={"fake": 4}) as it:
        it.ask()
        families = scrape(it.gateway.http).families
    assert {*COUNTERS, *GAUGES} - set(families) == REDIS_ONLY
    assert all(families[name].type == "counter" for name in COUNTERS if name in families)
    assert all(families[name].type == "gauge" for name in GAUGES if name in families)


def test_whatever_a_scrape_says_of_the_way_to_a_replica_is_sent() -> None:
    with watched(well, well, max_running={"fake": 4}) as it:
        it.ask()
        families = scrape(it.gateway.http).families.values()
    ours = {
        each.name
        for each in families
        if each.type in ("counter", "gauge") and each.name.startswith("kvgate_")
    }
    assert {name for name in ours if not name.startswith(OF_OTHERS)} <= {*COUNTERS, *GAUGES}


def test_the_families_are_made_once_for_all_that_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    own, made = Scrape.own, []

    def counting(self: Scrape) -> object:
        made.append(self)
        return own(self)

    monkeypatch.setattr(Scrape, "own", counting)
    with watched(well, well) as it:
        it.ask()
    assert len(made) == 1


def test_a_span_says_where_its_request_went_and_why() -> None:
    with watched(ill, well) as it:
        it.ask()
        it.ask()
    first, second = (span.attributes for span in it.kept.servers())
    assert first["kvgate.attempts"] == 2
    assert (first["kvgate.replica"], first["kvgate.route.reason"]) == ("fake/b", "only")
    assert "kvgate.attempts" not in second
    assert second["kvgate.route.predicted_tokens"] == second["kvgate.route.anywhere_tokens"] > 0
    assert "kvgate.tenant" not in second  # there is only one


def test_a_limit_that_was_met_is_in_the_span() -> None:
    with watched(well, well, limits=TenantLimits(requests_per_minute=1)) as it:
        it.ask()
        it.ask()
    first, second = (span.attributes for span in it.kept.servers())
    assert "kvgate.limited" not in first
    assert second["kvgate.limited"] == "requests"


def test_waiting_for_a_full_engine_is_measured() -> None:
    go = threading.Event()

    def slow(connection: Connection, asked: Asked) -> None:
        go.wait(60)
        well(connection, asked)

    with watched(slow, max_running={"fake": 1}) as it:
        asking = [threading.Thread(target=it.ask) for _ in range(2)]
        for thread in asking:
            thread.start()
        wait_until(lambda: scrape(it.gateway.http).value("kvgate_queue_waiting") == 1, "one that waits")
        go.set()
        for thread in asking:
            thread.join()
    (waits,) = it.kept.points["kvgate.queue.wait.duration"]
    assert waits.count == 1
    assert waits.sum > 0


def test_every_sent_name_is_in_the_docs() -> None:
    text = (Path(__file__).parents[4] / "docs" / "observability.md").read_text("utf-8")
    assert [name for name in (*COUNTERS, *GAUGES) if name not in text] == []
