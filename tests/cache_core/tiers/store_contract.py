"""What every shared store does, whatever holds its objects. A test class inherits it and says how to open one."""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import pytest

from cache_core.block_header import BlockHeader, Body, pack
from cache_core.drop_reason import DropReason
from cache_core.tiers.codec import Codec
from cache_core.tiers.store import StoreTier
from tests.cache_core.tiers.blocks import (
    IDENTITY,
    OTHER,
    SIZE,
    headers_of,
    payload,
    put,
    rows,
    served,
)

KEY = b"m" * 32
HEADERS = headers_of(0, 6)


class Place(ABC):
    """One store with its users, and a way to its objects past all of them."""

    @abstractmethod
    def open(self, **changes: Any) -> StoreTier: ...

    @abstractmethod
    def read(self, tier: StoreTier, key: bytes) -> bytes | None: ...

    @abstractmethod
    def write(self, tier: StoreTier, key: bytes, data: bytes) -> None: ...


@dataclass(frozen=True, slots=True)
class Hooked(Codec):
    """Something happens between the look at what is there and the write."""

    hook: Callable[[], object] = lambda: None

    def encode(self, header: BlockHeader, payload: memoryview) -> Body:
        self.hook()
        return Codec.encode(self, header, payload)


class StoreContract:
    @pytest.fixture
    def place(self) -> Place:
        raise NotImplementedError

    @pytest.fixture
    def opened(self, place: Place) -> Iterator[Callable[..., StoreTier]]:
        with ExitStack() as stack:

            def open_one(**changes: Any) -> StoreTier:
                tier = place.open(**changes)
                stack.callback(tier.close)
                return tier

            yield open_one

    @pytest.mark.parametrize(
        "codec", [Codec(), Codec(compression=1, key=b"k" * 32)], ids=["plain", "compressed and encrypted"]
    )
    @pytest.mark.parametrize("size", [1, SIZE, 10_001])
    def test_what_one_stores_another_reads(
        self, opened: Callable[..., StoreTier], codec: Codec, size: int
    ) -> None:
        one, other = opened(codec=codec), opened(codec=codec)
        assert put(one, HEADERS, size) == len(HEADERS)
        assert served(other, HEADERS, size) == served(other, HEADERS, size, timeout=60) == len(HEADERS)
        assert served(other, headers_of(100, 2), size) == 0
        assert (other.stats().hits, other.stats().misses, other.stats().drops) == (12, 2, {})
        assert other.contains([HEADERS[0].key, b"?" * 52]).tolist() == [True, False]
        assert other.delete([HEADERS[0].key, b"?" * 52]) == 1
        assert served(one, HEADERS, size) == len(HEADERS) - 1

    def test_what_is_there_is_not_written_again(self, place: Place, opened: Callable[..., StoreTier]) -> None:
        one, other = opened(), opened()
        assert put(one, HEADERS) == put(other, HEADERS) == len(HEADERS)
        assert (one.stats().stored, other.stats().stored) == (len(HEADERS), 0)
        assert one.stats().written_bytes == len(HEADERS) * SIZE

    def test_no_flipped_bit_is_served_and_a_good_block_takes_its_place(
        self, place: Place, opened: Callable[..., StoreTier]
    ) -> None:
        tier, key = opened(), HEADERS[0].key
        put(tier, HEADERS[:1])
        whole = place.read(tier, key)
        assert whole is not None
        for bit in range(0, len(whole) * 8, 331):
            data = bytearray(whole)
            data[bit // 8] ^= 1 << bit % 8
            place.write(tier, key, bytes(data))
            assert served(tier, HEADERS[:1]) == 0
            assert place.read(tier, key) is None
        assert put(tier, HEADERS[:1]) == served(tier, HEADERS[:1]) == 1

    def test_what_was_signed_with_another_key_or_none_is_forged(
        self, place: Place, opened: Callable[..., StoreTier]
    ) -> None:
        tier, key, body = opened(), HEADERS[0].key, payload(HEADERS[0])
        for stranger in (b"x" * 32, None):
            forged = pack(HEADERS[0], Body(body, SIZE), mac_key=stranger) + body
            place.write(tier, key, forged)
            assert served(tier, HEADERS[:1]) == 0
        assert tier.stats().drops == {DropReason.FORGED: 2}

    def test_a_signed_block_under_another_name_is_not_served(
        self, place: Place, opened: Callable[..., StoreTier]
    ) -> None:
        tier = opened()
        put(tier, HEADERS)
        twin = replace(HEADERS[0], identity=OTHER)
        mine = place.read(tier, HEADERS[0].key)
        assert mine is not None
        place.write(tier, HEADERS[1].key, mine)
        place.write(tier, twin.key, mine)
        assert served(tier, HEADERS) == len(HEADERS) - 1
        assert not tier.get([twin], rows(1)).any()
        assert tier.stats().drops == {DropReason.WRONG_BLOCK: 1, DropReason.WRONG_IDENTITY: 1}

    @pytest.mark.parametrize("length", [1, 3, 100, SIZE, SIZE + 200_000])
    def test_an_object_of_any_length_that_is_not_ours_makes_room(
        self, place: Place, opened: Callable[..., StoreTier], length: int
    ) -> None:
        tier, key = opened(), HEADERS[0].key
        put(tier, HEADERS[:1])
        whole = place.read(tier, key)
        assert whole is not None
        place.write(tier, key, whole.ljust(length, b"\0")[:length])
        assert served(tier, HEADERS[:1]) == 0
        assert sum(tier.stats().drops.values()) + tier.stats().misses == 1
        assert put(tier, HEADERS[:1]) == served(tier, HEADERS[:1]) == 1

    def test_a_block_of_another_size_is_dropped_but_stays(self, opened: Callable[..., StoreTier]) -> None:
        tier = opened()
        put(tier, HEADERS)
        assert served(tier, HEADERS, SIZE - 1) == 0
        assert tier.stats().drops == {DropReason.WRONG_SIZE: len(HEADERS)}
        assert served(tier, HEADERS) == len(HEADERS)

    def test_a_purge_takes_one_identity_for_all_users(self, opened: Callable[..., StoreTier]) -> None:
        one, other = opened(), opened()
        theirs = headers_of(0, 6, OTHER)
        put(one, HEADERS)
        put(one, theirs)
        assert other.purge(IDENTITY) == len(HEADERS)
        assert served(one, HEADERS) == 0
        assert served(one, theirs) == len(theirs)
        assert other.purge(IDENTITY) == 0
        assert put(one, HEADERS) == served(other, HEADERS) == len(HEADERS), "a purge is no ban"

    def test_a_write_that_began_before_the_purge_is_not_stored_after_it(
        self, place: Place, opened: Callable[..., StoreTier]
    ) -> None:
        tier: StoreTier = opened(codec=Hooked(hook=lambda: tier.purge(IDENTITY)), parallel=1)
        assert put(tier, HEADERS) == 0
        assert tier.stats().drops == {DropReason.PURGED: len(HEADERS)}
        assert [place.read(tier, header.key) for header in HEADERS] == [None] * len(HEADERS)

    def test_after_the_deadline_nothing_is_written_any_more(self, opened: Callable[..., StoreTier]) -> None:
        tier = opened(parallel=1)
        put(tier, HEADERS)
        going = threading.Event()
        tier._pool.submit(going.wait)
        out = rows(len(HEADERS))
        assert not tier.get(HEADERS, out, timeout=0.05).any()
        assert tier.stats().drops == {DropReason.SLOW: len(HEADERS)}
        going.set()
        assert served(tier, HEADERS, timeout=60) == len(HEADERS)
        assert not out.any()

    def test_a_store_that_others_share_is_not_cleared(self, opened: Callable[..., StoreTier]) -> None:
        tier = opened()
        assert put(tier, HEADERS) == len(HEADERS)
        assert tier.clear() == 0
        assert served(tier, HEADERS) == len(HEADERS)

    def test_a_short_key_is_refused(self, opened: Callable[..., StoreTier]) -> None:
        with pytest.raises(ValueError, match="16 bytes"):
            opened(mac_key=b"short")
