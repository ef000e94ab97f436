"""Replicas that discovery finds and loses under a real gateway; a fleet from a file; real engines."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from engine_adapters.embedded.models.default_model import find_gguf
from engine_adapters.remote.openai_compatible import OpenAICompatibleEngine
from gateway.config.assemble import assembled
from gateway.config.load import load_config
from gateway.relay.remote import Remote
from gateway.replicas.address import ReplicaAddress
from gateway.replicas.discovery.backoff import Backoff
from gateway.replicas.discovery.kubernetes.api import KubernetesAccess, SliceApi
from gateway.replicas.discovery.kubernetes.discovery import KubernetesDiscovery
from gateway.replicas.discovery.kubernetes.slices import ServicePort
from gateway.replicas.policy import PoolPolicy
from gateway.replicas.pool import EnginePool
from tests.gateway.relay.serving import relaying
from tests.gateway.replicas.discovery.kubernetes_api import ApiServer, endpoint, slice_of
from tests.gateway.replicas.engine_process import engine_processes
from tests.gateway.replicas.fleet import CHAT, Fleet, replica
from tests.gateway.replicas.test_faults import Reading, ask
from tests.gateway.telemetry.scraped import scrape
from tests.llama_cpp_server import LlamaCppServer, llama_cpp_server
from tests.waiting import PATIENCE_S, wait_until


@contextmanager
def cluster() -> Iterator[tuple[ApiServer, asyncio.AbstractEventLoop]]:
    """An API server on a loop of its own, without TLS."""
    loop, api = asyncio.new_event_loop(), None
    ready = threading.Event()

    async def begin() -> None:
        nonlocal api
        api = ApiServer()
        server = await asyncio.start_server(api.serve, "127.0.0.1", 0)
        api.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        ready.set()

    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    begun = asyncio.run_coroutine_threadsafe(begin(), loop)
    begun.result(PATIENCE_S)
    assert api is not None
    try:
        yield api, loop
    finally:
        asyncio.run_coroutine_threadsafe(api.cut(), loop).result(PATIENCE_S)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()


def test_pods_come_and_go_and_a_stream_on_one_that_left_ends_in_peace(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("first-token")
    with cluster() as (api, loop), engine_processes("well", "well") as engines:

        def put(*ports: int) -> None:
            for place, port in enumerate(ports):
                given = slice_of(f"engines-{place}", endpoint("127.0.0.1", f"pod-{port}"), port=port)
                asyncio.run_coroutine_threadsafe(api.put(given), loop).result(PATIENCE_S)

        put(engines[0].port)
        asked = SliceApi(KubernetesAccess(api.url, token), "llm", "engines")
        discovery = KubernetesDiscovery(asked, ServicePort(), "llm/engines", backoff=Backoff(lambda: 0.0))
        pool = EnginePool(
            "fleet",
            policy=PoolPolicy(slow_start_s=0),
            discovery=discovery,
            make=lambda at: replica(at.url, at.name),
        )
        with relaying([], pools=[pool]) as gateway:
            fleet = Fleet(gateway, [], pool)
            wait_until(lambda: [each.state for each in pool.members] == ["ready"], "the first pod is there")
            reading = Reading(gateway)
            wait_until(lambda: b"word" in reading.body, "a stream runs there")
            put(engines[1].port)  # instead of the first one
            name = f"fleet/pod-{engines[1].port}"
            wait_until(lambda: [each.replica for each in pool.replicas] == [name], "the second one is there")
            wait_until(lambda: pool.members[0].state == "ready", "and takes requests")
            answer = ask(fleet)
            assert answer.status_code == 200
            assert gateway.rows.of(answer.headers["x-request-id"]).replica == name
            labels = scrape(gateway.http).labels("kvgate_replica_requests_running", "kvgate_replica")
            assert list(labels) == [name]
            reading.join()
            assert reading.clean
            assert reading.body.endswith(b"data: [DONE]\n\n")
            asyncio.run_coroutine_threadsafe(api.delete("engines-0"), loop).result(PATIENCE_S)
            wait_until(lambda: not pool.replicas, "all have gone")
            answer = ask(fleet)
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "2")  # and no 404


def test_replicas_that_come_and_go_all_the_time_lose_no_request() -> None:
    class Scripted:
        failing = False

        def __init__(self) -> None:
            self.lists: asyncio.Queue[Sequence[ReplicaAddress]] = asyncio.Queue()

        async def watch(self) -> AsyncGenerator[Sequence[ReplicaAddress], None]:
            while True:
                yield await self.lists.get()

    with engine_processes("well", "well", "well") as engines:
        addresses = [ReplicaAddress(f"r{at}", engine.url) for at, engine in enumerate(engines)]
        discovery = Scripted()
        pool = EnginePool(
            "fleet",
            policy=PoolPolicy(slow_start_s=0),
            discovery=discovery,
            make=lambda at: replica(at.url, at.name),
        )
        with relaying([], pools=[pool]) as gateway:

            async def found(*places: int) -> None:
                discovery.lists.put_nowait([addresses[place] for place in places])

            gateway.on_loop(found(0, 1))
            wait_until(
                lambda: len(pool.members) == 2 and all(m.state == "ready" for m in pool.members), "two"
            )
            readings = []
            for places in ((1, 2), (0, 2), (0, 1, 2), (2,), (0, 1), (1, 2)):
                readings += [Reading(gateway) for _ in range(2)]
                gateway.on_loop(found(*places))
                ids = {f"fleet/r{place}" for place in places}
                wait_until(lambda ids=ids: {each.replica for each in pool.replicas} == ids, "they are there")
            for reading in readings:
                reading.join()
            assert all(reading.clean for reading in readings)
            wait_until(lambda: not pool._retired and not pool._leaving, "those that left are closed")


FLEET = """
engines:
- name: fleet
  kind: llama_cpp
  replicas:
  - {{name: first, url: "{first}"}}
  - {{name: second, url: "{second}"}}
  models: {{smollm2: default}}
  health: {{every_s: 0.5}}
