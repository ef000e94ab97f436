"""What the engine and the tiers below the device tell each other."""

from collections import Counter
from collections.abc import Sequence as Many

from cache_core.metrics import LookedUp
from cache_core.tiered import TieredCache
from engine_adapters.base import Tier
from engine_adapters.embedded.scheduler import Below, Chunk
from engine_adapters.embedded.sequence import Sequence
from engine_adapters.embedded.state.prefixes import HybridPrefixes

_LOOKS = 3  # times at most that tiers are asked for one request


class Tiering(Below):
    """Prefixes come up when a request is queued, and go down when they were used a second time.

    While its prefix is looked for and on the way, a request waits as it would for another one that computes it: it
    holds no block and does not hold up the batch. A tier that fails costs reuse, never a request.

    Args:
        states: what a hybrid model can reuse; None: the model keeps KV alone.
    """

    def __init__(self, tiers: TieredCache, states: HybridPrefixes | None = None) -> None:
        self._tiers = tiers
        self._states = states

    def queued(self, sequence: Sequence, alone: bool = False) -> None:
        """A request joined the queue: start to look for what lies below the device, and to bring it up.

        `alone`: nothing else runs or waits.
        """
        sequence.looks += 1
        sequence.missed = 0  # until there is an answer
        self._leave(sequence)
        sequence.ask = self._tiers.ask(sequence.known, sequence.request.scope, alone)
        if sequence.ask is None:
            sequence.missed = self._not_there(sequence)

    def comes_up(self, sequence: Sequence, missing: int) -> bool:
        """Whether a request should wait for its prefix, `missing` tokens of it not being cached when it could begin.

        More than expected: what had come up was evicted before it was its turn, or it lost its place in the batch.
        """
        if self._waits(sequence):
            return True
        if sequence.looks >= _LOOKS or missing <= sequence.missed:
            return False
        self.queued(sequence)
        return self._waits(sequence)

    def admitted(self, sequence: Sequence) -> None:
        """A request got its lease: what it found ready is in use for at least the second time."""
        answer = sequence.ask.answer if sequence.ask is not None else None
        sequence.fetch, sequence.fetched = None, 0
        if answer is not None and answer.fetch is not None and answer.fetch.brought(sequence.computed):
            sequence.fetch, sequence.fetched = answer.fetch, answer.shared
        if sequence.ask is not None:
            sequence.coming = sequence.ask.take_load()
        self._leave(sequence)
        self._tiers.used(sequence.known[: sequence.computed], sequence.request.scope)

    def left(self, sequence: Sequence) -> None:
        """A request is gone: what comes up for it alone is given up, and what it computed was used once more."""
        self._leave(sequence)
        if sequence.index == 0:  # other choices have the same prompt
            self._tiers.ended(sequence.known[: sequence.computed], sequence.request.scope)

    def computed(self, chunks: Many[Chunk], seconds: float) -> None:
        """A step took that long, and tells what prefill costs at its depth; not one that waited for bytes."""
        prefilled = [(chunk.past, chunk.tokens) for chunk in chunks if chunk.tokens > 1]
        if prefilled and all(chunk.behind is None for chunk in chunks):
            self._tiers.computed(prefilled, seconds)

    def _waits(self, sequence: Sequence) -> bool:
        ask = sequence.ask
        if ask is None or sequence.missed:
            return ask is not None and ask.waits
        if ask.waits and ask.answer is None:
            return True
        if ask.late:
            self._leave(sequence)
        there = 0 if ask.answer is None else ask.answer.expected
        sequence.covered = 0 if ask.answer is None else ask.answer.covered
        sequence.missed = min(self._not_there(sequence), sequence.length - there)
        return ask.waits

    def _not_there(self, sequence: Sequence) -> int:
        known, scope = sequence.known, sequence.request.scope
        if self._states is not None:
            return sequence.length - self._states.reusable(known, scope)
        return sequence.length - self._tiers.cache.match(known, scope)

    @staticmethod
    def _leave(sequence: Sequence) -> None:
        if sequence.ask is not None:
            sequence.ask.cancel()
            sequence.below = sequence.below or sequence.ask.seen  # later looks are about what went since
            sequence.ask = None


def looked_up(sequence: Sequence, reused: int, block_size: int) -> LookedUp:
    """What became of a request's prompt: what lay where, and what of that was reused."""
    ready = max(sequence.matched or 0, reused - sequence.came.total())  # when it was admitted
    matched = _ready_by_tier(sequence, ready)
    if sequence.below is not None:
        matched += sequence.below.matched(ready, sequence.prompt_length, block_size)
    return LookedUp(sequence.prompt_length, +matched, +Counter(reused_by_tier(sequence, reused)))


def reused_by_tier(sequence: Sequence, reused: int) -> dict[Tier, int]:
    """Reused tokens by the tier they came from: what came up for this request, the rest from the device."""
    came = Counter[Tier]()
    for tier, tokens in sequence.came.items():
        came[tier] = min(tokens, reused - came.total())
    found = _ready_by_tier(sequence, reused - came.total())
    found.update(came)
    return found


def _ready_by_tier(sequence: Sequence, tokens: int) -> Counter[Tier]:
    """Of a prompt's first tokens, which were ready when it was admitted: what had brought them up."""
    found = Counter[Tier]()
    if sequence.fetch is not None:
        found += sequence.fetch.brought(min(tokens, sequence.fetched))
    found["device"] = tokens - found.total()
    return found
