"""What requests add up to is the same however they come together, for whoever reads it and whenever."""

import sys
import threading
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from prometheus_client import CollectorRegistry, Histogram

from gateway.telemetry.distribution import Distribution
from gateway.telemetry.request_metrics import RequestMetrics
from gateway.telemetry.tally import Tally
from tests.gateway.telemetry.made_facts import LABELS, alike, facts, some_facts

BOUNDS = (0.5, 1.0, 2.0, 8.0)
VALUES = st.floats(0, 10) | st.sampled_from(BOUNDS)


@given(st.lists(st.lists(VALUES, max_size=5), max_size=5))
def test_a_distribution_is_that_of_a_histogram_which_sees_each_value(batches: list[list[float]]) -> None:
    registry, ours = CollectorRegistry(), Distribution(BOUNDS)
    histogram = Histogram("seen", "Seen.", buckets=BOUNDS, registry=registry)
    for batch in batches:
        ours.add(batch)
        for value in batch:
            histogram.observe(value)
    for index, bound in enumerate((*BOUNDS, float("inf"))):
        le = "+Inf" if bound == float("inf") else str(bound)
        assert sum(ours.counts[: index + 1]) == registry.get_sample_value("seen_bucket", {"le": le})
    assert ours.sum == pytest.approx(registry.get_sample_value("seen_sum"))
    values = [value for batch in batches for value in batch]
    assert (ours.least, ours.most) == (
        min(values, default=float("inf")),
        max(values, default=-float("inf")),
    )


def samples(tally: Tally) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    families = RequestMetrics(tally).collect()
    return {(s.name, tuple(s.labels.items())): s.value for family in families for s in family.samples}


@given(st.lists(some_facts(), max_size=12), st.integers(1, 5))
def test_the_size_of_batches_changes_nothing(given_facts: Sequence[object], size: int) -> None:
    one, many = Tally(), Tally()
    one.add(alike(given_facts))
    for start in range(0, len(given_facts), size):
        many.add(alike(given_facts[start : start + size]))
    assert samples(one) == pytest.approx(samples(many))


def test_what_was_read_stays_and_what_was_taken_is_gone() -> None:
    tally = Tally()
    tally.add(alike([facts(), facts()]))
    (before,) = tally.now()
    tally.add(alike([facts()]))
    assert (before.requests, before.duration_s.count) == (2, 2)
    assert [each.requests for each in tally.take()] == [3]
    assert tally.now() == []
    tally.add(alike([facts()]))
    assert [each.requests for each in tally.now()] == [1]


@pytest.fixture
def often_switched() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("often_switched")
def test_who_reads_meanwhile_finds_whole_requests() -> None:
    tally, going = Tally(), threading.Event()
    batch, torn = alike([facts(input_tokens=10)] * 40), []

    def read() -> None:
        while not going.is_set():
            for each in tally.now():
                numbers = {each.requests, each.duration_s.count, each.input_tokens.count}
                if len(numbers) > 1 or each.input_tokens.sum != 10 * each.requests:
                    torn.append(numbers)

    reader = threading.Thread(target=read)
    reader.start()
    for _ in range(300):
        tally.add(batch)
    going.set()
    reader.join()
    assert torn == []
    assert tally.now()[0].requests == 12_000


def test_requests_apart_in_what_a_metric_does_not_say_are_one_series_of_it() -> None:
    tally = Tally()
    tally.add(alike([facts(), facts(replace(LABELS, status=201)), facts(replace(LABELS, outcome="aborted"))]))
    found = samples(tally)
    who = (
        ("gen_ai_operation_name", "chat"),
        ("gen_ai_request_model", "m"),
        ("kvgate_engine", "e"),
    )
    duration = "gen_ai_server_request_duration_seconds_count"
    assert found[duration, (*who, ("outcome", "ok"))] == 2
    assert found[duration, (*who, ("outcome", "aborted"))] == 1
    assert found["kvgate_requests_by_reuse_total", (*who, ("kvgate_reuse_class", "warm"))] == 3


def test_names_that_go_together_in_too_many_ways_are_other_and_still_counted() -> None:
    tally = Tally(most=2)
    of = [replace(LABELS, model=f"m{number}", error="e") for number in range(9)]
    for labels in [*of, *of, replace(LABELS, model="m9", status=500)]:
        tally.add(alike([facts(labels)]))
    other = replace(LABELS, model="other", engine="other", error="other")
    assert {each.labels: each.requests for each in tally.now()} == {
        of[0]: 2,
        of[1]: 2,
        other: 14,
        replace(other, status=500, error=None): 1,
    }
