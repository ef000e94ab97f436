"""Numbers for combinations of texts, the same in every chunk."""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from gateway.ledger import Columns

Key: TypeAlias = tuple[str | None, ...]  # one text a column


_TABLE = 1 << 18  # combinations that are looked up in a table instead of sorted


class GroupIndex:
    """Numbers the combinations that occur; which gets which number depends on how rows are cut into chunks."""

    def __init__(self, columns: tuple[str, ...]) -> None:
        self._columns = columns
        self._places: dict[Key, int] = {}

    @property
    def keys(self) -> list[Key]:
        """The combinations by number."""
        return list(self._places)

    def places(self, chunk: Columns) -> NDArray[np.int64]:
        """The number of each row's combination."""
        mixed, bound = np.zeros(chunk.rows, np.int64), 1
        for name in self._columns:
            codes = chunk.codes[name].astype(np.int64) + 1
            many = int(codes.max(initial=0)) + 1
            if bound * many > _TABLE:  # numbered anew, so that the product never overflows
                mixed = np.unique(mixed, return_inverse=True)[1]
                bound = int(mixed.max(initial=0)) + 1
            mixed, bound = mixed * many + codes, bound * many
        first, inverse = _first_rows(mixed, bound)
        numbers = [self._place(chunk, int(row)) for row in first]
        return np.array(numbers, np.int64)[inverse] if numbers else mixed

    def _place(self, chunk: Columns, row: int) -> int:
        key = tuple(_text(chunk, name, row) for name in self._columns)
        return self._places.setdefault(key, len(self._places))


def _text(chunk: Columns, name: str, row: int) -> str | None:
    code = int(chunk.codes[name][row])
    return None if code < 0 else chunk.labels[name][code]


def _first_rows(values: NDArray[np.int64], bound: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """A row of each value that occurs, and for each row the place of its value among them. Values are under `bound`."""
    if bound > _TABLE:
        _, first, inverse = np.unique(values, return_index=True, return_inverse=True)
        return first, inverse
    row = np.full(bound, -1, np.int64)
    row[values] = np.arange(len(values))
    present = row >= 0
    return row[present], (np.cumsum(present) - 1)[values]
