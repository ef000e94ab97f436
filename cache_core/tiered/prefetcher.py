"""What of a prompt is worth bringing up, and the fetch that does it."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from cache_core.block_header import BlockHeader
from cache_core.errors import OutOfBlocksError
from cache_core.in_flight import InFlight
from cache_core.lease import Lease
from cache_core.load_or_recompute import Plan
from cache_core.metrics import CacheObserver, TierName
from cache_core.prefix_cache import PrefixCache
from cache_core.tiered.asking import Answer
from cache_core.tiered.chain import ScopeChains
from cache_core.tiered.estimates import Estimates
from cache_core.tiered.fetch import Ended, Fetch
from cache_core.tiered.fetches import Fetches
from cache_core.tiered.lookup import Inquiry, Lookup
from cache_core.tiered.own_load import OwnLoad
from cache_core.tiered.purges import Purges
from cache_core.tiered.ways import Ways
from cache_core.tokens import Tokens
from cache_core.transfer import Priority

Came = Callable[
    [str, Tokens], None
]  # (scope, tokens): some of these blocks came up from below; must be quick


@dataclass(frozen=True, slots=True)
class Patience:
    """How long who needs a prefix waits for it, and what is left to others."""

    deadline: float  # seconds at most
    beyond: float  # seconds beyond what recomputing takes, where that is less
    reserve: int  # device blocks


@dataclass(frozen=True, slots=True)
class Together:
    """What may go on at the same time."""

    overlap: bool  # loading a rear and computing what lies before it
    layered: bool  # loading later layers and computing earlier ones


@dataclass(frozen=True, slots=True)
class Parts:
    """What a prefetcher works with: those of one cache."""

    cache: PrefixCache
    chains: ScopeChains
    ways: Ways
    purges: Purges
    estimates: Estimates
    lookup: Lookup
    fetches: Fetches
    patience: Patience
    together: Together
    observer: CacheObserver
    came: Came


class Prefetcher:
    """From any thread. Begun fetches are among those of its parts until they end."""

    def __init__(self, parts: Parts) -> None:
        self._cache = parts.cache
        self._chains = parts.chains
        self._ways = parts.ways
        self._purges = parts.purges
        self._estimates = parts.estimates
        self._lookup = parts.lookup
        self._fetches = parts.fetches
        self._patience = parts.patience
        self._together = parts.together
        self._observer = parts.observer
        self._came = parts.came

    def wait(self, start: int, blocks: int) -> float:
        """Seconds that a request waits at most for blocks from token `start` on."""
        recompute = float(self._estimates.recompute(start, blocks).sum())
        return min(self._patience.deadline, recompute + self._patience.beyond)

    def missing(self, tokens: Tokens, scope: str) -> tuple[int, int]:
        """Leading tokens that are ready, and up to where more could be brought up."""
        limit = self._cache.reusable(len(tokens))
        return min(self._cache.match(tokens[:limit], scope), limit), limit

    def begin(self, tokens: Tokens, scope: str, priority: Priority, inquiry: Inquiry) -> Answer:
        """Find out what tiers below the device hold of a prompt, and begin to bring up what is worth it.

        Whoever asked counts as a user of the fetch already.
        """
        matched, limit = self.missing(tokens, scope)
        number = self._purges.number(self._chains.digest(scope))
        if matched >= limit or number is None:
            return Answer(matched)
        coming = self._cache.computing(tokens, scope)
        if coming is not None and coming.shared >= limit:
            return self._of_another(coming, priority)
        headers, sources = self._find(tokens[:limit], scope, matched, inquiry)
        size = self._cache.block_size
        if coming is not None and coming.shared >= matched + len(sources) * size:
            return self._of_another(coming, priority)  # waiting for it brings as much
        if not sources or not inquiry.goes_on():
            return Answer(matched)
        began = self._ways.engine.clock.now()
        overlap, ahead = inquiry.alone and self._together.overlap, self._ways.ahead(priority)
        wait = self.wait(matched, len(sources))
        decision = self._estimates.plan(sources, matched, overlap, ahead, wait)
        self._observer.decided(decision.decided(sources))
        front, split = decision.front, decision.split
        if self._layered(sources, decision, inquiry):
            front = split = 0
        over: Ended = partial(self._over, decision, began, matched // size, scope, tokens)
        load = fetch = None
        if split < decision.blocks:
            over = self._fetches.ended  # the load tells
            load = self._load_behind(
                headers, sources, matched // size, (front, split), began, decision, scope, tokens
            )
        if front:
            fetch = self._prepare(tokens[: matched + front * size + 1], scope, headers, sources[:front], over)
        if fetch is not None:
            self._start(fetch, number, priority)
        if load is not None:
            self._allow(load, number)
        return Answer(matched, load=load) if fetch is None else Answer(fetch.end, fetch, fetch.end, load=load)

    def _layered(self, sources: list[TierName], decision: Plan, inquiry: Inquiry) -> bool:
        """Whether everything is loaded from the host into the request's own blocks, layer by layer."""
        whole = decision.front == len(sources) and all(source == "host" for source in sources)
        return whole and inquiry.alone and self._together.layered

    def _load_behind(
        self,
        headers: list[BlockHeader],
        sources: list[TierName],
        first: int,
        parts: tuple[int, int],
        began: float,
        decision: Plan,
        scope: str,
        tokens: Tokens,
    ) -> OwnLoad:
        """For what is loaded while what lies before it is computed; `parts` are where the first ends and it begins."""
        size = self._cache.block_size
        front, split = parts
        end = (first + len(sources)) * size

        def settled(ready: int) -> None:
            self._came(scope, tokens[:ready])
            rest = self._estimates.recompute(ready, max(end - ready, 0) // size)
            took = self._ways.engine.clock.now() - began
            self._observer.regretted(decision.regret(took + float(rest.sum())))

        return OwnLoad(
            self._ways,
            headers[front:],
            sources[front:],
            first + front,
            first + split,
            size,
            began + self.wait(first * size, len(sources)),
            self._together.layered,
            self._fetches.changed,
            self._fetches.ended,
            settled,
        )

    def _allow(self, load: OwnLoad, number: int) -> None:
        self._fetches.add(load)
        if self._purges.number(load.identity) == number:
            load.climb()
        else:
            load.give_up()

    def _start(self, fetch: Fetch, number: int, priority: Priority) -> None:
        """`number` is that of its scope's last purge, asked for before tiers were."""
        self._fetches.add(fetch)
        fetch.share()
        if self._purges.number(fetch.headers[0].identity) == number:
            fetch.start(self._ways, priority)
        else:
            fetch.give_up()

    def _of_another(self, coming: InFlight, priority: Priority) -> Answer:
        """Another request brings or computes as much."""
        fetch = self._fetches.with_lease(coming.owner)
        if fetch is None or not fetch.share():
            return Answer(coming.shared)
        fetch.promote(priority)
        return Answer(coming.shared, fetch, coming.shared, own=False)

    def _find(
        self, tokens: Tokens, scope: str, matched: int, inquiry: Inquiry
    ) -> tuple[list[BlockHeader], list[TierName]]:
        chain = self._chains.prompt(scope, tokens, inquiry.goes_on)
        found = self._lookup.find(chain, matched // self._cache.block_size, inquiry)
        self._chains.remember(chain)
        return found

    def _over(
        self, decision: Plan, began: float, first: int, scope: str, tokens: Tokens, fetch: Fetch
    ) -> None:
        """A decision to load cost the time of its fetch, and what computing takes that which it did not bring."""
        if fetch.brought():
            self._came(scope, tokens[: fetch.loaded_to * self._cache.block_size])
        took = self._ways.engine.clock.now() - began
        left = max(first + decision.blocks - fetch.loaded_to, 0)
        rest = self._estimates.recompute(fetch.loaded_to * self._cache.block_size, left)
        if fetch.wanted:  # else nothing is computed instead
            self._observer.regretted(decision.regret(took + float(rest.sum())))
        self._fetches.ended(fetch)

    def _prepare(
        self,
        tokens: Tokens,
        scope: str,
        headers: list[BlockHeader],
        sources: list[TierName],
        over: Ended,
        whole: bool = False,
    ) -> Fetch | None:
        """Lease the device blocks for as much of that as there is room for, or for the `whole`; None: for nothing.

        `sources` are those of the last blocks of `tokens`, the last token aside; `headers` begin with the same one.
        """
        size = self._cache.block_size
        lease = self._cache.acquire(tokens, scope, counted=False)
        ready = lease.matched // size
        skip = ready - (len(tokens) // size - len(sources))  # blocks that came since they were looked up
        room = self._cache.available() - self._patience.reserve
        count = min(len(sources) - skip, room)
        least = max(len(sources) - skip if whole else 1, 1)
        # Below 0: blocks went meanwhile. Then what is to be loaded has no parent.
        if skip < 0 or count < least or not _extended(lease, tokens[lease.matched : (ready + count) * size]):
            lease.release()
            return None
        deadline = self._ways.engine.clock.now() + self.wait(lease.matched, count)
        last = skip + count
        return Fetch(lease, ready, headers[skip:last], sources[skip:last], deadline, over)


def _extended(lease: Lease, tokens: Tokens) -> bool:
    try:
        lease.extend(tokens)
    except OutOfBlocksError:
        return False
    return True
