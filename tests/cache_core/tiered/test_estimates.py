"""Both ends are worked on only where that is expected to be clearly sooner than the better pure way."""

import pytest

from cache_core.metrics import Moved, Outcome, TierName
from cache_core.tiered.estimates import Estimates

BLOCK_BYTES, BLOCK = 1000, 4


def measured(disk: float, prefill: float) -> Estimates:
    """After many loads of that many seconds a block, and as many prefills; the way up from the host is free."""
    made = Estimates(BLOCK_BYTES, BLOCK)
    for blocks in (1, 10, 100) * 40:
        for source, target, seconds in (("disk", "host", disk), ("host", "device", 1e-9)):
            made.moved(moved(source, target, blocks, blocks * seconds))  # type: ignore[arg-type]
        made.computed([(blocks, blocks * BLOCK)], blocks * prefill)
    return made


def moved(
    source: TierName, target: TierName, blocks: int, seconds: float, outcome: Outcome = "done"
) -> Moved:
    return Moved("link", source, target, "waiting", outcome, blocks * BLOCK_BYTES, 0.0, seconds)


def test_where_both_take_as_long_they_share_the_work() -> None:
    made = measured(1e-3, 1e-3).plan(["disk"] * 20, 0, overlap=True)
    assert made.split == pytest.approx(10, abs=2)
    assert made.seconds < 0.7 * made.best_pure


def test_a_small_gain_is_not_worth_it() -> None:
    made = measured(1e-3, 15e-3).plan(["disk"] * 20, 0, overlap=True)
    assert (made.front, made.split) == (20, 20)
    made = measured(15e-3, 1e-3).plan(["disk"] * 20, 0, overlap=True)
    assert (made.front, made.split) == (0, 20)


def test_without_overlap_only_a_front_is_loaded() -> None:
    assert measured(1e-3, 1e-3).plan(["disk"] * 20, 0).split == 20


def test_transfers_that_failed_or_went_down_are_not_measured() -> None:
    made = Estimates(BLOCK_BYTES, BLOCK)
    before = made.plan(["disk"] * 20, 0)
    made.moved(Moved("link", "disk", "host", "waiting", "failed", BLOCK_BYTES, 0.0, 100.0))
    made.moved(Moved("link", "host", "disk", "waiting", "done", BLOCK_BYTES, 0.0, 100.0))
    assert made.plan(["disk"] * 20, 0) == before


@pytest.mark.parametrize("outcome", ["expired", "cancelled"])
def test_a_tier_that_is_always_too_slow_is_found_out_by_what_it_moved(outcome: Outcome) -> None:
    made = measured(disk=1e-3, prefill=4e-3)
    assert made.plan(["disk"] * 20, 0).loaded == 20
    for blocks in (1, 2, 4) * 40:
        made.moved(moved("disk", "host", blocks, blocks * 1.0, outcome))
    assert made.plan(["disk"] * 20, 0).loaded == 0


def test_what_is_queued_before_it_is_part_of_what_a_load_takes() -> None:
    made = measured(disk=1e-3, prefill=4e-3)
    assert made.plan(["disk"] * 20, 0).loaded == 20  # 20 ms against 80
    assert made.plan(["disk"] * 20, 0, ahead={"disk": 40 * BLOCK_BYTES}).loaded == 20
    assert made.plan(["disk"] * 20, 0, ahead={"disk": 80 * BLOCK_BYTES}).loaded == 0
    at_once, behind = (made.load(["disk"] * 20, ahead=ahead) for ahead in ({}, {"disk": 80 * BLOCK_BYTES}))
    assert behind - at_once == pytest.approx(80e-3, rel=0.1)


def test_the_ways_below_and_above_the_host_are_waited_for_at_the_same_time() -> None:
    made = measured(disk=1e-3, prefill=4e-3)
    for blocks in (1, 10, 100) * 40:
        made.moved(moved("host", "device", blocks, blocks * 1e-3))
    alone = made.load(["disk"])
    both = made.load(["disk"], ahead={"disk": 50 * BLOCK_BYTES, "host": 30 * BLOCK_BYTES})
    assert both - alone == pytest.approx(50e-3, rel=0.1)


def test_what_the_eviction_policy_hears_is_what_was_measured() -> None:
    costs = measured(disk=2e-3, prefill=4e-3).measured(["host", "disk"])
    assert costs.reload_s["disk"] == pytest.approx(2e-3, rel=0.1)
    assert costs.reload_s["host"] < 1e-6
    assert costs.token_s + costs.attention_s * 50 == pytest.approx(4e-3 / BLOCK, rel=0.1)
