"""Tenants share a full engine by tokens and weight; nobody is lost, however they leave."""

import asyncio
import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.errors import ApiError
from gateway.limits.fair_queue import Asked, FairQueue
from gateway.limits.queue_settings import QueueSettings
from gateway.transport.record import RequestRecord

LONG = QueueSettings(max_waiting=10_000, max_waiting_per_tenant=10_000, max_wait_s=60)


def record() -> RequestRecord:
    return RequestRecord("r", "POST", "/")


async def run(
    queue: FairQueue, asked: Asked, order: list[Asked], bound: int = 1, settings: QueueSettings = LONG
) -> None:
    async with queue.turn(asked, bound, settings, record()):
        order.append(asked)
        await asyncio.sleep(0)


async def served(asked: list[Asked], bound: int = 1) -> list[Asked]:
    """In which order they ran."""
    queue, order = FairQueue(), []  # type: ignore[var-annotated]
    await asyncio.gather(*(run(queue, each, order, bound) for each in asked))
    assert (queue.running, queue.waiting) == (0, 0)
    return order


async def test_one_that_finds_room_waits_for_nothing() -> None:
    queue, noted = FairQueue(), record()
    async with queue.turn(Asked("a", 10), 1, LONG, noted):
        assert queue.running == 1
    assert noted.stages.timed == []


async def test_a_tenant_with_a_thousand_requests_does_not_hold_up_one_with_a_few() -> None:
    order = await served([Asked("many", 100)] * 1000 + [Asked("few", 100)] * 5)
    places = [place for place, asked in enumerate(order) if asked.tenant == "few"]
    assert max(places) <= 12


async def test_tokens_are_shared_and_not_requests() -> None:
    order = await served([Asked("long", 1000)] * 50 + [Asked("short", 100)] * 500)
    tokens = Counter[str]()
    for asked in order[:220]:  # both wait all the time
        tokens[asked.tenant] += asked.tokens
    assert abs(tokens["long"] - tokens["short"]) <= 1000


async def test_weights_say_how_much_more_a_tenant_gets() -> None:
    order = await served([Asked("three", 100, 3.0)] * 400 + [Asked("one", 100)] * 400)
    share = Counter(asked.tenant for asked in order[:400])
    assert share["three"] == pytest.approx(300, abs=3)


async def test_a_priority_goes_first_within_its_tenant_only() -> None:
    asked = [Asked("a", 10)] * 5 + [Asked("a", 10, 1.0, 1)] + [Asked("b", 10)] * 5 + [Asked("a", 10, 1.0, -1)]
    order = await served(asked)
    mine = [each.priority for each in order if each.tenant == "a"]
    assert mine == [0, 1, 0, 0, 0, 0, -1]  # the first one ran at once
    assert [each.tenant for each in order[:8]].count("b") == 4


async def test_who_was_alone_for_long_owes_nothing_to_who_comes_later() -> None:
    queue, order = FairQueue(), []  # type: ignore[var-annotated]
    for _ in range(100):
        await run(queue, Asked("a", 1000), order)
    await asyncio.gather(*(run(queue, Asked(name, 10), order) for name in "ababababab"))
    assert Counter(asked.tenant for asked in order[100:106]) == {"a": 3, "b": 3}


async def test_a_queue_that_is_full_refuses_a_tenant_before_it_refuses_all() -> None:
    queue = FairQueue()
    small = QueueSettings(max_waiting=4, max_waiting_per_tenant=2, max_wait_s=60)
    async with queue.turn(Asked("a", 1), 1, small, record()):
        waiting = [asyncio.create_task(run(queue, Asked(t, 1), [], 1, small)) for t in "aabb"]
        await asyncio.sleep(0)
        for tenant, word in (("a", "of this tenant"), ("c", "here")):
            noted = record()
            with pytest.raises(ApiError, match=word) as raised:
                async with queue.turn(Asked(tenant, 1), 1, small, noted):
                    raise AssertionError
            assert (raised.value.status, noted.limited) == (429, "queue")
            assert int(raised.value.headers["retry-after"]) >= 1
    await asyncio.gather(*waiting)
    assert (queue.running, queue.waiting) == (0, 0)


async def test_who_waits_too_long_is_told_and_leaves_no_gap() -> None:
    queue = FairQueue()
    short = QueueSettings(max_wait_s=0.02)
    async with queue.turn(Asked("a", 1), 1, short, record()):
        noted = record()
        with pytest.raises(ApiError) as raised:
            async with queue.turn(Asked("b", 1), 1, short, noted):
                raise AssertionError
        assert (raised.value.status, noted.limited, queue.waiting) == (503, "queue", 0)
        assert [stage.name for stage in noted.stages.timed] == ["queue"]
    assert queue.running == 0


async def test_a_bound_that_was_raised_lets_more_run() -> None:
    queue, order = FairQueue(), []  # type: ignore[var-annotated]
    async with queue.turn(Asked("a", 1), 1, LONG, record()):
        waiting = asyncio.create_task(run(queue, Asked("b", 1), order, 1))
        await asyncio.sleep(0)
        await run(queue, Asked("c", 1), order, 3)
        await waiting
    assert Counter(asked.tenant for asked in order) == {"b": 1, "c": 1}


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 1 << 30), bound=st.integers(1, 4))
def test_however_requests_leave_as_many_run_as_may_and_all_who_stay_get_their_turn(
    seed: int, bound: int
) -> None:
    asyncio.run(_leaving(seed, bound))


async def _leaving(seed: int, bound: int) -> None:
    rng, queue, ended = random.Random(seed), FairQueue(), []  # type: ignore[var-annotated]

    async def one(name: int) -> None:
        await asyncio.sleep(rng.random() / 500)
        async with queue.turn(Asked(f"t{name % 5}", rng.randint(1, 99)), bound, LONG, record()):
            assert queue.running <= bound
            await asyncio.sleep(rng.random() / 500)
            if rng.random() < 0.1:
                raise ValueError
        ended.append(name)

    tasks = [asyncio.create_task(one(name)) for name in range(60)]
    gone = rng.sample(range(60), 25)
    for name in gone:
        await asyncio.sleep(rng.random() / 2000)
        tasks[name].cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert (queue.running, queue.waiting) == (0, 0)
    kept = [result for name, result in enumerate(results) if name not in gone]
    assert all(result is None or isinstance(result, ValueError) for result in kept)
