"""Sums over rows by group and class."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gateway.reports.rows.classes import CLASSES
from gateway.reports.rows.facts import Facts

_CLASSES = len(CLASSES)


class Sums:
    """`sums[name]` has shape [groups, classes]. Whole numbers stay exact up to 2^53."""

    def __init__(self) -> None:
        self._sums: dict[str, NDArray[np.float64]] = {}
        self._groups = 0

    def __getitem__(self, name: str) -> NDArray[np.float64]:
        return self._sums.get(name, np.zeros((self._groups, _CLASSES)))

    def add(self, groups: NDArray[np.int64], count: int, facts: Facts) -> None:
        """Rows of one chunk: the group of each, and how many groups there are by now."""
        self._groups = count
        cells = groups * _CLASSES + facts.kind
        for name, values in _values(facts).items():
            counted = _by_cell(cells, values, count * _CLASSES).reshape(count, _CLASSES)
            added = counted.astype(np.float64, copy=False)
            if (known := self._sums.get(name)) is not None:
                added[: len(known)] += known
            self._sums[name] = added


def _by_cell(cells: NDArray[np.int64], values: NDArray[Any] | None, count: int) -> NDArray[Any]:
    """Numbers are summed where they are known, and of what is true or false, rows with True are counted."""
    if values is None:
        return np.bincount(cells, minlength=count)
    if values.dtype == np.bool_:
        return np.bincount(cells[values], minlength=count)
    return np.bincount(cells, _or_zero(values), count)


def _or_zero(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.where(np.isnan(values), 0.0, values)


def _values(facts: Facts) -> Mapping[str, NDArray[Any] | None]:
    """What is summed. None: each row counts as one."""
    consistent, stream = facts.consistent, facts.stream == 1
    reused = np.where(consistent, facts.reused, 0.0)
    tiers = {tier: np.where(consistent, tokens, 0.0) for tier, tokens in facts.tiers.items()}
    in_tiers = np.sum([_or_zero(tokens) for tokens in facts.tiers.values()], axis=0)
    says_tiers = consistent & np.any([~np.isnan(tokens) for tokens in facts.tiers.values()], axis=0)
    with np.errstate(invalid="ignore"):
        whole = np.mod(facts.reused, facts.block) == 0
    all_but_one = facts.reused == facts.prompt - 1
    zero, predicted = consistent & (facts.reused == 0), consistent & (facts.predicted > 0)
    return {
        "requests": None,
        "prompt": facts.prompt,
        "completion": facts.completion,
        "reused": reused,
        "recomputed": np.where(consistent, facts.prompt - facts.reused, 0.0),
        **tiers,
        "in tiers": np.where(says_tiers, in_tiers, 0.0),
        "streams": stream,
        # For the invariants:
        "all but one": consistent & all_but_one,
        "zero": zero,
        "zero, predicted": zero & predicted,
        "streams, zero, predicted": zero & predicted & stream,
        "predicted": predicted,
        "streams, predicted": predicted & stream,
        "off tiers": says_tiers & (in_tiers != facts.reused),
        "off block": consistent & (facts.block > 1) & ~whole & ~all_but_one,
        "over matched": consistent & (facts.reused > facts.matched),
    }