"""


def test_a_fleet_of_real_engines_goes_on_when_one_is_killed(
    llama_cpp: LlamaCppServer, tmp_path: Path
) -> None:
    gguf = find_gguf()
    assert gguf is not None
    with ExitStack() as stack:
        first = stack.enter_context(llama_cpp_server(gguf.path, None))
        file = tmp_path / "kvgate.yaml"
        file.write_text(FLEET.format(first=first.url, second=llama_cpp.url))
        (pool,) = assembled(load_config(file), {}).configured.pools
        with relaying([], pools=[pool]) as gateway:
            wait_until(lambda: all(each.asked.is_set() for each in pool.replicas), "both were asked")
            body = {"model": "smollm2", "messages": [{"role": "user", "content": "Count to a thousand."}]}
            reading = Reading(gateway, {**body, "stream": True, "max_tokens": 1000})
            wait_until(lambda: b"data: " in reading.body, "it answers")
            stack.close()  # kills the first one
            reading.join()
            assert (reading.clean, reading.error) == (False, "engine_failure")
            row = gateway.rows.one()
            assert (row.replica, row.reuse_status, row.attempts) == ("fleet/first", "not_reported", 1)
            for _ in range(3):
                assert gateway.http.post(CHAT, json={**body, "max_tokens": 2}).status_code == 200
            gateway.rows.last(4)
            rows = gateway.rows.kept[1:]
            assert {(row.replica, row.reuse_status) for row in rows} == {("fleet/second", "reported")}


async def test_a_replica_that_could_not_be_made_is_made_when_it_is_found_again() -> None:
    class Never:
        failing = False

        async def watch(self) -> AsyncGenerator[Sequence[ReplicaAddress], None]:
            return
            yield []

    tries: list[ReplicaAddress] = []

    def make(address: ReplicaAddress) -> Remote:
        tries.append(address)
        if len(tries) == 1:
            raise ValueError("not now")
        return Remote(OpenAICompatibleEngine("fake", address.url, ("m",)), replica=f"fake/{address.name}")

    pool = EnginePool("fake", discovery=Never(), make=make)
    found = [ReplicaAddress("a", "http://127.0.0.1:1")]
    with pytest.raises(ValueError, match="not now"):
        pool.update(found)
    pool.update(found)
    assert [each.replica for each in pool.replicas] == ["fake/a"]
    await pool.aclose()
