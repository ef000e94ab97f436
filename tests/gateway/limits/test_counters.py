"""One contract for counting in this process and in Redis; several gateways; a Redis that goes and comes."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from gateway.limits.counter import Counter, LocalCounter
from gateway.limits.shared_counter import LEASE_S, SharedCounter
from gateway.limits.tenant_limits import TenantLimits
from gateway.limits.window import LASTS
from gateway.shared_state.options import RedisOptions
from gateway.shared_state.shared_state import SharedState
from tests.gateway.limits.clock import Clock
from tests.redis_server import RedisServer
from tests.waiting import until

USED, RUNNING = "kvgate:limits:{a}:used", "kvgate:limits:{a}:running"  # in Redis
SLOW_S = 1.0  # between beats: who is late on a busy machine by less than three of them is still counted


@asynccontextmanager
async def gateway(server: RedisServer, **options: object) -> AsyncIterator[SharedCounter]:
    """A server that is slow because the machine is, is not away here; one that was killed refuses at once."""
    state = SharedState(RedisOptions(server.url, timeout_s=20))
    counter = SharedCounter(state, **options)  # type: ignore[arg-type]
    counter.start()
    try:
        yield counter
    finally:
        await counter.aclose()
        await state.aclose()


@pytest.fixture(params=["local", "redis"])
async def counter(request: pytest.FixtureRequest) -> AsyncIterator[Counter]:
    if request.param == "local":
        yield LocalCounter()
        return
    async with gateway(request.getfixturevalue("redis_server")) as shared:
        yield shared


@pytest.fixture
def mortal() -> Iterator[RedisServer]:
    with RedisServer.started() as server:
        yield server


async def passed(counter: Counter, limits: TenantLimits, n: int, tokens: int = 1, name: str = "r") -> int:
    asked = (counter.admit("a", limits, f"{name}{i}", tokens) for i in range(n))
    return sum(not verdict.over for verdict in await asyncio.gather(*asked))


async def test_exactly_as_many_requests_pass_as_may(counter: Counter) -> None:
    limits = TenantLimits(requests_per_minute=7)
    assert await passed(counter, limits, 40) == 7
    verdict = await counter.admit("a", limits, "late", 1)
    assert verdict.over == ("requests",)
    assert verdict.requests == 7
    assert 30 < verdict.wait_s <= 61
    assert 30 < verdict.requests_reset_s <= 61


async def test_tokens_are_counted_as_they_are_asked_for(counter: Counter) -> None:
    limits = TenantLimits(tokens_per_minute=100)
    assert await passed(counter, limits, 5, 30) == 3
    verdict = await counter.admit("a", limits, "small", 10)
    assert (verdict.over, verdict.tokens) == ((), 100)
    assert (await counter.admit("a", limits, "more", 1)).over == ("tokens",)


async def test_what_a_request_did_not_take_is_given_back_and_what_it_took_more_counts(
    counter: Counter,
) -> None:
    limits = TenantLimits(tokens_per_minute=100)
    first = await counter.admit("a", limits, "first", 90)
    counter.settle("a", "first", first, -80)
    second = await counter.admit("a", limits, "second", 80)
    assert (second.over, second.tokens) == ((), 90)
    counter.settle("a", "second", second, 40)
    third = await counter.admit("a", limits, "third", 1)
    assert (third.over, third.tokens) == (("tokens",), 130)


async def test_a_slot_is_free_when_its_request_has_ended(counter: Counter) -> None:
    limits = TenantLimits(concurrency=2)
    first = await counter.admit("a", limits, "one", 1)
    assert not (await counter.admit("a", limits, "two", 1)).over
    assert (await counter.admit("a", limits, "three", 1)).over == ("concurrency",)
    counter.settle("a", "one", first, 0)
    assert not (await counter.admit("a", limits, "three", 1)).over


async def test_a_refused_request_counts_nowhere(counter: Counter) -> None:
    limits = TenantLimits(requests_per_minute=5, tokens_per_minute=10, concurrency=1)
    assert not (await counter.admit("a", limits, "one", 10)).over
    for n in range(20):
        assert (await counter.admit("a", limits, f"no{n}", 1)).over == ("tokens", "concurrency")
    assert (await counter.admit("a", limits, "no", 0)).requests == 1


async def test_tenants_do_not_meet(counter: Counter) -> None:
    limits = TenantLimits(requests_per_minute=1, concurrency=1)
    for tenant in ("a", "b", "a:b", "{a}", "a}", ""):
        assert not (await counter.admit(tenant, limits, "same id", 1)).over


async def test_a_limit_that_was_raised_counts_at_once(counter: Counter) -> None:
    assert await passed(counter, TenantLimits(requests_per_minute=2), 5) == 2
    assert await passed(counter, TenantLimits(requests_per_minute=6), 10, name="s") == 4


async def test_gateways_on_one_redis_count_together(redis_server: RedisServer) -> None:
    limits = TenantLimits(requests_per_minute=100, concurrency=60)
    async with gateway(redis_server) as one, gateway(redis_server) as two:
        counts = await asyncio.gather(
            passed(one, limits, 2000, name="x"), passed(two, limits, 2000, name="y")
        )
    assert sum(counts) == 60


async def test_slots_of_a_gateway_that_died_are_free_when_their_lease_is_over(
    redis_server: RedisServer,
) -> None:
    limits = TenantLimits(concurrency=3)
    async with gateway(redis_server) as dead:
        assert await passed(dead, limits, 3) == 3
    async with gateway(redis_server) as other:
        assert (await other.admit("a", limits, "new", 1)).over == ("concurrency",)
        for member, score in leases(redis_server).items():  # as if the time of a lease had gone by
            redis_server.client().zadd(RUNNING, {member: score - LEASE_S - 1})
        assert await passed(other, limits, 5, name="n") == 3


async def test_slots_of_requests_that_run_long_are_kept(redis_server: RedisServer) -> None:
    limits = TenantLimits(concurrency=3)
    async with gateway(redis_server, beat_s=0.1) as long, gateway(redis_server) as other:
        assert await passed(long, limits, 3) == 3
        first = max(leases(redis_server).values())
        await until(lambda: min(leases(redis_server).values()) > first, "all leases are longer")
        assert (await other.admit("a", limits, "new", 1)).over == ("concurrency",)


async def test_while_redis_is_away_each_gateway_lets_its_share_pass_with_what_it_had(
    mortal: RedisServer,
) -> None:
    limits = TenantLimits(requests_per_minute=100)
    async with gateway(mortal, beat_s=SLOW_S) as one, gateway(mortal, beat_s=SLOW_S) as two:
        await until_seen(one, two)
        assert await passed(one, limits, 30) == 30
        mortal.kill()
        assert await passed(one, limits, 200, name="s") == 20  # of its 50
        assert await passed(two, limits, 200, name="t") == 50


async def test_who_has_heard_that_nothing_is_left_lets_nothing_pass_while_redis_is_away(
    mortal: RedisServer,
) -> None:
    limits, clock = TenantLimits(requests_per_minute=100, tokens_per_minute=1000), Clock()
    async with (
        gateway(mortal, beat_s=SLOW_S) as one,
        gateway(mortal, beat_s=SLOW_S, clock=clock) as two,
        gateway(mortal, beat_s=SLOW_S) as three,
    ):
        await until(lambda: all(each.gateways == 3 for each in (one, two, three)), "all know of all")
        assert await passed(one, limits, 90, 10, name="r") == 90
        assert (await two.admit("a", limits, "s", 10)).tokens == 910
        mortal.kill()
        assert await passed(two, limits, 50, 10, name="t") == 3  # of 9 that were left, for three gateways
        assert await passed(one, limits, 50, 10, name="u") == 0
        assert (await two.admit("a", limits, "w", 10)).requests == 94
        clock.now += LASTS  # what was used before counts no more
        assert await passed(two, limits, 50, 10, name="v") == 33


async def test_what_passed_while_redis_was_away_counts_like_all_else_when_it_goes_again(
    mortal: RedisServer,
) -> None:
    limits = TenantLimits(requests_per_minute=100, concurrency=1000)
    async with gateway(mortal, beat_s=0.1) as one:
        assert await passed(one, limits, 30, name="r") == 30
        for name in "st":
            mortal.kill()
            assert await passed(one, limits, 20, name=name) == 20
            mortal.start()
            await until_back(one)
            assert await passed(one, limits, 1, name=f"{name} back") == 1
        mortal.kill()
        assert await passed(one, limits, 90, name="u") == 28


async def test_a_redis_that_has_lost_everything_is_told_what_passed(mortal: RedisServer) -> None:
    limits = TenantLimits(requests_per_minute=100, tokens_per_minute=10_000)
    async with gateway(mortal, beat_s=SLOW_S) as one, gateway(mortal, beat_s=SLOW_S) as two:
        await until_seen(one, two)
        assert await passed(one, limits, 30, 10) == 30
        mortal.kill()
        assert await passed(one, limits, 200, 10, name="s") == 20
        assert await passed(two, limits, 10, 10, name="t") == 10
        mortal.start()
        await until_back(one, two)
        verdict = await two.admit("a", limits, "u", 10)
        assert (verdict.requests, verdict.tokens) == (11, 110)
        verdict = await one.admit("a", limits, "v", 10)
        assert (verdict.requests, verdict.tokens) == (62, 620)
        assert (await two.admit("a", limits, "w", 10)).requests == 63


async def test_a_redis_that_comes_back_with_what_it_had_is_told_only_what_it_missed() -> None:
    limits = TenantLimits(requests_per_minute=100)
    with RedisServer.started(keep=True) as server:
        async with gateway(server) as one:
            assert await passed(one, limits, 30) == 30
            server.kill()
            assert await passed(one, limits, 5, name="s") == 5
            server.start()
            await until_back(one)
            assert (await one.admit("a", limits, "v", 1)).requests == 36
            assert (await one.admit("a", limits, "w", 1)).requests == 37


async def test_slots_taken_while_redis_was_away_count_when_it_is_back(mortal: RedisServer) -> None:
    limits = TenantLimits(concurrency=4)
    async with gateway(mortal, beat_s=0.1) as one:
        mortal.kill()
        assert await passed(one, limits, 9) == 4
        mortal.start()
        await until(lambda: len(leases(mortal)) == 4, "the slots are told")
        async with gateway(mortal) as two:
            assert (await two.admit("a", limits, "new", 1)).over == ("concurrency",)


async def test_a_clock_that_goes_back_neither_locks_a_tenant_out_nor_lets_more_pass(
    redis_server: RedisServer,
) -> None:
    limits = TenantLimits(requests_per_minute=5, concurrency=5)
    async with gateway(redis_server) as one:
        assert await passed(one, limits, 9) == 5
        # As if the server's clock had been an hour ahead until now.
        client = redis_server.client()
        moved = {}
        for name, value in client.hgetall(USED).items():
            kind, _, second = name.decode().partition(":")
            if second.isdigit():
                client.hdel(USED, name)
                moved[f"{kind}:{int(second) + 3600}"] = value
            elif second in ("head", "tail"):
                moved[name] = int(value) + 3600
            elif name == b"last":
                moved[name] = float(value) + 3600
        client.hset(USED, mapping=moved)
        for member, score in leases(redis_server).items():
            client.zadd(RUNNING, {member: score + 3600})
        verdict = await one.admit("a", limits, "new", 1)
        assert verdict.over == ("requests", "concurrency")
        assert verdict.wait_s <= 61


async def test_a_client_that_leaves_while_redis_is_asked_leaves_nothing_counted(
    redis_server: RedisServer,
) -> None:
    limits = TenantLimits(tokens_per_minute=1000, concurrency=10)
    async with gateway(redis_server) as one:
        asking = [asyncio.create_task(one.admit("a", limits, f"r{i}", 100)) for i in range(10)]
        await asyncio.sleep(0)
        for each in asking:
            each.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
        await until(lambda: redis_server.client().exists(USED) and not leases(redis_server), "all have left")
        verdict = await one.admit("a", limits, "new", 100)
        assert (verdict.over, verdict.tokens) == ((), 100)
        assert len(leases(redis_server)) == 1


async def test_keys_do_not_stay_for_ever(redis_server: RedisServer) -> None:
    async with gateway(redis_server) as one:
        await one.admit("a", TenantLimits(requests_per_minute=5, concurrency=5), "r", 1)
        client = redis_server.client()
        assert all(0 < client.ttl(key) < 3600 for key in client.keys("*"))


def leases(server: RedisServer) -> dict[bytes, float]:
    """Of the tenant's slots, when each of them ends if it is not renewed."""
    return dict(server.client().zrange(RUNNING, 0, -1, withscores=True))


async def until_seen(*counters: SharedCounter) -> None:
    await until(lambda: all(counter.gateways == len(counters) for counter in counters), "all are seen")


async def until_back(*counters: SharedCounter) -> None:
    await until(lambda: not any(counter._state.circuit.away for counter in counters), "all are back")
