"""What is kept of the ledger's rows while they pass: sums, bins of time, and the few numbers percentiles need."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gateway.reports.audit.sums import Sums
from gateway.reports.audit.time_bins import TimeBins
from gateway.reports.rows.facts import Facts

_Part = tuple[
    NDArray[np.int32], NDArray[np.int8], NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]
]


@dataclass(frozen=True, slots=True)
class Rows:
    """Arrays of shape [rows], 17 bytes a row in all. NaN is `not known`."""

    group: NDArray[np.int32]
    kind: NDArray[np.int8]  # a place in CLASSES
    ttft: NDArray[np.float32]  # seconds
    tpot: NDArray[np.float32]  # seconds
    computed: NDArray[np.float32]  # prompt tokens, where consistent


class Taken:
    """Takes chunks; `rows` gives them up."""

    def __init__(self) -> None:
        self.sums = Sums()
        self.bins = TimeBins()
        self._first, self._last = np.inf, -np.inf
        self._parts: list[_Part] = []

    @property
    def span(self) -> float:
        """Seconds from the first arrival to the last end."""
        return max(0.0, float(self._last - self._first))

    def add(self, facts: Facts, groups: NDArray[np.int64], count: int) -> None:
        """One chunk: the group of each row, and how many groups there are by now."""
        if not len(groups):
            return
        self.sums.add(groups, count, facts)
        consistent = facts.consistent
        computed = facts.prompt - facts.reused
        self.bins.add(facts.arrival[consistent], facts.reused[consistent], computed[consistent])
        self._first = min(self._first, float(facts.arrival.min()))
        self._last = max(self._last, float(facts.end.max()))
        self._parts.append(
            (
                groups.astype(np.int32),
                facts.kind,
                facts.ttft.astype(np.float32),
                facts.tpot.astype(np.float32),
                np.where(consistent, computed, np.nan).astype(np.float32),
            )
        )

    def rows(self) -> Rows:
        """All rows in one piece. The parts are gone then."""
        none = np.zeros(0, np.float32)
        parts = self._parts or [(np.zeros(0, np.int32), np.zeros(0, np.int8), none, none, none)]
        self._parts = []
        return Rows(*(np.concatenate(column) for column in zip(*parts, strict=True)))
