"""Where the blocks of a prompt are that the device does not have."""

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from cache_core.block_header import BlockHeader
from cache_core.metrics import TierName
from cache_core.tiered.chain import PromptChain
from cache_core.tiered.seen_below import SeenBelow
from cache_core.tiers.base import Mask, Tier

_PIECE = 256  # blocks asked for at once


class Inquiry:
    """One look for a prompt, as whoever wants it sees it. This one waits as long as it takes."""

    alone = False  # whether computing is free meanwhile, and a load into the request's own blocks is welcome
    seen: SeenBelow | None = None  # what tiers have of it, once they were asked

    @property
    def patience(self) -> float | None:
        """Seconds that one tier may take to answer; None: as long as any question."""
        return None

    def goes_on(self) -> bool:
        """Whether the rest is still wanted. Called between pieces of the work, so that others can be let in."""
        return True


class Lookup:
    """Asks the tiers below the device in their order, warmest first. From any thread."""

    def __init__(self, tiers: Mapping[TierName, Tier]) -> None:
        self._tiers = tiers

    def find(
        self, chain: PromptChain, first: int, inquiry: Inquiry
    ) -> tuple[list[BlockHeader], list[TierName]]:
        """From block `first` on as far as every block is in some tier: its header, and the warmest such tier.

        What bigger tiers would have had of it and behind it is in `inquiry.seen`, too.
        """
        headers: list[BlockHeader] = []
        sources: list[TierName] = []
        ghosts: Counter[TierName] = Counter()
        for start in range(first, chain.blocks, _PIECE):
            piece = chain.headers(start, min(start + _PIECE, chain.blocks))
            found, lately = self._warmest(piece, inquiry)
            if len(headers) == start - first:  # nothing was missing before
                there = _leading(found != "")
                headers += piece[:there]
                sources += found[:there].tolist()
            run = _leading(np.logical_or.reduce([found != "", *lately.values()]))
            ghosts.update({name: int(mask[:run].sum()) for name, mask in lately.items()})
            if run < len(piece) or not inquiry.goes_on():
                break
        inquiry.seen = SeenBelow(first, tuple(sources), +ghosts)
        return headers, sources

    def _warmest(
        self, headers: Sequence[BlockHeader], inquiry: Inquiry
    ) -> tuple["np.ndarray[tuple[int], np.dtype[np.object_]]", dict[TierName, Mask]]:
        """The warmest tier of each block, "" where none has it, and which had it not long ago, by tier."""
        found = np.full(len(headers), "", dtype=object)
        lately: dict[TierName, Mask] = {}
        for name, tier in self._tiers.items():
            places = np.flatnonzero(found == "").tolist()
            if not places or tier.away("read"):
                continue
            there = tier.ask([headers[place].key for place in places], inquiry.patience)
            found[np.array(places)[there]] = name
            lately[name] = tier.evicted_lately([header.key for header in headers]) & (found == "")
        return found, lately


def _leading(mask: Mask) -> int:
    """How many of its first items are true."""
    return len(mask) if mask.all() else int(np.argmin(mask))
