"""What the engine and the tiers below the device tell each other."""

import logging
from collections.abc import Sequence as Many

from cache_core.tiered import TieredCache
from engine_adapters.base import Tier
from engine_adapters.embedded.scheduler import Chunk
from engine_adapters.embedded.sequence import Sequence

log = logging.getLogger("kvgate.engine")

_LOOKS = 3  # times at most that tiers are asked for one request


class Tiering:
    """Prefixes come up when a request is queued, and go down when they were used a second time.

    While its prefix is on the way, a request waits as it would for another one that computes it: it holds no block
    and does not hold up the batch. A tier that fails costs reuse, never a request.
    """

    def __init__(self, tiers: TieredCache) -> None:
        self._tiers = tiers

    def queued(self, sequence: Sequence) -> None:
        """A request joined the queue: start to bring up what lies below the device."""
        sequence.looks += 1
        try:
            sequence.fetch = self._tiers.prefetch(sequence.known, sequence.request.scope)
            there = self._tiers.cache.match(sequence.known, sequence.request.scope)
        except Exception:
            log.exception("the tiers below the device could not be asked")
            there = 0
        coming = sequence.fetch.lease.length if sequence.fetch is not None else 0
        sequence.missed = sequence.length - max(there, coming)

    def comes_up(self, sequence: Sequence, missing: int) -> bool:
        """Whether a request should wait for its prefix, `missing` tokens of it not being cached when it could begin.

        More than expected: what had come up was evicted before it was its turn, or it lost its place in the batch.
        """
        if sequence.looks >= _LOOKS or missing <= sequence.missed:
            return False
        self.queued(sequence)
        return sequence.fetch is not None and not sequence.fetch.done

    def admitted(self, sequence: Sequence) -> None:
        """A request got its lease: what it found ready is in use for at least the second time."""
        if sequence.fetch is not None and not sequence.fetch.brought(sequence.computed):
            sequence.fetch = None  # it brought nothing, or too late
        self._tiers.used(sequence.known[: sequence.computed], sequence.request.scope)

    def computed(self, chunks: Many[Chunk], seconds: float) -> None:
        """A step took that long; a step of one prefill alone tells what prefill costs at its depth."""
        if len(chunks) == 1 and chunks[0].tokens > 1:
            start = chunks[0].sequence.computed
            self._tiers.computed(start, chunks[0].tokens, seconds)


def reused_by_tier(sequence: Sequence, reused: int) -> dict[Tier, int]:
    """Reused tokens by the tier they came from: what was fetched for this request, the rest from the device."""
    found: dict[Tier, int] = {"device": reused}
    if sequence.fetch is not None:
        found |= sequence.fetch.brought(reused)
    found["device"] -= sum(tokens for tier, tokens in found.items() if tier != "device")
    return found
