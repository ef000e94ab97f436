"""The facade over all tiers: bring prefixes up, copy them down, forget them everywhere."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from threading import Lock
from typing import Literal

import numpy as np

from cache_core.block_header import BlockHeader
from cache_core.device_tier import DeviceTier
from cache_core.errors import OutOfBlocksError
from cache_core.identity import CacheIdentity
from cache_core.lease import Lease
from cache_core.load_or_recompute import LoadEstimator, PrefillEstimator, plan
from cache_core.metrics import CacheObserver, Moved, NullObserver, TierName
from cache_core.prefix_cache import PrefixCache
from cache_core.tiered.backup import Backup
from cache_core.tiered.chain import ScopeChains
from cache_core.tiered.fetch import Fetch
from cache_core.tiered.ways import Ways
from cache_core.tiers.base import Tier, TierStats
from cache_core.tiers.host import HostTier
from cache_core.tokens import Tokens
from cache_core.transfer import Priority, TransferEngine
from cache_core.transfer.copy_lane import CopyLane

WritePolicy = Literal["write_through_on_second_hit", "write_back", "none"]

# Assumed until measured: bytes a second, and seconds a batch.
_BANDWIDTH: dict[TierName, float] = {"host": 2e9, "disk": 5e8, "store": 2e8}
_SETUP: dict[TierName, float] = {"host": 1e-3, "disk": 5e-3, "store": 2e-2}
_TOKEN_SECONDS = 1e-3


@dataclass(frozen=True, slots=True)
class TieringOptions:
    """How tiers are used."""

    write_policy: WritePolicy = "write_through_on_second_hit"
    fetch_deadline: float = 10.0  # seconds a request waits for its prefix at most; then it is recomputed
    reserve_blocks: int = 64  # device blocks that fetches leave to running requests


class _Watch(CacheObserver):
    """Tells the estimator how long loads took, and passes everything on."""

    def __init__(self, inner: CacheObserver, estimator: LoadEstimator, lock: Lock) -> None:
        self._inner = inner
        self._estimator = estimator
        self._lock = lock

    def moved(self, event: Moved) -> None:
        self._inner.moved(event)
        came_up = (event.source, event.target) in (("host", "device"), ("disk", "host"), ("store", "host"))
        if came_up and event.outcome == "done" and event.seconds is not None:
            with self._lock:
                self._estimator.observe(event.source, event.moved_bytes, event.seconds)


class TieredCache:
    """`device` is the prefix cache requests lease from; everything else lies below it, filed by chain hash.

    Every method may be called from any thread and returns without waiting for bytes to move, but for `close`.

    Args:
        colder: tiers below the host in the order they are asked, for example {"disk": DiskTier(...)}.
        on_ready: called on some thread whenever a fetch ended, so that whoever waits looks again.
    """

    def __init__(
        self,
        cache: PrefixCache,
        device: DeviceTier,
        identity: CacheIdentity,
        host: HostTier,
        colder: Mapping[TierName, Tier] | None = None,
        options: TieringOptions | None = None,
        observer: CacheObserver | None = None,
        on_ready: Callable[[], None] | None = None,
    ) -> None:
        self.cache = cache
        self.host = host
        self.colder = dict(colder or {})
        self.options = options or TieringOptions()
        self.prefill = PrefillEstimator(_TOKEN_SECONDS)
        self._device = device
        self._observer = observer or NullObserver()
        self._on_ready = on_ready or (lambda: None)
        self._lock = Lock()  # guards the estimators and the fetches
        self._loads = LoadEstimator(_BANDWIDTH, _SETUP)
        self._fetches: set[Fetch] = set()
        self._chains = ScopeChains(identity)
        self._engine = TransferEngine(observer=_Watch(self._observer, self._loads, self._lock))
        up, down = CopyLane(device.device), CopyLane(device.device)
        self._ways = Ways(device, host, self.colder, self._engine, up, down)
        self._backup = Backup(cache, self._chains, self._ways)
        if self.options.write_policy == "write_back":
            cache.spill_to(self._backup.copy_now)

    def prefetch(
        self, tokens: Tokens, scope: str = "default", priority: Priority = Priority.WAITING
    ) -> Fetch | None:
        """Start to bring up what tiers below the device hold of a prompt; None where there is nothing worth it.

        The prompt's last token is never looked for, as it is computed in any case.
        """
        size = self.cache.block_size
        limit = self.cache.reusable(len(tokens))
        matched = self.cache.match(tokens[:limit], scope)
        if matched >= limit or self.cache.computing(tokens, scope) is not None:
            return None
        headers = self._chains.headers(scope, tokens[:limit], matched // size)
        sources = self._sources(headers)
        if not sources:
            return None
        count = self._worth(sources, matched)
        if not count:
            return None
        return self._start(tokens[: matched + count * size + 1], scope, headers, sources[:count], priority)

    def used(self, tokens: Tokens, scope: str = "default") -> None:
        """A request reused `tokens` (whole ready blocks): it is their second use, so they are worth a copy."""
        if self.options.write_policy == "write_through_on_second_hit" and len(tokens):
            self._backup.copy(scope, tokens)

    def computed(self, start: int, tokens: int, seconds: float) -> None:
        """A request prefilled `tokens` tokens from `start` on in that time."""
        with self._lock:
            self.prefill.observe(start, tokens, seconds)

    def purge(self, scope: str) -> int:
        """Forget a scope on every tier, at once and for good; says how many blocks that were.

        Raises:
            PurgeFailedError: some bytes could not be erased.
        """
        forgotten = self.cache.purge(scope)
        digest = self._chains.digest(scope)
        return forgotten + sum(tier.purge(digest) for tier in (self.host, *self.colder.values()))

    def stats(self) -> dict[TierName, TierStats]:
        """What the tiers below the device hold, and what happened to them."""
        below: dict[TierName, Tier] = {"host": self.host, **self.colder}
        return {name: tier.stats() for name, tier in below.items()}

    @property
    def idle(self) -> bool:
        """Whether nothing moves between tiers now."""
        with self._lock:
            fetching = bool(self._fetches)
        return not fetching and self._engine.idle

    def close(self) -> None:
        """Stop moving and let go of the tiers. Leases of fetches are released."""
        self.cache.spill_to(None)
        self._engine.close(10.0)
        for tier in (self.host, *self.colder.values()):
            tier.close()

    def _sources(self, headers: list[BlockHeader]) -> list[TierName]:
        """The warmest tier of each leading block that some tier holds."""
        keys = [header.key for header in headers]
        found = np.full(len(keys), "", dtype=object)
        for name, tier in (("host", self.host), *self.colder.items()):
            there = tier.contains(keys) & (found == "")
            found[there] = name
        missing = np.flatnonzero(found == "")
        return list(found[: missing[0]] if len(missing) else found)

    def _worth(self, sources: list[TierName], matched: int) -> int:
        """Leading blocks that are there sooner loaded than recomputed."""
        size = self.cache.block_size
        with self._lock:
            costs = {tier: self._loads.cost(tier, self._device.bytes_per_block) for tier in set(sources)}
            up = self._loads.cost("host", self._device.bytes_per_block)
            recompute = self.prefill.block_seconds(matched, len(sources), size)
        # What lies below the host passes through it: both ways are paid.
        costs = {
            tier: cost if tier == "host" else type(cost)(cost.setup + up.setup, cost.block + up.block)
            for tier, cost in costs.items()
        }
        decision = plan(sources, costs, recompute, overlap=False)
        self._observer.decided(decision.decided(sources))
        return decision.front

    def _start(
        self,
        tokens: Tokens,
        scope: str,
        headers: list[BlockHeader],
        sources: list[TierName],
        priority: Priority,
    ) -> Fetch | None:
        size = self.cache.block_size
        lease = self.cache.acquire(tokens, scope)
        ready = lease.matched // size  # may be more than when it was looked up
        skip = ready - (len(tokens) // size - len(sources))
        needed = len(tokens) // size - ready
        room = self.cache.available() - self.options.reserve_blocks
        if not 0 < needed <= room or not _extended(lease, tokens[lease.matched : len(tokens) // size * size]):
            lease.release()
            return None
        deadline = self._engine.clock.now() + self.options.fetch_deadline
        fetch = Fetch(lease, ready, headers[skip : len(sources)], sources[skip:], deadline, self._over)
        with self._lock:
            self._fetches.add(fetch)
        fetch.start(self._ways, priority)
        return fetch

    def _over(self, fetch: Fetch) -> None:
        with self._lock:
            self._fetches.discard(fetch)
        self._on_ready()


def _extended(lease: Lease, tokens: Tokens) -> bool:
    try:
        lease.extend(tokens)
    except OutOfBlocksError:
        return False
    return True
