"""What workers share, with the process that holds it in this one, reached over its real socket."""

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from canon.memory import LocalStore
from engine_adapters.rpc.blocking import BlockingClient
from engine_adapters.rpc.server import Server
from gateway.process.front import Figures, SiblingsAwayError
from gateway.settings import CanonSettings
from gateway.telemetry.figures import families_sent, merged
from gateway.workers.fallen import Fallen
from gateway.workers.shared_memory import SharedMemory
from gateway.workers.state_process import StateService
from gateway.workers.worker import OtherWorkers
from tests.waiting import PATIENCE_S, until


@pytest.fixture
def folder() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp())
    yield made
    shutil.rmtree(made)


async def serve(folder: Path) -> Server:
    fallen = Fallen(folder / "counted")
    fallen.find(folder)
    service = StateService(CanonSettings(), fallen, 3).service()
    return await Server(service).listen(folder / "state.sock")


@pytest.fixture
async def state(folder: Path) -> AsyncIterator[Server]:
    server = await serve(folder)
    yield server
    server.close()


class Counting:
    """A process that counts, as its metrics have it."""

    def __init__(self) -> None:
        registry = self.registry = CollectorRegistry()
        self.requests = Counter("requests", "Requests.", ("model",), registry=registry)
        self.seconds = Histogram("seconds", "Seconds.", buckets=(1, 5), registry=registry)
        self.running = Gauge("running", "Now.", registry=registry)
        self.failing = Gauge("kvgate_ledger_failing", "1: it fails.", registry=registry)

    def figures(self) -> Figures:
        return families_sent(self.registry.collect())


async def worker(folder: Path, name: str) -> tuple[OtherWorkers, Counting]:
    others, counting = OtherWorkers(folder / "state.sock", name), Counting()
    others.count(counting.figures)
    others.link.start()
    await others.link.there(PATIENCE_S)
    return others, counting


async def totals(of: OtherWorkers) -> dict[str, float]:
    samples = [sample for metric in merged(await of.figures()) for sample in metric.samples]
    return {
        sample.name + "".join(f"|{value}" for value in sample.labels.values()): sample.value
        for sample in samples
        if not sample.name.endswith("_created")
    }


async def test_any_worker_answers_for_all(folder: Path, state: Server) -> None:
    (one, a), (two, b) = await worker(folder, "a"), await worker(folder, "b")
    a.requests.labels("m").inc(2)
    b.requests.labels("m").inc(3)
    b.requests.labels("n").inc()
    a.seconds.observe(0.5)
    b.seconds.observe(3)
    a.running.set(4)
    b.running.set(5)
    a.failing.set(1)
    b.failing.set(1)
    for each in (one, two):
        found = await totals(each)
        assert found["requests_total|m"] == 5
        assert found["requests_total|n"] == 1
        assert (found["seconds_bucket|1.0"], found["seconds_bucket|5.0"]) == (1, 2)
        assert (found["seconds_count"], found["seconds_sum"]) == (2, 3.5)
        assert found["running"] == 9
        assert found["kvgate_ledger_failing"] == 1
    for each in (one, two):
        await each.link.aclose()


async def test_what_was_told_once_is_not_taken_back_when_a_worker_ends(folder: Path, state: Server) -> None:
    (one, a), (two, b) = await worker(folder, "a"), await worker(folder, "b")
    a.requests.labels("m").inc(2)
    b.requests.labels("m").inc(3)
    b.running.set(7)
    assert (await totals(one))["requests_total|m"] == 5
    await two.link.aclose()
    await until(lambda: len(state.connections) == 1)
    found = await totals(one)
    assert found["requests_total|m"] == 5
    assert found["running"] == 0  # it does nothing any more
    three, c = await worker(folder, "c")
    c.requests.labels("m").inc()
    assert (await totals(three))["requests_total|m"] == 6
    await three.link.aclose()
    await one.link.aclose()


async def test_the_scraped_worker_itself_may_end_as_well(folder: Path, state: Server) -> None:
    (one, a), (two, _) = await worker(folder, "a"), await worker(folder, "b")
    a.requests.labels("m").inc(2)
    assert (await totals(one))["requests_total|m"] == 2
    await one.link.aclose()
    await until(lambda: len(state.connections) == 1)
    assert (await totals(two))["requests_total|m"] == 2
    await two.link.aclose()


async def test_a_worker_that_published_may_be_killed(folder: Path, state: Server) -> None:
    (one, _), (two, b) = await worker(folder, "a"), await worker(folder, "b")
    b.requests.labels("m").inc(3)
    await two.publish()
    await two.link.aclose()
    await until(lambda: len(state.connections) == 1)
    assert (await totals(one))["requests_total|m"] == 3
    await one.link.aclose()


