"""How many rows of the host tier each scope holds, and which go first of those over their share."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.intp]

_NOTHING: Rows = np.empty(0, dtype=np.intp)


class Holders:
    """The same rule as on the device: whoever holds more than its share makes room before any other does.

    Nothing is reserved: alone, or as long as nobody is over, the order is that of use. A scope is told by its
    identity. Not locked.

    Args:
        share: rows that one may hold before it makes room for the others.
    """

    def __init__(self, num_rows: int, share: int) -> None:
        self._share = share
        self._numbers: dict[bytes, int] = {}  # of those that hold a row
        self._free: list[int] = []
        self._names: list[bytes] = []  # by number
        self._held = np.zeros(0, dtype=np.int64)  # rows, by number
        self._by_row = np.zeros(num_rows, dtype=np.int32)  # the number of whoever holds it

    def add(self, identity: bytes, row: int) -> None:
        """It holds this row now."""
        number = self._numbers.get(identity)
        if number is None:
            number = self._numbers[identity] = self._new(identity)
        self._by_row[row] = number
        self._held[number] += 1

    def remove(self, row: int) -> None:
        """Nobody holds this row any more."""
        number = int(self._by_row[row])
        self._held[number] -= 1
        if not self._held[number]:
            del self._numbers[self._names[number]]
            self._free.append(number)

    def move(self, sources: NDArray[np.int32], targets: NDArray[np.int32]) -> None:
        """Whoever holds one of these sources holds the target in its place."""
        self._by_row[targets] = self._by_row[sources]

    def first_of(self, rows: Rows, used: NDArray[np.int64], n: int) -> Rows:
        """Up to `n` of these rows, of scopes over their share and of each as many as it is over; oldest first.

        `used`: their last uses.
        """
        if not self._somebody_is_over():
            return _NOTHING
        excess = np.maximum(self._held - self._share, 0)
        found = [_NOTHING]
        while n:
            of_over = excess[self._by_row[rows]] > 0
            rows, used = rows[of_over], used[of_over]
            if not len(rows):
                break
            places = lowest(used, n)
            some = rows[places]
            going = some[_ranks(self._by_row[some]) < excess[self._by_row[some]]]
            excess -= np.bincount(self._by_row[going], minlength=len(excess))
            found.append(going)
            n -= len(going)
            rows, used = np.delete(rows, places), np.delete(used, places)
        return np.concatenate(found)

    def left_to(self, identity: bytes | None, rows: Rows) -> Rows:
        """Those of these rows that may go though no scope is over its share with them; `identity` wants the room.

        Rows of a scope over its share may be held for now, because a slow tier still reads them. Then it takes from
        itself alone, and where nobody asks (None: for later) the others wait for it.
        """
        if not self._somebody_is_over():
            return rows
        number = None if identity is None else self._numbers.get(identity)
        if identity is not None and (number is None or self._held[number] <= self._share):
            return rows
        own: Rows = _NOTHING if number is None else rows[self._by_row[rows] == number]
        return own

    def fits(self, identities: Sequence[bytes | None], rows: NDArray[np.int32]) -> bool:
        """Whether exactly these rows are held, and each by its identity in `identities`."""
        names = [self._names[number] for number in self._by_row[rows].tolist()]
        counts = np.bincount(self._by_row[rows], minlength=len(self._held))
        return names == [identities[row] for row in rows.tolist()] and bool((counts == self._held).all())

    def _somebody_is_over(self) -> bool:
        return len(self._numbers) > 1 and bool((self._held > self._share).any())

    def _new(self, identity: bytes) -> int:
        if self._free:
            number = self._free.pop()
            self._names[number] = identity
            return number
        self._names.append(identity)
        if len(self._names) > len(self._held):
            self._held = np.concatenate([self._held, np.zeros(len(self._held) + 8, dtype=np.int64)])
        return len(self._names) - 1


def lowest(values: NDArray[np.int64], n: int) -> Rows:
    """Places of the `n` lowest values, in their order."""
    places: Rows = np.arange(len(values)) if len(values) <= n else np.argpartition(values, n - 1)[:n]
    ordered: Rows = places[np.argsort(values[places])]
    return ordered


def _ranks(numbers: NDArray[np.int32]) -> Rows:
    """How often each number stands before its place."""
    order = np.argsort(numbers, kind="stable")
    ordered = numbers[order]
    starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
    ranks = np.empty(len(numbers), dtype=np.intp)
    ranks[order] = np.arange(len(numbers)) - np.repeat(starts, np.diff(np.append(starts, len(numbers))))
    return ranks
