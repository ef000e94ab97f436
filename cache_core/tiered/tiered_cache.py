"""The facade over all tiers: bring prefixes up, copy them down, forget them everywhere."""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Thread
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from cache_core.device_tier import DeviceTier
from cache_core.identity import CacheIdentity
from cache_core.metrics import CacheObserver, NullObserver, TierName
from cache_core.prefill_estimator import Chunk
from cache_core.prefix_cache import PrefixCache
from cache_core.state_groups import StateOnDevice
from cache_core.tiered.asking import Answer, Ask, Asker
from cache_core.tiered.backup import Backup
from cache_core.tiered.backup_lanes import BackupLanes
from cache_core.tiered.chain import ScopeChains
from cache_core.tiered.demotion import Demotion
from cache_core.tiered.estimates import Estimates, MeasuringObserver
from cache_core.tiered.fetch import Fetch
from cache_core.tiered.fetches import Fetches
from cache_core.tiered.lookup import Inquiry, Lookup
from cache_core.tiered.prefetcher import Parts, Patience, Prefetcher, Together
from cache_core.tiered.purger import Purged, Purger
from cache_core.tiered.purges import Purges
from cache_core.tiered.state_tiers import StateOptions, StateTiers
from cache_core.tiered.watch import CallLimits, WatchedTier
from cache_core.tiered.ways import Ways
from cache_core.tiered.whole_prefetcher import WholePrefetcher
from cache_core.tiers.base import Tier, TierStats
from cache_core.tiers.host import HostTier
from cache_core.tokens import Tokens, as_tokens
from cache_core.transfer import LinkConfig, Priority, TransferEngine, Way
from cache_core.transfer.clock import Clock
from cache_core.transfer.copy_lane import CopyLane

log = logging.getLogger(__name__)

WritePolicy = Literal["write_through_on_second_hit", "write_back", "none"]

_PURGING = 5.0  # seconds that one may hold up whoever purges
_TELL_EVERY = 16  # prefills, after which the eviction policy hears what blocks cost
_CLOSING = 10.0  # seconds that a stuck disk may hold up the end


@dataclass(frozen=True, slots=True)
class TieringOptions:
    """How tiers are used."""

    write_policy: WritePolicy = "write_through_on_second_hit"
    fetch_deadline: float = 10.0  # seconds a request waits for its prefix at most; then it is recomputed
    patience: float = 0.5  # the same, where recomputing takes less: seconds beyond what that takes
    reserve_blocks: int = 64  # device blocks that fetches leave to running requests
    overlap: bool = True  # load the rear of a prefix while its front is computed, where that is sooner
    trials: float = 1 / 32  # see `Exploration`: what may be lost on loads that seem slower; 0: none is tried
    layered: bool | None = None  # compute early layers while later ones come up; None: on an accelerator
    limits: CallLimits = field(default_factory=CallLimits)  # of what one call of a tier below the host takes
    links: Mapping[Way, LinkConfig] = field(default_factory=dict)  # how ways are used; others as they come


