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
from cache_core.tiered.ways import Ways
from cache_core.transfer import Priority, Transfer, TransferRefusedError
from cache_core.transfer.device_jobs import HostToDevice
from cache_core.transfer.tier_jobs import TierToHost

log = logging.getLogger(__name__)

Ended = Callable[["Fetch"], None]


class _Phase(Enum):
    CLIMBING = "to the host"  # the device blocks are not touched
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
        self.stuck: TierName | None = None  # the tier that did not answer before the deadline
        self._block_size = lease.length // lease.num_blocks
        self._coming = 0  # blocks that are being loaded
        self._loaded_blocks = 0
        self._ended = ended
        self._lock = Lock()  # guards the three below
        self._users = 0  # requests that wait for it
        self._phase = _Phase.CLIMBING
        self._transfer: Transfer | None = None

    @property
    def done(self) -> bool:
        """Whether it has ended, with or without success."""
        return self._phase is _Phase.OVER

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

    def start(self, ways: Ways, priority: Priority) -> None:
        """Begin: first what lies below the host comes up to it, tier by tier, then everything goes to the device."""
        ways.host.touch(self._from("host"))  # so that room for the others is not made at their expense
        self._climb(ways, priority, list(ways.colder))

    def give_up(self) -> bool:
        """Nobody waits for it any more; False: it is over already.

        Its blocks are free at once, but for those that bytes are being written to: they are when that has ended.
        """
        with self._lock:
            phase, transfer = self._phase, self._transfer
            if phase is _Phase.CLIMBING:
                self._phase = _Phase.OVER
        if phase is _Phase.OVER:
            return False
        self.stuck = transfer.job.source if transfer is not None else None
        if phase is _Phase.CLIMBING:
            self._leave()
        else:
            with suppress(LeaseReleasedError):
                self.lease.abandon()
        if transfer is not None:
            transfer.cancel(0.0)
        return True

    def _from(self, name: TierName) -> list[bytes]:
        return [h.key for h, source in zip(self.headers, self.sources, strict=True) if source == name]

    def _climb(self, ways: Ways, priority: Priority, names: list[TierName]) -> None:
        """Bring up what is in the first of these tiers, then what is in the next ones, then load."""
        while names and names[0] not in self.sources:
            names = names[1:]
        if not names:
            self._load(ways, priority)
            return
        name = names[0]
        room = max(ways.host.num_blocks - len(self._from("host")), 0)
        wanted = [h for h, source in zip(self.headers, self.sources, strict=True) if source == name][:room]
        # A transfer that came to another end still brought up its first batches; the load takes what is there.
        self._submit(
            lambda: ways.engine.submit(
                TierToHost(ways.colder[name], name, ways.host, wanted), priority, self.deadline
            ),
            _Phase.CLIMBING,
            lambda _: self._climb(ways, priority, names[1:]),
        )

    def _load(self, ways: Ways, priority: Priority) -> None:
        with self._lock:
            if self._phase is not _Phase.CLIMBING:
                return
            self._phase = _Phase.LOADING

        def submit() -> Transfer:
            job = HostToDevice(ways.host, ways.device, self.headers, self.lease.blocks[self.first :], ways.up)
            self._coming = job.count
            return ways.engine.submit(job, priority, self.deadline)

        self._submit(submit, _Phase.LOADING, self._loaded)

    def _submit(
        self, submit: Callable[[], Transfer], phase: _Phase, ended: Callable[[Transfer], None]
    ) -> None:
        """Start a transfer; whatever goes wrong with that, the fetch ends."""
        if self._phase is not phase:
            return
        try:
            transfer = submit()
        except TransferRefusedError:
            self._end()
            return
        except Exception:
            log.exception("a prefix could not be brought up")
            self._end()
            return
        with self._lock:
            given_up = self._phase is not phase
            self._transfer = transfer
        if given_up:
            transfer.cancel(0.0)
        transfer.when_ended(ended)

    def _loaded(self, transfer: Transfer) -> None:
        try:
            if transfer.done and self._coming:
                self._loaded_blocks = self._coming  # before anybody can find them
                self.lease.commit((self.first + self._coming) * self._block_size)
        finally:
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
