import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.sim.replay import NAMES, SimResult, simulate
from bench.sim.trace import Trace, read_trace
from cache_core import UnknownPolicyError
from tests.bench.sim import naive
from tests.bench.sim.slices import CODING_AGENT
from tests.bench.sim.test_opt import PATHS

SIZES = (200, 800)


@pytest.fixture(scope="module")
def trace() -> Trace:
    return read_trace(CODING_AGENT)


@pytest.mark.parametrize("blocks", SIZES)
def test_lru_and_opt_hit_exactly_what_a_naive_simulator_hits(trace: Trace, blocks: int) -> None:
    paths = [ids.tolist() for ids in trace.requests]
    asked = sum(map(len, paths))
    assert simulate(trace, "lru", blocks).hit_rate == naive.lru_hits(paths, blocks) / asked
    assert simulate(trace, "opt", blocks).hit_rate == naive.optimal_hits(paths, blocks) / asked


@settings(deadline=None)
@given(PATHS.filter(bool), st.integers(1, 12))
def test_lru_is_exact_whatever_is_asked(paths: list[list[int]], blocks: int) -> None:
    trace = Trace("made up", [np.array(path, dtype=np.int32) for path in paths])
    hits = simulate(trace, "lru", blocks).hit_rate * trace.blocks
    assert round(hits) == naive.lru_hits(paths, blocks)


# Found once, so that a change of what a policy does is seen; not what it should be.
GOLDEN = {
    ("opt", 200): 0.3376, ("opt", 800): 0.6878, ("lru", 200): 0.1349, ("lru", 800): 0.4931,
    ("adaptive_lrfu", 200): 0.1391, ("adaptive_lrfu", 800): 0.5193, ("lru_k", 200): 0.1469,
    ("lru_k", 800): 0.5198, ("cost", 200): 0.1342, ("cost", 800): 0.5029,
}  # fmt: skip


@pytest.mark.parametrize(("policy", "blocks"), GOLDEN)
def test_hit_rates_on_the_slice_stay_what_they_are(trace: Trace, policy: str, blocks: int) -> None:
    result = simulate(trace, policy, blocks)
    assert (result.policy, result.blocks, result.requests) == (policy, blocks, 200)
    assert round(result.hit_rate, 4) == GOLDEN[policy, blocks]


@pytest.mark.parametrize("policy", NAMES)
def test_with_room_for_all_every_policy_hits_all_that_ever_returns(trace: Trace, policy: str) -> None:
    distinct = len(set(np.concatenate(trace.requests).tolist()))
    ceiling = 1 - distinct / trace.blocks
    assert simulate(trace, policy, distinct).hit_rate == pytest.approx(ceiling)


@pytest.mark.parametrize("blocks", SIZES)
def test_no_policy_beats_opt_and_the_default_is_not_below_lru(trace: Trace, blocks: int) -> None:
    rates = {policy: simulate(trace, policy, blocks).hit_rate for policy in NAMES}
    assert max(rates.values()) == rates["opt"]
    assert rates["adaptive_lrfu"] >= rates["lru"] - 0.001


def test_the_same_replay_gives_the_same_figure(trace: Trace) -> None:
    first, second = (simulate(trace, "adaptive_lrfu", 400) for _ in range(2))
    assert first == second
    assert isinstance(first, SimResult)


def test_a_policy_that_is_not_there_is_refused(trace: Trace) -> None:
    with pytest.raises(UnknownPolicyError):
        simulate(trace, "fifo", 10)
