"""What a replica publishes is what its router believes, whatever is lost on the way and whoever starts anew."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import numpy as np
import pytest

from engine_adapters.remote.kv_event_stream import KvEventSource
from gateway.kv_events.follower import Follower
from gateway.kv_events.followers import Followers
from gateway.kv_events.options import KvEventOptions
from gateway.routing.chain import PromptChain
from gateway.routing.kv_changes import Change, Cleared, Silent, Stored, seed_of
from gateway.routing.prefix_router import PrefixRouter
from tests.exchanges import FOLDER
from tests.gateway.kv_events.publishing import CLEARED, Publisher, publisher, removed, stored
from tests.waiting import until

IDS = np.arange(100, 100 + 4096, dtype=np.int32)
NAMES = list(range(1, 257))  # of blocks of 16


@pytest.fixture(params=[True, False], ids=["replay", "no replay"])
def engine(request: pytest.FixtureRequest) -> Iterator[Publisher]:
    with publisher(replay=request.param) as made:
        yield made


@pytest.fixture
def keeping() -> Iterator[Publisher]:
    with publisher() as made:
        yield made


class Listening:
    def __init__(self, router: PrefixRouter, follower: Follower) -> None:
        self.router = router
        self.follower = follower

    def held(self, ids: np.ndarray = IDS, salt: str | None = None) -> int:
        chain = PromptChain(seed_of(salt), np.ascontiguousarray(ids, dtype="<i4").tobytes())
        return self.router.index.matched(chain, ["a"])[0]

    async def holds(self, tokens: int, ids: np.ndarray = IDS, salt: str | None = None) -> None:
        await until(lambda: self.held(ids, salt) == tokens)
        self.router.index.check()


@asynccontextmanager
async def listening(engine: Publisher, **options: object) -> AsyncIterator[Listening]:
    router = PrefixRouter()
    replay = None if engine.replay_port is None else f"tcp://127.0.0.1:{engine.replay_port}"
    source = KvEventSource(f"tcp://127.0.0.1:{engine.port}", "kv", replay, **options)
    follower = Follower("a", source, lambda changes: router.told("a", changes), patience=1)
    follower.start()
    await asyncio.to_thread(engine.wait_for_a_listener)
    try:
        yield Listening(router, follower)
    finally:
        await follower.aclose()


@pytest.mark.parametrize("as_list", [False, True])
async def test_both_forms_are_believed(engine: Publisher, as_list: bool) -> None:
    async with listening(engine) as it:
        engine.publish(stored(NAMES, IDS, as_list=as_list))
        await it.holds(4096)
        engine.publish(removed(NAMES[200:], as_list=as_list))
        await it.holds(200 * 16 // 512 * 512)
        engine.publish(["AllBlocksCleared"] if as_list else CLEARED)
        await it.holds(0)
        assert it.follower.events["stored"] == it.follower.events["removed"] == 1
        assert it.follower.state.flows
        assert it.follower.state.lag_s is not None


async def test_a_gap_is_filled_where_the_engine_gives_it_out_again(keeping: Publisher) -> None:
    async with listening(keeping) as it:
        keeping.publish(stored(NAMES[:32], IDS[:512]))
        keeping.publish(stored(NAMES[32:64], IDS[512:1024], NAMES[31]), lose=True)
        keeping.publish(stored(NAMES[64:96], IDS[1024:1536], NAMES[63]))
        await it.holds(1536)
        assert it.follower.gaps == 0


async def test_a_gap_that_nobody_fills_clears_the_replica_and_what_comes_behind_it_counts(
    engine: Publisher,
) -> None:
    async with listening(engine) as it:
        engine.publish(stored(NAMES[:32], IDS[:512]))
        await it.holds(512)
        engine.publish(removed(NAMES), keep=False, lose=True)
        engine.publish(stored([901], IDS[2000:2016]))
        await it.holds(0)
        await it.holds(16, IDS[2000:])
        assert it.follower.gaps == 1
        assert it.follower.state.flows


async def test_an_engine_that_starts_anew_on_the_same_port_holds_what_it_says_since(
    engine: Publisher,
) -> None:
    async with listening(engine) as it:
        engine.publish(stored(NAMES, IDS))
        engine.publish(CLEARED, stored(NAMES, IDS))
        await it.holds(4096)
        engine.seq, engine.kept = 0, {}
        engine.publish(stored([901], IDS[2000:2016]))
        await it.holds(16, IDS[2000:])
        assert it.held() == 0


async def test_a_connection_that_is_gone_leaves_the_guessing_to_the_router_until_it_is_back() -> None:
    with publisher(replay=False) as engine:
        async with listening(engine) as it:
            engine.publish(stored(NAMES, IDS))
            await it.holds(4096)
            engine.close()
            await until(lambda: not it.follower.state.connected and not it.follower.state.flows)
            assert not it.router.events.flows("a")
            with publisher(events=f"tcp://127.0.0.1:{engine.port}", replay=False) as anew:
                await asyncio.to_thread(anew.wait_for_a_listener)
                anew.publish(stored([901], IDS[2000:2016]))
                await it.holds(16, IDS[2000:])
                assert it.held() == 0
                assert it.router.events.flows("a")


async def test_what_an_idle_engine_holds_is_known_at_once(keeping: Publisher) -> None:
    keeping.publish(stored(NAMES, IDS))
    async with listening(keeping) as it:
        await it.holds(4096)


async def test_who_was_away_is_asked_again_for_all_that_it_keeps(keeping: Publisher) -> None:
    async with listening(keeping) as it:
        keeping.publish(stored(NAMES[:32], IDS[:512]))
        await it.holds(512)
        it.router.forget("a")
        it.follower.begin_anew()
        assert it.held() == 0
        keeping.publish(stored(NAMES[32:64], IDS[512:1024], NAMES[31]))
        await it.holds(1024)


async def test_salts_share_nothing_and_an_event_without_one_feeds_unsalted_prefixes_alone(
    keeping: Publisher,
) -> None:
    async with listening(keeping) as it:
        keeping.publish(stored([1], IDS[:16], extra_keys=[["tenant a"]]))  # vLLM's form
        keeping.publish(stored([2], IDS[:16], cache_salt="tenant b"))  # SGLang's
        await it.holds(16, salt="tenant a")
        await it.holds(16, salt="tenant b")
        assert it.held() == 0
        keeping.publish(stored([3], IDS[:16]))
        await it.holds(16)
        assert it.held(salt="tenant c") == 0


async def test_lora_media_and_windows_feed_nothing(keeping: Publisher) -> None:
    async with listening(keeping) as it:
        keeping.publish(
            stored([1], IDS[:16], lora_name="adapter"),
            stored([2], IDS[:16], lora_id=3),
            stored([3], IDS[:16], extra_keys=[[["image", 0]]]),
            stored([4], IDS[:16], kv_cache_spec_kind="sliding_window", group_idx=1),
            stored([5], [2**40] * 16),
        )
        keeping.publish(stored([6, 7], IDS[1000:1032], extra_keys=[None, [["image", 16]]]))
        await it.holds(16, IDS[1000:])
        assert it.held() == 0
        assert it.follower.events["unused"] == 5


async def test_a_copy_on_another_tier_outlives_the_device_s(keeping: Publisher) -> None:
    async with listening(keeping) as it:
        keeping.publish(stored(NAMES[:32], IDS[:512]))
        keeping.publish(stored(NAMES[:32], [], medium="CPU") | {"block_size": 16})
        keeping.publish(removed(NAMES[:32]))
        keeping.publish(stored([901], IDS[2000:2016]))
        await it.holds(16, IDS[2000:])
        assert it.held() == 512
        keeping.publish(removed(NAMES[:32]) | {"medium": "CPU"})
        await it.holds(0)


@pytest.mark.parametrize(
    "payload",
    [
        b"\xc1",
        b"",
        b"\x93\x01\x02",
        b"\xdd\xff\xff\xff\xff",
        b"\x81" * 100_000,
        json.dumps({"type": "BlockStored"}).encode(),
    ],
)
async def test_a_message_that_is_no_batch_clears_the_replica_and_the_next_one_counts(
    keeping: Publisher, payload: bytes
) -> None:
    async with listening(keeping) as it:
        keeping.publish(stored(NAMES[:32], IDS[:512]))
        await it.holds(512)
        keeping.send(payload)
        await it.holds(0)
        keeping.raw(b"kv", b"1")
        keeping.raw(b"kv", b"1" * 9, b"2")
        keeping.publish(stored([901], IDS[2000:2016]))
        await it.holds(16, IDS[2000:])


async def test_a_flood_is_dropped_where_nobody_reads_it_and_noticed(keeping: Publisher) -> None:
    keeping.kept = {}
    async with listening(keeping, max_waiting=50) as it:
        for number in range(20_000):
            keeping.publish(stored([number], IDS[:16], number - 1 if number else None), keep=False)
        await until(lambda: it.follower.state.batches > 50)
        # What comes behind the flood may be dropped, too: it is told until it is heard.
        for number in range(30_000, 32_400):
            keeping.publish(stored([number], IDS[2000:2016]), keep=False)
            await asyncio.sleep(0.05)
            if it.held(IDS[2000:]) == 16:
                break
        assert it.held(IDS[2000:]) == 16
        assert it.follower.gaps or it.follower.state.batches > 20_000
        it.router.index.check()


async def test_a_message_beyond_all_bounds_costs_the_connection_and_not_the_gateway(
    keeping: Publisher,
) -> None:
    async with listening(keeping, max_bytes=100_000) as it:
        keeping.publish(stored(NAMES, IDS))
        await it.holds(4096)
        keeping.send(b"x" * 1_000_000, keep=False)
        await asyncio.to_thread(keeping.wait_for_a_listener)  # it comes back
        keeping.publish(stored([901], IDS[2000:2016]))
        await it.holds(16, IDS[2000:])


async def test_whether_a_replica_tells_all_that_it_holds_is_known(engine: Publisher) -> None:
    told: list[str] = []
    engine.seq = 5  # it has run before anybody listened
    async with listening(engine) as it:
        it.router.told = lambda replica, changes: told.extend(type(each).__name__ for each in changes)

        async def tells(*expected: str) -> None:
            await until(lambda: told[-1:] == list(expected[-1:]) and len(told) >= len(expected))
            assert told == list(expected)
            told.clear()

        engine.publish(stored([1], IDS[:16]), keep=False)
        missed = [] if engine.replay_port is None else ["Cleared", "Silent"]
        await tells(*missed, "Stored")
        engine.publish(removed([1]), CLEARED, stored([1], IDS[:16]), keep=False)
        await tells("Removed", "Cleared", "Stored", "Complete")
        engine.seq = 0
        engine.publish(stored([1], IDS[:16]), keep=False)
        await tells("Cleared", "Silent", "Stored", "Complete")
        engine.publish(stored([2], IDS[16:32], 1), keep=False)
        await tells("Stored")


async def test_a_replica_that_has_left_says_nothing_of_another_one_of_its_name() -> None:
    told: list[object] = []
    followers = Followers(
        KvEventOptions("tcp://{host}:1"), lambda replica, changes: told.append((replica, changes))
    )
    followers.came("e/a", "http://127.0.0.1:2")
    first = followers.follower("e/a")
    followers.went("e/a")
    first._tell([Cleared()])
    followers.came("e/a", "http://127.0.0.1:3")
    first._tell([Cleared()])  # it may have been in the middle of a batch
    assert told == []
    followers.follower("e/a")._tell([Silent()])
    assert told == [("e/a", [Silent()])]
    await followers.aclose()


async def test_a_large_batch_is_told_in_parts_between_which_others_have_their_turn(
    keeping: Publisher,
) -> None:
    ids = np.arange(40_000, dtype=np.int32)
    async with listening(keeping) as it:
        told: list[int] = []
        take = it.router.told

        def listen(replica: str, changes: list[Change]) -> None:
            told.extend(len(each.names) for each in changes if isinstance(each, Stored))
            take(replica, changes)

        it.router.told = listen
        keeping.publish(stored(range(1, 2501), ids))
        await it.holds(40_000 // 512 * 512 + 40_000 % 512 // 16 * 16, ids)
        assert told == [256] * 9 + [2500 - 9 * 256]


async def test_what_is_left_of_a_batch_when_its_replica_was_away_is_not_told(keeping: Publisher) -> None:
    ids = np.arange(40_000, dtype=np.int32)
    async with listening(keeping) as it:
        told: list[int] = []

        def take(replica: str, changes: list[Change]) -> None:
            told.extend(each.names[0] for each in changes if isinstance(each, Stored))
            if len(told) == 3:
                it.follower.begin_anew()

        it.router.told = take
        keeping.publish(stored(range(1, 2501), ids))
        keeping.publish(stored([5000], ids[:16]))
        await until(lambda: 5000 in told)
        assert told == [1, 257, 513, *range(1, 2501, 256), 5000]  # all of it was asked for again


@pytest.mark.parametrize("name", ["vllm_events", "sglang_events"])
async def test_what_real_engines_published_is_believed_as_it_was_meant(name: str, keeping: Publisher) -> None:
    recorded = json.loads((FOLDER / f"{name}.json").read_text())
    prompt = np.array(recorded["prompt"], np.int32)
    size = recorded["block_size"]
    whole = len(prompt) // size * size // 16 * 16
    async with listening(keeping) as it:
        keeping.seq = recorded["batches"][0]["seq"]
        for batch in recorded["batches"]:
            payload = base64.b64decode(batch["payload"])
            if b"AllBlocksCleared" in payload:
                break
            keeping.send(payload)
        await it.holds(whole, prompt)
        await it.holds(whole, prompt, "tenant a")
        assert it.held(prompt, "tenant b") == 0
        keeping.send(payload)
        await it.holds(0, prompt)
        assert it.held(prompt, "tenant a") == 0
