"""What was slow once is tried again, and what is slow costs little by being tried."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cache_core.metrics import Moved, RecordingObserver, TierName
from cache_core.tiered.estimates import Estimates
from cache_core.tiered.exploration import Exploration
from tests.cache_core.tiered.state_world import hybrid_world
from tests.cache_core.tiered.test_estimates import BLOCK, BLOCK_BYTES, moved
from tests.cache_core.tiered.test_tiered_cache import PROMPT, warm
from tests.cache_core.tiered.world import PATIENT, World, world

SHARE = 1 / 32
BLOCKS = 20
EAGER = replace(PATIENT, trials=1.0)


def known(share: float = SHARE) -> Exploration:
    """Every tier was measured often."""
    made = Exploration(share)
    for tier in ("disk", "store") * 6:
        made.measured(tier)  # type: ignore[arg-type]
    return made


@pytest.mark.parametrize("times", [1.01, 1.5, 2, 30, 1000])
def test_however_slow_a_tier_is_trying_it_costs_a_share_of_what_computing_does(times: float) -> None:
    exploration, lost, computed, tried = known(), 0.0, 0.0, 0
    for _ in range(100_000):
        if exploration.tries(["disk"], 1.0, times - 1):
            lost, tried = lost + times - 1, tried + 1
        else:
            computed += 1.0
    assert lost <= SHARE * computed
    assert tried >= 100_000 * SHARE / times / 2


def test_the_sooner_the_less_there_is_to_lose() -> None:
    exploration = known()
    assert not exploration.tries(["disk"], 32.0, 0.9), "nothing was computed before"
    assert not exploration.tries(["disk"], 1.0, 1.1)
    assert exploration.tries(["disk"], 1.0, 1.0)
    assert not exploration.tries(["disk"], 1.0, 0.01), "that trial was paid for"


def test_what_was_computed_counts_until_its_tier_is_measured_again() -> None:
    exploration = known()
    for _ in range(3):
        exploration.tries(["disk", "store"], 64.0, 1e9)
    exploration.measured("disk")
    assert not exploration.tries(["disk"], 1.0, 1.0)
    assert exploration.tries(["store"], 1.0, 3.0)


def test_what_was_measured_seldom_is_tried_sooner() -> None:
    exploration = Exploration(SHARE)
    tried = [decision for decision in range(2000) if exploration.tries(["disk"], 1.0, 10.0)]
    waited = np.diff([-1, *tried]) - 1
    assert waited[:8].tolist() == [10, 10, 40, 90, 160, 250, 320, 320]


def test_without_a_share_nothing_is_tried() -> None:
    exploration = Exploration(0.0)
    assert not any(exploration.tries(["disk"], 1e9, 1e-9) for _ in range(1000))


@pytest.mark.parametrize("share", [-0.1, float("inf"), float("nan")])
def test_a_share_that_is_none_is_refused(share: float) -> None:
    with pytest.raises(ValueError, match="cannot be lost"):
        Exploration(share)


def stuck(seconds: float = 1.0, trials: float = SHARE) -> Estimates:
    """Computing a block takes 10 ms, and the disk was measured when each took that long."""
    made = Estimates(BLOCK_BYTES, BLOCK, trials)
    for blocks in (1, 10, 100) * 20:
        made.computed([(0, blocks * BLOCK)], blocks * 10e-3)
        made.moved(moved("host", "device", blocks, blocks * 1e-6))
        made.moved(moved("disk", "host", blocks, blocks * seconds))
    return made


def decisions(made: Estimates, block_seconds: float, most: int = 100_000) -> Iterator[tuple[int, bool]]:
    """Blocks loaded, and whether that was tried, while each really takes that long."""
    for _ in range(most):
        plan = made.plan(["disk"] * BLOCKS, 0)
        if plan.loaded:
            made.moved(moved("disk", "host", plan.loaded, plan.loaded * block_seconds))
            made.moved(moved("host", "device", plan.loaded, plan.loaded * 1e-6))
        yield plan.loaded, plan.tried


def test_a_disk_that_was_slow_once_is_used_again() -> None:
    seen = decisions(stuck(), block_seconds=1e-3)
    before = [loaded for loaded, tried in iter(lambda: next(seen), (BLOCKS, True))]
    assert not any(before)
    # A load seems to lose 19.8 s, and each decision against it costs .2 s.
    assert len(before) == pytest.approx(19.8 / 0.2 / SHARE, rel=0.05)
    assert [next(seen) for _ in range(20)] == [(BLOCKS, False)] * 20


def test_a_tier_that_is_slow_is_tried_seldom_and_found_slow_each_time() -> None:
    seen = list(decisions(stuck(50e-3), block_seconds=50e-3, most=5000))
    tried = sum(tried for _, tried in seen)
    assert [loaded for loaded, _ in seen if loaded] == [BLOCKS] * tried
    assert tried > 10
    assert tried * (50e-3 - 10e-3) <= SHARE * (len(seen) - tried) * 10e-3


def test_what_cannot_be_waited_for_longer_cannot_lose_more() -> None:
    made = stuck(1000.0)
    plans = [made.plan(["disk"] * BLOCKS, 0, wait=0.5) for _ in range(100)]
    assert [plan.tried for plan in plans].index(True) == pytest.approx(0.5 / 0.2 / SHARE, rel=0.05)


def test_a_trial_of_which_nothing_came_up_changes_no_estimate() -> None:
    made, before = stuck(), stuck()
    made.tries(["disk"], 1e9, 1.0)
    assert made.tries(["disk"], 1.0, 1.0)
    made.moved(moved("disk", "host", 0, 30.0, "expired"))
    assert made.load(["disk"] * BLOCKS) == before.load(["disk"] * BLOCKS)


def test_with_no_share_a_stuck_estimate_stays() -> None:
    assert not any(loaded for loaded, _ in decisions(stuck(trials=0.0), 1e-3, most=20_000))


def slow(it: World, source: TierName, target: TierName, nbytes: int) -> None:
    """As if all loads until now had taken 100 s a block, several times what computing it takes."""
    for blocks in (1, 10, 100) * 20:
        event = Moved("link", source, target, "waiting", "done", blocks * nbytes, 0.0, blocks * 100.0)
        it.tiers._estimates.moved(event)


def test_a_cache_finds_out_that_its_host_is_quick_again() -> None:
    observer = RecordingObserver()
    with world(options=EAGER, observer=observer) as it:
        warm(it)
        slow(it, "host", "device", it.device.bytes_per_block)
        begun = []
        while len(begun) < 100 and sum(begun) < 3:
            it.cache.flush()
            begun.append(it.fetch(PROMPT))
        record = observer.record()
        # 500 s against 72 s: after six times
        assert begun == [False] * 6 + [True] * 3
        assert record.tried == 1
        assert record.decided_load == {"host": 15}
        assert it.run(PROMPT) == 20


def test_a_hybrid_models_cache_does_too(tmp_path: Path) -> None:
    observer = RecordingObserver()
    prompt = [*range(40), 99]
    with hybrid_world(tmp_path, blocks=32, options=EAGER, observer=observer) as made:
        made.run(prompt)
        made.run(prompt)
        made.it.settle()
        slow(made.it, "host", "device", made.it.device.bytes_per_block)
        reused = []
        while len(reused) < 100 and sum(map(bool, reused)) < 2:
            made.forget_device()
            made.fetch(prompt)
            reused.append(int(made.it.cache.match(np.array(prompt, dtype=np.int32))))
        # 1000 s for ten blocks and 533 s for a state of as many bytes as 5.3 of them, against 144 s: after ten times
        assert reused == [0] * 10 + [40] * 2
        assert observer.record().tried == 1
        assert made.run(prompt) == 40
