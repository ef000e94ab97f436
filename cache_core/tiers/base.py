"""What every tier outside the device does."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cache_core.block_header import KEY_BYTES, BlockHeader
from cache_core.drop_reason import DropReason
from cache_core.metrics import CacheObserver, NullObserver, TierName
from cache_core.transfer.job import Leavable

Mask: TypeAlias = NDArray[np.bool_]
# One writable, contiguous buffer a block; a uint8 array [n, block bytes] is a sequence of such rows.
BlockBytes: TypeAlias = Sequence[memoryview] | NDArray[np.uint8]


GoesOn: TypeAlias = Callable[[], bool]
CallKind: TypeAlias = Literal["read", "write"]  # questions are reads


def for_ever() -> bool:
    """Nothing ends the work but its own end."""
    return True


@dataclass(frozen=True, slots=True)
class Watermarks:
    """Shares of a tier that are in use: sweeping starts above `start` and ends at `stop`."""

    start: float = 0.85
    stop: float = 0.70

    def __post_init__(self) -> None:
        if not 0 <= self.stop <= self.start <= 1:
            raise ValueError(f"watermarks are shares, the lower one no higher: {self.start}, {self.stop}")


FULL = Watermarks(1.0, 1.0)  # no more than the tier's size


@dataclass(frozen=True, slots=True)
class TierStats:
    """What a tier holds now, then counts since the start."""

    blocks: int | None  # None: a shared tier does not know
    used_bytes: int | None
    capacity_bytes: int
    hits: int  # blocks served
    misses: int  # blocks asked for that were not there; drops are not in it
    stored: int
    evicted: int | None  # blocks
    read_bytes: int  # payload
    written_bytes: int  # payload, before any coding
    drops: Mapping[DropReason, int]
    quantized: int = 0  # blocks written with a loss, within the bound
    kept_exact: int = 0  # blocks written without one, since it would have been over the bound
    compacted: int = 0  # blocks that were moved to lie together


class Tier(ABC):
    """Holds block bytes under opaque headers. Every method may be called from any thread.

    A block that cannot be stored or is not right on its way back is a counted drop, never an exception and
    never wrong bytes.
    """

    @abstractmethod
    def put(self, headers: Sequence[BlockHeader], blocks: BlockBytes) -> Mask:
        """Store `blocks[i]` under `headers[i]`; says which are there now. What is there is not written again.

        The buffers may be reused when it returns.
        """

    @abstractmethod
    def get(self, headers: Sequence[BlockHeader], out: BlockBytes, timeout: float | None = None) -> Mask:
        """Read the block of `headers[i]` into `out[i]`, checked; says which were served.

        Rows that were not are undefined. After `timeout` seconds what is still on its way counts as slow,
        and is not written any more when this returns.
        """

    @abstractmethod
    def contains(self, keys: Sequence[bytes]) -> Mask:
        """Which keys (BlockHeader.key) `get` would look for. Reads no block and promises nothing."""

    def ask(self, keys: Sequence[bytes], within: float | None) -> Mask:
        """As `contains`, for who has only so many seconds. None of them, if a tier that is watched takes longer."""
        return self.contains(keys)

    def stamp(self, keys: Sequence[bytes]) -> int | None:
        """A moment of the tier's own clock such that `kept_since` says whether these are still there.

        None: some of them is not there now, or the tier cannot tell.
        """
        return None

    def kept_since(self, moment: int) -> bool:
        """Whether the tier certainly has what it gave that `stamp`. Takes no lock."""
        return False

    def evicted_lately(self, keys: Sequence[bytes]) -> Mask:
        """Which of these a bigger tier would still have; none where a tier does not remember."""
        return np.zeros(len(keys), dtype=np.bool_)

    @abstractmethod
    def delete(self, keys: Sequence[bytes]) -> int:
        """Forget these blocks; says how many there were."""

    @abstractmethod
    def touch(self, keys: Sequence[bytes]) -> None:
        """These blocks are in use, though they were not read here: a child of theirs was, or a warmer copy."""

    def note_purge(self, identity: bytes) -> None:  # noqa: B027 - most keep nothing over a crash, or are shared
        """A purge of this identity comes, though maybe not soon: should the process end before, the next start does it.

        Called on any thread, and does not wait for what else the tier is doing.
        """

    @abstractmethod
    def purge(self, identity: bytes) -> int:
        """Forget an identity (digest [32]) at once and for good; says how many blocks were reachable.

        When it returns no block stored before is served again, nor are its bytes in any file.

        Raises:
            PurgeFailedError: some bytes could not be erased.
        """

    def clear(self) -> int:
        """Forget every block; says how many. A tier that others share forgets none: they are not this user's."""
        return 0

    @abstractmethod
    def clean(self, goes_on: GoesOn = for_ever, marks: Watermarks = FULL) -> int:
        """Give room back that dead blocks take, for idle time; says how many bytes.

        A tier that is fuller than `marks.start` afterwards lets go of what was used longest ago, down to `marks.stop`:
        so there is room before it is needed. `goes_on` is asked before each piece of the work: False ends it.
        """

    def run(self, kind: CallKind, work: Callable[[], None], blocks: int) -> Leavable | None:
        """Do `work`, which calls `get` or `put` for so many blocks. None: it is done, or not begun at all.

        Here and now; a tier that is watched does it on a thread that can be left alone with it.
        """
        work()
        return None

    def away(self, kind: CallKind) -> bool:
        """Whether the tier hangs so much that it is neither asked nor read, or that nothing is written to it."""
        return False

    def probe(self) -> None:
        """Touch what the tier lies on, past whatever is kept in memory. For a tier that was away; may hang.

        Raises:
            Exception: it does not work.
        """
        self.contains([bytes(KEY_BYTES)])

    def set_aside(self) -> None:  # noqa: B027 - most have none
        """A call hangs: threads of the tier that hang with it must not be waited for by the next ones."""

    @abstractmethod
    def stats(self) -> TierStats:
        """Figures as of now."""

    @abstractmethod
    def close(self) -> None:
        """Write down what there is and let go of it. The tier cannot be used any more."""


