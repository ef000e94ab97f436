"""What all stores that several machines share do alike: sign, prove, count, and keep what was purged out."""

import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait

import numpy as np

from cache_core.block_header import BadBlockError, BlockHeader, Body, pack, unpack, verify
from cache_core.drop_reason import DropReason
from cache_core.metrics import CacheObserver, NullObserver
from cache_core.purge_numbers import PurgeNumbers
from cache_core.tiers.base import BlockBytes, Mask, Tier, TierCounters, buffers_of
from cache_core.tiers.codec import Codec
from cache_core.tiers.io_threads import IoThreads

_SLACK = 64 << 10  # bytes an object may be longer than its payload: header, token ids, padding of a codec
_BELIEVED = 60.0  # seconds

Record = tuple[bytes, Body]  # what lies in front of a body, and the body


class StoreTier(Tier):
    """Whoever can write to the store can put anything into it: only a keyed MAC makes an object ours.

    An object is a header and a body, and never changes. Bad ones are removed, so that good ones can take their place.

    Args:
        mac_key: shared by all users of the store and by nobody else, at least 16 bytes.
        parallel: batches on their way at once.
    """

    def __init__(
        self,
        codec: Codec,
        mac_key: bytes,
        parallel: int,
        observer: CacheObserver | None = None,
        clock: Callable[[], float] = time.monotonic,  # seconds
    ) -> None:
        self._codec = codec
        self._mac_key = mac_key
        self._observer = observer or NullObserver()
        self._counters = TierCounters("store", self._observer)
        self._pool = IoThreads(parallel, "kvgate-store")
        self._purges = PurgeNumbers()
        self._clock = clock
        self._lost = float("-inf")  # when some were removed by this user

    # What a kind of store does. Any thread may call these.

    @abstractmethod
    def _together(self, block_bytes: int) -> int:
        """Blocks of that size that are read or written at once."""

    @abstractmethod
    def _write(self, keys: Sequence[bytes], records: Sequence[Record]) -> list[DropReason | None]:
        """Store these; None where one is there now."""

    @abstractmethod
    def _read(self, keys: Sequence[bytes], limit: int) -> "list[memoryview | DropReason]":
        """Objects of at most `limit` bytes, or why there is none; MISSING where there is none under that key.

        They may be overwritten when the same thread reads again.
        """

    @abstractmethod
    def _discard(self, keys: Sequence[bytes]) -> int:
        """Remove these, whatever they are; says how many there were."""

    # What a tier does.

    def put(self, headers: Sequence[BlockHeader], blocks: BlockBytes) -> Mask:
        payloads, began = buffers_of(blocks), self._purges.now
        step = self._together(max(map(len, payloads), default=1))
        futures = [
            self._pool.submit(self._put, headers[at : at + step], payloads[at : at + step], began)
            for at in range(0, len(headers), step)
        ]
        return np.array([there for future in futures for there in future.result()], dtype=np.bool_)

    def get(self, headers: Sequence[BlockHeader], out: BlockBytes, timeout: float | None = None) -> Mask:
        targets, call = buffers_of(out), _Call(self._purges.now)
        step = self._together(max(map(len, targets), default=1))
        futures: list[Future[None]] = [
            self._pool.submit(self._get, call, at, headers[at : at + step], targets[at : at + step])
            for at in range(0, len(headers), step)
        ]
        done, late = wait(futures, timeout)
        with call.lock:
            call.over = True
        for future in late:
            future.cancel()
        for future in done:
            future.result()
        served = np.zeros(len(headers), dtype=np.bool_)
        for row in range(len(headers)):
            reason = call.results.get(row, DropReason.SLOW)
            served[row] = reason is None
            if reason is DropReason.MISSING:
                self._counters.add(misses=1)
            elif reason is not None:
                self._counters.drop(reason)
        self._counters.add(hits=int(served.sum()), read_bytes=call.read_bytes)
        return served

    def stamp(self, keys: Sequence[bytes]) -> int | None:
        """The time in seconds: others may remove blocks, so that they are there is believed for a while only."""
        now = int(self._clock())
        return now if len(keys) and self.contains(keys).all() else None

    def kept_since(self, moment: int) -> bool:
        return moment > self._lost and self._clock() - moment < _BELIEVED

    def delete(self, keys: Sequence[bytes]) -> int:
        self._lost = self._clock()
        return self._discard(keys)

    def set_aside(self) -> None:
        self._pool.set_aside()

    def close(self) -> None:
        self._pool.close()

    def _purge_begins(self, identity: bytes) -> None:
        self._lost = self._clock()
        self._purges.add(identity)

    # On a worker.

    def _put(self, headers: Sequence[BlockHeader], payloads: Sequence[memoryview], began: int) -> list[bool]:
        there: list[bool] = self.contains([header.key for header in headers]).tolist()
        rows = [row for row, known in enumerate(there) if not known and not self._purged(headers[row], began)]
        records = [self._signed(headers[row], payloads[row]) for row in rows]
        results = self._write([headers[row].key for row in rows], records) if rows else []
        for row, reason in zip(rows, results, strict=True):
            if reason is None:
                there[row] = True
                self._counters.add(stored=1, written_bytes=len(payloads[row]))
            else:
                self._counters.drop(reason)
        for row, header in enumerate(headers):
            if self._purged(header, began):
                self._discard([header.key])
                self._counters.drop(DropReason.PURGED)
                there[row] = False
        return there

    def _signed(self, header: BlockHeader, payload: memoryview) -> Record:
        body = self._codec.encode(header, payload)
        self._counters.note(self._codec.outcome(header, body))
        return pack(header, body, mac_key=self._mac_key), body

    def _get(
        self, call: "_Call", first: int, headers: Sequence[BlockHeader], targets: Sequence[memoryview]
    ) -> None:
        limit = max(len(out) + len(header.tokens) for header, out in zip(headers, targets, strict=True))
        objects = self._read([header.key for header in headers], limit + _SLACK)
        for row, (header, out, found) in enumerate(zip(headers, targets, objects, strict=True), first):
            reason = found if isinstance(found, DropReason) else self._take(call, header, found, out)
            with call.lock:
                call.results[row] = reason

    def _take(
        self, call: "_Call", header: BlockHeader, record: memoryview, out: memoryview
    ) -> DropReason | None:
        """Prove an object and write its payload to `out`; None: it is served."""
        try:
            found = unpack(record)
            body = record[found.header_bytes : found.header_bytes + found.body_bytes]
            verify(found, body, header, self._mac_key)
            with call.lock:
                if call.over:
                    return DropReason.SLOW
                self._codec.decode(found, body, header, out)
                if self._purged(header, call.began):
                    out[:] = bytes(len(out))
                    return DropReason.PURGED
                call.read_bytes += len(out)
        except BadBlockError as error:
            if (
                error.reason is not DropReason.WRONG_SIZE
            ):  # whoever asks for another size is wrong, not the object
                self._lost = self._clock()
                self._discard([header.key])
            return error.reason
        self.touch([header.key])
        return None

    def _purged(self, header: BlockHeader, began: int) -> bool:
        return self._purges.last(header.identity) > began


class _Call:
    """What the reads of one `get` share. Nothing is copied out once it is over."""

    def __init__(self, began: int) -> None:
        self.began = began
        self.over = False
        self.lock = threading.Lock()
        self.results: dict[int, DropReason | None] = {}  # by row; None: served
        self.read_bytes = 0


def require_secret(key: bytes) -> None:
    """Raises ValueError: it is too short to sign anything with."""
    if len(key) < 16:
        raise ValueError("the MAC key of a shared store has at least 16 bytes")
