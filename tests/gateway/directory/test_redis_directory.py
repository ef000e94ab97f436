"""Who holds which prefix, in a real Redis: the longest match, epochs that end, and whatever else stands there."""

import asyncio
import struct
from collections.abc import AsyncIterator

import pytest
import redis

from gateway.directory.options import DirectoryOptions
from gateway.directory.redis_directory import RedisDirectory, forget_scopes, scope_name
from gateway.shared_state.options import RedisOptions
from gateway.shared_state.shared_state import SharedState
from tests.redis_server import RedisServer
from tests.waiting import until

SCOPE = "tenant/model"
KEYS = [number * 2**40 + 6 for number in range(1, 489)]  # a prompt of 250,000 tokens
PATIENT = DirectoryOptions(ttl_s=60, budget_s=20, owners=3)


@pytest.fixture
async def state(redis_server: RedisServer) -> AsyncIterator[SharedState]:
    made = SharedState(RedisOptions(redis_server.url, timeout_s=20))
    yield made
    await made.aclose()


@pytest.fixture
def directory(state: SharedState) -> RedisDirectory:
    return RedisDirectory(state, "fleet", PATIENT)


async def held(directory: RedisDirectory, keys: list[int] = KEYS, **more: object) -> dict[str, int]:
    return {each.name: each.depth for each in await directory.owners(SCOPE, keys, **more)}


async def written(directory: RedisDirectory) -> None:
    """Calls keep their order, so that one more answer is the last one's."""
    await directory._state.pipe.execute("PING")


@pytest.mark.parametrize("length", [1, 2, 3, 17, 487, 488])
async def test_the_longest_prefix_is_found(directory: RedisDirectory, length: int) -> None:
    directory.holds(SCOPE, KEYS[:length], "fleet/a")
    assert await held(directory) == {"fleet/a": length}
    (owner,) = await directory.owners(SCOPE, KEYS)
    assert (owner.tier, owner.heat) == ("device", 1)


async def test_of_several_owners_the_one_with_most_comes_first(directory: RedisDirectory) -> None:
    directory.holds(SCOPE, KEYS[:244], "fleet/a")
    directory.holds(SCOPE, KEYS, "fleet/b", "host")
    found = await directory.owners(SCOPE, KEYS)
    assert [(each.name, each.depth, each.tier) for each in found] == [
        ("fleet/b", 488, "host"),
        ("fleet/a", 244, "device"),
    ]


async def test_what_is_known_already_is_not_asked_for(directory: RedisDirectory) -> None:
    directory.holds(SCOPE, KEYS[:100], "fleet/a")
    assert await held(directory, known=100) == {}
    assert await held(directory, known=99) == {"fleet/a": 100}
    assert await held(directory, known=488) == {}


async def test_scopes_and_engines_share_nothing(directory: RedisDirectory, state: SharedState) -> None:
    directory.holds("other/model", KEYS, "fleet/a")
    RedisDirectory(state, "other", PATIENT).holds(SCOPE, KEYS, "other/a")
    assert await held(directory) == {}


async def test_what_a_replica_held_before_it_was_cleared_is_nobody_s(
    directory: RedisDirectory, state: SharedState
) -> None:
    other = RedisDirectory(state, "fleet", PATIENT)
    for each in (directory, other):
        each.holds(SCOPE, KEYS, "fleet/a")
    directory.holds(SCOPE, KEYS, "fleet/b")
    await written(directory)
    directory.cleared("fleet/a")
    assert await held(other) == {"fleet/b": 488}
    directory.holds(SCOPE, KEYS[:10], "fleet/a")
    await written(directory)
    other.cleared("fleet/a")  # it finds out later, and takes nothing back
    assert (await held(other, KEYS[:10]))["fleet/a"] == 10


async def test_a_key_has_so_many_owners_and_no_more(directory: RedisDirectory) -> None:
    for name in "abcdef":
        directory.holds(SCOPE, KEYS[:2], f"fleet/{name}")
    found = await held(directory, KEYS[:2])
    assert len(found) == 3
    assert "fleet/f" in found


