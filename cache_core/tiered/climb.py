"""Blocks on their way from tiers below the host up to it."""

import logging
from collections.abc import Callable, Sequence
from threading import Lock

import numpy as np

from cache_core.block_header import BlockHeader
from cache_core.metrics import TierName
from cache_core.tiered.ways import Ways
from cache_core.transfer import Priority, Transfer, TransferRefusedError
from cache_core.transfer.tier_jobs import TierToHost

log = logging.getLogger(__name__)


class Climb:
    """Brings up what is in the first colder tier, then what is in the next ones.

    Args:
        sources: where each block was when it was looked up; one that has left the host since is looked for below.
        ended: called once, on some thread, when no more will come, however much did. After `cancel` it is not, but
            for a call under way.
    """

    def __init__(
        self,
        ways: Ways,
        headers: Sequence[BlockHeader],
        sources: Sequence[TierName],
        priority: Priority,
        deadline: float,
        ended: Callable[[], None],
    ) -> None:
        self._ways = ways
        self._headers = headers
        self._sources = sources
        self._priority = priority
        self._deadline = deadline
        self._ended = ended
        self._lock = Lock()  # guards the two below
        self._transfer: Transfer | None = None
        self._cancelled = False

    def start(self) -> None:
        """Begin. Blocks that are in the host count as used, so that room is not made at their expense."""
        there = self._there()
        self._ways.host.touch([h.key for h, is_there in zip(self._headers, there, strict=True) if is_there])
        self._go_on(list(self._ways.colder))

    def cancel(self) -> TierName | None:
        """Stop, without waiting for a piece that is at work; says which tier has not answered."""
        with self._lock:
            self._cancelled = True
            transfer = self._transfer
        if transfer is None or transfer.ended:
            return None
        transfer.cancel(0.0)
        return transfer.job.source

    def _go_on(self, names: list[TierName]) -> None:
        wanted: list[BlockHeader] = []
        while names and not (wanted := self._wanted(names[0])):
            names = names[1:]
        if self._cancelled:
            return
        transfer = self._submit(names[0], wanted) if names else None
        if transfer is None:
            self._ended()
            return
        # One that comes to another end still brought up its first batches.
        transfer.when_ended(lambda _: self._go_on(names[1:]))

    def _wanted(self, name: TierName) -> list[BlockHeader]:
        if not any(source in (name, "host") for source in self._sources):
            return []
        places = zip(self._headers, self._sources, self._there(), strict=True)
        return [header for header, source, there in places if not there and source in (name, "host")]

    def _there(self) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
        return self._ways.host.contains([header.key for header in self._headers])

    def _submit(self, name: TierName, wanted: Sequence[BlockHeader]) -> Transfer | None:
        ways = self._ways
        try:
            job = TierToHost(ways.colder[name], name, ways.host, wanted)
            transfer = ways.engine.submit(job, self._priority, self._deadline)
        except TransferRefusedError:
            return None
        except Exception:
            log.exception("blocks could not be brought up from the %s tier", name)
            return None
        with self._lock:
            self._transfer = transfer
            cancelled = self._cancelled
        if cancelled:
            transfer.cancel(0.0)
        return transfer