class TierCounters:
    """What happened since the start, from any thread. Drops are told to an observer, too."""

    def __init__(self, tier: TierName, observer: CacheObserver | None = None) -> None:
        self._tier: TierName = tier
        self._observer = observer or NullObserver()
        self._lock = Lock()
        self._counts: Counter[str] = Counter()
        self._drops: Counter[DropReason] = Counter()

    def add(self, **counts: int) -> None:
        """Add to counts by their name in TierStats."""
        with self._lock:
            self._counts.update(counts)

    def note(self, outcome: str | None) -> None:
        """One block came out like that, by its name in TierStats; None: nothing to count."""
        if outcome is not None:
            self.add(**{outcome: 1})
            self._observer.coded(self._tier, outcome)

    def drop(self, reason: DropReason, blocks: int = 1) -> None:
        """That many blocks were not stored or not served."""
        if not blocks:
            return
        with self._lock:
            self._drops[reason] += blocks
        self._observer.dropped(self._tier, reason, blocks)

    def snapshot(self, blocks: int | None, used: int | None, capacity: int, evicts: bool = True) -> TierStats:
        """These counts together with what the tier holds."""
        with self._lock:
            counts = self._counts
            return TierStats(
                blocks=blocks,
                used_bytes=used,
                capacity_bytes=capacity,
                hits=counts["hits"],
                misses=counts["misses"],
                stored=counts["stored"],
                evicted=counts["evicted"] if evicts else None,
                read_bytes=counts["read_bytes"],
                written_bytes=counts["written_bytes"],
                drops=dict(self._drops),
                quantized=counts["quantized"],
                kept_exact=counts["kept_exact"],
                compacted=counts["compacted"],
            )


def buffers_of(blocks: BlockBytes) -> list[memoryview]:
    """Each block as flat bytes, without a copy."""
    return [memoryview(block).cast("B") for block in blocks]
