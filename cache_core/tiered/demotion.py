"""Cold blocks of the host that no colder tier has: they go there before the host lets go of them."""

from collections.abc import Callable, Sequence
from itertools import groupby

import numpy as np

from cache_core.block_hash import root_hash
from cache_core.block_header import BlockHeader
from cache_core.metrics import TierName
from cache_core.tiered.purges import Purges
from cache_core.tiered.ways import Ways
from cache_core.tiers.base import Tier

PassTo = Callable[[TierName, Sequence[BlockHeader], int], None]  # see Backup.pass_to


class Demotion:
    """For idle time. What a colder tier refused when it was written through (a way that was full, a disk that was busy)
    gets there now, behind its parents; what has none of those there or in the host stays where it is.

    Args:
        pass_to: copies blocks of one scope to a colder tier.
    """

    def __init__(self, ways: Ways, purges: Purges, pass_to: PassTo) -> None:
        self._ways = ways
        self._purges = purges
        self._pass_to = pass_to
        self._tried: list[bytes] = []  # the last time: what is refused again and again is not tried for ever

    def copy(self, n: int) -> None:
        """Begin to copy up to `n` of the host's coldest blocks, and what they need before them. May wait for a tier."""
        coldest = self._ways.host.coldest(n)
        keys = [header.key for header in coldest]
        if keys == self._tried:
            return
        self._tried = keys
        by_scope = sorted(coldest, key=lambda header: header.identity)
        for identity, headers in groupby(by_scope, lambda header: header.identity):
            number = self._purges.number(identity)
            if number is None:
                continue
            ends = list(headers)
            for name, tier in self._ways.colder.items():
                if tier.away("write"):
                    continue
                for chain in self._chains(ends, tier):
                    self._pass_to(name, chain, number)

    def _chains(self, ends: Sequence[BlockHeader], tier: Tier) -> list[list[BlockHeader]]:
        """What `tier` lacks of these blocks and of those before them, each once."""
        found: list[list[BlockHeader]] = []
        seen: set[bytes] = set()
        for end in ends:
            chain = [] if end.key in seen else self._lacking(end, tier)
            chain = [header for header in chain if header.key not in seen]
            seen.update(header.key for header in chain)
            if chain:
                found.append(chain)
        return found

    def _lacking(self, end: BlockHeader, tier: Tier) -> list[BlockHeader]:
        """The blocks up to `end`, from the first that `tier` lacks on; none where one before them is nowhere."""
        root = root_hash(end.identity)
        path = [end]
        while path[-1].parent != root and (above := self._ways.host.header(path[-1].parent_key)) is not None:
            path.append(above)
        top = path[-1]
        there = tier.contains([*(header.key for header in path), top.parent_key])
        if not there.any() and top.parent != root:
            return []
        lacking = path[: int(np.argmax(there)) if there.any() else len(path)]
        return lacking[::-1]
