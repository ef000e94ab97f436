"""Blocks on their way from tiers below the host up to it."""

import logging
from collections.abc import Callable, Sequence
from threading import Lock

import numpy as np

from cache_core.block_header import BlockHeader
from cache_core.metrics import TierName
from cache_core.tiered.ways import Ways
from cache_core.tiers.base import Mask
from cache_core.transfer import Priority, Transfer, TransferRefusedError
from cache_core.transfer.tier_jobs import PIECE_BLOCKS, TierToHost

log = logging.getLogger(__name__)


class Climb:
    """Brings up what is in the first colder tier, then what is in the next ones.

    Args:
        headers: of the blocks wanted, those wanted soonest first.
        sources: where each was when it was looked up; one that has left the host since is looked for below.
        ended: called once, on some thread, when no more will come, however much did. After `cancel` it is not, but
            for a call under way.
        piece_blocks: blocks that are read together; None: as many as a link likes best.
    """

    def __init__(
        self,
        ways: Ways,
        headers: Sequence[BlockHeader],
        sources: Sequence[TierName],
        priority: Priority,
        deadline: float,
        ended: Callable[[], None],
        piece_blocks: int | None = None,
    ) -> None:
        self._ways = ways
        self._headers = headers
        self._sources = np.array(sources, dtype=object)
        self._priority = priority
        self._deadline = deadline
        self._ended = ended
        self._piece = piece_blocks or PIECE_BLOCKS
        self._lock = Lock()  # guards what follows
        self._there: Mask = np.zeros(len(headers), dtype=np.bool_)  # in the host, when last looked
        self._coming: TierToHost | None = None
        self._places = np.empty(0, dtype=np.intp)  # of what that brings
        self._transfer: Transfer | None = None
        self._cancelled = False
        self._enough = False

    def start(self) -> None:
        """Begin. Blocks that are in the host count as used, so that room is not made at their expense."""
        there = self._look()
        self._ways.host.touch([self._headers[place].key for place in np.flatnonzero(there).tolist()])
        self._go_on(list(self._ways.colder))

    def promote(self, priority: Priority) -> None:
        """It is more urgent from now on."""
        with self._lock:
            self._priority = min(self._priority, priority)
            transfer = self._transfer
        if transfer is not None:
            transfer.promote(priority)

    def arrived(self) -> int:
        """How many leading blocks are in the host, or will be as soon as it has ended. From any thread."""
        with self._lock:
            there = self._there.copy()
            if self._coming is not None:
                there[self._places] |= self._coming.served
        return len(there) if there.all() else int(np.argmin(there))

    def stop(self) -> None:
        """What has arrived is enough: it ends after the piece at work."""
        with self._lock:
            self._enough = True
            transfer = self._transfer
        if transfer is not None:
            transfer.cancel(0.0)

    def cancel(self) -> None:
        """Nothing of it is wanted. Does not wait for a piece at work."""
        with self._lock:
            self._cancelled = True
            transfer = self._transfer
        if transfer is not None:
            transfer.cancel(0.0)

    def _go_on(self, names: list[TierName]) -> None:
        there = self._look()
        places = np.empty(0, dtype=np.intp)
        while names and not len(places := np.flatnonzero(~there & self._may_be_in(names[0]))):
            names = names[1:]
        if self._cancelled:
            return
        # One that comes to another end still brought up its first batches; for one that hangs nobody waits.
        then = _Once(lambda: self._go_on(names[1:]))
        transfer = self._submit(names[0], places, then) if names and not self._enough else None
        if transfer is None:
            self._ended()
            return
        transfer.when_ended(lambda _: then())

    def _may_be_in(self, name: TierName) -> Mask:
        mask: Mask = (self._sources == name) | (self._sources == "host")
        return mask

    def _look(self) -> Mask:
        there = self._ways.host.contains([header.key for header in self._headers])
        with self._lock:
            self._there, self._coming = there, None
        return there

    def _submit(
        self, name: TierName, places: "np.ndarray[tuple[int], np.dtype[np.intp]]", left: Callable[[], None]
    ) -> Transfer | None:
        ways, wanted = self._ways, [self._headers[place] for place in places.tolist()]
        try:
            job = TierToHost(ways.colder[name], name, ways.host, wanted, self._piece, left)
            transfer = ways.engine.submit(job, self._priority, self._deadline)
        except TransferRefusedError:
            return None
        except Exception:
            log.exception("blocks could not be brought up from the %s tier", name)
            return None
        with self._lock:
            self._transfer, self._coming, self._places = transfer, job, places
            unwanted, priority = self._cancelled or self._enough, self._priority
        transfer.promote(priority)
        if unwanted:
            transfer.cancel(0.0)
        return transfer


class _Once:
    """Calls what it was given, the first time it is called."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._lock = Lock()
        self._work: Callable[[], None] | None = work

    def __call__(self) -> None:
        with self._lock:
            work, self._work = self._work, None
        if work is not None:
            work()
