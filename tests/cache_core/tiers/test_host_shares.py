"""Below the device, too, nobody loses blocks to a scope that floods the cache."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from cache_core.block_header import BlockHeader
from cache_core.tiers.host import HostTier
from cache_core.tiers.host_shares import Holders
from tests.cache_core.tiers.blocks import BLOCK, IDENTITY, OTHER, headers_of, put

SIZE = 256
ROWS = 16
THIRD = b"t" * 32


def host_of(share: float) -> HostTier:
    return HostTier(ROWS * SIZE, SIZE, BLOCK, scope_share=share)


def there(tier: HostTier, headers: list[BlockHeader]) -> int:
    return int(tier.contains([header.key for header in headers]).sum())


def flood(tier: HostTier, identity: bytes, prompts: int = 20) -> None:
    for number in range(prompts):
        put(tier, headers_of(1000 * number, 3, identity), SIZE)
        tier.check_integrity()


def test_a_scope_that_floods_the_host_takes_nothing_from_one_within_its_share() -> None:
    tier, quiet = host_of(0.25), headers_of(0, 4)
    put(tier, quiet, SIZE)
    flood(tier, OTHER)
    assert there(tier, quiet) == 4
    assert tier.stats().blocks == ROWS, "the rest is the other's"


def test_not_even_while_its_own_rows_are_on_their_way_to_a_slow_tier() -> None:
    tier, quiet, leaving = host_of(0.25), headers_of(0, 4), headers_of(500, 12, OTHER)
    put(tier, quiet, SIZE)
    put(tier, leaving, SIZE)
    rows = tier.pin(leaving)
    flood(tier, OTHER)
    assert tier.sweep(ROWS, lambda keys: np.ones(len(keys), dtype=np.bool_)) == 0
    assert (there(tier, quiet), there(tier, leaving)) == (4, 12)
    put(tier, headers_of(900, 2, THIRD), SIZE)
    assert there(tier, headers_of(900, 2, THIRD)) == 2, "whoever is within its share gets room"
    tier.unpin(rows)
    put(tier, quiet, SIZE)
    flood(tier, OTHER)
    assert there(tier, leaving) < 12


def test_without_shares_it_takes_all() -> None:
    tier, quiet = host_of(1.0), headers_of(0, 4)
    put(tier, quiet, SIZE)
    flood(tier, OTHER)
    assert there(tier, quiet) == 0


def test_what_a_scope_holds_beyond_its_share_is_nobodys_reserve() -> None:
    tier, large = host_of(0.25), headers_of(0, 12)
    put(tier, large, SIZE)
    flood(tier, OTHER)
    assert 4 <= there(tier, large) < 12
    assert tier.stats().blocks == ROWS


def test_alone_a_scope_takes_all_and_its_oldest_goes() -> None:
    tier = host_of(0.25)
    flood(tier, IDENTITY)
    assert tier.stats().blocks == ROWS
    assert there(tier, headers_of(19_000, 3)) == 3
    assert there(tier, headers_of(0, 3)) == 0


def test_who_makes_room_begins_with_the_ends_of_its_chains() -> None:
    tier, chain = host_of(0.25), headers_of(0, 12)
    put(tier, chain, SIZE)
    put(tier, headers_of(0, 4, OTHER), SIZE)
    put(tier, headers_of(500, 2, THIRD), SIZE)
    kept = tier.contains([header.key for header in chain]).tolist()
    assert kept == [True] * 10 + [False] * 2


def test_a_purged_scope_holds_nothing_any_more() -> None:
    tier = host_of(0.25)
    flood(tier, OTHER)
    tier.purge(OTHER)
    tier.check_integrity()
    flood(tier, IDENTITY)
    assert tier.stats().blocks == ROWS, "it is alone now"
    assert there(tier, headers_of(19_000, 3)) == 3


def in_order(owners: list[int], used: list[int], share: int, n: int) -> list[int]:
    """One row after the other, as the rule says it."""
    left, going = dict(enumerate(owners)), []
    while len(going) < n and len(set(owners)) > 1:
        held = {owner: list(left.values()).count(owner) for owner in set(left.values())}
        over = [row for row, owner in left.items() if held[owner] > share]
        if not over:
            break
        going.append(min(over, key=used.__getitem__))
        del left[going[-1]]
    return going


@settings(max_examples=300, deadline=None)
@given(
    owners=st.lists(st.integers(0, 5), min_size=1, max_size=40),
    share=st.integers(0, 12),
    n=st.integers(1, 40),
    random=st.randoms(use_true_random=False),
)
def test_it_takes_the_same_as_one_row_after_the_other(
    owners: list[int], share: int, n: int, random: np.random.RandomState
) -> None:
    used = list(range(len(owners)))
    random.shuffle(used)
    holders = Holders(len(owners), share)
    for row, owner in enumerate(owners):
        holders.add(bytes([owner]) * 32, row)
    found = holders.first_of(np.arange(len(owners)), np.array(used, dtype=np.int64), n)
    assert sorted(found.tolist()) == sorted(in_order(owners, used, share, n))
    for row in found.tolist():
        holders.remove(row)
    assert all(holders._held >= 0)
