"""The scheduler over a real prefix cache, without a model: who runs, who waits, who goes."""

import itertools

import numpy as np
import pytest

from cache_core import BlockPool, PrefixCache
from engine_adapters.base import GenerateRequest, SamplingParams
from engine_adapters.embedded.config import SchedulerLimits
from engine_adapters.embedded.sampling import SamplingState
from engine_adapters.embedded.scheduler import Plan, Scheduler
from engine_adapters.embedded.sequence import Sequence

BLOCK = 4


class Clock:
    """Seconds, moved by the test."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Bench:
    """A scheduler with its cache, and steps that pretend to compute."""

    def __init__(self, blocks: int = 64, **limits: int) -> None:
        self.clock = Clock()
        self.cache = PrefixCache(BlockPool(blocks, BLOCK))
        self.scheduler = Scheduler(self.cache, SchedulerLimits(**limits), self.clock)
        self._ids = itertools.count()

    def add(self, tokens: list[int], max_length: int | None = None) -> Sequence:
        ids = np.array(tokens, dtype=np.int32)
        request = GenerateRequest(str(next(self._ids)), "completions", "m", ids, SamplingParams())
        sequence = Sequence(
            request=request,
            index=0,
            max_length=max_length or len(tokens) + 1000,
            arrival=self.clock(),
            sampling=SamplingState(SamplingParams(), ids, 0, None, ()),
            detokenizer=None,  # type: ignore[arg-type]
            stops=None,  # type: ignore[arg-type]
        )
        self.scheduler.add(sequence)
        return sequence

    def step(self) -> Plan:
        """Plan, pretend to compute, append token 7 to whoever sampled."""
        plan = self.scheduler.plan()
        self.cache.check_integrity()
        for chunk in plan.chunks:
            self.scheduler.computed(chunk)
            if chunk.sample:
                chunk.sequence.append(7)
        self.cache.check_integrity()
        return plan


def ran(plan: Plan) -> dict[str, int]:
    return {chunk.sequence.request.request_id: chunk.tokens for chunk in plan.chunks}


def test_prefill_goes_in_chunks_under_the_budget_and_decode_rides_along() -> None:
    bench = Bench(prefill_budget=10, prefill_budget_decoding=6)
    bench.add(list(range(25)))
    assert ran(bench.step()) == {"0": 10}
    assert ran(bench.step()) == {"0": 10}
    assert ran(bench.step()) == {"0": 5}
    bench.add(list(range(100, 120)))
    assert ran(bench.step()) == {"0": 1, "1": 6}


def test_a_request_joins_while_others_decode_and_leaves_without_disturbing_them() -> None:
    bench = Bench()
    first, second = bench.add(list(range(9))), bench.add(list(range(50, 58)))
    bench.step()
    bench.scheduler.remove(first)
    assert ran(bench.step()) == {"1": 1}
    bench.scheduler.remove(second)
    stats = bench.cache.stats()
    assert stats.leased == 0
    assert stats.filling == 0


def test_a_wholly_cached_prompt_still_computes_its_last_block() -> None:
    bench = Bench()
    bench.scheduler.remove(_prefilled(bench, list(range(16))))
    again = bench.add(list(range(16)))
    assert ran(bench.step()) == {again.request.request_id: BLOCK}
    assert again.reused == 12


def test_least_expected_work_after_the_prefix_hit_goes_first() -> None:
    bench = Bench(max_running=1, blocks=256)
    bench.scheduler.remove(_prefilled(bench, list(range(200))))
    long_but_cached = [*range(200), 900, 901]
    short_and_cold = bench.add(list(range(300, 340)))
    cached = bench.add(long_but_cached)
    assert list(ran(bench.step())) == [cached.request.request_id]
    assert short_and_cold in bench.scheduler.waiting


def test_a_sequence_knows_how_long_it_waited_until_it_was_first_admitted() -> None:
    bench = Bench(max_running=1)
    first, second = bench.add(list(range(9))), bench.add(list(range(50, 59)))
    bench.step()
    assert (first.queue_s, second.queue_s) == (0.0, None)
    bench.clock.now = 2.5
    bench.scheduler.remove(first)
    bench.step()
    bench.clock.now = 9.0
    bench.step()
    assert (first.queue_s, second.queue_s) == (0.0, 2.5)


def test_waiting_outweighs_work_so_that_nothing_starves() -> None:
    bench = Bench(max_running=1, blocks=512)
    large = bench.add(list(range(1000)))
    bench.scheduler.rate.observe(100, 1.0)
    for number in range(1000):
        small = bench.add([5000 + number] * 8)
        bench.clock.now += 1.0
        plan = bench.step()
        if large.lease is not None:
            break
        for chunk in plan.chunks:
            bench.scheduler.remove(chunk.sequence)
        assert small.finished is False
    assert large.lease is not None
    assert number < 20


def test_what_waited_long_is_not_overtaken_for_blocks_by_small_ones() -> None:
    bench = Bench(blocks=12)
    running = bench.add(list(range(24)))
    bench.step()
    large = bench.add(list(range(100, 132)))
    bench.clock.now += 1000.0
    late = bench.add([1, 2, 3])
    bench.step()
    assert large.lease is None
    assert late.lease is None
    bench.scheduler.remove(running)
    bench.step()
    assert large.lease is not None


def test_the_same_uncomputed_prefix_is_computed_once_and_the_waiter_holds_nothing() -> None:
    bench = Bench(prefill_budget=8)
    shared = list(range(24))
    owner, waiter = bench.add([*shared, 91]), bench.add([*shared, 92])
    assert ran(bench.step()) == {"0": 8}
    assert waiter.lease is None
    bench.step()
    bench.step()
    assert waiter.lease is None
    plan = bench.step()
    assert ran(plan)["1"] == 1
    assert waiter.reused == 24
    assert owner.lease is not None


def test_when_an_owner_is_preempted_its_prefix_goes_on_from_the_last_ready_block() -> None:
    bench = Bench(prefill_budget=8)
    shared = list(range(24))
    owner, waiter = bench.add([*shared, 91]), bench.add([*shared, 92])
    bench.step()
    bench.scheduler._preempt(owner)
    assert list(ran(bench.step()).values()) == [8]
    assert [s.computed for s in (owner, waiter) if s.lease is not None] == [16]
    bench.scheduler.remove(next(s for s in (owner, waiter) if s.lease is not None))
    assert list(ran(bench.step()).values()) == [8]
    assert [s.computed for s in (owner, waiter) if s.lease is not None] == [24]


@pytest.mark.parametrize("steps", [1, 2])
def test_a_waiter_goes_on_from_the_last_ready_block_when_the_owner_goes(steps: int) -> None:
    bench = Bench(prefill_budget=8)
    shared = list(range(24))
    owner, waiter = bench.add([*shared, 91]), bench.add([*shared, 92])
    for _ in range(steps):
        bench.step()
    bench.scheduler.remove(owner)
    assert ran(bench.step()) == {"1": 8}
    assert waiter.reused == 8 * steps


def test_the_latest_is_preempted_when_blocks_run_short_and_resumes_with_its_tokens() -> None:
    bench = Bench(blocks=8)
    first, second = bench.add(list(range(12))), bench.add(list(range(50, 62)))
    seen_preempted = False
    for _ in range(12):
        bench.step()
        seen_preempted |= second.lease is None
        assert first.lease is not None
    assert seen_preempted
    assert bench.scheduler.preemptions >= 1
    kept = second.known.copy()
    bench.scheduler.remove(first)
    bench.step()
    assert second.lease is not None
    np.testing.assert_array_equal(second.known[: len(kept)], kept)


def test_alone_and_out_of_blocks_ends_with_length_and_frees_everything() -> None:
    bench = Bench(blocks=4)
    only = bench.add(list(range(13)))
    for _ in range(20):
        plan = bench.step()
        if plan.out_of_room:
            break
    assert plan.out_of_room == [only]
    assert only.length == 17
    assert not bench.scheduler.busy
    assert bench.cache.stats().leased == 0


def test_reused_counts_what_was_never_computed_again_after_a_preemption() -> None:
    bench = Bench(blocks=16)
    bench.scheduler.remove(_prefilled(bench, list(range(20))))
    sequence = bench.add([*range(20), 99])
    bench.step()
    assert sequence.reused == 20
    bench.scheduler._preempt(sequence)
    bench.cache.flush()
    bench.step()
    assert sequence.reused == 0


def test_admission_keeps_a_block_for_each_running_decode() -> None:
    bench = Bench(blocks=8)
    bench.add(list(range(16)))
    bench.step()
    filler = bench.add(list(range(100, 116)))
    bench.step()
    assert filler.lease is None


def _prefilled(bench: Bench, tokens: list[int]) -> Sequence:
    sequence = bench.add(tokens)
    while sequence.generated == 0:
        bench.step()
    return sequence


def test_after_a_restart_a_request_counts_only_what_it_reuses_from_then_on() -> None:
    bench = Bench()
    sequence = bench.add(list(range(9)))
    bench.step()
    sequence.came["host"] += 2 * BLOCK
    bench.scheduler.restart()
    bench.cache.purge_all()
    assert not sequence.came
    bench.step()
    assert sequence.reused == 0
