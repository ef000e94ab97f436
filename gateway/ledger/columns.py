"""Columns of many rows as arrays, put together from packs."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gateway.ledger.encoding import STATUSES
from gateway.ledger.packs import PACKED_NUMBERS, PACKED_TEXTS, Coded, StoredPack
from gateway.ledger.window import Where, Window

NUMBERS: tuple[str, ...] = (*PACKED_NUMBERS, "recomputed")
TEXTS: tuple[str, ...] = PACKED_TEXTS

_FILTERS = ("tenant", "model", "engine", "route")


@dataclass(frozen=True, slots=True)
class Columns:
    """One chunk of rows, in the order in which each gateway wrote them. All arrays have shape [rows].

    Attributes:
        numbers: float64; NaN is `not known`. Tokens are whole numbers. `ttft` and `duration` are seconds from the
            arrival (of a precision of 7 digits), `stream` is 0 or 1.
        codes: int32 indices into `labels[name]`; -1 is None.
        labels: the texts behind the codes, the same lists in every chunk of one reading; they grow.
    """

    rows: int
    numbers: dict[str, NDArray[np.float64]]
    codes: dict[str, NDArray[np.int32]]
    labels: dict[str, list[str]]

    def part(self, first: int, most: int) -> "Columns":
        """So many of these rows at the most, from the first one on; a view."""
        rows = slice(first, first + most)
        return Columns(
            min(most, self.rows - first),
            {name: values[rows] for name, values in self.numbers.items()},
            {name: codes[rows] for name, codes in self.codes.items()},
            self.labels,
        )


class ColumnReading:
    """One reading of some columns, pack after pack."""

    def __init__(self, names: Sequence[str], window: Window, where: Where) -> None:
        self._window = window
        self._values = {name: value for name in _FILTERS if (value := getattr(where, name)) is not None}
        self._numbers = [name for name in NUMBERS if name in names]
        self._labels = {name: _Labels() for name in TEXTS if name in names}
        if "reuse_status" in self._labels:
            self._labels["reuse_status"] = _Labels(STATUSES)

    def columns(self, packs: Sequence[StoredPack]) -> Columns:
        """The rows of these packs that are meant."""
        columns = self._all(packs)
        which = self._which(packs)
        if which is None:
            return columns
        return Columns(
            int(which.sum()),
            {name: values[which] for name, values in columns.numbers.items()},
            {name: codes[which] for name, codes in columns.codes.items()},
            columns.labels,
        )

    def _all(self, packs: Sequence[StoredPack]) -> Columns:
        return Columns(
            sum(pack.rows for pack in packs),
            {name: _numbers(packs, name) for name in self._numbers},
            {name: its.codes(packs, name) for name, its in self._labels.items()},
            {name: its.texts for name, its in self._labels.items()},
        )

    def _which(self, packs: Sequence[StoredPack]) -> NDArray[np.bool_] | None:
        """None: all."""
        found: NDArray[np.bool_] = np.ones(sum(pack.rows for pack in packs), np.bool_)
        if self._window != Window():
            arrival = _numbers(packs, "arrival")
            if self._window.since is not None:
                found &= arrival >= self._window.since
            if self._window.until is not None:
                found &= arrival < self._window.until
        for name, value in self._values.items():
            found &= _have(packs, name, value)
        return None if found.all() else found


def _numbers(packs: Sequence[StoredPack], name: str) -> NDArray[np.float64]:
    if name == "recomputed":
        recomputed = _numbers(packs, "prompt") - _numbers(packs, "reused")
        recomputed[_have(packs, "reuse_status", "inconsistent")] = np.nan
        return recomputed
    values, first = np.empty(sum(pack.rows for pack in packs)), 0
    for pack in packs:
        pack.fill(name, values[first : first + pack.rows])
        first += pack.rows
    return values


def _have(packs: Sequence[StoredPack], name: str, value: str) -> NDArray[np.bool_]:
    """Which rows have this text, shape [rows]."""
    values, first = np.empty(sum(pack.rows for pack in packs), np.bool_), 0
    for pack in packs:
        labels, places = pack.coded(name)
        values[first : first + pack.rows] = np.array([label == value for label in labels])[places]
        first += pack.rows
    return values


class _Codes(dict[str | None, int]):
    """The code of each text; a text that is new gets the next one."""

    def __init__(self, texts: list[str]) -> None:
        super().__init__({text: code for code, text in enumerate(texts)})
        self[None] = -1
        self._texts = texts

    def __missing__(self, text: str | None) -> int:
        assert text is not None, "None has a code from the start"
        self[text] = code = len(self._texts)
        self._texts.append(text)
        return code


class _Labels:
    """Texts of one column, over all packs."""

    def __init__(self, texts: Sequence[str] = ()) -> None:
        self.texts = list(texts)
        self._codes = _Codes(self.texts)

    def codes(self, packs: Sequence[StoredPack], name: str) -> NDArray[np.int32]:
        """Places in `texts`, -1 for None, shape [rows]."""
        values, first = np.empty(sum(pack.rows for pack in packs), np.int32), 0
        for pack in packs:
            values[first : first + pack.rows] = self._renamed(pack.coded(name))
            first += pack.rows
        return values

    def _renamed(self, coded: Coded) -> NDArray[np.int32]:
        labels = coded.labels
        return np.fromiter(map(self._codes.__getitem__, labels), np.int32, len(labels))[coded.places]
