"""A proof is worth something only if it fails: every kind of damage must be found and named."""

from collections.abc import Callable

import numpy as np
import pytest

from cache_core import BlockPool, IntegrityError, Lease, PrefixCache

Damage = Callable[[PrefixCache, Lease], None]


def span(start: int, stop: int) -> "np.ndarray[tuple[int], np.dtype[np.int32]]":
    return np.arange(start, stop, dtype=np.int32)


def used_cache() -> tuple[PrefixCache, Lease]:
    """Two branches under one prefix; a lease pins one of them and has a block of its own."""
    cache = PrefixCache(BlockPool(12, 2))
    for tokens in (span(0, 8), np.append(span(0, 4), span(20, 24)).astype(np.int32)):
        lease = cache.acquire(tokens)
        lease.extend(tokens[lease.matched :])
        lease.commit()
        lease.release()
    lease = cache.acquire(span(0, 9))
    lease.extend(span(8, 9))
    cache.check_integrity()
    return cache, lease


def lost_block(cache: PrefixCache, lease: Lease) -> None:
    cache._pool.allocate(1)


def freed_under_a_node(cache: PrefixCache, lease: Lease) -> None:
    cache._pool.release(lease.node.block_ids())


def freed_under_a_lease(cache: PrefixCache, lease: Lease) -> None:
    cache._pool.release(lease.own_blocks())


def extra_holder(cache: PrefixCache, lease: Lease) -> None:
    cache._pool.holders[lease.blocks[0]] += 1


def wrong_state(cache: PrefixCache, lease: Lease) -> None:
    cache._pool.holders[lease.own_blocks()] = 1


def missing_pin(cache: PrefixCache, lease: Lease) -> None:
    lease.node.leases -= 1


def wrong_count_of_cached(cache: PrefixCache, lease: Lease) -> None:
    cache._index.unleased += 1


def wrong_count_of_indexed(cache: PrefixCache, lease: Lease) -> None:
    cache._index.blocks -= 1


def short_label(cache: PrefixCache, lease: Lease) -> None:
    lease.node.label = lease.node.label[:-8]


def wrong_key(cache: PrefixCache, lease: Lease) -> None:
    parent = lease.node.parent
    assert parent is not None
    assert parent.children is not None
    parent.children[b"elsewhere"] = parent.children.pop(lease.node.label[:8])


def wrong_parent(cache: PrefixCache, lease: Lease) -> None:
    lease.node.parent = lease.root


def swapped_page(cache: PrefixCache, lease: Lease) -> None:
    lease._block_buffer[[0, 1]] = lease._block_buffer[[1, 0]]


def other_token(cache: PrefixCache, lease: Lease) -> None:
    lease._token_buffer[0] += 1


def ready_but_not_indexed(cache: PrefixCache, lease: Lease) -> None:
    lease.ready += 2


def newer_child(cache: PrefixCache, lease: Lease) -> None:
    parent = lease.node.parent
    assert parent is not None
    assert parent.children is not None
    for child in parent.children.values():
        child.last_access += 100


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lost_block, "exactly one of"),
        (freed_under_a_node, "exactly one of"),
        (freed_under_a_lease, "exactly one of"),
        (extra_holder, r"refcount.*\[0\]"),
        (wrong_state, "state"),
        (missing_pin, "lease count"),
        (wrong_count_of_cached, "counted as cached"),
        (wrong_count_of_indexed, "counted as indexed"),
        (short_label, "as long as its blocks"),
        (wrong_key, "another key"),
        (wrong_parent, "does not know its parent"),
        (swapped_page, "differs from the nodes"),
        (other_token, "differ from the labels"),
        (ready_but_not_indexed, "not in the index"),
        (newer_child, "after its parent"),
    ],
)
def test_damage_is_found_and_named(damage: Damage, said: str) -> None:
    cache, lease = used_cache()
    damage(cache, lease)
    with pytest.raises(IntegrityError, match=said):
        cache.check_integrity()
