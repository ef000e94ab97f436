"""Blocks that come up into a running request's own blocks, while it computes those before them."""

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from enum import Enum
from threading import Lock

from cache_core.block_header import BlockHeader
from cache_core.errors import LeaseReleasedError
from cache_core.eviction import RetentionHints
from cache_core.lease import Lease
from cache_core.metrics import TierName
from cache_core.tiered.climb import Climb
from cache_core.tiered.ways import Ways
from cache_core.transfer import Priority, Transfer, TransferRefusedError
from cache_core.transfer.device_jobs import HostToDevice
from cache_core.transfer.tier_jobs import PIECE_BLOCKS

log = logging.getLogger(__name__)

_PIECES = 8  # in which blocks climb, so that the two can meet at many places
_LEAST_PIECE = 8  # blocks
_LEAST_STEP = 4  # blocks computed in one go
_PIECE_SECONDS = 0.1  # waited at most for the piece at work, when a request leaves while bytes are written


class _Phase(Enum):
    CLIMBING = "to the host"
    IN_HOST = "in the host"  # until the request has its lease
    LOADING = "to the device"
    THERE = "there"
    OVER = "over"


class OwnLoad:
    """Loads the last blocks of a prefix for the one request that asked for them, which computes the first ones.

    What lies below the host climbs up to it from its rear on, while the request computes from the front on, as far
    as `limit` says. When they meet, `advance` begins to write the rest into the blocks of the request's own lease.
    The request computes up to `start` and no further; when it is there, and so is the rest, it commits up to `end`
    and goes on behind it. Until then nobody can find these blocks, as nothing of a lease is visible that is not
    committed, and a block is committed only behind its parents. If the load fails or is late, it is `over`, and the
    request goes on computing.

    Methods are called on the thread of the request, unless they say otherwise.

    Args:
        headers: of all blocks that may be loaded.
        sources: where each was when it was looked up.
        first: block of the prompt where those begin.
        split: block of the prompt where the two are expected to meet.
        deadline: on the engine's clock, in seconds; after it nothing more is begun.
        layered: whether the request may be computed while the last layers are still on their way.
        changed: called on any thread when the request should look again.
        ended: called once, on any thread, when nothing moves any more.
        settled: called once, on any thread, with the tokens that are ready when it is taken or over; not after `drop`
            or `leave`.
    """

    def __init__(
        self,
        ways: Ways,
        headers: Sequence[BlockHeader],
        sources: Sequence[TierName],
        first: int,
        split: int,
        block_size: int,
        deadline: float,
        layered: bool,
        changed: Callable[[], None],
        ended: Callable[["OwnLoad"], None],
        settled: Callable[[int], None],
    ) -> None:
        self.deadline = deadline
        self.layered = layered
        self.end = (first + len(headers)) * block_size  # tokens from the prompt's start
        self.start: int | None = None  # tokens; None: no bytes are written yet
        self._ways = ways
        self._headers = headers
        self._sources = sources
        self._first = first
        self._split = split
        self._size = block_size
        self._changed = changed
        self._ended = ended
        self._settled = settled
        self._computed = first * block_size
        self._wanted = True
        self._lock = Lock()  # guards what follows
        self._phase = _Phase.CLIMBING
        self._given_up = False
        self._transfer: Transfer | None = None
        self._left: tuple[Lease, RetentionHints | None] | None = (
            None  # what to release when no byte is written any more
        )
        piece = min(max(len(headers) // _PIECES, _LEAST_PIECE), PIECE_BLOCKS)
        self._climb = Climb(
            ways, headers[::-1], sources[::-1], Priority.WAITING, deadline, self._climbed, piece
        )

    @property
    def identity(self) -> bytes:
        """Of the scope it belongs to."""
        return self._headers[0].identity

    @property
    def there(self) -> bool:
        """Whether every byte is, and may be committed."""
        return self._phase is _Phase.THERE

    @property
    def loading(self) -> bool:
        """Whether bytes are being written into the request's blocks."""
        return self._phase is _Phase.LOADING

    @property
    def over(self) -> bool:
        """Whether nothing comes any more."""
        return self._phase is _Phase.OVER

    def climb(self) -> None:
        """Begin, on any thread."""
        self._climb.start()

    def advance(self, lease: Lease, computed: int) -> None:
        """Begin to write into the own blocks of `lease`, whose first `computed` tokens are, if it is time to."""
        self._computed = computed
        block = -(-computed // self._size)
        if computed >= self.end:
            self.give_up()
        elif self._phase is _Phase.CLIMBING and self._met_at() <= block:
            self._climb.stop()
        elif self._phase is _Phase.IN_HOST:
            # If nothing had to climb, they meet where that was planned.
            climbed = any(source != "host" for source in self._sources)
            begin = block if climbed else max(block, self._split)
            if self._met_at() <= begin:
                self._load(lease, begin)

    def limit(self, computed: int) -> int:
        """Up to which token the request may compute in one go, so that it stops where they meet."""
        if self.start is not None and (self.loading or self.there):
            return self.start
        if self.over:
            return self.end
        block, split = computed // self._size, self._split
        gap = max(self._met_at() - block, 0)
        step = max(gap // 2, _LEAST_STEP)  # as the rear comes closer meanwhile
        if block < split:
            step = min(step, split - block)
        return (block + step) * self._size

    def _met_at(self) -> int:
        """The block of the prompt from which on all are in the host."""
        return self.end // self._size - self._climb.arrived()

    def wait_layer(self, layer: int) -> bool:
        """Wait for one layer's bytes; False: they will not come, or not in time."""
        return self._transfer is not None and self._transfer.wait_layer(layer)

    def wait(self) -> bool:
        """Wait for every byte; False as above. Afterwards `there` says so, too."""
        if self._transfer is None or not self._transfer.wait():
            self.layered = False  # once was enough
            return False
        self._loaded(self._transfer)  # it may not have been told yet
        return self.there

    def take(self) -> Counter[TierName]:
        """The request has committed what is `there`: tokens by the tier they came from."""
        assert self.start is not None, "what is there was written somewhere"
        with self._lock:
            self._phase = _Phase.OVER
        self._settle(self.end)
        begin, stop = (at // self._size - self._first for at in (self.start, self.end))
        found = Counter(self._sources[begin:stop])
        return Counter({tier: blocks * self._size for tier, blocks in found.items()})

    def leave(self, lease: Lease, hints: RetentionHints | None = None) -> None:
        """The request goes, and does not release its lease itself: this does, when no byte is written any more.

        `hints` are for what it has committed, as for `Lease.release`.
        """
        self._wanted = False
        with self._lock:
            transfer = self._transfer if self._phase is _Phase.LOADING else None
            if transfer is not None:
                self._left = lease, hints
        if transfer is None:
            self.give_up()
            lease.release(hints)
        elif transfer.cancel(_PIECE_SECONDS):
            lease.release(hints)
        else:
            with suppress(LeaseReleasedError):
                lease.abandon()

    def drop(self) -> None:
        """Its request is gone before it had a lease; from any thread."""
        self._wanted = False
        self.give_up()

    def give_up(self) -> bool:
        """It is late, or of no more use; from any thread. False: it is over already.

        Where bytes are being written, that ends after the piece at work, and `over` says so.
        """
        with self._lock:
            phase, transfer = self._phase, self._transfer
            self._given_up = True
            if phase not in (_Phase.LOADING, _Phase.OVER):
                self._phase = _Phase.OVER
        if phase is _Phase.LOADING and transfer is not None:
            transfer.cancel(0.0)
        if phase is _Phase.CLIMBING:
            self._climb.cancel()
        if phase in (_Phase.CLIMBING, _Phase.IN_HOST):
            self._ended(self)
        if phase not in (_Phase.LOADING, _Phase.OVER):
            self._settle(self._computed)
        return phase is not _Phase.OVER

    def _settle(self, ready: int) -> None:
        if self._wanted:
            self._settled(ready)

    def _climbed(self) -> None:
        with self._lock:
            if self._phase is not _Phase.CLIMBING:
                return
            self._phase = _Phase.IN_HOST
        self._changed()

    def _load(self, lease: Lease, block: int) -> None:
        """Write what is in the host from `block` on, as far as there is no gap."""
        begin = block - self._first
        self.start = block * self._size
        try:
            if begin:  # what lies before it climbed, too: no child should outlast its parents in the host
                self._ways.host.touch([header.key for header in self._headers])
            blocks = lease.blocks[block : self.end // self._size]
            job = HostToDevice(
                self._ways.host, self._ways.device, self._headers[begin:], blocks, self._ways.up
            )
            if not self._begins(job.count):
                job.finish(False)
                return
            self.end = (block + job.count) * self._size
            transfer = self._ways.engine.submit(job, Priority.WAITING, self.deadline)
        except TransferRefusedError:
            self._over()
        except Exception:
            log.exception("blocks of a running request could not be brought up")
            self._over()
        else:
            with self._lock:
                self._transfer, given_up = transfer, self._given_up
            if given_up:
                transfer.cancel(0.0)
            transfer.when_ended(self._loaded)

    def _begins(self, blocks: int) -> bool:
        """Whether it loads from now on: not without blocks, nor if it was given up since."""
        if not blocks:
            self._over()
        with self._lock:
            if self._phase is _Phase.IN_HOST:
                self._phase = _Phase.LOADING
            return self._phase is _Phase.LOADING

    def _loaded(self, transfer: Transfer) -> None:
        with self._lock:
            if self._phase is not _Phase.LOADING:
                return
            self._phase = _Phase.THERE if transfer.done else _Phase.OVER
            left = self._left
        if left is not None:
            left[0].release(left[1])
        self._ended(self)
        if not transfer.done:
            self._settle(self._computed)

    def _over(self) -> None:
        """It cannot begin to load."""
        with self._lock:
            over = self._phase is _Phase.OVER
            self._phase = _Phase.OVER
        if not over:
            self._ended(self)
            self._settle(self._computed)
