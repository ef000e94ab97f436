"""A cache without blocks: which prefixes a policy would hold, and what it would hit."""

from collections.abc import Sequence
from heapq import heapify, heappop, heappush, heapreplace

from cache_core.eviction.history import History, Record

_TIDY_FROM = 1024


class ShadowCache:
    """`capacity` blocks filled by value `index` of the records, leaf-first, one request at a time.

    Work for a request is linear in the records of its path, not in its blocks.
    """

    def __init__(self, capacity: int, index: int, history: History) -> None:
        self._capacity = capacity
        self._index = index
        self._history = history
        self._leaves: list[tuple[float, int, Record]] = []  # keys may be older than the records' values
        self._tidy_at = _TIDY_FROM
        self.used = 0

    def request(self, path: Sequence[Record]) -> int:
        """Blocks of `path` this cache would have hit; it holds as much of the path as fits afterwards."""
        hits = self._hits(path)
        last = self._hold(path)
        self._shrink(self._history.accesses)
        if last is not None and not last.below[self._index]:
            self._push(last)
        return hits

    def forget(self, record: Record) -> None:
        """`record` and all below it are gone."""
        self.used -= record.resident[self._index]

    def _hits(self, path: Sequence[Record]) -> int:
        hits = 0
        for record in path:
            held = record.resident[self._index]
            hits += held
            if held < record.num_blocks:
                break
        return hits

    def _hold(self, path: Sequence[Record]) -> Record | None:
        i, left = self._index, self._capacity
        above: Record | None = None
        for record in path:
            if left <= 0:
                break
            held = record.resident[i]
            wanted = min(record.num_blocks, left)
            if wanted > held:
                if not held:
                    record.holders += 1
                    if above is not None:
                        _count_below(above, i, 1)
                record.resident[i] = wanted
                self.used += wanted - held
            left -= wanted
            above = record
        return above

    def _shrink(self, now: int) -> None:
        i, leaves = self._index, self._leaves
        while self.used > self._capacity:
            seen, _, record = leaves[0]
            held = record.resident[i]
            if record.dropped or not held or record.below[i] or record.last == now:
                heappop(leaves)  # whoever makes it a leaf again queues it again
                continue
            score = record.values[i]
            if score != seen:
                heapreplace(leaves, (score, record.serial, record))
                continue
            gone = min(held, self.used - self._capacity)
            self.used -= gone
            record.resident[i] = held - gone
            if gone == held:
                heappop(leaves)
                self._emptied(record, now)
            self._history.consider(record)

    def _emptied(self, record: Record, now: int) -> None:
        record.holders -= 1
        above = record.parent
        if above is not None and above.parent is not None:
            _count_below(above, self._index, -1)
            if not above.below[self._index] and above.last != now:
                self._push(above)

    def _push(self, record: Record) -> None:
        heappush(self._leaves, (record.values[self._index], record.serial, record))
        if len(self._leaves) > self._tidy_at:
            self._tidy()

    def _tidy(self) -> None:
        i = self._index
        alive = {
            id(record): record
            for _, _, record in self._leaves
            if record.resident[i] and not record.below[i] and not record.dropped
        }
        self._leaves = [(record.values[i], record.serial, record) for record in alive.values()]
        heapify(self._leaves)
        self._tidy_at = max(_TIDY_FROM, 2 * len(self._leaves))


def _count_below(record: Record, index: int, change: int) -> None:
    assert isinstance(record.below, list), "a record with children counts for itself"
    record.below[index] += change
