"""The free blocks of one pool as runs (extents) that coalesce, found by place or by length."""

from bisect import bisect_left, insort
from collections import OrderedDict
from itertools import islice


class FreeExtents:
    """Disjoint, never adjacent runs of free blocks.

    Every operation touches only the runs it changes. Lengths are looked up in a sorted list of *distinct*
    lengths, of which there are at most sqrt(2 x blocks), since together they are no longer than the pool.
    """

    def __init__(self, start: int, length: int) -> None:
        self._length_at: dict[int, int] = {}  # first block -> blocks in the run
        self._start_of_end: dict[int, int] = {}  # one past the last block -> first block
        # In the order they came, so that runs are deterministic. A plain dict would walk over all that are gone to
        # find its first one, which made taking n scattered blocks cost n squared.
        self._starts_by_length: dict[int, OrderedDict[int, None]] = {}
        self._lengths: list[int] = []  # sorted, distinct
        if length:
            self._insert(start, length)

    def largest(self) -> int:
        """Blocks in the longest run; 0 when nothing is free."""
        return self._lengths[-1] if self._lengths else 0

    def runs(self) -> list[tuple[int, int]]:
        """All runs as (first block, blocks), in block order."""
        return sorted(self._length_at.items())

    def length_at(self, start: int) -> int:
        """Blocks in the run that begins exactly at `start`; 0: none does."""
        return self._length_at.get(start, 0)

    def length_before(self, end: int) -> int:
        """Blocks in the run whose last one is `end` - 1; 0: none is."""
        start = self._start_of_end.get(end)
        return 0 if start is None else end - start

    def shortest(self, least: int, limit: int) -> list[tuple[int, int]]:
        """Up to `limit` of the shortest runs of at least `least` blocks, as (first block, blocks).

        Shorter ones first, of equal ones the lowest first, as far as `limit` of them know.
        """
        found: list[tuple[int, int]] = []
        for length in islice(self._lengths, bisect_left(self._lengths, least), None):
            starts = islice(self._starts_by_length[length], limit - len(found))
            found.extend((start, length) for start in sorted(starts))
            if len(found) >= limit:
                break
        return found

    def take_at(self, start: int, limit: int) -> int:
        """Take up to `limit` blocks from the run that begins exactly at `start`; says how many it took."""
        length = self._length_at.get(start, 0)
        if length == 0:
            return 0
        taken = min(length, limit)
        self._take_front(start, length, taken)
        return taken

    def take_best(self, limit: int) -> tuple[int, int]:
        """Take from the shortest run that holds `limit`, or the longest one whole: (first block, taken)."""
        place = bisect_left(self._lengths, limit)
        length = self._lengths[place] if place < len(self._lengths) else self._lengths[-1]
        start = next(iter(self._starts_by_length[length]))
        taken = min(length, limit)
        self._take_front(start, length, taken)
        return start, taken

    def give(self, start: int, length: int) -> None:
        """Put a run back and join it with the runs it touches."""
        before = self._start_of_end.get(start)
        behind = self._length_at.get(start + length)
        if before is not None:
            if behind is not None:
                length += self._remove(start + length)
            self._become(before, start - before, before, start - before + length)
        elif behind is not None:
            self._become(start + length, behind, start, length + behind)
        else:
            self._insert(start, length)

    def _take_front(self, start: int, length: int, taken: int) -> None:
        if length > taken:
            self._become(start, length, start + taken, length - taken)
        else:
            self._remove(start)

    def _become(self, old: int, old_length: int, start: int, length: int) -> None:
        """The run at `old` grows or shrinks at one end."""
        starts = self._starts_by_length[old_length]
        if len(starts) > 1 or length in self._starts_by_length:
            self._remove(old)
            self._insert(start, length)
            return
        # The only run of its length becomes the only one of another length.
        self._relength(old_length, length)
        del self._starts_by_length[old_length], starts[old], self._length_at[old]
        starts[start] = None
        self._starts_by_length[length] = starts
        self._length_at[start] = length
        if start == old:
            del self._start_of_end[old + old_length]
        self._start_of_end[start + length] = start

    def _relength(self, old: int, new: int) -> None:
        """`new` takes the place of `old` among the lengths; where they stay in order, at the same place."""
        lengths = self._lengths
        place = len(lengths) - 1 if lengths[-1] == old else bisect_left(lengths, old)
        if (not place or lengths[place - 1] < new) and (lengths[-1] == old or lengths[place + 1] > new):
            lengths[place] = new
        else:
            del lengths[place]
            insort(lengths, new)

    def _insert(self, start: int, length: int) -> None:
        self._length_at[start] = length
        self._start_of_end[start + length] = start
        starts = self._starts_by_length.get(length)
        if starts is None:
            self._starts_by_length[length] = OrderedDict({start: None})
            insort(self._lengths, length)
        else:
            starts[start] = None

    def _remove(self, start: int) -> int:
        length = self._length_at.pop(start)
        del self._start_of_end[start + length]
        starts = self._starts_by_length[length]
        del starts[start]
        if not starts:
            del self._starts_by_length[length]
            del self._lengths[bisect_left(self._lengths, length)]
        return length
