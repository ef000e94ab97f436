"""Blocks that made room lately are known, others are not, and there are never more than fit."""

from hashlib import sha256

from cache_core.block_header import KEY_BYTES
from cache_core.ghosts import Ghosts


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