class TieredCache:
    """`device` is the prefix cache requests lease from; everything else lies below it, filed by chain hash.

    Every method may be called from any thread and returns without waiting for bytes to move, but for `close`. What is
    asked of a tier below the host, or moved from or to it, is left alone after its time, see `watch`.

    Args:
        colder: tiers below the host in the order they are asked, for example {"disk": DiskTier(...)}.
        states: what a hybrid model keeps beside its KV; None: nothing.
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
        states: StateOptions | None = None,
    ) -> None:
        self.cache = cache
        self.host = host
        self.colder = dict(colder or {})
        self.options = options or TieringOptions()
        observer = observer or NullObserver()
        self._on_ready = on_ready or (lambda: None)
        self._estimates = Estimates(device.bytes_per_block, cache.block_size, self.options.trials)
        self._computed = 0
        self._chains = ScopeChains(identity)
        self._purges = Purges()
        up, down = CopyLane(device.device), CopyLane(device.device)
        self._engine = TransferEngine(
            self.options.links, clock=clock, observer=MeasuringObserver(observer, self._estimates)
        )
        self._clock = self._engine.clock
        self.watched: Mapping[TierName, WatchedTier] = {
            name: WatchedTier(name, tier, self.options.limits, self._clock, observer)
            for name, tier in self.colder.items()
        }
        self._ways = Ways(device, host, self.watched, self._engine, up, down)
        self._lookup = Lookup(self._below())
        self._fetches = Fetches(self._clock, self._on_ready)
        self._lanes = BackupLanes(self.colder)
        self.states: StateTiers | None = None
        if states is not None:
            self.states = StateTiers(self._ways, states, self._purges, self._fetches, self._lanes)
        parts = Parts(
            cache,
            self._chains,
            self._ways,
            self._purges,
            self._estimates,
            self._lookup,
            self._fetches,
            Patience(self.options.fetch_deadline, self.options.patience, self.options.reserve_blocks),
            self._together(device),
            observer,
            self._came,
        )
        self._prefetcher = Prefetcher(parts) if self.states is None else WholePrefetcher(parts, self.states)
        self._asker = Asker(self._respond, self._on_ready)
        self._backup = Backup(cache, self._chains, self._ways, self._purges, self._lanes, self.states)
        self._demotion = Demotion(self._ways, self._purges, self._backup.pass_to)
        self._purger = Purger(cache, self._forget, self.colder, self._purges, self._fetches)
        self._clearing: dict[TierName, Thread] = {}
        cache.lies_over({name: tier.kept_since for name, tier in self._below().items()})
        if self.options.write_policy == "write_back" and host.num_blocks:
            cache.spill_to(self._backup.copy_now)

    def prefetch(
        self, tokens: Tokens, scope: str = "default", priority: Priority = Priority.WAITING
    ) -> Fetch | None:
        """Start to bring up what tiers below the device hold of a prompt; None where there is nothing worth it.

        The prompt's last token is never looked for, as it is computed in any case.
        """
        if not self.host.num_blocks:
            return None
        answer = self._prefetcher.begin(as_tokens(tokens), scope, priority, Inquiry())
        if answer.fetch is not None and not answer.own:
            answer.leave()
            return None
        return answer.fetch

    def ask(self, tokens: Tokens, scope: str = "default", alone: bool = False) -> Ask | None:
        """The same on another thread, for a request that waits; None where nothing can come.

        `tokens` must not change. `alone`: nothing else is to be computed, and the request takes an `OwnLoad`, too.
        `on_ready` is called when `Ask.answer` is there.
        """
        matched, limit = self._prefetcher.missing(tokens, scope)
        if matched >= limit or not self.host.num_blocks:
            return None
        wait = self._prefetcher.wait(matched, (limit - matched) // self.cache.block_size)
        ask = Ask(tokens, scope, self._clock.now() + wait, self._clock.now, alone)
        return ask if self._asker.put(ask) else None

    def _respond(self, ask: Ask) -> Answer:
        return self._prefetcher.begin(ask.tokens, ask.scope, Priority.WAITING, ask)

    def _together(self, device: DeviceTier) -> Together:
        layered = self.options.layered
        return Together(self.options.overlap, device.device.type != "cpu" if layered is None else layered)

    def used(self, tokens: Tokens, scope: str = "default") -> None:
        """A request reused `tokens` (whole ready blocks): it is their second use, so they are worth a copy."""
        wanted = self.options.write_policy == "write_through_on_second_hit" and self.host.num_blocks
        if wanted and len(tokens):
            self._backup.copy(scope, tokens)

    def _came(self, scope: str, tokens: Tokens) -> None:
        """Of these ready blocks some came up. Where their use copies them down, that finds out where they are."""
        if self.options.write_policy != "write_through_on_second_hit" and len(tokens):
            self._backup.note(scope, tokens[: len(tokens) // self.cache.block_size * self.cache.block_size])

    def ended(self, tokens: Tokens, scope: str = "default") -> None:
        """A request that made `tokens` ready ends: what of it was computed a second time is worth a copy, too."""
        tokens = tokens[: len(tokens) // self.cache.block_size * self.cache.block_size]
        wanted = self.options.write_policy == "write_through_on_second_hit" and self.host.num_blocks
        if wanted and len(tokens):
            self._backup.copy_second_use(scope, tokens)

    def state_leaves(self, tokens: Tokens, scope: str, state: StateOnDevice) -> None:
        """The device evicts the state behind `tokens`; returns at once, and the state stays readable."""
        if self.options.write_policy == "write_back" and self.states is not None:
            self._backup.copy_leaving(scope, tokens, state)

    def demote(self, n: int) -> int:
        """Free up to `n` device blocks that nobody uses, copied to the host before; says how many.

        None where there is no host to copy to: what is on the device is better there than nowhere.
        """
        if self.options.write_policy == "none" or not self.host.num_blocks:
            return 0
        return self.cache.evict(n, self._backup.copy_now)

    def sweep_host(self, n: int) -> int:
        """Free up to `n` cold host rows of blocks that a colder tier has, too; says how many. May wait for that one.

        Where it has none of them, it gets them now.
        """
        if not self.colder or not self.host.num_blocks:
            return 0

        def elsewhere(keys: Sequence[bytes]) -> NDArray[np.bool_]:
            found = np.zeros(len(keys), dtype=np.bool_)
            for tier in self.watched.values():
                found |= tier.contains(keys)
            return found

        freed = self.host.sweep(n, elsewhere)
        if not freed:
            self._demotion.copy(n)
        return freed

    def computed(self, chunks: Sequence[Chunk], seconds: float) -> None:
        """One step that prefilled these chunks of prompts, and whatever else, took that long.

        A chunk is (tokens of the prompt before it, its tokens).
        """
        self._estimates.computed(chunks, seconds)
        self._computed += 1
        if self._computed % _TELL_EVERY == 1:
            self.cache.measured(self._estimates.measured(self._below()))

    def purge(self, scope: str, timeout: float = _PURGING) -> Purged:
        """Forget a scope on every tier, at once and for good, whatever moves or is being copied now.

        When this returns nothing of it is served any more. Its bytes are erased, too, but on tiers that hang for
        longer than `timeout` seconds: those are named, and erase them as soon as they answer.

        Raises:
            PurgeFailedError: some bytes could not be erased.
        """
        return self._purger.purge(scope, self._chains.digest(scope), timeout)

    def identify(self, identity: CacheIdentity) -> None:
        """KV is computed otherwise from here on, and `identity` says what it is now.

        Nothing from before is served any more, from no tier. What lies below the device stays where it is, for whoever
        has that identity. Nothing may compute since that changed, and leases from before must not be used any more.
        """
        with self._purges.everything():
            self._fetches.forget(None)
            self._backup.forget(None)
            self._chains.replace(identity)
            self.cache.purge_all()
            if self.states is not None:
                self.states.device.forget(None)

    def flush(self, tiers: Collection[TierName] | None = None, timeout: float = _PURGING) -> Purged:
        """Forget every block that nobody uses, on these tiers (None: on all that no other process shares).

        No purge: what is on its way then may arrive after it, and freed bytes are not erased. Waits that many seconds
        at most for a tier that hangs; it goes on with it.
        """
        wanted = {"device", *self._below()} if tiers is None else set(tiers)
        blocks = self.cache.flush() if "device" in wanted else 0
        if "host" in wanted and self.states is not None:
            blocks += self.states.rows.clear()
        counts: list[int] = []
        began = {name: self._clear(name, counts) for name in self._below() if name in wanted}
        ends = self._clock.now() + timeout
        for thread in began.values():
            thread.join(max(ends - self._clock.now(), 0.0))
        pending = tuple(name for name, thread in began.items() if thread.is_alive())
        return Purged(blocks + sum(counts), pending)

    def _clear(self, name: TierName, counts: list[int]) -> Thread:
        """On a thread; where one hangs in that tier already, that one."""
        thread = self._clearing.get(name)
        if thread is None or not thread.is_alive():
            tier = self.host if name == "host" else self.colder[name]
            thread = Thread(
                target=lambda: counts.append(tier.clear()), name=f"kvgate {name} flush", daemon=True
            )
            self._clearing[name] = thread
            thread.start()
        return thread

    def _forget(self, scope: str, identity: bytes) -> int:
        """What of a scope lies in memory below the device."""
        self._chains.forget(scope)
        self._backup.forget(identity)
        states = 0 if self.states is None else self.states.forget(scope, identity)
        return self.host.purge(identity) + states

    def residency(self, tokens: Tokens, scope: str = "default") -> list[tuple[TierName, ...]]:
        """For each whole block of `tokens` the tiers that have it now, the warmest first. Asks every tier: may wait.

        `PrefixCache.residency` says the same of ready blocks at once, as far as it is known.
        """
        size = self.cache.block_size
        ready = self.cache.match(as_tokens(tokens), scope) // size
        found: list[list[TierName]] = [
            ["device"] if block < ready else [] for block in range(len(tokens) // size)
        ]
        identity = self._chains.digest(scope)
        if found and self._purges.number(identity) is not None:
            keys = [header.key for header in self._chains.headers(scope, as_tokens(tokens))]
            for name, tier in self._below().items():
                for block in np.flatnonzero(tier.contains(keys)).tolist():
                    found[block].append(name)
        return [tuple(tiers) for tiers in found]

    def stats(self) -> dict[TierName, TierStats]:
        """What the tiers below the device hold, and what happened to them."""
        return {name: tier.stats() for name, tier in self._below().items()}

    def away(self) -> dict[TierName, str]:
        """Tiers that hang too much: what is not done with them meanwhile, `read` (and with it written) or `written`."""
        reads: dict[TierName, str] = {
            name: "read" for name, tier in self.watched.items() if tier.away("read")
        }
        writes: dict[TierName, str] = {
            name: "written" for name, tier in self.watched.items() if tier.away("write")
        }
        return writes | reads

    @property
    def idle(self) -> bool:
        """Whether nothing moves between tiers now."""
        # Twice, as work goes from these to the links and from there back again; it counts where it was until then.
        return all(self._quiet() and self._engine.idle for _ in range(2))

    def _quiet(self) -> bool:
        quiet = self._asker.idle and not self._fetches and self._backup.idle and self._purger.idle
        return quiet and (self.states is None or self.states.idle)

    def close(self) -> None:
        """Stop moving and let go of the tiers. Leases of fetches are released.

        A tier that hangs is left to itself after some seconds.
        """
        self.cache.spill_to(None)
        self._asker.close(_CLOSING)
        self._backup.close(_CLOSING)
        self._lanes.close(_CLOSING)
        self._purger.close(_CLOSING)
        self._fetches.close()
        self._engine.close(_CLOSING)
        for watched in self.watched.values():
            watched.close()
        if self.states is not None:
            self.states.close()
        for name, tier in {"host": self.host, **self.colder}.items():
            closing = Thread(target=tier.close, name=f"kvgate {name} closing", daemon=True)
            closing.start()
            closing.join(_CLOSING)
            if closing.is_alive():
                log.warning("the %s tier hangs and was not closed", name)

    def _below(self) -> dict[TierName, Tier]:
        return {"host": self.host, **self.watched}
