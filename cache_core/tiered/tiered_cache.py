"""The facade over all tiers: bring prefixes up, copy them down, forget them everywhere."""

import logging
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from threading import Lock, Thread
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
from cache_core.tiered.fetches import Fetches
from cache_core.tiered.purges import Purges
from cache_core.tiered.ways import Ways
from cache_core.tiers.base import Tier, TierStats
from cache_core.tiers.host import HostTier
from cache_core.tokens import Tokens
from cache_core.transfer import Priority, TransferEngine
from cache_core.transfer.clock import Clock
from cache_core.transfer.copy_lane import CopyLane

log = logging.getLogger(__name__)

WritePolicy = Literal["write_through_on_second_hit", "write_back", "none"]

# Assumed until measured: bytes a second, and seconds a batch.
_BANDWIDTH: dict[TierName, float] = {"host": 2e9, "disk": 5e8, "store": 2e8}
_SETUP: dict[TierName, float] = {"host": 1e-3, "disk": 5e-3, "store": 2e-2}
_TOKEN_SECONDS = 1e-3
_CLOSING = 10.0  # seconds that a stuck disk may hold up the end


@dataclass(frozen=True, slots=True)
class TieringOptions:
    """How tiers are used."""

    write_policy: WritePolicy = "write_through_on_second_hit"
    fetch_deadline: float = 10.0  # seconds a request waits for its prefix at most; then it is recomputed
    patience: float = 0.5  # the same, where recomputing takes less: seconds beyond what that takes
    reserve_blocks: int = 64  # device blocks that fetches leave to running requests
    rest: float = 30.0  # seconds for which a tier that missed a deadline is not asked again


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
        on_ready: called on some thread whenever a fetch ended or is late, so that whoever waits looks again.
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
        clock: Clock | None = None,
    ) -> None:
        self.cache = cache
        self.host = host
        self.colder = dict(colder or {})
        self.options = options or TieringOptions()
        self.prefill = PrefillEstimator(_TOKEN_SECONDS)
        self._device = device
        self._observer = observer or NullObserver()
        self._on_ready = on_ready or (lambda: None)
        self._lock = Lock()  # guards the estimators and what rests
        self._loads = LoadEstimator(_BANDWIDTH, _SETUP)
        self._resting: dict[TierName, float] = {}  # until when
        self._chains = ScopeChains(identity)
        self._purges = Purges()
        up, down = CopyLane(device.device), CopyLane(device.device)
        self._engine = TransferEngine(clock=clock, observer=_Watch(self._observer, self._loads, self._lock))
        self._ways = Ways(device, host, self.colder, self._engine, up, down)
        self._fetches = Fetches(self._engine.clock, self._late)
        self._backup = Backup(cache, self._chains, self._ways, self._purges)
        if self.options.write_policy == "write_back" and host.num_blocks:
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
        number = self._purges.number(self._chains.digest(scope))
        if matched >= limit or not self.host.num_blocks or number is None:
            return None
        coming = self.cache.computing(tokens, scope)
        if coming is not None and coming.shared >= limit:
            return None
        headers = self._chains.headers(scope, tokens[:limit], matched // size)
        sources = self._sources(headers)
        if coming is not None and coming.shared >= matched + len(sources) * size:
            return None  # waiting for it brings as much
        count = self._worth(sources, matched) if sources else 0
        if not count:
            return None
        fetch = self._prepare(tokens[: matched + count * size + 1], scope, headers, sources[:count])
        if fetch is None:
            return None
        self._fetches.add(fetch)
        if self._purges.number(headers[0].identity) == number:
            fetch.start(self._ways, priority)
        else:
            fetch.give_up()
        return fetch

    def used(self, tokens: Tokens, scope: str = "default") -> None:
        """A request reused `tokens` (whole ready blocks): it is their second use, so they are worth a copy."""
        wanted = self.options.write_policy == "write_through_on_second_hit" and self.host.num_blocks
        if wanted and len(tokens):
            self._backup.copy(scope, tokens)

    def demote(self, n: int) -> int:
        """Free up to `n` device blocks that nobody uses, copied to the host before; says how many.

        None where there is no host to copy to: what is on the device is better there than nowhere.
        """
        if self.options.write_policy == "none" or not self.host.num_blocks:
            return 0
        return self.cache.evict(n, self._backup.copy_now)

    def computed(self, start: int, tokens: int, seconds: float) -> None:
        """A request prefilled `tokens` tokens from `start` on in that time."""
        with self._lock:
            self.prefill.observe(start, tokens, seconds)

    def purge(self, scope: str) -> int:
        """Forget a scope on every tier, at once and for good; says how many blocks that were.

        Raises:
            PurgeFailedError: some bytes could not be erased.
        """
        digest = self._chains.digest(scope)
        with self._purges.purging(digest), ExitStack() as every:  # goes on past a tier that raises
            counts: list[int] = []
            # In this order, since whatever is on its way up from a tier meets the purge of the next one.
            every.callback(lambda: counts.append(self.host.purge(digest)))
            for tier in self.colder.values():
                every.callback(lambda tier=tier: counts.append(tier.purge(digest)))  # type: ignore[misc]
            counts.append(self.cache.purge(scope))
        return sum(counts)

    def stats(self) -> dict[TierName, TierStats]:
        """What the tiers below the device hold, and what happened to them."""
        return {name: tier.stats() for name, tier in self._below().items()}

    @property
    def idle(self) -> bool:
        """Whether nothing moves between tiers now."""
        return not self._fetches and self._backup.idle and self._engine.idle

    def close(self) -> None:
        """Stop moving and let go of the tiers. Leases of fetches are released.

        A tier that hangs is left to itself after some seconds.
        """
        self.cache.spill_to(None)
        self._backup.close(_CLOSING)
        self._fetches.close()
        self._engine.close(_CLOSING)
        for name, tier in self._below().items():
            closing = Thread(target=tier.close, name=f"kvgate {name} closing", daemon=True)
            closing.start()
            closing.join(_CLOSING)
            if closing.is_alive():
                log.warning("the %s tier hangs and was not closed", name)

    def _below(self) -> dict[TierName, Tier]:
        return {"host": self.host, **self.colder}

    def _sources(self, headers: list[BlockHeader]) -> list[TierName]:
        """The warmest tier of each leading block that some tier holds."""
        keys = [header.key for header in headers]
        found = np.full(len(keys), "", dtype=object)
        now = self._engine.clock.now()
        for name, tier in self._below().items():
            if self._resting.get(name, now) > now:
                continue
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

    def _prepare(
        self, tokens: Tokens, scope: str, headers: list[BlockHeader], sources: list[TierName]
    ) -> Fetch | None:
        """Lease the device blocks for as much of that as there is room for; None: for nothing.

        `sources` are those of the last blocks of `tokens`, the last token aside; `headers` begin with the same one.
        """
        size = self.cache.block_size
        lease = self.cache.acquire(tokens, scope, counted=False)
        ready = lease.matched // size
        skip = ready - (len(tokens) // size - len(sources))  # blocks that came since they were looked up
        room = self.cache.available() - self.options.reserve_blocks
        count = min(len(sources) - skip, room)
        # Below 0: blocks went meanwhile. Then what is to be loaded has no parent.
        if skip < 0 or count < 1 or not _extended(lease, tokens[lease.matched : (ready + count) * size]):
            lease.release()
            return None
        with self._lock:
            recompute = float(self.prefill.block_seconds(lease.matched, count, size).sum())
        wait = min(self.options.fetch_deadline, recompute + self.options.patience)
        deadline = self._engine.clock.now() + wait
        last = skip + count
        return Fetch(lease, ready, headers[skip:last], sources[skip:last], deadline, self._over)

    def _over(self, fetch: Fetch) -> None:
        self._fetches.discard(fetch)
        self._on_ready()

    def _late(self, fetch: Fetch) -> None:
        if fetch.stuck is not None and fetch.stuck in self.colder:
            log.warning("the %s tier did not answer in time; it is not asked for a while", fetch.stuck)
            with self._lock:
                self._resting[fetch.stuck] = self._engine.clock.now() + self.options.rest
        self._on_ready()


def _extended(lease: Lease, tokens: Tokens) -> bool:
    try:
        lease.extend(tokens)
    except OutOfBlocksError:
        return False
    return True
