"""What is remembered of prefixes, cached or not: a radix tree over hashes of blocks, bounded in blocks."""

from array import array
from collections.abc import Sequence
from heapq import heappop, heappush, heapreplace
from itertools import count

import numpy as np

from cache_core.eviction.policy import Lookup
from cache_core.eviction.short_hash import KEY_BYTES
from cache_core.tokens import common_prefix

_SHORT = 32  # records of a path that are worth keeping apart however alike they are
_ALIKE = 0.1  # difference of two values up to which records are alike; for log2 scores, 7 %


class Record:
    """Consecutive blocks of a prefix that were always used together, and what is known of them.

    `values` belong to the policy. `resident[i]` and `below[i]` belong to shadow cache i: how many of these
    blocks, from the first, it holds, and of how many child records it holds blocks. There are many records,
    so all three take as few bytes as Python allows; leaves share one `below`, of zeros.
    """

    __slots__ = (
        "below",
        "children",
        "dropped",
        "holders",
        "keys",
        "last",
        "parent",
        "queued",
        "resident",
        "serial",
        "start",
        "values",
    )

    def __init__(
        self,
        parent: "Record | None",
        keys: bytes,
        start: int,
        values: "array[float]",
        nothing: tuple[int, ...],
    ) -> None:
        self.parent = (
            parent  # None: the root of a scope. A dropped record keeps it, for those who point to it
        )
        self.keys = keys  # 8 bytes a block
        self.start = start  # blocks above it
        self.children: dict[bytes, Record] | None = None
        self.values = values
        self.serial = 0  # order of creation; breaks ties in heaps
        self.last = 0  # access count of the history when it was last used
        self.resident = array("i", nothing)
        self.below: list[int] | tuple[int, ...] = nothing
        self.holders = 0  # shadows that hold any of its blocks
        self.queued = False  # an entry to forget it exists
        self.dropped = False

    @property
    def num_blocks(self) -> int:
        return len(self.keys) // KEY_BYTES

    @property
    def held(self) -> int:
        """Leading blocks that a shadow cache holds."""
        return max(self.resident, default=0) if self.holders else 0

    @property
    def forgettable(self) -> bool:
        """Whether nothing is below its last block and no shadow cache holds that."""
        return not self.children and self.held < self.num_blocks


