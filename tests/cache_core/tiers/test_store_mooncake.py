"""The contract of a store, and what is Mooncake's own, over a client in memory; the real one is in tests/engines."""

import sys
import threading
from typing import Any

import numpy as np
import pytest

from cache_core.drop_reason import DropReason
from cache_core.tiers.errors import PurgeFailedError, TierError
from cache_core.tiers.store import StoreTier
from cache_core.tiers.store_mooncake import MooncakeOptions, StoreMooncake, connected
from tests.cache_core.tiers.blocks import IDENTITY, SIZE, headers_of, put, rows, served
from tests.cache_core.tiers.memory_mooncake import MemoryClient, Objects
from tests.cache_core.tiers.store_contract import HEADERS, KEY, Place, StoreContract
from tests.ports import free_port

MASTER = "127.0.0.1:50051"


class InMemory(Place):
    def __init__(self) -> None:
        self.objects = Objects()

    def open(self, **changes: Any) -> StoreMooncake:
        options = MooncakeOptions(**{"master": MASTER, "mac_key": KEY, "staging_bytes": 3 * SIZE, **changes})
        return StoreMooncake(options, connect=lambda _: MemoryClient(self.objects))

    def read(self, tier: StoreTier, key: bytes) -> bytes | None:
        assert isinstance(tier, StoreMooncake)
        return self.objects.held.get(tier._name(key))

    def write(self, tier: StoreTier, key: bytes, data: bytes) -> None:
        assert isinstance(tier, StoreMooncake)
        self.objects.held[tier._name(key)] = data


class TestContract(StoreContract):
    @pytest.fixture
    def place(self) -> Place:
        return InMemory()


def test_users_with_different_keys_do_not_see_each_other() -> None:
    place = InMemory()
    one, other = place.open(), place.open(mac_key=b"x" * 32)
    put(one, HEADERS)
    assert served(other, HEADERS) == 0
    assert other.stats().drops == {}
    assert other.purge(IDENTITY) == 0
    assert put(other, HEADERS) == served(one, HEADERS) == len(HEADERS)
    assert len(place.objects.held) == 2 * len(HEADERS)


def test_a_full_store_is_a_drop() -> None:
    place = InMemory()
    place.objects.room = 2 * (SIZE + 600)
    tier = place.open(parallel=1)
    assert put(tier, HEADERS) == served(tier, HEADERS) == 2
    assert tier.stats().drops == {DropReason.NO_ROOM: 4}


@pytest.mark.parametrize("code", [-900, -901, -1])
def test_a_master_that_is_away_is_a_drop_and_comes_back(code: int) -> None:
    place = InMemory()
    tier = place.open()
    put(tier, HEADERS)
    place.objects.code = code
    assert put(tier, headers_of(50, 2)) == served(tier, HEADERS) == 0
    assert tier.delete([HEADERS[0].key]) == 0
    assert not tier.contains([HEADERS[0].key]).any()
    assert set(tier.stats().drops) == {DropReason.IO_ERROR}
    place.objects.code = 0
    assert served(tier, HEADERS) == len(HEADERS)
    assert put(tier, headers_of(50, 2)) == 2


def test_what_could_not_be_purged_is_not_served_and_goes_when_the_master_is_back() -> None:
    place = InMemory()
    tier = place.open()
    put(tier, HEADERS)
    place.objects.code = -900
    with pytest.raises(PurgeFailedError, match="purge again"):
        tier.purge(IDENTITY)
    place.objects.code = 0
    assert served(tier, HEADERS) == 0
    assert not tier.contains([HEADERS[0].key]).any()
    assert len(place.objects.held) == len(HEADERS)
    tier.clean()
    assert place.objects.held == {}
    assert put(tier, HEADERS) == served(tier, HEADERS) == len(HEADERS)


def test_whoever_does_not_say_what_is_there_has_nothing() -> None:
    place = InMemory()
    tier = place.open(patience=0.01)
    put(tier, HEADERS)
    going = threading.Event()
    client = tier._client
    asked = client.batch_is_exist
    client.batch_is_exist = lambda keys: asked(keys) if going.wait(60) else []  # type: ignore[method-assign]
    assert not tier.contains([HEADERS[0].key]).any()
    assert tier.stats().drops == {DropReason.SLOW: 1}
    going.set()
    client.batch_is_exist = asked  # type: ignore[method-assign]
    assert tier.contains([HEADERS[0].key]).all()


def test_nothing_is_asked_for_nothing() -> None:
    tier = InMemory().open()
    assert (
        len(tier.contains([]))
        == len(tier.get([], rows(0)))
        == len(tier.put([], np.empty((0, 8), np.uint8)))
        == 0
    )


def test_without_a_master_it_says_so_at_once() -> None:
    pytest.importorskip("mooncake", reason="kvgate[mooncake] is not installed")
    with pytest.raises(TierError, match="No Mooncake master"):
        connected(MooncakeOptions(f"127.0.0.1:{free_port()}", KEY))


def test_without_the_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mooncake.store", None)
    with pytest.raises(TierError, match=r"kvgate\[mooncake\].*libibverbs1"):
        connected(MooncakeOptions(MASTER, KEY))


@pytest.mark.parametrize("master", ["", "host", "host:", ":1", "host:0", "host:65536", "host:x"])
def test_a_master_is_stated_as_host_and_port(master: str) -> None:
    with pytest.raises(ValueError, match="host:port"):
        MooncakeOptions(master, KEY)
