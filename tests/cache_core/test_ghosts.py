"""Blocks that made room lately are known, others are not, and there are never more than fit."""

from hashlib import sha256

from cache_core.block_header import KEY_BYTES
from cache_core.ghosts import Ghosts, RecentHashes, of_chain


def keys(first: int, last: int) -> list[bytes]:
    return [(bytes(16) + sha256(str(i).encode()).digest() + bytes(4))[:KEY_BYTES] for i in range(first, last)]


def test_what_made_room_is_known_until_it_is_forgotten() -> None:
    ghosts = Ghosts(10_000)
    assert not ghosts.has(keys(0, 50)).any()
    ghosts.add(keys(0, 50))
    assert ghosts.has(keys(0, 50)).all()
    assert not ghosts.has(keys(50, 100)).any()
    ghosts.clear()
    assert not ghosts.has(keys(0, 50)).any()


def test_newer_ones_take_the_places_of_older_ones() -> None:
    ghosts = Ghosts(100)
    ghosts.add(keys(0, 100))
    ghosts.add(keys(100, 1100))
    assert 90 < ghosts.has(keys(0, 1100)).sum() <= 104
    assert ghosts.has(keys(0, 100)).sum() < 5
    assert ghosts.has(keys(1099, 1100)).all()


def test_a_table_that_is_full_keeps_the_newest() -> None:
    ghosts = Ghosts(8)
    ghosts.add(keys(0, 12))
    assert ghosts.has(keys(0, 12)).tolist() == [False] * 4 + [True] * 8


def test_no_keys_are_no_ghosts() -> None:
    ghosts = Ghosts(4)
    ghosts.add([])
    assert len(ghosts.has([])) == 0


def test_hashes_of_a_chain_are_told_apart() -> None:
    recent, chain = RecentHashes(10_000), [sha256(str(i).encode()).digest() for i in range(40)]
    recent.add(of_chain(chain[:30]))
    assert recent.has(of_chain(chain)).tolist() == [True] * 30 + [False] * 10
    assert len(recent.has(of_chain([]))) == 0


def test_many_of_one_slot_at_once_push_each_other_out_in_their_order() -> None:
    one_by_one, at_once = RecentHashes(16), RecentHashes(16)
    hashes = of_chain([sha256(str(i).encode()).digest() for i in range(200)])
    for at in range(200):
        one_by_one.add(hashes[at : at + 1])
    at_once.add(hashes)
    assert at_once.has(hashes).tolist() == one_by_one.has(hashes).tolist()
    assert at_once.has(hashes).sum() == 16
