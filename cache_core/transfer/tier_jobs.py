"""Between the host tier and a colder one (disk, store): blocks straight into and out of the host's rows."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TypeAlias

import numpy as np

from cache_core.block_header import BlockHeader
from cache_core.metrics import TierName
from cache_core.tiers.base import Tier
from cache_core.tiers.host import NO_ROW, HostTier
from cache_core.transfer.job import Job, Leavable, Piece

PIECE_BLOCKS = 64

Places: TypeAlias = "np.ndarray[tuple[int], np.dtype[np.intp]]"  # in the headers of a job


class TierToHost(Job):
    """Fetches blocks from a colder tier into the host tier; those served count, whatever became of the rest.

    `piece_blocks` are read together: what a tier that hangs holds at once. `left` is called when it does: what has not
    come by then may come late, or not at all.
    """

    target: TierName = "host"

    def __init__(
        self,
        tier: Tier,
        source: TierName,
        host: HostTier,
        headers: Sequence[BlockHeader],
        piece_blocks: int = PIECE_BLOCKS,
        left: Callable[[], None] = lambda: None,
    ) -> None:
        self._left = left
        self.source = source
        self._host, self._tier = host, tier
        self._reservation = host.reserve(headers, only_copies=True)
        self.served = np.zeros(len(headers), dtype=np.bool_)  # which arrived
        places = np.flatnonzero(self._reservation.rows != NO_ROW)
        self._batches = _batches(places, piece_blocks)
        self.pieces = _pieces(self._batches, host.block_bytes, self._fetch)

    def piece_left(self) -> None:
        self._host.let_others_fill(self._reservation)
        self._left()

    def moved(self, index: int) -> int:
        return int(self.served[self._batches[index]].sum()) * self._host.block_bytes

    def finish(self, done: bool) -> None:
        self._host.publish(self._reservation, self.served)

    def _fetch(self, places: Places) -> Leavable | None:
        return self._tier.run("read", lambda: self._read(places), len(places))

    def _read(self, places: Places) -> None:
        headers = [self._reservation.headers[place] for place in places]
        rows = [memoryview(self._host.rows[row]) for row in self._reservation.rows[places]]
        self.served[places] = self._tier.get(headers, rows)


StoringAllowed = Callable[[], AbstractContextManager[bool]]


def _always() -> AbstractContextManager[bool]:
    return nullcontext(True)


class HostToTier(Job):
    """Copies blocks of the host tier to a colder one, as far as they are still in it.

    `allowed` is entered around storing each batch, and says whether that batch may still be stored.
    """

    source: TierName = "host"

    def __init__(
        self,
        host: HostTier,
        tier: Tier,
        target: TierName,
        headers: Sequence[BlockHeader],
        piece_blocks: int = PIECE_BLOCKS,
        allowed: StoringAllowed = _always,
    ) -> None:
        self.target = target
        self._allowed = allowed
        self._host, self._tier, self._headers = host, tier, tuple(headers)
        self._rows = host.pin(headers, use=False)
        self.stored = np.zeros(len(headers), dtype=np.bool_)  # which are in the colder tier now
        places = np.flatnonzero(self._rows != NO_ROW)
        self._batches = _batches(places, piece_blocks)
        self.pieces = _pieces(self._batches, host.block_bytes, self._store)

    def moved(self, index: int) -> int:
        return int(self.stored[self._batches[index]].sum()) * self._host.block_bytes

    def finish(self, done: bool) -> None:
        self._host.unpin(self._rows)

    def _store(self, places: Places) -> Leavable | None:
        return self._tier.run("write", lambda: self._write(places), len(places))

    def _write(self, places: Places) -> None:
        rows = [memoryview(self._host.rows[row]) for row in self._rows[places]]
        with self._allowed() as allowed:
            if allowed:
                self.stored[places] = self._tier.put([self._headers[place] for place in places], rows)


def _batches(places: Places, size: int) -> list[Places]:
    return [places[start : start + size] for start in range(0, len(places), size)]


def _pieces(
    batches: Sequence[Places], block_bytes: int, move: Callable[[Places], Leavable | None]
) -> list[Piece]:
    return [Piece(len(batch) * block_bytes, lambda batch=batch: move(batch)) for batch in batches]  # type: ignore[misc]
