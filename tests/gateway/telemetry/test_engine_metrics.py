"""Engines' own counters in a scrape."""

import math
import re
from collections.abc import Callable, Mapping
from typing import get_args

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from cache_core.drop_reason import DropReason
from cache_core.flat_record import flat_record
from cache_core.metrics import LookedUp, Moved, Outcome, RecordingObserver
from cache_core.transfer import Priority
from engine_adapters.base import Health
from engine_adapters.errors import EngineFailureError
from gateway.telemetry.engine_metrics import OUTCOMES, PRIORITIES, families
from tests.gateway.running_server import Running
from tests.gateway.telemetry.scraped import Scraped, scrape

TOOK = (0.000005, 0.00001, 0.003, 0.003, 2.0, 5000.0)  # seconds
NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")


def rendered(flat: Mapping[str, float]) -> Scraped:
    class Once(Collector):
        def collect(self) -> list[Metric]:
            return families("gpu-1", flat)

    registry = CollectorRegistry()
    registry.register(Once())
    return Scraped(generate_latest(registry).decode())


def watched() -> RecordingObserver:
    observer = RecordingObserver()
    observer.looked_up(LookedUp(100, {"device": 48, "host": 16}, {"device": 48}))
    observer.dropped("disk", DropReason.WRONG_SIZE, 3)
    observer.evicted("device", "adaptive_lrfu", 5, 0.02)
    for seconds in TOOK:
        observer.moved(Moved("host to disk", "host", "disk", "write_back", "done", 1000, 0.001, seconds))
    observer.fragmentation("disk", 0.25)
    observer.compacted("host", 7)
    observer.late("store", "read")
    observer.away("store", "read", True)
    observer.away("store", "write", False)
    return observer


def test_what_stands_at_the_end_of_a_name_is_a_label() -> None:
    seen = rendered(flat_record(watched().record()))
    assert seen.labels("kvgate_engine_cache_reused_tokens_total", "tier") == {"device": 48}
    assert seen.labels("kvgate_engine_cache_tier_hits_total", "tier") == {"device": 1}
    assert seen.value("kvgate_engine_cache_hits_total") == 1
    assert seen.value("kvgate_engine_cache_drops_total", tier="disk", reason="wrong_size") == 3
    assert seen.value("kvgate_engine_cache_evictions_total", tier="device", policy="adaptive_lrfu") == 5
    assert seen.value("kvgate_engine_cache_moved_bytes_total", source="host", target="disk") == 1000 * len(
        TOOK
    )
    transfers = {"link": "host_to_disk", "priority": "write_back"}
    assert seen.value("kvgate_engine_cache_transfers_total", outcome="done", **transfers) == len(TOOK)
    assert seen.value("kvgate_engine_cache_queue_seconds_count", **transfers) == len(TOOK)
    assert seen.value("kvgate_engine_cache_fragmentation", tier="disk") == 0.25
    assert seen.value("kvgate_engine_cache_compacted_blocks_total", tier="host") == 7
    assert seen.value("kvgate_engine_cache_late_calls_total", tier="store", kind="read") == 1
    assert seen.value("kvgate_engine_cache_away", tier="store", kind="read") == 1
    assert seen.value("kvgate_engine_cache_away", tier="store", kind="write") == 0


def test_priorities_and_outcomes_are_the_caches_own() -> None:
    assert {priority.name.lower() for priority in Priority} == set(PRIORITIES)
    assert set(get_args(Outcome)) == set(OUTCOMES)


def test_histograms_keep_every_count_at_every_bound() -> None:
    name = "kvgate_engine_cache_transfer_seconds"
    seen = rendered(flat_record(watched().record()))
    buckets = {float(le): value for le, value in seen.labels(f"{name}_bucket", "le").items()}
    assert list(buckets.values()) == sorted(buckets.values())
    assert len(buckets) == 24
    assert buckets[math.inf] == seen.value(f"{name}_count") == len(TOOK)
    for bound, upto in buckets.items():
        assert upto == sum(seconds <= bound for seconds in TOOK)
    assert seen.value(f"{name}_sum", source="host", target="disk") > 5000


def test_gauges_and_counters_are_told_apart() -> None:
    seen = rendered({"requests": 3.0, "running": 1.0, "blocks_total": 64.0, "blocks_free": 60.0})
    assert {name: family.type for name, family in seen.families.items()} == {
        "kvgate_engine_requests": "counter",
        "kvgate_engine_running": "gauge",
        "kvgate_engine_blocks": "gauge",
        "kvgate_engine_blocks_free": "gauge",
    }
    assert seen.value("kvgate_engine_requests_total", kvgate_engine="gpu-1") == 3


@given(st.dictionaries(st.text(min_size=1, max_size=30), st.floats(0, 1e9), max_size=8))
def test_any_names_become_valid_ones(flat: dict[str, float]) -> None:
    for family in families("e", flat):
        assert NAME.fullmatch(family.name)


def test_a_scrape_asks_the_engine(serve_with: Callable[..., Running]) -> None:
    server = serve_with()

    async def counters() -> Mapping[str, float]:
        return {"requests": 7.0, **flat_record(watched().record())}

    server.engine.counters = counters  # type: ignore[method-assign]
    seen = scrape(server.http)
    assert seen.value("kvgate_engine_requests_total", kvgate_engine="embedded") == 7
    assert seen.value("kvgate_engine_up", kvgate_engine="embedded") == 1
    server.engine.ready = Health(False, "stopped")
    assert scrape(server.http).labels("kvgate_engine_up", "kvgate_engine") == {"embedded": 0}


def test_a_scrape_goes_on_without_an_engine_that_fails(serve_with: Callable[..., Running]) -> None:
    server = serve_with()

    async def counters() -> Mapping[str, float]:
        raise EngineFailureError("no counters")

    server.engine.counters = counters  # type: ignore[method-assign]
    seen = scrape(server.http)
    assert seen.value("kvgate_engine_up") == 1
    server.served.withdraw("gone")
    assert scrape(server.http).all("kvgate_engine_up") == []


def test_every_name_of_a_scrape_is_valid_and_says_its_unit(serve_with: Callable[..., Running]) -> None:
    text = serve_with().http.get("/metrics").text
    names = [family.name for family in text_string_to_metric_families(text)]
    assert all(NAME.fullmatch(name) and name.startswith(("kvgate_", "gen_ai_")) for name in names)
    assert len(names) == len(set(names))
