"""One prefix on its way up to the device: a lease whose blocks are loaded instead of computed."""

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from enum import Enum
from threading import Lock

from cache_core.block_header import BlockHeader
from cache_core.errors import LeaseReleasedError
from cache_core.lease import Lease
from cache_core.metrics import TierName
from cache_core.tiered.climb import Climb
from cache_core.tiered.ways import Ways
from cache_core.transfer import Priority, Transfer, TransferRefusedError
from cache_core.transfer.device_jobs import HostToDevice

log = logging.getLogger(__name__)

Ended = Callable[["Fetch"], None]


class _Phase(Enum):
    CLIMBING = "to the host"  # no device block is touched
    LOADING = "to the device"
    OVER = "over"


class Fetch:
    """Loads leading blocks of a prompt that the device does not hold.

    While it runs, its lease is announced like that of a request that computes, so whoever needs the prefix waits for
    it and holds nothing; when it ends, fails, or its deadline passes, they go on from what is ready.

    Args:
        lease: extended to cover `headers`, its first block without KV being `first`.
        sources: where each block is now: host, disk or store.
        deadline: on the engine's clock, in seconds; after it nothing more is begun, and nobody waits any more.
        ended: called once, on whichever thread, when the lease is released.
    """

    def __init__(
        self,
        lease: Lease,
        first: int,
        headers: Sequence[BlockHeader],
        sources: Sequence[TierName],
        deadline: float,
        ended: Ended,
    ) -> None:
        self.lease = lease
        self.first = first
        self.headers = headers
        self.sources = sources
        self.deadline = deadline
        self._block_size = lease.length // lease.num_blocks
        self._loaded_blocks = 0
        self._piece = len(headers)  # blocks that come up together
        self._ended = ended
        self._lock = Lock()  # guards what follows
        self._users = 0  # requests that wait for it
        self._phase = _Phase.CLIMBING
        self._given_up = False
        self._priority = Priority.WRITE_BACK  # until it starts
        self._climb: Climb | None = None
        self._transfer: Transfer | None = None

    @property
    def done(self) -> bool:
        """Whether it has ended, with or without success."""
        return self._phase is _Phase.OVER

    @property
    def identity(self) -> bytes:
        """Of the scope it belongs to."""
        return self.headers[0].identity

    @property
    def wanted(self) -> bool:
        """Whether anybody needs what it brings."""
        return self._users > 0

    @property
    def loaded_to(self) -> int:
        """Leading blocks of the prompt that were ready before it, or were loaded by it."""
        return self.first + self._loaded_blocks

    @property
    def awaited(self) -> bool:
        """Whether who needs it should wait: not when it has ended, or is late."""
        return not self.done and self.lease.announced

    @property
    def end(self) -> int:
        """Tokens from the prompt's start to the end of what it brings."""
        return (self.first + len(self.headers)) * self._block_size

    def share(self) -> bool:
        """One more request waits for it; False: it is over."""
        with self._lock:
            self._users += self._phase is not _Phase.OVER
            return self._phase is not _Phase.OVER

    def leave(self) -> None:
        """A request that waited for it does not any more; without the last one it is given up."""
        with self._lock:
            self._users -= 1
            wanted = self._users > 0
        if not wanted:
            self.give_up()

    def brought(self, tokens: int | None = None) -> Counter[TierName]:
        """Tokens it brought up, by the tier they came from; only those among the prompt's first `tokens`."""
        blocks = self._loaded_blocks
        if tokens is not None:
            blocks = min(blocks, max(tokens // self._block_size - self.first, 0))
        found = Counter(self.sources[:blocks])
        return Counter({tier: count * self._block_size for tier, count in found.items()})

    def promote(self, priority: Priority) -> None:
        """Somebody who is more urgent needs it, too. Before or after its start."""
        with self._lock:
            self._priority = min(self._priority, priority)
            climb, transfer = self._climb, self._transfer
        if climb is not None:
            climb.promote(priority)
        if transfer is not None:
            transfer.promote(priority)

    def start(self, ways: Ways, priority: Priority) -> None:
        """Begin. What does not fit into the host at once comes up in pieces that do."""
        self.promote(priority)
        room = ways.host.num_blocks
        self._piece = len(self.headers) if len(self.headers) <= room else max(room // 2, 1)
        self._climb_next(ways)

    def give_up(self) -> bool:
        """Nobody waits for it any more; False: it is over already.

        Its blocks are free at once, but for those that bytes are being written to: they are when that has ended.
        """
        with self._lock:
            phase, climb, transfer = self._phase, self._climb, self._transfer
            self._given_up = True
            if phase is _Phase.CLIMBING:
                self._phase = _Phase.OVER
        if phase is _Phase.OVER:
            return False
        if phase is _Phase.CLIMBING:
            if climb is not None:
                climb.cancel()
            self._leave()
            return True
        with suppress(LeaseReleasedError):
            self.lease.abandon()
        if transfer is not None:
            transfer.cancel(0.0)
        return True

    def _climb_next(self, ways: Ways) -> None:
        """First what lies below the host comes up to it, then that piece goes to the device."""
        first = self._loaded_blocks
        part = slice(first, min(first + self._piece, len(self.headers)))
        climb = Climb(
            ways,
            self.headers[part],
            self.sources[part],
            self._priority,
            self.deadline,
            lambda: self._load(ways, part),
        )
        with self._lock:
            given_up = self._given_up
            if not given_up:
                self._phase, self._climb = _Phase.CLIMBING, climb
                climb.promote(self._priority)
        if given_up:
            self._end()
        else:
            climb.start()

    def _load(self, ways: Ways, part: slice) -> None:
        with self._lock:
            if self._phase is not _Phase.CLIMBING:
                return
            self._phase = _Phase.LOADING
        try:
            blocks = self.lease.blocks[self.first :][part]
            job = HostToDevice(ways.host, ways.device, self.headers[part], blocks, ways.up)
            transfer = ways.engine.submit(job, self._priority, self.deadline)
        except TransferRefusedError:
            self._end()
            return
        except Exception:
            log.exception("a prefix could not be brought up")
            self._end()
            return
        with self._lock:
            self._transfer, given_up, priority = transfer, self._given_up, self._priority
        transfer.promote(priority)
        if given_up:
            transfer.cancel(0.0)
        transfer.when_ended(lambda _: self._loaded(transfer, job.count, part, lambda: self._climb_next(ways)))

    def _loaded(self, transfer: Transfer, count: int, part: slice, go_on: Callable[[], None]) -> None:
        try:
            more = False
            if transfer.done and count:
                self._loaded_blocks = part.start + count  # before anybody can find them
                self.lease.commit((self.first + self._loaded_blocks) * self._block_size)
                more = part.start + count == part.stop < len(self.headers) and self.lease.announced
            if more:
                go_on()
        except BaseException:
            self._end()
            raise
        if not more:
            self._end()

    def _end(self) -> None:
        with self._lock:
            if self._phase is _Phase.OVER:
                return
            self._phase = _Phase.OVER
        self._leave()

    def _leave(self) -> None:
        self.lease.release()
        self._ended(self)
