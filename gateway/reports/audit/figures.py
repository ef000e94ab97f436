"""From sums and rows at the finest grouping to the figures of any wider one."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gateway.ledger.encoding import TIERS
from gateway.reports.audit.groups import Key
from gateway.reports.audit.percentiles import Percentiles, percentiles
from gateway.reports.audit.prefill import seconds_per_token
from gateway.reports.audit.report import ClassFigures, GroupFigures
from gateway.reports.audit.sums import Sums
from gateway.reports.audit.taken import Rows
from gateway.reports.rows.classes import CLASSES, CONSISTENT
from gateway.reports.rows.facts import KEYS
from gateway.reports.rows.grouped import grouped

_CLASSES = len(CLASSES)
_SUMMED = ("requests", "prompt", "completion", "reused", "recomputed", "in tiers", *TIERS)


class Wider:
    """Groups of groups: by some columns only. Without any there is one, also where there are no rows."""

    def __init__(self, keys: list[Key], names: tuple[str, ...]) -> None:
        self.names = names
        columns = [KEYS.index(name) for name in names]
        numbers: dict[Key, int] = {} if names else {(): 0}
        places = [numbers.setdefault(tuple(key[column] for column in columns), len(numbers)) for key in keys]
        self.places = np.array(places, np.int64)  # shape [groups]
        self.keys = list(numbers)


@dataclass(frozen=True, slots=True)
class _Times:
    """By cell: a group's number times the number of classes, plus the class."""

    ttft: Mapping[int, Percentiles]
    tpot: Mapping[int, Percentiles]


class Figures:
    """Everything that one window says."""

    def __init__(self, keys: list[Key], sums: Sums, rows: Rows, seconds: float) -> None:
        self._keys = keys
        self._sums = sums
        self._rows = rows
        self._seconds = seconds  # that rates are taken over
        self._rates = self._prefill_rates()

    def of_groups(self, names: tuple[str, ...]) -> list[GroupFigures]:
        """Figures grouped by those columns, in no order."""
        wider, rows = Wider(self._keys, names), self._rows
        cells = wider.places[rows.group] * _CLASSES + rows.kind
        times = _Times(*percentiles(cells, len(wider.keys) * _CLASSES, rows.ttft, rows.tpot))
        members = _members(wider)
        return [self._group(wider, place, members[place], times) for place in range(len(wider.keys))]

    def _prefill_rates(self) -> NDArray[np.float64]:
        """Seconds a computed token for each group, from the streams of its engine and model; NaN: not known."""
        wider, rows = Wider(self._keys, ("model", "engine")), self._rows
        known = ~(np.isnan(rows.ttft) | np.isnan(rows.computed))
        places, computed, ttft = wider.places[rows.group[known]], rows.computed[known], rows.ttft[known]
        order, ends = grouped(places, len(wider.keys))
        parts = np.split(order, ends[:-1]) if len(ends) else []
        rates = [seconds_per_token(computed[part], ttft[part]) for part in parts]
        return np.array([np.nan if rate is None else rate for rate in rates], np.float64)[wider.places]

    def _group(self, wider: Wider, place: int, members: NDArray[np.int64], times: _Times) -> GroupFigures:
        sums = {name: self._sums[name][members].sum(axis=0) for name in _SUMMED}
        reused, recomputed, in_tiers = (
            int(sums[name][list(CONSISTENT)].sum()) for name in ("reused", "recomputed", "in tiers")
        )
        tokens, rates = self._sums["reused"][members].sum(axis=1), self._rates[members]
        estimated = ~np.isnan(rates)
        return GroupFigures(
            key=dict(zip(wider.names, wider.keys[place], strict=True)),
            requests=int(sums["requests"].sum()),
            classes={
                name: _class(sums, kind, place * _CLASSES + kind, times) for kind, name in enumerate(CLASSES)
            },
            reused=reused,
            recomputed=recomputed,
            reuse_rate=reused / (reused + recomputed) if reused + recomputed else None,
            reused_per_s=reused / self._seconds if self._seconds else None,
            recomputed_per_s=recomputed / self._seconds if self._seconds else None,
            tiers={tier: int(total) for tier in TIERS if (total := sums[tier].sum())},
            untold_tier=reused - in_tiers,
            prefill_saved_s=float((tokens * rates)[estimated].sum()) if estimated.any() else None,
            estimated_tokens=int(tokens[estimated].sum()),
        )


def _members(wider: Wider) -> list[NDArray[np.int64]]:
    """The groups of each wider group."""
    order, ends = grouped(wider.places, len(wider.keys))
    return np.split(order, ends[:-1])


def _class(sums: Mapping[str, NDArray[np.float64]], kind: int, cell: int, times: _Times) -> ClassFigures:
    return ClassFigures(
        requests=int(sums["requests"][kind]),
        prompt=int(sums["prompt"][kind]),
        reused=int(sums["reused"][kind]),
        recomputed=int(sums["recomputed"][kind]),
        completion=int(sums["completion"][kind]),
        ttft=times.ttft.get(cell),
        tpot=times.tpot.get(cell),
    )
