"""Workers count together; one that dies leaves its slots; while nobody counts, each keeps to its share."""

import asyncio
from pathlib import Path

from engine_adapters.rpc.server import Server
from gateway.limits.tenant_limits import TenantLimits
from gateway.workers.shared_limits import WorkerCounter
from gateway.workers.worker import OtherWorkers
from tests.gateway.workers.test_state import folder, serve, state, worker
from tests.waiting import until

__all__ = ["folder", "state"]


async def counter(folder: Path, name: str) -> tuple[OtherWorkers, WorkerCounter]:
    others, _ = await worker(folder, name)
    its = WorkerCounter(others.link)
    others.greetings.append(its.resume)
    return others, its


async def passed(counter: WorkerCounter, limits: TenantLimits, n: int, name: str) -> int:
    asked = (counter.admit("a", limits, f"{name}{i}", 1) for i in range(n))
    return sum(not verdict.over for verdict in await asyncio.gather(*asked))


async def test_exactly_as_many_pass_as_may_at_all_workers_together(folder: Path, state: Server) -> None:
    (one, a), (two, b) = await counter(folder, "a"), await counter(folder, "b")
    limits = TenantLimits(requests_per_minute=50)
    assert sum(await asyncio.gather(passed(a, limits, 200, "x"), passed(b, limits, 200, "y"))) == 50
    verdict = await a.admit("a", limits, "late", 1)
    assert (verdict.over, verdict.requests, a.workers) == (("requests",), 50, 2)
    for each in (one, two):
        await each.link.aclose()


async def test_what_ends_or_leaves_is_given_back(folder: Path, state: Server) -> None:
    others, a = await counter(folder, "a")
    limits = TenantLimits(tokens_per_minute=100, concurrency=1)
    first = await a.admit("a", limits, "one", 90)
    assert (await a.admit("a", limits, "two", 1)).over == ("concurrency",)
    a.settle("a", "one", first, -80)
    leaving = asyncio.create_task(a.admit("a", limits, "three", 50))
    await asyncio.sleep(0)
    leaving.cancel()
    await asyncio.gather(leaving, return_exceptions=True)
    last = await a.admit("a", limits, "four", 90)
    assert (last.over, last.tokens) == ((), 100)
    await others.link.aclose()


async def test_slots_of_a_worker_that_died_are_free(folder: Path, state: Server) -> None:
    (one, a), (two, b) = await counter(folder, "a"), await counter(folder, "b")
    limits = TenantLimits(concurrency=3)
    assert await passed(a, limits, 5, "x") == 3
    assert (await b.admit("a", limits, "no", 1)).over == ("concurrency",)
    await one.link.aclose()
    await until(lambda: len(state.connections) == 1)
    assert await passed(b, limits, 5, "y") == 3
    await two.link.aclose()


async def test_requests_of_two_workers_may_have_the_same_name(folder: Path, state: Server) -> None:
    (one, a), (two, b) = await counter(folder, "a"), await counter(folder, "b")
    limits = TenantLimits(concurrency=4)
    first = await a.admit("a", limits, "0", 1)
    assert await passed(b, limits, 5, "") == 3
    a.settle("a", "0", first, 0)
    assert await passed(b, limits, 5, "more") == 1
    assert (await a.admit("a", limits, "1", 1)).over == ("concurrency",)
    await two.link.aclose()
    await until(lambda: len(state.connections) == 1)
    assert await passed(a, limits, 9, "") == 4
    await one.link.aclose()


async def test_a_process_that_counts_anew_is_told_what_runs(folder: Path) -> None:
    server = await serve(folder)
    (one, a), (two, b) = await counter(folder, "a"), await counter(folder, "b")
    limits = TenantLimits(concurrency=6)
    first = await a.admit("a", limits, "0", 1)
    assert await passed(b, limits, 2, "") == 2
    server.close()
    await until(lambda: not one.link.is_there and not two.link.is_there)
    alone = await a.admit("a", limits, "1", 1)  # within its share
    assert not alone.over
    there = await serve(folder)
    await until(lambda: one.link.is_there and two.link.is_there)
    assert await passed(b, limits, 9, "more") == 2  # beside four that run
    a.settle("a", "1", alone, 0)
    a.settle("a", "0", first, 0)
    assert await passed(a, limits, 9, "again") == 2
    for each in (one, two):
        await each.link.aclose()
    there.close()


async def test_while_nobody_counts_each_keeps_to_its_share(folder: Path) -> None:
    server = await serve(folder)
    (one, a), (two, b) = await counter(folder, "a"), await counter(folder, "b")
    limits = TenantLimits(requests_per_minute=10, concurrency=10)
    assert await passed(a, limits, 1, "x") == await passed(b, limits, 1, "y") == 1
    server.close()
    await until(lambda: not one.link.is_there and not two.link.is_there)
    assert await passed(a, limits, 20, "z") == 5
    there = await serve(folder)
    await until(lambda: one.link.is_there)
    assert not (await a.admit("a", limits, "back", 1)).over
    for each in (one, two):
        await each.link.aclose()
    there.close()
