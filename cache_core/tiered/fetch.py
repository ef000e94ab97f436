"""One prefix on its way up to the device: a lease whose blocks are loaded instead of computed."""

import logging
from collections import Counter
from collections.abc import Callable, Sequence

from cache_core.block_header import BlockHeader
from cache_core.lease import Lease
from cache_core.metrics import TierName
from cache_core.tiered.ways import Ways
from cache_core.tiers.base import Tier
from cache_core.transfer import Priority, Transfer, TransferRefusedError
from cache_core.transfer.device_jobs import HostToDevice
from cache_core.transfer.tier_jobs import TierToHost

log = logging.getLogger(__name__)

Ended = Callable[["Fetch"], None]


class Fetch:
    """Loads leading blocks of a prompt that the device does not hold.

    While it runs, its lease is announced like that of a request that computes, so whoever needs the prefix waits for
    it and holds nothing; when it ends, fails, or its deadline passes, they go on from what is ready.

    Args:
        lease: extended to cover `headers`, its first block without KV being `first`.
        sources: where each block is now: host, disk or store.
        deadline: on the engine's clock, in seconds; after it nothing more is begun.
        ended: called once, on whichever thread, when the lease is released.
    """

    def __init__(
        self,
        lease: Lease,
        first: int,
        headers: Sequence[BlockHeader],
        sources: Sequence[TierName],
        deadline: float | None,
        ended: Ended,
    ) -> None:
        self.lease = lease
        self.first = first
        self.headers = headers
        self.sources = sources
        self.deadline = deadline
        self.done = False
        self.loaded: Counter[TierName] = Counter()  # tokens, by the tier they came from
        self._ended = ended

    def start(self, ways: Ways, priority: Priority) -> None:
        """Begin: first what lies below the host comes up to it, then everything goes to the device."""
        for name, tier in ways.colder.items():
            wanted = [h for h, source in zip(self.headers, self.sources, strict=True) if source == name]
            if wanted:
                self._climb(ways, priority, tier, name, wanted)
                return
        self._load(ways, priority)

    def _climb(
        self, ways: Ways, priority: Priority, tier: Tier, name: TierName, wanted: Sequence[BlockHeader]
    ) -> None:
        try:
            transfer = ways.engine.submit(TierToHost(tier, name, ways.host, wanted), priority, self.deadline)
        except TransferRefusedError:
            self._end()
            return
        # A transfer that came to another end still brought up its first batches; the load takes what is there.
        transfer.when_ended(lambda _: self._load(ways, priority))

    def _load(self, ways: Ways, priority: Priority) -> None:
        try:
            job = HostToDevice(ways.host, ways.device, self.headers, self.lease.blocks[self.first :], ways.up)
            transfer = ways.engine.submit(job, priority, self.deadline)
        except TransferRefusedError:
            self._end()
        except Exception:
            log.exception("a prefix could not be loaded")
            self._end()
        else:
            transfer.when_ended(lambda ended: self._loaded(ended, job.count))

    def _loaded(self, transfer: Transfer, count: int) -> None:
        if transfer.done and count:
            size = self.lease.length // max(self.lease.num_blocks, 1)
            self.lease.commit((self.first + count) * size)
            for source in self.sources[:count]:
                self.loaded[source] += size
        self._end()

    def _end(self) -> None:
        self.lease.release()
        self.done = True
        self._ended(self)
