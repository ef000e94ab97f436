"""A process that is killed while it spills loses at most cache."""

import random
from collections.abc import Iterator
from pathlib import Path

from tests.cache_core.killing import killed
from tests.cache_core.tiers.blocks import OTHER, headers_of, opened, put, served

ROUNDS = 100


def work(folder: Path, dice: random.Random) -> Iterator[None]:
    """Writes on and on, deletes, cleans and purges."""
    share = dice.choice([0.25, 1.0])  # segments of one scope or of several, as they come
    tier = opened(folder, capacity_bytes=2 << 20, segment_bytes=100_000, clean_below=0.8, scope_share=share)
    while True:
        yield
        first = dice.randrange(40) * 100
        headers = headers_of(first, dice.randrange(1, 8))
        match dice.randrange(8):
            case 0:
                tier.delete([header.key for header in headers])
            case 1:
                tier.clean()
            case 2:
                put(tier, headers_of(first, 3, OTHER))
                tier.purge(OTHER)
            case 3:
                served(tier, headers)
            case _:
                put(tier, headers)


def test_after_a_kill_anywhere_every_returned_block_is_right(tmp_path: Path) -> None:
    folder, found = tmp_path / "cache", 0
    for number in killed(__name__, folder, ROUNDS, 0.03):
        if number % 10 == 9:
            found += _check(folder)
    assert found > ROUNDS, "what was spilled before the kills is found again"


def _check(folder: Path) -> int:
    """Every block that any child may have stored, and one more write."""
    tier = opened(folder, capacity_bytes=2 << 20, segment_bytes=100_000)
    found = sum(served(tier, headers_of(first * 100, 8)) for first in range(40))
    assert put(tier, headers_of(9000, 3)) == served(tier, headers_of(9000, 3)) == 3
    assert tier.stats().drops == {}, "the index never knows a block that is not whole"
    tier.close()
    return found