async def test_what_is_not_told_again_ends(directory: RedisDirectory, redis_server: RedisServer) -> None:
    directory.holds(SCOPE, KEYS, "fleet/a")
    await written(directory)
    with redis.Redis.from_url(redis_server.url) as client:
        names = list(client.scan_iter("*"))
        assert len(names) == 489
        assert all(0 < client.pttl(name) <= 120_000 for name in names)
        assert all(len(str(client.hgetall(name))) < 100 for name in names if client.type(name) == b"hash")


async def test_what_was_told_lately_is_not_told_again(directory: RedisDirectory) -> None:
    directory.holds(SCOPE, KEYS[:100], "fleet/a")
    directory.holds(SCOPE, KEYS[:101], "fleet/a")
    assert directory.told == 101


@pytest.mark.parametrize(
    "value",
    [b"", b"x", b"1:device", b"99999999999999999999:device:1", b"1:DEVICE:1", b"\xff" * 300, b"-1:a:-1"],
)
async def test_values_that_are_not_ours_are_nobody_s(
    directory: RedisDirectory, redis_server: RedisServer, value: bytes
) -> None:
    base = f"kvgate:dir:fleet:{scope_name(SCOPE)}:".encode()
    with redis.Redis.from_url(redis_server.url) as client:
        client.hset(base + struct.pack("<Q", KEYS[0]), "fleet/a", value)
        client.hset(base + struct.pack("<Q", KEYS[0]), b"\xff\xfe", value)
        client.set(base + struct.pack("<Q", KEYS[1]), value)
        client.rpush("kvgate:dir:fleet:epoch:fleet/a", value)
    assert await held(directory, KEYS[:2]) == {}
    with redis.Redis.from_url(redis_server.url) as client:
        client.delete("kvgate:dir:fleet:epoch:fleet/a")
    directory.holds(SCOPE, KEYS[:2], "fleet/a")
    assert await held(directory, KEYS[:2]) == {"fleet/a": 2}


async def test_an_owner_of_no_known_name_is_refused_and_no_error(
    directory: RedisDirectory, redis_server: RedisServer
) -> None:
    base = f"kvgate:dir:fleet:{scope_name(SCOPE)}:".encode()
    with redis.Redis.from_url(redis_server.url) as client:
        client.set(b"kvgate:dir:fleet:epoch:\xff", "7")
        client.hset(base + struct.pack("<Q", KEYS[0]), b"\xff", b"7:device:1")
    assert await held(directory, KEYS[:1]) == {}
    assert directory.lookups["refused"] == 1


async def test_a_tenant_is_forgotten(directory: RedisDirectory, state: SharedState) -> None:
    directory.holds(SCOPE, KEYS, "fleet/a")
    directory.holds("other/model", KEYS, "fleet/a")
    await written(directory)
    assert await asyncio.to_thread(forget_scopes, state, [SCOPE]) == 488
    assert await held(directory) == {}
    assert len(await directory.owners("other/model", KEYS)) == 1


async def test_nobody_waits_longer_than_the_budget(redis_server: RedisServer) -> None:
    state = SharedState(RedisOptions(redis_server.url, timeout_s=20))
    directory = RedisDirectory(state, "fleet", DirectoryOptions(budget_s=0.01))
    directory.holds(SCOPE, KEYS[:1], "fleet/a")
    await written(directory)
    redis_server.pause()
    try:
        assert await directory.owners(SCOPE, KEYS[:1]) == []
    finally:
        redis_server.go_on()  # others use it, too
    assert directory.lookups["late"] == 1
    await state.aclose()


async def test_without_redis_nothing_is_known_and_when_it_is_back_all_is_told_again() -> None:
    with RedisServer.started() as server:
        state = SharedState(RedisOptions(server.url, timeout_s=20, probe_s=0.05))
        directory = RedisDirectory(state, "fleet", PATIENT)
        directory.holds(SCOPE, KEYS[:5], "fleet/a")
        await written(directory)
        server.kill()
        assert await held(directory) == {}
        directory.holds(SCOPE, KEYS[:5], "fleet/a")
        directory.cleared("fleet/b")
        assert directory.lookups["away"] == 1
        server.start()
        await until(lambda: not state.circuit.away, "it is back")
        directory.holds(SCOPE, KEYS[:5], "fleet/a")
        assert await held(directory) == {"fleet/a": 5}
        await state.aclose()
