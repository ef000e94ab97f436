"""What is told to an observer is what it says later."""

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cache_core.drop_reason import DropReason
from cache_core.flat_record import flat_record
from cache_core.histogram import SECONDS, Histogram
from cache_core.metrics import Decided, LookedUp, Moved, NullObserver, RecordingObserver


@given(st.lists(st.floats(0, 1e5), min_size=1, max_size=60), st.floats(0, 1))
def test_a_quantile_is_the_bound_above_the_true_one(values: list[float], q: float) -> None:
    histogram = Histogram()
    for value in values:
        histogram.add(value)
    snapshot = histogram.snapshot()
    assert snapshot.count == len(values)
    assert snapshot.sum == pytest.approx(sum(values))
    true = sorted(values)[max(int(-(-q * len(values) // 1)), 1) - 1]
    found = snapshot.quantile(q)
    assert found is not None
    assert found >= true
    assert found == SECONDS[0] or found == float("inf") or found <= true * 10 ** (1 / 5) * 1.0001


def test_a_value_on_a_bound_is_in_the_bucket_below_it() -> None:
    histogram = Histogram((1.0, 2.0))
    for value in (1.0, 1.5, 2.0, 2.1):
        histogram.add(value)
    assert histogram.snapshot().counts == (1, 2, 1)
    assert Histogram().snapshot().quantile(0.5) is None


def moved(**changes: object) -> Moved:
    fields: dict[str, object] = {
        "link": "host to device",
        "source": "host",
        "target": "device",
        "priority": "waiting",
        "outcome": "done",
        "moved_bytes": 100,
        "queued": 0.5,
        "seconds": 2.0,
    }
    return Moved(**(fields | changes))  # type: ignore[arg-type]


def test_everything_told_is_in_the_record() -> None:
    observer = RecordingObserver()
    observer.looked_up(LookedUp(100, {"device": 32, "host": 32}, {"device": 32, "host": 16}))
    observer.looked_up(LookedUp(10, {}, {}))
    observer.moved(moved())
    observer.moved(moved(outcome="cancelled", moved_bytes=30))
    observer.moved(moved(source="device", target="host", moved_bytes=7, queued=None, seconds=None))
    observer.dropped("disk", DropReason.CHECKSUM, 3)
    observer.coded("disk", "kept_exact", 2)
    observer.evicted("host", "lru", 4, 60.0)
    observer.ghost_hit("device", 48)
    observer.decided(Decided({"host": 5}, 2, 1.0, 1.5))
    observer.regretted(0.25)
    observer.fragmentation("host", 0.4)
    observer.compacted("host", 3)
    observer.compacted("host", 2)
    observer.late("disk", "write")
    observer.late("disk", "write")
    observer.away("disk", "write", True)
    record = observer.record()
    assert (record.lookups, record.hits, record.prompt_tokens, record.recomputed_tokens) == (2, 1, 110, 62)
    assert record.matched_tokens == {"device": 32, "host": 32}
    assert record.reused_tokens == {"device": 32, "host": 16}
    assert (record.fetched_bytes, record.spilled_bytes) == (130, 7)
    assert record.transfers["host to device", "waiting", "cancelled"] == 1
    assert record.queued["host to device", "waiting"].count == 2
    assert record.seconds["host", "device"].count == 1, "only what arrived has a latency"
    assert record.drops == {("disk", DropReason.CHECKSUM): 3}
    assert record.coded == {("disk", "kept_exact"): 2}
    assert record.evictions == {("host", "lru"): 4}
    assert record.eviction_age["host", "lru"].count == 4
    assert record.ghost_tokens == {"device": 48}
    assert (record.decisions, record.decided_load, record.decided_recompute) == (1, {"host": 5}, 2)
    assert record.expected_saving == pytest.approx(0.5)
    assert record.regret.count == 1
    assert record.fragmentation == {"host": 0.4}
    assert record.compacted_blocks == {"host": 5}
    assert record.late_calls == {("disk", "write"): 2}
    assert record.away == {("disk", "write"): True}


def test_nothing_told_by_many_threads_is_lost() -> None:
    observer = RecordingObserver()

    def tell() -> None:
        for _ in range(500):
            observer.moved(moved())

    threads = [threading.Thread(target=tell) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    record = observer.record()
    assert record.moved_bytes["host", "device"] == 4 * 500 * 100
    assert record.queued["host to device", "waiting"].count == 2000


def test_the_null_observer_takes_everything() -> None:
    observer = NullObserver()
    observer.moved(moved())
    observer.dropped("host", DropReason.NO_ROOM)
    observer.fragmentation("host", 0.0)


def test_hits_and_what_was_passed_over_are_told_by_tier() -> None:
    observer = RecordingObserver()
    observer.looked_up(LookedUp(100, {"device": 32, "host": 32}, {"device": 32, "host": 16}))
    observer.looked_up(LookedUp(100, {"host": 48, "disk": 16}, {"device": 0, "host": 48}))
    observer.looked_up(LookedUp(100, {"disk": 64}, {}))
    record = observer.record()
    assert record.tier_hits == {"device": 1, "host": 2}
    assert record.passed_over_tokens == {"host": 16, "disk": 80}
    assert sum(record.passed_over_tokens.values()) <= record.recomputed_tokens
    flat = flat_record(record)
    assert (flat["cache_tier_hits_host"], flat["cache_passed_over_tokens_disk"]) == (2, 80)
    assert flat["cache_hits"] == 2