async def test_many_generations_of_workers_are_all_counted_once(folder: Path, state: Server) -> None:
    one, _ = await worker(folder, "a")
    for number in range(40):
        other, counting = await worker(folder, f"b{number}")
        counting.requests.labels("m").inc()
        counting.seconds.observe(0.5)
        await other.publish()
        await other.link.aclose()
    await until(lambda: len(state.connections) == 1)
    found = await totals(one)
    assert (found["requests_total|m"], found["seconds_count"]) == (40, 40)
    await one.link.aclose()


async def test_a_worker_whose_connection_alone_ended_is_not_counted_twice(
    folder: Path, state: Server
) -> None:
    (one, _), (two, b) = await worker(folder, "a"), await worker(folder, "b")
    b.requests.labels("m").inc(3)
    await two.publish()
    broken = two.link.connection
    broken.close()
    await until(lambda: two.link.is_there and two.link.connection is not broken)
    assert (await totals(one))["requests_total|m"] == 3
    for each in (one, two):
        await each.link.aclose()


async def test_figures_of_the_dead_outlive_the_process_that_holds_them(folder: Path) -> None:
    first = await serve(folder)
    (one, a), (two, b) = await worker(folder, "a"), await worker(folder, "b")
    a.requests.labels("m").inc(2)
    b.requests.labels("m").inc(3)
    await two.publish()
    await two.link.aclose()
    await until(lambda: len(first.connections) == 1)
    first.close()
    await until(lambda: not one.link.is_there)
    with pytest.raises(SiblingsAwayError):
        await one.figures()
    second = await serve(folder)
    await until(lambda: one.link.is_there)
    assert (await totals(one))["requests_total|m"] == 5
    await one.link.aclose()
    second.close()


async def test_what_a_worker_counted_while_nobody_could_be_told_is_not_lost(folder: Path) -> None:
    first = await serve(folder)
    (one, a), (two, b) = await worker(folder, "a"), await worker(folder, "b")
    first.close()
    await until(lambda: not one.link.is_there and not two.link.is_there)
    a.requests.labels("m").inc(2)
    b.requests.labels("m").inc(3)
    await one.publish()
    await two.publish()
    await two.link.aclose()  # it dies
    second = await serve(folder)
    await until(lambda: one.link.is_there)
    assert (await totals(one))["requests_total|m"] == 5
    second.close()
    await until(lambda: not one.link.is_there)
    third = await serve(folder)
    await until(lambda: one.link.is_there)
    assert (await totals(one))["requests_total|m"] == 5
    await one.link.aclose()
    third.close()


async def test_a_worker_asks_all_others(folder: Path, state: Server) -> None:
    workers = [(await worker(folder, str(number)))[0] for number in range(3)]

    async def breaks(_: str) -> None:
        raise KeyError

    for number, each in enumerate(workers):
        each.offer("purge", breaks if number == 2 else lambda what, n=number: f"{n} {what}")
    assert await workers[2].ask("purge", "it") == ["0 it", "1 it"]
    with pytest.raises(SiblingsAwayError, match="no answer from worker 2"):
        await workers[0].ask("purge", "it")
    await workers[1].link.aclose()
    await until(lambda: len(state.connections) == 2)
    with pytest.raises(SiblingsAwayError, match="2 of 3 workers"):
        await workers[2].ask("purge", "it")
    for each in workers:
        await each.link.aclose()


async def test_a_memory_is_shared_and_without_it_each_goes_on_alone(folder: Path) -> None:
    state = await serve(folder)
    now = 0.0

    def memory() -> SharedMemory:
        client = BlockingClient(str(folder / "state.sock"), 5, lambda: now)
        return SharedMemory(client, LocalStore())

    one, two = memory(), memory()

    def together() -> list[Any]:
        one.put(b"k", b"v")
        return [
            two.get(b"k"),
            two.get(b"none"),
            two.compare_and_put(b"k", b"other", b"x"),
            two.compare_and_put(b"k", b"v", b"w"),
            two.compare_and_put(b"new", None, b"n"),
            one.get(b"k"),
            one.get(b"new"),
        ]

    assert await asyncio.to_thread(together) == [b"v", None, False, True, True, b"w", b"n"]
    state.close()
    await asyncio.sleep(0)

    def alone() -> list[Any]:
        one.put(b"k", b"mine")
        return [one.get(b"k"), two.get(b"k"), one.compare_and_put(b"k", b"mine", b"more"), one.get(b"k")]

    assert await asyncio.to_thread(alone) == [b"mine", None, True, b"more"]
    again = await serve(folder)
    now = 100.0
    assert await asyncio.to_thread(one.get, b"k") is None
    await asyncio.to_thread(two.put, b"kk", b"v")
    assert await asyncio.to_thread(one.forget, b"k") == 2  # what it kept alone, too
    assert await asyncio.to_thread(two.get, b"kk") is None
    again.close()