class History:
    """Records of at most `limit` blocks, those of the newest path and of shadow caches aside.

    Beyond that the leaf that was used longest ago is forgotten, so what is known of a parent outlives what is
    known of its children. Not locked.
    """

    def __init__(self, limit: int, initial: Sequence[float], shadows: int = 0) -> None:
        self._limit = limit
        self._initial = array("d", initial)
        self._nothing = (0,) * shadows
        self._roots: dict[str, Record] = {}
        self._forgettable: list[tuple[int, int, Record]] = []
        self._serials = count()
        self.blocks = 0
        self.accesses = 0
        self.ghosts = 0  # blocks of the newest path

    def path(self, scope: str, keys: bytes, lookup: Lookup | None = None) -> list[Record]:
        """The records of a path that is used now, from the first block on, ending where it ends.

        Records that it leaves halfway are split, what was not known is added with the initial values. `ghosts`
        says then which blocks of it were known, though not ready when they were looked up.
        """
        self.accesses += 1
        root = self._roots.get(scope)
        if root is None:
            root = self._roots[scope] = Record(None, b"", 0, self._initial, self._nothing)
        path = self._known(root, keys)
        self.ghosts = 0 if lookup is None else _ghosts(path, lookup)
        end = path[-1].start + path[-1].num_blocks if path else 0
        if end * KEY_BYTES < len(keys):
            path.append(self._add(path[-1] if path else root, keys[end * KEY_BYTES :], end))
        if len(path) > _SHORT:
            path = self._coarsened(path)
        for record in path:
            record.last = self.accesses
        return path

    def settle(self, path: list[Record]) -> None:
        """All that had to be noted about the newest path is: forget what is too much."""
        if path:
            self.consider(path[-1])
        while self.blocks > self._limit and self._forgettable:
            last, _, record = self._forgettable[0]
            if record.dropped or not record.forgettable:
                heappop(self._forgettable)
                record.queued = False
            elif record.last != last:
                heapreplace(self._forgettable, (record.last, record.serial, record))
            else:
                heappop(self._forgettable)
                record.queued = False
                self._drop(record)

    def consider(self, record: Record) -> None:
        """Some of `record` may be forgettable now."""
        if record.queued or record.parent is None or not record.forgettable:
            return
        record.queued = True
        heappush(self._forgettable, (record.last, record.serial, record))

    def forget(self, scope: str) -> list[Record]:
        """Drop all records of a scope at once; returns them."""
        root = self._roots.pop(scope, None)
        gone: list[Record] = []
        stack = list((root.children or {}).values()) if root else []
        while stack:
            record = stack.pop()
            stack.extend((record.children or {}).values())
            self.blocks -= record.num_blocks
            record.dropped = True
            gone.append(record)
        return gone

    def _known(self, record: Record, keys: bytes) -> list[Record]:
        path: list[Record] = []
        at, end = 0, len(keys)
        while at < end and record.children:
            child = record.children.get(keys[at : at + KEY_BYTES])
            if child is None:
                break
            if not keys.startswith(child.keys, at):
                child = self._split(child, _shared(child.keys, keys[at : at + len(child.keys)]))
            path.append(child)
            record = child
            at += len(child.keys)
        return path

    def _add(self, parent: Record, keys: bytes, start: int) -> Record:
        record = Record(parent, keys, start, self._initial[:], self._nothing)
        _children(parent)[keys[:KEY_BYTES]] = record
        record.serial = next(self._serials)
        self.blocks += record.num_blocks
        return record

    def _split(self, record: Record, at: int) -> Record:
        """Cut `record` after `at` blocks; returns the upper part. `record` becomes the lower part."""
        parent, cut = record.parent, at * KEY_BYTES
        assert parent is not None, "roots have no blocks"
        upper = Record(parent, record.keys[:cut], record.start, record.values[:], self._nothing)
        upper.last, upper.serial = record.last, next(self._serials)
        _children(parent)[upper.keys[:KEY_BYTES]] = upper
        record.keys, record.start, record.parent = record.keys[cut:], record.start + at, upper
        upper.children = {record.keys[:KEY_BYTES]: record}
        upper.below = [int(held > at) for held in record.resident]
        for i, held in enumerate(record.resident):
            upper.resident[i] = min(held, at)
            record.resident[i] = max(held - at, 0)
        upper.holders = record.holders
        record.holders = sum(map(bool, record.resident))
        self.consider(record)
        return upper

    def _coarsened(self, path: list[Record]) -> list[Record]:
        """Join records of a long path that hardly differ, so that its length stays near the logarithm of its use."""
        kept = [path[0]]
        for record in path[1:]:
            upper = kept[-1]
            alike = upper.values[-1] - record.values[-1] < _ALIKE
            if alike and upper.children and len(upper.children) == 1:
                _join(upper, record)
                kept[-1] = record
            else:
                kept.append(record)
        return kept

    def _drop(self, record: Record) -> None:
        """Forget a record, or what of it no shadow cache holds."""
        kept = record.held
        if kept:
            self.blocks -= record.num_blocks - kept
            record.keys = record.keys[: kept * KEY_BYTES]
            return
        parent = record.parent
        assert parent is not None, "roots are not dropped"
        del _children(parent)[record.keys[:KEY_BYTES]]
        record.dropped = True
        self.blocks -= record.num_blocks
        if not parent.children:
            parent.children, parent.below = None, self._nothing
            if parent.parent is not None:
                self.consider(parent)


def _ghosts(path: Sequence[Record], lookup: Lookup) -> int:
    """Blocks behind the ready ones; what another request used since then was a ghost for that one."""
    return sum(
        max(record.start + record.num_blocks - max(record.start, lookup.ready), 0)
        for record in path
        if record.last <= lookup.accesses
    )


def _join(upper: Record, lower: Record) -> None:
    """Make `lower` all of both."""
    parent = upper.parent
    assert parent is not None, "roots have no blocks"
    for i, held in enumerate(upper.resident):
        whole = held == upper.num_blocks
        lower.resident[i] += held if whole else held - lower.resident[i]
    lower.holders = upper.holders
    lower.values = upper.values
    lower.keys, lower.start, lower.parent = upper.keys + lower.keys, upper.start, parent
    _children(parent)[lower.keys[:KEY_BYTES]] = lower
    upper.dropped, upper.children = True, None


def _children(record: Record) -> dict[bytes, Record]:
    if record.children is None:
        record.children, record.below = {}, list(record.below)
    return record.children


def _shared(a: bytes, b: bytes) -> int:
    """Leading blocks that two series of keys have in common."""
    words = common_prefix(np.frombuffer(a, dtype=np.int32), np.frombuffer(b, dtype=np.int32))
    return words * 4 // KEY_BYTES
